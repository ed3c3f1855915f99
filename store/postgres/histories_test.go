package postgres

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/internal/histories"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
	"github.com/tenure-go/tenure/store/memory"
)

// inStep runs random histories on one database, emptied before each, and on the serial model.
func inStep(t *testing.T, o histories.Options, h *harness, subject leasetest.StepHarness) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		ops := histories.Draw(rt, newOracle(), o)
		if err := h.empty(t.Context()); err != nil {
			rt.Fatal(err)
		}
		if err := leasetest.InStep(t.Context(), newOracle(), subject, ops); err != nil {
			rt.Fatal(err)
		}
	})
}

// empty makes the database as it was when it was installed, with a new store on it.
func (h *harness) empty(ctx context.Context) error {
	_, err := h.own.Exec(ctx, `TRUNCATE tenure.session, tenure.lease, tenure.ended, tenure.ahead, tenure.mark;
		SELECT setval('tenure.token', 1, false); UPDATE tenure.authority SET ahead = false`)
	if err != nil {
		return err
	}
	h.store.mu.Lock()
	clear(h.store.sessions)
	h.store.mu.Unlock()
	return nil
}

// TestHistories stays a second away from every expiry: the server's clock runs.
func TestHistories(t *testing.T) {
	h := newHarness(t)
	inStep(t, histories.Options{Steps: 40, Away: time.Second, Operator: true}, h, h)
}

// TestHistoriesAtExpiry seeks the very instants of expiry, on a clock that moves by hand.
func TestHistoriesAtExpiry(t *testing.T) {
	h := newManualHarness(t, testdb.Start(t, testdb.Options{}))
	inStep(t, histories.Options{Steps: 40, Operator: true}, h.harness, h)
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
