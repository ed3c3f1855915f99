package sqlite

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/outboxhistories"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxtest"
	"github.com/tenure-go/tenure/store/memory"
)

// mailInStep runs random histories on fresh files and on the serial model.
func mailInStep(t *testing.T, o outboxhistories.Options, fresh func(testing.TB) *harness) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		ops := outboxhistories.Draw(rt, newMailOracle(), o)
		h := &mailHarness{fresh(t)}
		defer h.stop()
		if err := outboxtest.InStep(t.Context(), newMailOracle(), h, ops); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestOutboxHistories stays a second away from every instant that matters: the kernel's clock runs.
func TestOutboxHistories(t *testing.T) {
	mailInStep(t, outboxhistories.Options{Steps: 40, Away: time.Second}, startHarness)
}

// TestOutboxHistoriesAtEquality seeks the very instants, on a kernel clock that moves by hand.
func TestOutboxHistoriesAtEquality(t *testing.T) {
	mailInStep(t, outboxhistories.Options{Steps: 40}, startManualHarness)
}

// mailOracle is the serial model. Its clock moves by Advance alone.
type mailOracle struct{ s *memory.Outbox }

func (o mailOracle) Store() outbox.Store         { return o.s }
func (o mailOracle) Office() outbox.Office       { return o.s }
func (o mailOracle) Check(context.Context) error { return nil }

func (o mailOracle) Advance(_ context.Context, d time.Duration) error {
	o.s.Advance(d)
	return nil
}

func (o mailOracle) Follow(ctx context.Context, req outbox.ClaimRequest, handed, dead []fence.ID) (outbox.Batch, error) {
	return o.s.Follow(ctx, req, handed, dead)
}

func newMailOracle() mailOracle {
	return mailOracle{memory.NewOutbox(memory.Options{Clock: func() time.Duration { return time.Hour }})}
}
