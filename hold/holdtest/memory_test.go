package holdtest_test

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/hold/holdtest"
	"github.com/tenure-go/tenure/store/memory"
)

// harness is a store in memory as every kind of harness. A restart loses nothing, as in a durable store.
type harness struct {
	store   hold.Store
	office  hold.Office
	advance func(d time.Duration)
	clock   *manual // nil where the clock runs
	restart func()
}

var (
	_ holdtest.ManualHarness  = (*harness)(nil)
	_ holdtest.DurableHarness = (*harness)(nil)
)

// newHarness has a clock that runs.
func newHarness() *harness {
	mem := memory.NewHolds(memory.Options{})
	return &harness{store: mem, office: mem, advance: mem.Advance}
}

// newManual has a clock that stands still.
func newManual() *harness {
	clock := &manual{}
	mem := memory.NewHolds(memory.Options{Clock: clock.read})
	return &harness{store: mem, office: mem, advance: mem.Advance, clock: clock}
}

func (h *harness) Store() hold.Store           { return h.store }
func (h *harness) Office() hold.Office         { return h.office }
func (h *harness) Tick(d time.Duration)        { h.clock.tick(d) }
func (h *harness) Check(context.Context) error { return nil }

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
