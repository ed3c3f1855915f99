package wire_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// contract is how the errors of a contract cross.
type contract struct {
	fault func(error) *v1.Fault
	call  func(error) error
	back  func(*v1.Fault) error
	kinds []error // that an error can match
}

func contracts() (leases, operations, holds contract) {
	leases = contract{wire.LeaseFault, wire.Error, wire.LeaseError, []error{
		lease.ErrHeld, lease.ErrEnded, lease.ErrUnknown, lease.ErrMismatch, lease.ErrInvalid, lease.ErrUnavailable, fence.ErrInvalid, fence.ErrRefused, fence.ErrForeign, fence.ErrAhead,
	}}
	operations = contract{wire.OperationFault, wire.OperationErrorOf, wire.OperationError, []error{
		operation.ErrInvalid, operation.ErrMismatch, operation.ErrDecided, operation.ErrUndecided, operation.ErrStale, operation.ErrNotFound, operation.ErrUnknown, operation.ErrUnavailable,
	}}
	holds = contract{wire.HoldFault, wire.HoldErrorOf, wire.HoldError, []error{
		hold.ErrInvalid, hold.ErrTaken, hold.ErrLimit, hold.ErrMismatch, hold.ErrActor, hold.ErrOver, hold.ErrNotFound, hold.ErrUnknown, hold.ErrUnavailable,
	}}
	return leases, operations, holds
}

// failing sends errors of one type, each also wrapped as stores wrap them, and says how what arrives differs.
func failing[E any, P interface {
	*E
	error
}](c contract, fix func(*E)) carried {
	all := values(fix)
	return carried{fmt.Sprintf("%T", *new(E)), func(t *rapid.T, change func(proto.Message)) error {
		sent := all.Draw(t, "error")
		err := fmt.Errorf("while asking: %w", P(&sent))
		f := c.fault(err)
		change(f)
		binary, broken := proto.Marshal(f)
		if broken != nil {
			return broken
		}
		arrived := &v1.Fault{}
		if broken := proto.Unmarshal(binary, arrived); broken != nil {
			return broken
		}
		got := c.back(arrived)
		if facts := any(got); !reflect.DeepEqual(facts, any(P(&sent))) {
			return fmt.Errorf("sent %#v, and %#v arrived", sent, facts)
		}
		for _, kind := range c.kinds {
			if errors.Is(got, kind) != errors.Is(err, kind) {
				return fmt.Errorf("%w and %w differ in whether they are %w", got, err, kind)
			}
		}
		if told := wire.FaultOf(c.call(err)); !proto.Equal(told, c.fault(err)) {
			return fmt.Errorf("the call carries %v", told)
		}
		return nil
	}, nil}
}

func faults() []carried {
	l, o, h := contracts()
	return []carried{
		failing[lease.HeldError](l, nil), failing[lease.EndedError](l, nil), failing[lease.UnknownError](l, nil), failing[lease.MismatchError](l, nil), failing[lease.InvalidError](l, nil),
		failing[lease.UnavailableError](l, nil), failing[fence.InvalidError](l, nil), failing[fence.RefusedError](l, nil), failing[fence.ForeignError](l, nil), failing[fence.AheadError](l, nil),
		failing[operation.InvalidError](o, nil), failing[operation.MismatchError](o, nil), failing[operation.StaleError](o, nil), failing[operation.NotFoundError](o, nil), failing[operation.UnknownError](o, nil),
		failing[operation.UnavailableError](o, nil), failing(o, func(e *operation.StateError) { e.Kind = operation.ErrDecided }), failing(o, func(e *operation.StateError) { e.Kind = operation.ErrUndecided }),
		failing[hold.InvalidError](h, nil), failing[hold.TakenError](h, nil), failing[hold.LimitError](h, nil), failing[hold.MismatchError](h, nil), failing[hold.ActorError](h, nil), failing[hold.OverError](h, nil),
		failing[hold.NotFoundError](h, nil), failing[hold.UnknownError](h, nil), failing[hold.UnavailableError](h, nil),
	}
}

