package leasetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// maxRepeats bounds how many observed acquisitions the final check asks about again: the latest ones.
const maxRepeats = 256

// watch is a store that remembers what it saw, for the check at the end of every case.
type watch struct {
	h Harness

	mu     sync.Mutex
	step   int // orders the beginnings and ends of calls
	asked  map[fence.ID]*asked
	order  []*asked // by first grant
	closed map[fence.ID]bool
}

// asked is one acquisition id as the watch saw it.
type asked struct {
	req     lease.AcquireRequest
	began   int // when it was first asked for
	granted int // when the first grant was told; 0: never
	tokens  map[string]fence.Token
	over    string // why it is known to be over, or empty
}

var _ lease.Store = (*watch)(nil)

func newWatch(h Harness) *watch {
	return &watch{h: h, asked: map[fence.ID]*asked{}, closed: map[fence.ID]bool{}}
}

// tick returns the next step. The lock is held.
func (w *watch) tickLocked() int {
	w.step++
	return w.step
}

func (w *watch) Open(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
	return w.h.Store().Open(ctx, req)
}

func (w *watch) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	r, err := w.h.Store().Renew(ctx, req)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, a := range req.Release {
			w.overLocked(a.ID, "a renewal released it")
		}
	}
	return r, err
}

func (w *watch) Close(ctx context.Context, session fence.ID) error {
	err := w.h.Store().Close(ctx, session)
	if err == nil || errors.Is(err, lease.ErrEnded) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.closed[session] = true
	}
	return err
}

func (w *watch) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	w.mu.Lock()
	a := w.asked[req.ID]
	if a == nil {
		a = &asked{req: req, began: w.tickLocked(), tokens: map[string]fence.Token{}}
		w.asked[req.ID] = a
	}
	w.mu.Unlock()
	grants, err := w.h.Store().Acquire(ctx, req)
	w.mu.Lock()
	defer w.mu.Unlock()
	var ended *lease.EndedError
	if errors.As(err, &ended) && ended.What == "acquisition" {
		w.overLocked(req.ID, "the store said that it is over")
	}
	if err != nil {
		return grants, err
	}
	if a.granted == 0 {
		a.granted, a.req = w.tickLocked(), req
		w.order = append(w.order, a)
	}
	for _, g := range grants {
		if was, ok := a.tokens[g.Claim.Name]; ok && was != g.Claim.Token {
			return nil, fmt.Errorf("acquisition %s had token %d of %q and now has %d", req.ID, was, g.Claim.Name, g.Claim.Token)
		}
		a.tokens[g.Claim.Name] = g.Claim.Token
	}
	return grants, nil
}

func (w *watch) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	r, err := w.h.Store().Release(ctx, req)
	if err == nil || errors.Is(err, lease.ErrEnded) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.overLocked(req.ID, "its release was answered")
	}
	return r, err
}

func (w *watch) Get(ctx context.Context, name string) (lease.Info, error) {
	return w.h.Store().Get(ctx, name)
}

func (w *watch) Guarantees() lease.Guarantees { return w.h.Store().Guarantees() }

// overLocked notes that an acquisition is over for ever, for those that were seen. The lock is held.
func (w *watch) overLocked(id fence.ID, why string) {
	if a := w.asked[id]; a != nil && a.over == "" {
		a.over = why
	}
}

// finish checks all that was observed. No call is in progress.
func (w *watch) finish(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := []error{w.checkTokens()}
	recent := w.order[max(0, len(w.order)-maxRepeats):]
	errs = append(errs, w.checkValid(ctx, recent))
	if err := w.h.Check(ctx); err != nil {
		errs = append(errs, fmt.Errorf("the harness's check: %w", err))
	}
	return errors.Join(errs...)
}

// checkTokens demands, for each name: a grant that was told before another was asked for has the lower
// token, and no two acquisitions have the same.
func (w *watch) checkTokens() error {
	byName := map[string][]*asked{}
	for _, a := range w.order {
		for name := range a.tokens {
			byName[name] = append(byName[name], a)
		}
	}
	var errs []error
	for name, all := range byName {
		seen := map[fence.Token]*asked{}
		for _, a := range all {
			token := a.tokens[name]
			if token <= 0 {
				errs = append(errs, fmt.Errorf("%q was granted under token %d; want a positive one", name, token))
			}
			if other := seen[token]; other != nil {
				errs = append(errs, fmt.Errorf("token %d of %q was given to acquisitions %s and %s", token, name, other.req.ID, a.req.ID))
			}
			seen[token] = a
		}
		errs = append(errs, checkRising(name, all))
	}
	return errors.Join(errs...)
}

// checkRising takes the acquisitions of one name in the order in which their grants were told.
func checkRising(name string, told []*asked) error {
	begun := slices.SortedFunc(slices.Values(told), func(a, b *asked) int { return a.began - b.began })
	var highest fence.Token
	next := 0
	for _, a := range begun {
		for next < len(told) && told[next].granted < a.began {
			highest = max(highest, told[next].tokens[name])
			next++
		}
		if token := a.tokens[name]; token <= highest {
			return fmt.Errorf("%q was granted under token %d after token %d had been told: tokens must rise", name, token, highest)
		}
	}
	return nil
}

// checkValid repeats the requests that were granted. That grants nothing new: a repetition is answered
// with the same grants or with an end.
func (w *watch) checkValid(ctx context.Context, granted []*asked) error {
	var errs []error
	valid := map[string]fence.ID{}
	for _, a := range granted {
		grants, err := w.h.Store().Acquire(ctx, a.req)
		switch {
		case errors.Is(err, lease.ErrEnded):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("repeating acquisition %s: %w; want its grants or its end", a.req.ID, err))
			continue
		case a.over != "":
			errs = append(errs, fmt.Errorf("acquisition %s was granted again although %s", a.req.ID, a.over))
		case w.closed[a.req.Session]:
			errs = append(errs, fmt.Errorf("acquisition %s was granted again although its session is closed", a.req.ID))
		}
		for _, g := range grants {
			name := g.Claim.Name
			if other, ok := valid[name]; ok && other != a.req.ID {
				errs = append(errs, fmt.Errorf("%q is held by acquisitions %s and %s at once", name, other, a.req.ID))
			}
			valid[name] = a.req.ID
			if g.Claim.Token != a.tokens[name] {
				errs = append(errs, fmt.Errorf("acquisition %s had token %d of %q and now has %d", a.req.ID, a.tokens[name], name, g.Claim.Token))
			}
		}
	}
	return errors.Join(errs...)
}
