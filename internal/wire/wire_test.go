package wire_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// carried is a value that crosses.
type carried struct {
	name string
	once func(t *rapid.T, change func(proto.Message)) error // sends a value, changed on its way, and says how it differs from what arrives
	desc protoreflect.MessageDescriptor
}

// crosses sends values through put, the bytes of both encodings, and get.
func crosses[T any, M interface {
	comparable
	proto.Message
}](put func(T) M, get func(M) (T, error), fix func(*T)) carried {
	var none M
	desc := none.ProtoReflect().Descriptor()
	all := values(fix)
	return carried{string(desc.Name()), func(t *rapid.T, change func(proto.Message)) error {
		sent := all.Draw(t, "value")
		m := put(sent)
		change(m)
		binary, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		text, err := protojson.Marshal(m)
		if err != nil {
			return err
		}
		for _, read := range []func(proto.Message) error{
			func(to proto.Message) error { return proto.Unmarshal(binary, to) }, func(to proto.Message) error { return protojson.Unmarshal(text, to) },
		} {
			arrived := none.ProtoReflect().New().Interface().(M)
			if err := read(arrived); err != nil {
				return err
			}
			got, err := get(arrived)
			if err != nil {
				return err
			}
			if !reflect.DeepEqual(got, sent) {
				return fmt.Errorf("sent %+v, and %+v arrived", sent, got)
			}
		}
		return nil
	}, desc}
}

// sure is get without an error.
func sure[M, T any](get func(M) T) func(M) (T, error) {
	return func(m M) (T, error) { return get(m), nil }
}

func messages() []carried {
	return []carried{
		crosses(wire.Claim, wire.ParseClaim, nil),
		crosses(wire.PutOpen, wire.GetOpen, nil), crosses(wire.PutRenew, wire.GetRenew, nil), crosses(wire.PutRenewal, wire.GetRenewal, nil),
		crosses(wire.PutAcquire, wire.GetAcquire, nil), crosses(wire.PutGrants, wire.GetGrants, nil), crosses(wire.PutRelease, wire.GetRelease, nil),
		crosses(wire.PutInfo, wire.GetInfo, nil), crosses(wire.PutRevoked, wire.GetRevoked, nil),
		crosses(putAuthority, getAuthority, func(a *authority) { a.Leases.Shared, a.Leases.CoLocated = true, false }), // through a server it is always so
		crosses(wire.PutHoldGuarantees, sure(wire.GetHoldGuarantees), nil), crosses(wire.PutOperationGuarantees, wire.GetOperationGuarantees, nil),
		crosses(wire.PutItem, sure(wire.GetItem), nil), crosses(wire.PutPlace, wire.GetPlace, nil), crosses(wire.PutConfirm, wire.GetConfirm, nil), crosses(wire.PutHold, wire.GetHold, nil),
		crosses(wire.PutHoldList, wire.GetHoldList, func(r *hold.ListRequest) { r.Limit = paged(r.Limit) }),
		crosses(wire.PutRecord, wire.GetRecord, nil), crosses(wire.PutSubmit, wire.GetSubmit, nil), crosses(wire.PutResponse, sure(wire.GetResponse), nil), crosses(wire.PutRef, sure(wire.GetRef), nil),
		crosses(wire.PutClaimRequest, wire.GetClaimRequest, nil), crosses(wire.PutJob, wire.GetJob, nil), crosses(wire.PutCompletion, wire.GetCompletion, nil),
		crosses(wire.PutRenewAttempts, wire.GetRenewAttempts, nil), crosses(wire.PutDue, wire.GetDue, nil), crosses(wire.PutInquiry, wire.GetInquiry, nil),
		crosses(wire.PutOperationList, sure(wire.GetOperationList), func(r *operation.ListRequest) { r.Limit = paged(r.Limit) }),
		crosses(wire.PutOperationPrune, wire.GetOperationPrune, nil), crosses(wire.PutStat, wire.GetStat, nil),
	}
}

type authority struct {
	ID         fence.ID
	Leases     lease.Guarantees
	Holds      hold.Guarantees
	Operations operation.Guarantees
}

func putAuthority(a authority) *v1.GetAuthorityResponse {
	m := wire.PutAuthority(a.ID, a.Leases)
	m.Holds, m.Operations = wire.PutHoldGuarantees(a.Holds), wire.PutOperationGuarantees(a.Operations)
	return m
}

func getAuthority(m *v1.GetAuthorityResponse) (a authority, err error) {
	if a.ID, a.Leases, err = wire.GetAuthority(m); err != nil {
		return a, err
	}
	a.Holds = wire.GetHoldGuarantees(m.GetHolds())
	a.Operations, err = wire.GetOperationGuarantees(m.GetOperations())
	return a, err
}

// paged is the limit of a page: 0 is the default's.
func paged(limit int) int {
	if limit == 0 {
		return 100
	}
	return limit
}

func untouched(proto.Message) {}