// An error that crosses is the same error, with the same facts.
func TestEveryErrorCrosses(t *testing.T) {
	t.Parallel()
	for _, c := range faults() {
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

// A wire that loses any one fact of any fault is caught by TestEveryErrorCrosses; one that loses its code as well.
func TestAFactThatIsLostIsNoticed(t *testing.T) {
	t.Parallel()
	spare := map[protoreflect.FullName]bool{
		"tenure.v1.CallFault.retry_in": true, // of a server that says when to come again, which no store does
	}
	for _, field := range fieldsOf((&v1.Fault{}).ProtoReflect().Descriptor()) {
		caught := false
		for _, c := range faults() {
			caught = caught || noticed(c, func(m proto.Message) { drop(m.ProtoReflect(), field) })
		}
		if caught == spare[field] {
			t.Errorf("%s: noticed %v", field, caught)
		}
	}
}

// Whatever an error of an unknown outcome says of its cause, what crosses is that the outcome is unknown; and "it was certainly not applied" stays that.
func TestACauseIsNotTheAnswer(t *testing.T) {
	t.Parallel()
	l, o, h := contracts()
	for _, c := range []struct {
		contract
		err  error
		kind error
	}{
		{o, &operation.UnknownError{Op: "submit", Err: &operation.InvalidError{Field: "step", Problem: "none"}}, operation.ErrUnknown},
		{o, &operation.UnknownError{Op: "submit", Err: &operation.UnavailableError{Op: "read"}}, operation.ErrUnknown},
		{o, &operation.UnavailableError{Op: "get", Err: &operation.NotFoundError{ID: "x"}}, operation.ErrUnavailable},
		{h, &hold.UnknownError{Op: "place", Err: &hold.InvalidError{Field: "left", Problem: "none"}}, hold.ErrUnknown},
		{h, &hold.UnavailableError{Op: "get", Err: &hold.InvalidError{Field: "left", Problem: "none"}}, hold.ErrUnavailable},
		{l, &lease.UnavailableError{Op: "get", Err: &lease.InvalidError{Field: "left", Problem: "none"}}, lease.ErrUnavailable},
		{l, &lease.UnavailableError{Op: "verify", Err: &fence.InvalidError{What: "id", Problem: "none"}}, lease.ErrUnavailable},
	} {
		got := c.back(wire.FaultOf(c.call(c.err)))
		for _, kind := range c.kinds {
			if errors.Is(got, kind) != (kind == c.kind) { //nolint:errorlint // which of the kinds
				t.Errorf("%#v arrived as %#v, which is %v: %v", c.err, got, kind, errors.Is(got, kind))
			}
		}
	}
}

// A fault that this version does not know, and one whose facts make no sense, are no answer.
func TestAnUnknownFaultIsNoAnswer(t *testing.T) {
	t.Parallel()
	l, o, h := contracts()
	for _, f := range []*v1.Fault{
		nil, {}, {Code: "newer"}, {Code: "newer", Facts: &v1.Fault_Call{Call: &v1.CallFault{Op: "x"}}}, {Code: "newer", Facts: &v1.Fault_Claim{Claim: &v1.ClaimFault{}}},
		{Code: "newer", Facts: &v1.Fault_Hold{Hold: &v1.HoldFault{}}}, {Code: "newer", Facts: &v1.Fault_Operation{Operation: &v1.OperationFault{}}},
		{Code: "newer", Facts: &v1.Fault_Held{Held: &v1.HeldFault{}}}, {Code: "newer", Facts: &v1.Fault_Ended{Ended: &v1.EndedFault{}}}, {Code: "newer", Facts: &v1.Fault_Mismatch{Mismatch: &v1.MismatchFault{}}},
		{Code: "newer", Facts: &v1.Fault_Invalid{Invalid: &v1.InvalidFault{}}}, {Code: "ended", Facts: &v1.Fault_Ended{Ended: &v1.EndedFault{Id: "x"}}},
	} {
		for _, c := range []contract{l, o, h} {
			if got := c.back(f); got != nil {
				t.Errorf("%v: %#v", f, got)
			}
		}
	}
	for _, c := range []contract{l, o, h} {
		if err := c.call(errors.New("disk")); err == nil || wire.FaultOf(err) != nil {
			t.Errorf("an error of no contract: %v", err)
		}
		if err := c.call(nil); err != nil {
			t.Errorf("no error: %v", err)
		}
	}
}
