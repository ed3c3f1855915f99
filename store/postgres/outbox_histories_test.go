package postgres

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/outboxhistories"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxtest"
	"github.com/tenure-go/tenure/store/memory"
)

// outboxOracle is the serial model. Its clock moves by Advance alone.
type outboxOracle struct{ s *memory.Outbox }

func newOutboxOracle() outboxOracle {
	return outboxOracle{memory.NewOutbox(memory.Options{Clock: func() time.Duration { return 0 }})}
}

func (o outboxOracle) Store() outbox.Store         { return o.s }
func (o outboxOracle) Office() outbox.Office       { return o.s }
func (o outboxOracle) Check(context.Context) error { return nil }

func (o outboxOracle) Advance(_ context.Context, d time.Duration) error {
	o.s.Advance(d)
	return nil
}

// Follow makes another store's choice.
func (o outboxOracle) Follow(ctx context.Context, req outbox.ClaimRequest, handed, dead []fence.ID) (outbox.Batch, error) {
	return o.s.Follow(ctx, req, handed, dead)
}

// outboxInStep runs random histories on one database, emptied before each, and on the serial model.
func outboxInStep(t *testing.T, o outboxhistories.Options, h *outboxHarness, subject outboxtest.StepHarness) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		ops := outboxhistories.Draw(rt, newOutboxOracle(), o)
		if err := h.empty(t.Context()); err != nil {
			rt.Fatal(err)
		}
		if err := outboxtest.InStep(t.Context(), newOutboxOracle(), subject, ops); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestOutboxHistories stays a second away from every instant that matters: the server's clock runs.
func TestOutboxHistories(t *testing.T) {
	h := newOutboxHarness(t)
	outboxInStep(t, outboxhistories.Options{Steps: 40, Away: time.Second}, h, h)
}

// TestOutboxHistoriesAtInstants seeks those instants, on a clock that moves by hand.
func TestOutboxHistoriesAtInstants(t *testing.T) {
	h := newManualOutboxHarness(t, testdb.Start(t, testdb.Options{}))
	outboxInStep(t, outboxhistories.Options{Steps: 40}, h.outboxHarness, manualOutboxStep{h})
}

// manualOutboxStep lets time pass by moving the clock, so that no instant that was told moves.
type manualOutboxStep struct{ *manualOutboxHarness }

// Advance moves the clock.
func (h manualOutboxStep) Advance(_ context.Context, d time.Duration) error {
	h.Tick(d)
	return nil
}
