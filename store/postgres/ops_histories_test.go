package postgres

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/internal/ophistories"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/operation/operationtest"
	"github.com/tenure-go/tenure/store/memory"
)

// Tolerance is what one call may take beside other tests.
func (h *opHarness) Tolerance() time.Duration { return h.harness.Tolerance() }

// Tolerance is none: the clock stands still.
func (h *manualOpHarness) Tolerance() time.Duration { return 0 }

// opOracle is the serial model. Its clock moves by Advance alone.
type opOracle struct{ s *memory.Operations }

func newOpOracle() opOracle {
	return opOracle{memory.NewOperations(memory.Options{Clock: func() time.Duration { return 0 }})}
}

func (o opOracle) Store() operation.Backend    { return o.s }
func (o opOracle) Check(context.Context) error { return nil }
func (o opOracle) Tolerance() time.Duration    { return 0 }

func (o opOracle) Advance(_ context.Context, d time.Duration) error {
	o.s.Advance(d)
	return nil
}

// opsInStep runs random histories on one database, emptied before each, and on the serial model.
func opsInStep(t *testing.T, o ophistories.Options, h *opHarness, subject operationtest.StepHarness) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		calls := ophistories.Draw(rt, newOpOracle(), o)
		if err := h.empty(t.Context()); err != nil {
			rt.Fatal(err)
		}
		if err := operationtest.InStep(t.Context(), newOpOracle(), subject, calls); err != nil {
			rt.Fatal(err)
		}
	})
}

// empty makes the database as it was when it was installed.
func (h *opHarness) empty(ctx context.Context) error {
	h.store.operations.looks.forget()
	_, err := h.own.Exec(ctx, `TRUNCATE tenure.operation, tenure.attempt, tenure.conflict; SELECT setval('tenure.submission', 1, false)`)
	if err != nil {
		return err
	}
	return h.harness.empty(ctx)
}

// TestOperationHistories stays a second away from every instant that matters: the server's clock runs.
func TestOperationHistories(t *testing.T) {
	h := newOpHarness(t)
	opsInStep(t, ophistories.Options{Steps: 40, Away: time.Second}, h, h)
}

// TestOperationHistoriesAtInstants seeks those instants, on a clock that moves by hand.
func TestOperationHistoriesAtInstants(t *testing.T) {
	h := newManualOpHarness(t, testdb.Start(t, testdb.Options{}))
	opsInStep(t, ophistories.Options{Steps: 40}, h.opHarness, manualStep{h})
}

// manualStep lets time pass by moving the clock, so that no instant that was told moves.
type manualStep struct{ *manualOpHarness }

// Advance moves the clock.
func (h manualStep) Advance(_ context.Context, d time.Duration) error {
	h.Tick(d)
	return nil
}
