package sqlite

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/internal/histories"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
	"github.com/tenure-go/tenure/store/memory"
)

// inStep runs random histories on fresh files and on the serial model.
func inStep(t *testing.T, o histories.Options, fresh func(testing.TB) *harness) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		ops := histories.Draw(rt, newOracle(), o)
		h := fresh(t)
		defer h.stop()
		if err := leasetest.InStep(t.Context(), newOracle(), h, ops); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestHistories stays a second away from every expiry: the kernel's clock runs.
func TestHistories(t *testing.T) {
	inStep(t, histories.Options{Steps: 40, Away: time.Second, Operator: true}, startHarness)
}

// TestHistoriesAtExpiry seeks the very instants of expiry, on a kernel clock that moves by hand.
func TestHistoriesAtExpiry(t *testing.T) {
	inStep(t, histories.Options{Steps: 40, Operator: true}, startManualHarness)
}

// oracle is the serial model. Its clock moves by Advance alone.
type oracle struct{ s *memory.Store }

func (o oracle) Store() lease.Store           { return o.s }
func (o oracle) Operator() leasetest.Operator { return o.s }
func (o oracle) Check(context.Context) error  { return nil }

func (o oracle) Advance(_ context.Context, d time.Duration) error {
	o.s.Advance(d)
	return nil
}

func newOracle() oracle {
	return oracle{memory.New(memory.Options{Clock: func() time.Duration { return 0 }})}
}
