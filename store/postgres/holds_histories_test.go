package postgres

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/hold/holdtest"
	"github.com/tenure-go/tenure/internal/holdhistories"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/store/memory"
)

// Tolerance is what one call may take beside other tests.
func (h *holdHarness) Tolerance() time.Duration { return h.harness.Tolerance() }

// Tolerance is none: the clock stands still.
func (h *manualHoldHarness) Tolerance() time.Duration { return 0 }

// holdOracle is the serial model. Its clock moves by Advance alone.
type holdOracle struct{ s *memory.Holds }

func newHoldOracle() holdOracle {
	return holdOracle{memory.NewHolds(memory.Options{Clock: func() time.Duration { return 0 }})}
}

func (o holdOracle) Store() hold.Store           { return o.s }
func (o holdOracle) Office() hold.Office         { return o.s }
func (o holdOracle) Check(context.Context) error { return nil }
func (o holdOracle) Tolerance() time.Duration    { return 0 }

func (o holdOracle) Advance(_ context.Context, d time.Duration) error {
	o.s.Advance(d)
	return nil
}

// holdsInStep runs random histories on one database, emptied before each, and on the serial model.
func holdsInStep(t *testing.T, o holdhistories.Options, h *holdHarness, subject holdtest.StepHarness) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		calls := holdhistories.Draw(rt, newHoldOracle(), o)
		if err := h.empty(t.Context()); err != nil {
			rt.Fatal(err)
		}
		if err := holdtest.InStep(t.Context(), newHoldOracle(), subject, calls); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestHoldHistories stays a second away from every instant that matters: the server's clock runs.
func TestHoldHistories(t *testing.T) {
	h := newHoldHarness(t)
	holdsInStep(t, holdhistories.Options{Steps: 40, Away: time.Second}, h, h)
}

// TestHoldHistoriesAtInstants seeks those instants, on a clock that moves by hand.
func TestHoldHistoriesAtInstants(t *testing.T) {
	h := newManualHoldHarness(t, testdb.Start(t, testdb.Options{}))
	holdsInStep(t, holdhistories.Options{Steps: 40}, h.holdHarness, manualHoldStep{h})
}

// manualHoldStep lets time pass by moving the clock, so that no instant that was told moves.
type manualHoldStep struct{ *manualHoldHarness }

// Advance moves the clock.
func (h manualHoldStep) Advance(_ context.Context, d time.Duration) error {
	h.Tick(d)
	return nil
}
