package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/gen/tenure/v1/tenurev1connect"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/server"
	"github.com/tenure-go/tenure/store/memory"
)

// start serves o on a real socket, over HTTP/1.1 and HTTP/2.
func start(t testing.TB, o server.Options) string {
	t.Helper()
	h, err := server.Handler(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

func everything() (server.Options, *memory.Store, *memory.Operations) {
	leases, operations := memory.New(memory.Options{}), memory.NewOperations(memory.Options{})
	return server.Options{Authority: leases.Authority(), Leases: leases, Holds: memory.NewHolds(memory.Options{}), Operations: operations}, leases, operations
}

// post sends JSON as curl would.
func post(t testing.TB, url, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	var reply map[string]any
	if err := json.Unmarshal(text, &reply); err != nil {
		t.Fatalf("%d: %s: %v", resp.StatusCode, text, err)
	}
	return resp.StatusCode, reply
}

// Tokens are strings in JSON, and what is refused says so in the words of the contract.
func TestJSON(t *testing.T) {
	t.Parallel()
	o, _, _ := everything()
	base := start(t, o) + "/tenure.v1.LeaseService/"
	session, first, second := lease.NewID(), lease.NewID(), lease.NewID()
	if code, reply := post(t, base+"OpenSession", fmt.Sprintf(`{"id": %q, "owner": "curl", "ttl": "30s"}`, session)); code != 200 || reply["remaining"] != "30s" {
		t.Fatalf("opening: %d %v", code, reply)
	}
	code, reply := post(t, base+"Acquire", fmt.Sprintf(`{"session": %q, "id": %q, "names": ["n"]}`, session, first))
	if code != 200 {
		t.Fatalf("acquiring: %d %v", code, reply)
	}
	claim := reply["grants"].([]any)[0].(map[string]any)["claim"].(map[string]any)
	if claim["token"] != "1" || claim["authority"] != o.Authority.String() {
		t.Errorf("the claim is %v", claim)
	}
	code, reply = post(t, base+"Acquire", fmt.Sprintf(`{"session": %q, "id": %q, "names": ["n"]}`, session, second))
	if code != http.StatusConflict || reply["code"] != "aborted" || !strings.Contains(fmt.Sprint(reply["message"]), `"n" is held by "curl"`) {
		t.Errorf("what is held: %d %v", code, reply)
	}
}

// What is no request is refused, and changes nothing.
func TestMalformed(t *testing.T) {
	t.Parallel()
	o, leases, _ := everything()
	base := start(t, o) + "/tenure.v1.LeaseService/"
	for _, body := range []string{``, `{`, `[]`, `{"id": 5}`, `{"id": "no"}`, `{"nobody": "knows"}`, `{"ttl": "ages"}`, `{"ttl": "-1s", "id": "01936f3e-8a2b-7c4d-9e0f-123456789abc"}`, `{"ttl": "300000000000s", "id": "01936f3e-8a2b-7c4d-9e0f-123456789abc"}`,
		strings.Repeat(`{"id":`, 10_000), `{"owner": "` + strings.Repeat("x", 300) + `", "id": "01936f3e-8a2b-7c4d-9e0f-123456789abc", "ttl": "1s"}`} {
		if code, reply := post(t, base+"OpenSession", body); code != http.StatusBadRequest || reply["code"] != "invalid_argument" {
			t.Errorf("%.40s: %d %v", body, code, reply)
		}
	}
	if infos, err := leases.List(t.Context(), lease.ListRequest{Limit: 10}); err != nil || len(infos) > 0 {
		t.Errorf("the store has %v, %v", infos, err)
	}
	for _, route := range []string{"/", "/tenure.v1.LeaseService/Nothing", "/tenure.v1.LeaseService/../HoldService/GetHold", "/tenure.v1.MarkService/EnterMark"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(base, "/tenure.v1.LeaseService/")+route, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if resp.StatusCode == http.StatusOK {
			t.Errorf("%s: %d", route, resp.StatusCode)
		}
	}
}

// A request of more than the limit is refused before it is read, also where it is compressed.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	o, _, _ := everything()
	url := start(t, o)
	c := tenurev1connect.NewLeaseServiceClient(http.DefaultClient, url, connect.WithSendGzip())
	_, err := c.GetLease(t.Context(), &v1.GetLeaseRequest{Name: strings.Repeat("x", server.MaxRequest+1)})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("%.100v; want resource_exhausted", err)
	}
}

