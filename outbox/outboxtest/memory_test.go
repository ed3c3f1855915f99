package outboxtest_test

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxtest"
	"github.com/tenure-go/tenure/store/memory"
)

// harness is a store in memory as every kind of harness but that of transactions. A restart loses nothing, as in a durable store.
type harness struct {
	store   outbox.Store
	office  outbox.Office
	waker   outbox.Waker
	advance func(d time.Duration)
	clock   *manual // nil where the clock runs
	begin   func() outboxtest.Tx
	restart func()
}

var (
	_ outboxtest.ManualHarness  = (*harness)(nil)
	_ outboxtest.DurableHarness = (*harness)(nil)
	_ outboxtest.WakerHarness   = (*harness)(nil)
)

// newHarness has a clock that runs.
func newHarness() *harness {
	mem := memory.NewOutbox(memory.Options{})
	return &harness{store: mem, office: mem, waker: mem, advance: mem.Advance}
}

// newManual has a clock that stands still.
func newManual() *harness {
	clock := &manual{}
	mem := memory.NewOutbox(memory.Options{Clock: clock.read})
	return &harness{store: mem, office: mem, waker: mem, advance: mem.Advance, clock: clock}
}

func (h *harness) Store() outbox.Store         { return h.store }
func (h *harness) Office() outbox.Office       { return h.office }
func (h *harness) Waker() outbox.Waker         { return h.waker }
func (h *harness) Tick(d time.Duration)        { h.clock.tick(d) }
func (h *harness) Check(context.Context) error { return nil }

func (h *harness) Begin(context.Context) (outboxtest.Tx, error) { return h.begin(), nil }

func (h *harness) Advance(_ context.Context, d time.Duration) error {
	h.advance(d)
	return nil
}

func (h *harness) Restart(context.Context) error {
	if h.restart != nil {
		h.restart()
	}
	return nil
}

// manual is a clock that moves when told.
type manual struct {
	mu  sync.Mutex
	now time.Duration
}

func (c *manual) read() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manual) tick(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
}
