package leasetest_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// twin is a store that is right but for one fault, and the cases that must catch it.
type twin struct {
	fault    string
	breaks   func(h *harness)
	caughtBy []string
}

func twins() []twin {
	return slices.Concat(
		sessionTwins(), renewalTwins(), ttlTwins(), acquireTwins(), idTwins(), releaseTwins(), maxHoldTwins(), tokenTwins(),
		inputTwins(), cutOffTwins(), raceTwins(), equalityTwins(), operatorTwins(), durableTwins(), resourceTwins(),
	)
}

// TestBrokenStores demands that the named cases catch each fault.
func TestBrokenStores(t *testing.T) {
	cases := map[string]anyCase{}
	for _, c := range allCases() {
		cases[c.Name] = c
	}
	for _, broken := range twins() {
		t.Run(broken.fault, func(t *testing.T) {
			t.Parallel()
			for _, name := range broken.caughtBy {
				c, ok := cases[name]
				if !ok {
					t.Errorf("no case is named %q", name)
					continue
				}
				h := newHarness()
				if c.manual {
					h = newManual()
				}
				broken.breaks(h)
				err := c.Run(t.Context(), h)
				if err == nil {
					t.Errorf("%q did not catch it", name)
				}
				t.Logf("%s: %v", name, err)
			}
		})
	}
}

// TestEveryCaseCatches demands that no case is there which has not been seen to fail.
func TestEveryCaseCatches(t *testing.T) {
	caught := map[string]bool{}
	for _, broken := range twins() {
		for _, name := range broken.caughtBy {
			caught[name] = true
		}
	}
	for _, c := range allCases() {
		if !caught[c.Name] {
			t.Errorf("no broken store is named that %q must catch", c.Name)
		}
	}
}

// wrap is the harness's store with single methods replaced. It remembers what was granted.
type wrap struct {
	h     *harness
	inner lease.Store

	open    func(ctx context.Context, req lease.OpenRequest) (time.Duration, error)
	renew   func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error)
	close   func(ctx context.Context, id fence.ID) error
	acquire func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error)
	release func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error)
	get     func(ctx context.Context, name string) (lease.Info, error)
	states  func() lease.Guarantees

	mu      sync.Mutex
	opened  map[fence.ID]lease.OpenRequest
	granted map[fence.ID]lease.AcquireRequest
	order   []fence.ID
	passed  time.Duration // by Advance
	began   time.Time
}

// replace puts a wrap around the harness's store.
func replace(h *harness) *wrap {
	w := &wrap{
		h: h, inner: h.store, opened: map[fence.ID]lease.OpenRequest{}, granted: map[fence.ID]lease.AcquireRequest{}, began: time.Now(),
	}
	w.open, w.renew, w.close, w.acquire, w.release, w.get, w.states =
		w.inner.Open, w.inner.Renew, w.inner.Close, w.inner.Acquire, w.inner.Release, w.inner.Get, w.inner.Guarantees
	h.store = w
	before := h.advanced
	h.advanced = func(d time.Duration) {
		if before != nil {
			before(d)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.passed += d
	}
	return w
}

func (w *wrap) Open(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
	left, err := w.open(ctx, req)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.opened[req.ID] = req
	}
	return left, err
}

func (w *wrap) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	return w.renew(ctx, req)
}

func (w *wrap) Close(ctx context.Context, id fence.ID) error { return w.close(ctx, id) }

func (w *wrap) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	grants, err := w.acquire(ctx, req)
	if err == nil {
		w.remember(req)
	}
	return grants, err
}

func (w *wrap) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	return w.release(ctx, req)
}

func (w *wrap) Get(ctx context.Context, name string) (lease.Info, error) { return w.get(ctx, name) }
func (w *wrap) Guarantees() lease.Guarantees                             { return w.states() }

func (w *wrap) remember(req lease.AcquireRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.granted[req.ID]; !ok {
		w.order = append(w.order, req.ID)
	}
	w.granted[req.ID] = req
}

// known returns the request that was granted under the id.
func (w *wrap) known(id fence.ID) (lease.AcquireRequest, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	req, ok := w.granted[id]
	return req, ok
}

// session returns the request that opened it.
func (w *wrap) session(id fence.ID) lease.OpenRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened[id]
}

// now is the authority's time, as far as a client could tell it.
func (w *wrap) now() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.h.clock != nil {
		return w.h.clock.read() + w.passed
	}
	return time.Since(w.began) + w.passed
}

// holder returns who holds the name now, as the release that would free it.
func (w *wrap) holder(ctx context.Context, name string) (lease.ReleaseRequest, lease.Info) {
	info, _ := w.inner.Get(ctx, name)
	req, _ := w.known(info.Acquisition)
	return lease.ReleaseRequest{Session: info.Session, ID: info.Acquisition, Names: req.Names}, info
}

// free releases whoever holds the name.
func (w *wrap) free(ctx context.Context, name string) {
	if req, info := w.holder(ctx, name); info.Held {
		_, _ = w.inner.Release(ctx, req)
	}
}

// pause widens the window between two steps that should have been one.
func pause() { <-time.After(time.Millisecond) }

// sibling is another id, the same each time.
func sibling(id fence.ID, n int) fence.ID {
	id[15] ^= byte(n)
	id[14] ^= byte(n >> 8)
	id[9] ^= 0x5a
	return id
}

// aliases lets a broken store answer under one id for another.
type aliases struct {
	mu sync.Mutex
	of map[fence.ID]fence.ID
	n  int
}

func (a *aliases) get(id fence.ID) fence.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other, ok := a.of[id]; ok {
		return other
	}
	return id
}

func (a *aliases) renew(id fence.ID) fence.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[fence.ID]fence.ID{}
	}
	a.n++
	a.of[id] = sibling(id, a.n)
	return a.of[id]
}

// named puts the id that was asked for into grants made under another.
func claimed(grants []lease.Grant, id fence.ID) []lease.Grant {
	for i := range grants {
		grants[i].Claim.Acquisition = id
	}
	return grants
}
