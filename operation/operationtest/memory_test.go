package operationtest_test

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/operation/operationtest"
	"github.com/tenure-go/tenure/store/memory"
)

// harness is the memory store as every kind of harness. A restart loses nothing, as in a durable store.
type harness struct {
	mem     *memory.Operations
	store   operation.Backend // mem, or something broken around it
	clock   *manual           // nil where the clock runs
	restart func()
}

var (
	_ operationtest.ManualHarness  = (*harness)(nil)
	_ operationtest.DurableHarness = (*harness)(nil)
)

// newHarness has a clock that runs.
func newHarness() *harness {
	mem := memory.NewOperations(memory.Options{})
	return &harness{mem: mem, store: mem}
}

// newManual has a clock that stands still.
func newManual() *harness {
	clock := &manual{}
	mem := memory.NewOperations(memory.Options{Clock: clock.read})
	return &harness{mem: mem, store: mem, clock: clock}
}

func (h *harness) Store() operation.Backend    { return h.store }
func (h *harness) Tick(d time.Duration)        { h.clock.tick(d) }
func (h *harness) Check(context.Context) error { return nil }

func (h *harness) Advance(_ context.Context, d time.Duration) error {
	h.mem.Advance(d)
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
	mu   sync.Mutex
	now  time.Duration
	skew time.Duration // of a broken store
}

func (c *manual) read() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now - c.skew
}

// behind lets the clock be so much behind for a while. What the store has read before stays read.
func (c *manual) behind(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew = d
}

func (c *manual) tick(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
}
