package leasetest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
	"github.com/tenure-go/tenure/store/memory"
)

// harness is the memory store as every kind of harness. A restart loses nothing, as in a durable store.
type harness struct {
	mem      *memory.Store
	store    lease.Store // mem, or something broken around it
	operator leasetest.Operator
	resource leasetest.Resource
	clock    *manual // nil where the clock runs
	advanced func(d time.Duration)
	restart  func()
}

var (
	_ leasetest.ManualHarness          = (*harness)(nil)
	_ leasetest.OperatorHarness        = (*harness)(nil)
	_ leasetest.DurableResourceHarness = (*harness)(nil)
	_ leasetest.RepairHarness          = (*harness)(nil)
)

// newHarness has a clock that runs.
func newHarness() *harness {
	mem := memory.New(memory.Options{})
	return &harness{mem: mem, store: mem, operator: mem, resource: newList(mem)}
}

// newManual has a clock that stands still.
func newManual() *harness {
	clock := &manual{}
	mem := memory.New(memory.Options{Clock: clock.read})
	return &harness{mem: mem, store: mem, operator: mem, resource: newList(mem), clock: clock}
}

func (h *harness) Store() lease.Store           { return h.store }
func (h *harness) Operator() leasetest.Operator { return h.operator }
func (h *harness) Resource() leasetest.Resource { return h.resource }
func (h *harness) Tick(d time.Duration)         { h.clock.tick(d) }

func (h *harness) Advance(_ context.Context, d time.Duration) error {
	h.mem.Advance(d)
	if h.advanced != nil {
		h.advanced(d)
	}
	return nil
}

func (h *harness) Restart(context.Context) error {
	if h.restart != nil {
		h.restart()
	}
	return nil
}

// Check demands that no acquisition is told as holder of a name without a token.
func (h *harness) Check(ctx context.Context) error {
	infos, err := h.mem.List(ctx, lease.ListRequest{Limit: lease.MaxList})
	if err != nil {
		return err
	}
	for _, info := range infos {
		if info.Token <= 0 || info.Held == (info.End != 0) {
			return fmt.Errorf("the store lists %+v", info)
		}
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

// list is a resource in this process: its strict writes run as the store's guarded work, its marked ones under a mark.
// The mutex is what a database's isolation is to rows.
type list struct {
	mem   *memory.Store
	marks *memory.Marks
	mu    sync.Mutex
	rows  []string
}

func newList(mem *memory.Store) *list { return &list{mem: mem, marks: memory.NewMarks()} }

func (l *list) Strict(ctx context.Context, claim fence.Claim, value string, between func()) error {
	return l.mem.Fenced(ctx, claim, func(context.Context) error {
		call(between)
		l.put(value)
		return nil
	})
}

func (l *list) Marked(ctx context.Context, claim fence.Claim, edit func([]string) []string, between func()) error {
	return l.marks.Enter(ctx, "list", claim, func(ctx context.Context) error {
		content, _ := l.Read(ctx)
		call(between)
		l.set(edit(content))
		return nil
	})
}

func (l *list) Blind(ctx context.Context, claim fence.Claim, value string) error {
	return l.marks.Admit(ctx, "list", claim, func(context.Context) error {
		l.put(value)
		return nil
	})
}

func (l *list) Read(context.Context) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.rows), nil
}

func (l *list) Recreate(context.Context) error {
	l.set(nil)
	return nil
}

func (l *list) put(value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = append(l.rows, value)
}

func (l *list) set(rows []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = rows
}

func call(between func()) {
	if between != nil {
		between()
	}
}
