package sqlite

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/hold/holdtest"
	"github.com/tenure-go/tenure/internal/holdhistories"
	"github.com/tenure-go/tenure/store/memory"
)

// holdsInStep runs random histories on fresh files and on the serial model.
func holdsInStep(t *testing.T, o holdhistories.Options, fresh func(testing.TB) *harness) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		ops := holdhistories.Draw(rt, newHoldOracle(), o)
		h := &holdHarness{fresh(t)}
		defer h.stop()
		if err := holdtest.InStep(t.Context(), newHoldOracle(), h, ops); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestHoldHistories stays a second away from every instant that matters: the kernel's clock runs.
func TestHoldHistories(t *testing.T) {
	holdsInStep(t, holdhistories.Options{Steps: 40, Away: time.Second}, startHarness)
}

// TestHoldHistoriesAtEquality seeks the very instants, on a kernel clock that moves by hand.
func TestHoldHistoriesAtEquality(t *testing.T) {
	holdsInStep(t, holdhistories.Options{Steps: 40}, startManualHarness)
}

// holdOracle is the serial model. Its clock moves by Advance alone.
type holdOracle struct{ s *memory.Holds }

func (o holdOracle) Store() hold.Store           { return o.s }
func (o holdOracle) Office() hold.Office         { return o.s }
func (o holdOracle) Check(context.Context) error { return nil }

func (o holdOracle) Advance(_ context.Context, d time.Duration) error {
	o.s.Advance(d)
	return nil
}

func newHoldOracle() holdOracle {
	return holdOracle{memory.NewHolds(memory.Options{Clock: func() time.Duration { return time.Hour }})}
}