// What one side writes the other reads, in both encodings.
func TestEveryMessageCrosses(t *testing.T) {
	t.Parallel()
	for _, c := range messages() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				if err := c.once(t, untouched); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A wire that drops any one field of any message is caught by TestEveryMessageCrosses.
func TestAFieldThatIsDroppedIsNoticed(t *testing.T) {
	t.Parallel()
	for _, c := range messages() {
		for _, field := range fieldsOf(c.desc) {
			if !noticed(c, func(m proto.Message) { drop(m.ProtoReflect(), field) }) {
				t.Errorf("nobody notices that %s of %s is not carried", field, c.name)
			}
		}
	}
}

// noticed reports whether one of some values arrives otherwise than it was sent.
func noticed(c carried, change func(proto.Message)) bool {
	found := rapid.Custom(func(t *rapid.T) bool { return c.once(t, change) != nil })
	for seed := range 100 {
		if found.Example(seed) {
			return true
		}
	}
	return false
}

// fieldsOf is the names of all fields of a message and of those in it.
func fieldsOf(m protoreflect.MessageDescriptor) (all []protoreflect.FullName) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		all = append(all, f.FullName())
		if inner := f.Message(); inner != nil && !strings.HasPrefix(string(inner.FullName()), "google.") {
			all = append(all, fieldsOf(inner)...)
		}
	}
	return all
}

func drop(m protoreflect.Message, field protoreflect.FullName) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.FullName() == field:
			m.Clear(f)
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				drop(v.List().Get(i).Message(), field)
			}
		default:
			drop(v.Message(), field)
		}
		return true
	})
}

// The numbers of the protocol are those of the contracts, and mean the same words.
func TestEnums(t *testing.T) {
	t.Parallel()
	findings := []string{"found", "closed", "past instant", "not observed"}
	kept := []string{"whole", "without bodies", "verdict only"}
	for _, c := range []struct {
		enum protoreflect.EnumDescriptor
		word func(n int) string
	}{
		{v1.End(0).Descriptor(), func(n int) string { return lease.End(n).String() }},
		{v1.Refusal(0).Descriptor(), func(n int) string { return fence.Reason(n).String() }},
		{v1.OperationState(0).Descriptor(), func(n int) string { return operation.State(n).String() }},
		{v1.HoldState(0).Descriptor(), func(n int) string { return hold.State(n).String() }},
		{v1.Step(0).Descriptor(), func(n int) string { return operation.Step(n).String() }},
		{v1.Known(0).Descriptor(), func(n int) string { return operation.Known(n).String() }},
		{v1.Finding(0).Descriptor(), func(n int) string { return word(findings, n, int(operation.NotObserved)) }},
		{v1.Kept(0).Descriptor(), func(n int) string { return word(kept, n, int(operation.VerdictOnly)) }},
	} {
		of := c.enum.Values()
		prefix := strings.TrimSuffix(string(of.Get(0).Name()), "UNSPECIFIED")
		for n := 1; n < of.Len(); n++ {
			v := of.Get(n)
			if want := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix)), "_", " "); int(v.Number()) != n || c.word(n) != want {
				t.Errorf("%s is %d, and the contract's %d is %q", v.Name(), v.Number(), n, c.word(n))
			}
		}
		if beyond := c.word(of.Len()); !strings.Contains(beyond, "(") {
			t.Errorf("the contract's %q is not in %s", beyond, c.enum.Name())
		}
	}
}

// word is one of words by its number, of which last is the last.
func word(words []string, n, last int) string {
	if n < 1 || n > len(words) || n > last {
		return fmt.Sprintf("none (%d)", n)
	}
	return words[n-1]
}

// What no duration, id or instant of the contracts can be is an error that names its field, and is cut to none that can.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for _, d := range []*durationpb.Duration{{Seconds: 1 << 40}, {Seconds: -1 << 40}, {Seconds: 9223372036, Nanos: 854775808}, {Nanos: 1_000_000_000}, {Seconds: 1, Nanos: -1}} {
		if got, err := wire.GetOpen(&v1.OpenSessionRequest{Ttl: d}); !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), "ttl") {
			t.Errorf("%v: %v, %v", d, got.TTL, err)
		}
		if _, err := wire.GetWait(&v1.WaitOperationRequest{AtMost: d}); !errors.Is(err, operation.ErrInvalid) {
			t.Errorf("%v: %v", d, err)
		}
	}
	for _, id := range []string{"x", "00000000-0000-0000-0000-000000000000", "01936F3E-8A2B-7C4D-9E0F-123456789ABC", strings.Repeat("0", 36), "01936f3e-8a2b-7c4d-9e0f-123456789abc\x00"} {
		if _, err := wire.GetRelease(&v1.ReleaseRequest{Id: id}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := wire.ParseClaim(&v1.Claim{Acquisition: id}); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := wire.GetSubmit(&v1.SubmitOperationRequest{Fingerprint: []byte{1}}); !errors.Is(err, operation.ErrInvalid) {
		t.Errorf("a short fingerprint: %v", err)
	}
	if most, err := wire.GetWait(&v1.WaitOperationRequest{AtMost: durationpb.New(time.Hour)}); err != nil || most != 30*time.Second {
		t.Errorf("an hour's wait: %v, %v", most, err)
	}
}