// gRPC's clients are served on the same port, with health and reflection.
func TestGRPC(t *testing.T) {
	t.Parallel()
	o, _, _ := everything()
	url := start(t, o)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	c := tenurev1connect.NewLeaseServiceClient(&http.Client{Transport: transport}, url, connect.WithGRPC())
	m, err := c.GetAuthority(t.Context(), &v1.GetAuthorityRequest{})
	if err != nil || m.GetAuthority() != o.Authority.String() || m.GetHolds().GetStore() == "" || m.GetOperations().GetMaxBody() == 0 {
		t.Errorf("%v, %v", m, err)
	}
	_, err = c.Acquire(t.Context(), &v1.AcquireRequest{})
	var refused *connect.Error
	if !errors.As(err, &refused) || refused.Code() != connect.CodeInvalidArgument || len(refused.Details()) != 1 {
		t.Errorf("%v", err)
	}
	for _, service := range []string{"tenure.v1.LeaseService", "tenure.v1.HoldService", "tenure.v1.OperationService"} {
		code, reply := post(t, url+"/grpc.health.v1.Health/Check", fmt.Sprintf(`{"service": %q}`, service))
		if code != 200 || reply["status"] != "SERVING_STATUS_SERVING" && reply["status"] != "SERVING" {
			t.Errorf("health of %s: %d %v", service, code, reply)
		}
	}
}

// slow is a store whose acquires take as long as a test says.
type slow struct {
	lease.Store
	gate chan struct{}
	in   chan struct{}
}

func (s *slow) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	s.in <- struct{}{}
	select {
	case <-s.gate:
	case <-ctx.Done():
		return nil, &lease.UnavailableError{Op: "acquire", Err: context.Cause(ctx)}
	}
	return s.Store.Acquire(ctx, req)
}

// When there is more than the store keeps up with, calls are told to come again, and renewals go on.
func TestOverload(t *testing.T) {
	t.Parallel()
	o, leases, _ := everything()
	store := &slow{leases, make(chan struct{}), make(chan struct{}, 1000)}
	o.Leases, o.Limits = store, server.Limits{AtOnce: 4}
	c := tenurev1connect.NewLeaseServiceClient(http.DefaultClient, start(t, o))
	session := lease.NewID()
	if _, err := c.OpenSession(t.Context(), &v1.OpenSessionRequest{Id: session.String(), Ttl: durationpb.New(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	codes := map[connect.Code]int{}
	refused := make(chan struct{}, 200)
	for i := range 200 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := c.Acquire(ctx, &v1.AcquireRequest{Session: session.String(), Id: lease.NewID().String(), Names: []string{fmt.Sprint("n", i)}})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				codes[0]++
				return
			}
			codes[connect.CodeOf(err)]++
			refused <- struct{}{}
			var shed *connect.Error
			if !errors.As(err, &shed) || shed.Meta().Get("Retry-After") == "" {
				t.Errorf("%v: no time to come again", err)
			}
		})
	}
	for range 4 {
		<-store.in // all places are taken
	}
	if _, err := c.RenewSession(t.Context(), &v1.RenewSessionRequest{Session: session.String()}); err != nil {
		t.Errorf("a renewal beside all that: %v", err)
	}
	<-refused // there is more than the store keeps up with
	close(store.gate)
	all.Wait()
	if codes[0] < 4 || codes[connect.CodeUnavailable] == 0 || codes[0]+codes[connect.CodeUnavailable] != 200 {
		t.Errorf("%v; want some granted and the rest unavailable", codes)
	}
}

