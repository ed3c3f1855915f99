package sqlite

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/internal/ophistories"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/operation/operationtest"
	"github.com/tenure-go/tenure/store/memory"
)

// opsInStep runs random histories on fresh files and on the serial model.
func opsInStep(t *testing.T, o ophistories.Options, fresh func(testing.TB) *harness) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		ops := ophistories.Draw(rt, newOpOracle(), o)
		h := &opHarness{fresh(t)}
		defer h.stop()
		if err := operationtest.InStep(t.Context(), newOpOracle(), h, ops); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestOperationHistories stays a second away from every instant that matters: the kernel's clock runs.
func TestOperationHistories(t *testing.T) {
	opsInStep(t, ophistories.Options{Steps: 40, Away: time.Second}, startHarness)
}

// TestOperationHistoriesAtEquality seeks the very instants, on a kernel clock that moves by hand.
func TestOperationHistoriesAtEquality(t *testing.T) {
	opsInStep(t, ophistories.Options{Steps: 40}, startManualHarness)
}

// opOracle is the serial model. Its clock moves by Advance alone.
type opOracle struct{ s *memory.Operations }

func (o opOracle) Store() operation.Backend    { return o.s }
func (o opOracle) Check(context.Context) error { return nil }

func (o opOracle) Advance(_ context.Context, d time.Duration) error {
	o.s.Advance(d)
	return nil
}

func newOpOracle() opOracle {
	return opOracle{memory.NewOperations(memory.Options{Clock: func() time.Duration { return time.Hour }})}
}
