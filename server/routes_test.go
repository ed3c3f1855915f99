package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tenure-go/tenure/fence"
	_ "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/server"
)

// routes is every call there is, what an empty request is answered with, and whether it changes something. One that is added to the descriptions has no entry, and TestEveryRoute fails until it has.
func routes() map[string]struct {
	code    string // of Connect; "" is success
	changes bool
} {
	type route = struct {
		code    string
		changes bool
	}
	const invalid, missing = "invalid_argument", "not_found"
	return map[string]route{
		"LeaseService/OpenSession": {invalid, true}, "LeaseService/RenewSession": {invalid, true}, "LeaseService/KeepSession": {"stream", true}, "LeaseService/CloseSession": {invalid, true},
		"LeaseService/Acquire": {invalid, true}, "LeaseService/Release": {invalid, true}, "LeaseService/Exchange": {"", true}, "LeaseService/GetLease": {invalid, false},
		"LeaseService/ListLeases": {"", false}, "LeaseService/RevokeLease": {invalid, true}, "LeaseService/PruneLeases": {invalid, true}, "LeaseService/RaiseEpoch": {"", true},
		"LeaseService/GetAuthority": {"", false},
		"MarkService/EnterMark":     {invalid, true}, "MarkService/AdmitMark": {invalid, true}, "MarkService/VerifyClaim": {invalid, false},
		"HoldService/StockItems": {invalid, true}, "HoldService/PlaceHold": {invalid, true}, "HoldService/ExtendHold": {invalid, true}, "HoldService/ConfirmHold": {invalid, true},
		"HoldService/ReleaseHold": {invalid, true}, "HoldService/GetHold": {missing, false}, "HoldService/ListHolds": {"", false}, "HoldService/ListItems": {"", false}, "HoldService/PruneHolds": {invalid, true},
		"OperationService/SubmitOperation": {invalid, true}, "OperationService/GetOperation": {invalid, false}, "OperationService/WaitOperation": {invalid, false}, "OperationService/CancelOperation": {invalid, true},
		"OperationService/RespondOperation": {invalid, true}, "OperationService/ClaimOperations": {invalid, true}, "OperationService/RenewAttempts": {invalid, true}, "OperationService/CompleteAttempts": {"", true},
		"OperationService/ExpireAttempts": {invalid, true}, "OperationService/DueOperations": {invalid, true}, "OperationService/InquiredOperation": {invalid, true}, "OperationService/UndoneOperation": {invalid, true},
		"OperationService/ListOperations": {"", false}, "OperationService/ResolveOperation": {invalid, true}, "OperationService/PruneOperations": {invalid, true}, "OperationService/GetOperationStats": {"", false},
	}
}

// strict is marks that take no claim which is none.
type strict struct{}

func (strict) EnterMark(_ context.Context, _ string, c fence.Claim) error { return c.Check() }
func (strict) AdmitMark(_ context.Context, _ string, c fence.Claim) error { return c.Check() }
func (strict) VerifyClaim(_ context.Context, c fence.Claim) error         { return c.Check() }

// described is every call of the descriptions that are compiled in.
func described() (all []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("tenure.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				all = append(all, f.Services().Get(i).Methods().Get(j))
			}
		}
		return true
	})
	return all
}

// Every call that is described is served, and in the table; nothing else is in the table.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	o, _, _ := everything()
	o.Marks = strict{}
	url := start(t, o)
	table := routes()
	for _, m := range described() {
		route := fmt.Sprintf("%s/%s", m.Parent().Name(), m.Name())
		want, ok := table[route]
		if !ok {
			t.Errorf("%s is in no row of routes()", route)
			continue
		}
		delete(table, route)
		if m.IsStreamingClient() {
			if want.code != "stream" {
				t.Errorf("%s is a stream", route)
			}
			continue
		}
		for _, body := range []string{`{}`, deepest(m.Input(), "-1"), deepest(m.Input(), "2147483647")} { // nothing, and what no contract allows
			code, reply := post(t, url+"/tenure.v1."+route, body)
			got, _ := reply["code"].(string)
			if code >= 500 || code == http.StatusNotFound && got != "not_found" || body == `{}` && got != want.code {
				t.Errorf("%s of %.200s: %d %v; want %q", route, body, code, reply, want.code)
			}
		}
	}
	for route := range table {
		t.Errorf("%s is described nowhere", route)
	}
}

// deepest is a request as JSON in which every number and enum is n, every text is none that an id can be, and every list has one of each.
func deepest(m protoreflect.MessageDescriptor, n string) string {
	fields := map[string]json.RawMessage{}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if f.ContainingOneof() != nil {
			continue
		}
		value := n // of a number
		switch f.Kind() {
		default:
		case protoreflect.StringKind:
			value = `"\u0000` + n + `"`
		case protoreflect.BytesKind:
			value = `"AAAA"`
		case protoreflect.BoolKind:
			value = "true"
		case protoreflect.MessageKind:
			switch f.Message().FullName() {
			case "google.protobuf.Duration":
				value = `"` + n + `s"`
			default:
				value = deepest(f.Message(), n)
			}
		}
		if f.IsList() {
			value = "[" + value + "]"
		}
		fields[f.JSONName()] = json.RawMessage(value)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// What is larger than a request may be is refused everywhere, also where nothing of Tenure is asked for.
func TestEveryHandlerHasALimit(t *testing.T) {
	t.Parallel()
	o, _, _ := everything()
	o.Marks = strict{}
	url := start(t, o)
	body := `{"service": "` + strings.Repeat("x", server.MaxRequest) + `"}`
	paths := []string{"/grpc.health.v1.Health/Check"}
	for _, m := range described() {
		if !m.IsStreamingClient() {
			paths = append(paths, fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()))
		}
	}
	for _, path := range paths {
		if code, reply := post(t, url+path, body); code != http.StatusTooManyRequests || reply["code"] != connect.CodeResourceExhausted.String() {
			t.Errorf("%s: %d %.100v", path, code, reply)
		}
	}
}