// A wait ends when the operation is decided, when its time is over, and when the server drains: it says how the operation stands.
func TestWait(t *testing.T) {
	t.Parallel()
	o, _, operations := everything()
	draining := make(chan struct{})
	o.Draining = draining
	c := tenurev1connect.NewOperationServiceClient(http.DefaultClient, start(t, o))
	for _, id := range []string{"a", "b"} {
		if _, err := c.SubmitOperation(t.Context(), &v1.SubmitOperationRequest{Id: id, Kind: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	m, err := c.WaitOperation(t.Context(), &v1.WaitOperationRequest{Id: "a", AtMost: durationpb.New(50 * time.Millisecond)})
	if err != nil || m.GetDecided() || m.GetOperation().GetState() != v1.OperationState_OPERATION_STATE_PENDING {
		t.Errorf("a wait that ends: %v, %v", m, err)
	}
	if _, err := operations.Cancel(t.Context(), "a", "no"); err != nil {
		t.Fatal(err)
	}
	m, err = c.WaitOperation(t.Context(), &v1.WaitOperationRequest{Id: "a"})
	if err != nil || !m.GetDecided() || m.GetOperation().GetState() != v1.OperationState_OPERATION_STATE_CANCELLED {
		t.Errorf("what is decided: %v, %v", m, err)
	}
	if _, err = c.WaitOperation(t.Context(), &v1.WaitOperationRequest{Id: "c"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("what nobody knows: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		m, err := c.WaitOperation(t.Context(), &v1.WaitOperationRequest{Id: "b"})
		if err == nil && m.GetDecided() {
			err = errors.New("it is decided")
		}
		done <- err
	}()
	close(draining)
	if err := <-done; err != nil {
		t.Errorf("a wait while the server drains: %v", err)
	}
}

func TestHandlerRefuses(t *testing.T) {
	t.Parallel()
	o, _, _ := everything()
	for _, l := range []server.Limits{{Most: time.Millisecond}, {Most: 2 * time.Hour}, {AtOnce: 1}, {AtOnce: -1}, {Waits: -1}, {Waits: 1_000_000}} {
		o.Limits = l
		if _, err := server.Handler(o); !errors.Is(err, server.ErrInvalid) {
			t.Errorf("%+v: %v; want ErrInvalid", l, err)
		}
	}
}

// bare is a store that does nothing for operators.
type bare struct{ lease.Store }

// What a store cannot do is answered as such, and nothing else is.
func TestUnimplemented(t *testing.T) {
	t.Parallel()
	o, leases, _ := everything()
	o.Leases, o.Operations = bare{leases}, struct{ operation.Store }{o.Operations}
	url := start(t, o)
	for _, route := range []string{"LeaseService/ListLeases", "LeaseService/RevokeLease", "LeaseService/PruneLeases", "LeaseService/RaiseEpoch", "OperationService/ClaimOperations", "OperationService/ExpireAttempts", "OperationService/ListOperations"} {
		if code, reply := post(t, url+"/tenure.v1."+route, "{}"); code != http.StatusNotImplemented || reply["code"] != "unimplemented" {
			t.Errorf("%s: %d %v", route, code, reply)
		}
	}
	if code, _ := post(t, url+"/tenure.v1.LeaseService/GetLease", `{"name": "n"}`); code != 200 {
		t.Errorf("GetLease: %d", code)
	}
}

// The client of an Exchange is told of each call what became of it, and of too many that nothing did.
func TestExchange(t *testing.T) {
	t.Parallel()
	o, leases, _ := everything()
	c := tenurev1connect.NewLeaseServiceClient(http.DefaultClient, start(t, o))
	session := lease.NewID()
	if _, err := leases.Open(t.Context(), lease.OpenRequest{ID: session, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	acquire := func(names ...string) *v1.ExchangeRequest_Call {
		return &v1.ExchangeRequest_Call{Call: &v1.ExchangeRequest_Call_Acquire{Acquire: &v1.AcquireRequest{Session: session.String(), Id: lease.NewID().String(), Names: names}}}
	}
	m, err := c.Exchange(t.Context(), &v1.ExchangeRequest{Calls: []*v1.ExchangeRequest_Call{acquire("a"), acquire(), {}, acquire("b")}})
	if err != nil || len(m.GetAnswers()) != 4 {
		t.Fatalf("%v, %v", m, err)
	}
	for i, fault := range []string{"", "invalid", "invalid", ""} {
		if got := m.GetAnswers()[i].GetFault().GetCode(); got != fault {
			t.Errorf("answer %d: %q; want %q", i, got, fault)
		}
	}
	if _, err := c.Exchange(t.Context(), &v1.ExchangeRequest{Calls: make([]*v1.ExchangeRequest_Call, server.MaxExchange+1)}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("too many: %v", err)
	}
}

// FuzzAcquire: whatever is sent as a lease request is answered, and never with a panic.
func FuzzAcquire(f *testing.F) {
	o, _, _ := everything()
	h, err := server.Handler(o)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"session": "x", "id": "y", "names": [""], "max_hold": "1s"}`), true)
	f.Add([]byte{10, 3, 1, 2, 3}, false)
	f.Fuzz(func(t *testing.T, body []byte, asJSON bool) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tenure.v1.LeaseService/Acquire", bytes.NewReader(body))
		req.Header.Set("Content-Type", map[bool]string{true: "application/json", false: "application/proto"}[asJSON])
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code >= 500 {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
	})
}
