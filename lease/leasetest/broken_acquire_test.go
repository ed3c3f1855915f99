package leasetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func acquireTwins() []twin {
	return []twin{
		{"a refusal names nobody", refusalAnonymous, []string{"held-refusal-names-the-holder"}},
		{"held refusal that draws and writes a token", refusalWrites, []string{"held-refusal-writes-nothing"}},
		{"the same session may acquire again", reentrant, []string{"another-acquisition-of-the-same-session-is-refused"}},
		{"all-or-none broken", someOfAll(false), []string{"all-or-none", "all-or-none-under-contention"}},
		{"the first held name is told in the order of the request", refusalInOrder, []string{"the-first-held-name-in-byte-order-is-told"}},
		{"grants come sorted", grantsSorted, []string{"grants-come-in-the-order-of-the-request"}},
		{"the names of an acquisition end one by one", someOfAll(true), []string{"an-acquisition-is-one-unit"}},
		{"a released name's row is deleted", rowDeleted, []string{"get-describes-a-name"}},
	}
}

func refusalAnonymous(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		grants, err := w.inner.Acquire(ctx, req)
		var held *lease.HeldError
		if errors.As(err, &held) {
			return nil, &lease.HeldError{Name: held.Name, Left: held.Left}
		}
		return grants, err
	}
}

// refusalWrites is the upsert that draws a token before it looks who holds the name.
func refusalWrites(h *harness) {
	w := replace(h)
	var drawn atomic.Int64
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		grants, err := w.inner.Acquire(ctx, req)
		if errors.Is(err, lease.ErrHeld) {
			drawn.Add(1)
		}
		return grants, err
	}
	w.get = func(ctx context.Context, name string) (lease.Info, error) {
		info, err := w.inner.Get(ctx, name)
		if info.Token > 0 {
			info.Token += fence.Token(drawn.Load())
		}
		return info, err
	}
}

func reentrant(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		grants, err := w.inner.Acquire(ctx, req)
		var held *lease.HeldError
		if errors.As(err, &held) {
			if _, info := w.holder(ctx, held.Name); info.Session == req.Session {
				w.free(ctx, held.Name)
				return w.inner.Acquire(ctx, req)
			}
		}
		return grants, err
	}
}

// someOfAll keeps each name of a request as an acquisition of its own. With checked, the names are looked at
// first, so that only their end falls apart.
func someOfAll(checked bool) func(h *harness) {
	return func(h *harness) {
		w := replace(h)
		w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
			if err := req.Check(w.inner.Guarantees()); err != nil {
				return nil, err
			}
			if checked {
				if _, err := w.inner.Acquire(ctx, req); err != nil {
					return nil, err
				}
				_, _ = w.inner.Release(ctx, lease.ReleaseRequest{Session: req.Session, ID: req.ID, Names: req.Names})
				req.ID = sibling(req.ID, 999)
			}
			var all []lease.Grant
			for i, name := range req.Names {
				one := req
				one.Names, one.ID = []string{name}, sibling(req.ID, i+1)
				grants, err := w.inner.Acquire(ctx, one)
				if err != nil {
					return nil, err
				}
				w.remember(one)
				all = append(all, grants...)
				pause()
			}
			if checked {
				return claimed(all, sibling(req.ID, 999)), nil
			}
			return claimed(all, req.ID), nil
		}
		w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
			if checked {
				req.ID = sibling(req.ID, 999)
			}
			var r lease.Released
			for i, name := range req.Names {
				var err error
				one := lease.ReleaseRequest{Session: req.Session, ID: sibling(req.ID, i+1), Names: []string{name}}
				if r, err = w.inner.Release(ctx, one); err != nil {
					return r, err
				}
				if checked {
					break // the others are left to expire
				}
			}
			return r, nil
		}
	}
}

func refusalInOrder(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		grants, err := w.inner.Acquire(ctx, req)
		if !errors.Is(err, lease.ErrHeld) {
			return grants, err
		}
		for _, name := range req.Names {
			if _, info := w.holder(ctx, name); info.Held {
				return nil, &lease.HeldError{Name: name, Owner: info.Owner, Token: info.Token, Left: info.Remaining}
			}
		}
		return grants, err
	}
}

func grantsSorted(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		grants, err := w.inner.Acquire(ctx, req)
		slices.SortFunc(grants, func(a, b lease.Grant) int { return strings.Compare(a.Claim.Name, b.Claim.Name) })
		return grants, err
	}
}

func rowDeleted(h *harness) {
	w := replace(h)
	w.get = func(ctx context.Context, name string) (lease.Info, error) {
		info, err := w.inner.Get(ctx, name)
		if !info.Held {
			return lease.Info{Name: name}, err
		}
		return info, err
	}
}

func idTwins() []twin {
	return []twin{
		{"a retried acquire is refused by itself", retryRefused, []string{
			"L5-same-id-same-grant", "fault-7-an-acquire-whose-reply-was-lost-is-no-stranger-to-its-retry",
			"fault-8-an-acquire-applied-after-its-timeout-is-visible-as-its-own", "a-grant-survives-a-restart",
		}},
		{"an id stands for whatever was granted under it", idAlone, []string{"same-id-other-particulars-is-a-mismatch"}},
		{"same id granted twice after its end", grantedAgain, []string{
			"an-id-that-is-over-is-never-granted-again", "a-revoked-id-is-never-granted-again",
		}},
		{"an id is forgotten with its row", forgottenWithItsRow, []string{"an-id-stays-over-when-its-session-takes-the-name-again"}},
		{"closed-below is ignored", closedBelowIgnored, []string{"an-id-below-closed-below-gets-no-new-grant", "closed-below-survives-a-restart"}},
		{"closed-below releases what is held", closedBelowReleases, []string{"what-is-held-below-closed-below-stays-held"}},
		{"closed-below is what was said last", closedBelowFalls, []string{"closed-below-never-falls"}},
	}
}

func retryRefused(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		if was, ok := w.known(req.ID); ok {
			if holder, info := w.holder(ctx, was.Names[0]); info.Held && holder.ID == req.ID {
				return nil, &lease.HeldError{Name: info.Name, Owner: info.Owner, Token: info.Token, Left: info.Remaining}
			}
		}
		return w.inner.Acquire(ctx, req)
	}
}

func idAlone(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		if was, ok := w.known(req.ID); ok {
			return w.inner.Acquire(ctx, was)
		}
		return w.inner.Acquire(ctx, req)
	}
}

// grantAnew grants again, under another id within, where the store says that the id is over.
func grantAnew(w *wrap, ids *aliases, may func(ended *lease.EndedError) bool) func(context.Context, lease.AcquireRequest) ([]lease.Grant, error) {
	return func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		asked := req.ID
		req.ID = ids.get(asked)
		grants, err := w.inner.Acquire(ctx, req)
		var ended *lease.EndedError
		if errors.As(err, &ended) && ended.What == "acquisition" && may(ended) {
			req.ID = ids.renew(asked)
			grants, err = w.inner.Acquire(ctx, req)
		}
		return claimed(grants, asked), err
	}
}

func grantedAgain(h *harness) {
	w := replace(h)
	w.acquire = grantAnew(w, &aliases{}, func(*lease.EndedError) bool { return true })
}

// forgottenWithItsRow knows what became of an id as long as it is the latest of its name, and no longer.
func forgottenWithItsRow(h *harness) {
	w := replace(h)
	again := grantAnew(w, &aliases{}, func(*lease.EndedError) bool { return true })
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		if _, info := w.holder(ctx, req.Names[0]); info.Acquisition == req.ID {
			return w.inner.Acquire(ctx, req)
		}
		return again(ctx, req)
	}
}

func closedBelowIgnored(h *harness) {
	w := replace(h)
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		req.ClosedBelow = fence.ID{}
		return w.inner.Renew(ctx, req)
	}
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		req.ClosedBelow = fence.ID{}
		return w.inner.Acquire(ctx, req)
	}
}

func closedBelowReleases(h *harness) {
	w := replace(h)
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		for _, id := range w.order {
			if was, _ := w.known(id); was.Session == req.Session && id.Less(req.ClosedBelow) {
				_, _ = w.inner.Release(ctx, lease.ReleaseRequest{Session: req.Session, ID: id, Names: was.Names})
			}
		}
		return w.inner.Renew(ctx, req)
	}
}

func closedBelowFalls(h *harness) {
	w := replace(h)
	var last sync.Map
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		last.Store(req.Session, req.ClosedBelow)
		req.ClosedBelow = fence.ID{}
		return w.inner.Renew(ctx, req)
	}
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		if below, ok := last.Load(req.Session); ok && req.ID.Less(below.(fence.ID)) {
			return nil, &lease.EndedError{What: "acquisition", ID: req.ID, How: lease.EndForgotten}
		}
		return w.inner.Acquire(ctx, req)
	}
}

func maxHoldTwins() []twin {
	return []twin{
		{"MaxHold is not kept", maxHoldIgnored, []string{"max-hold-ends-a-lease-while-its-session-lives"}},
		{"MaxHold keeps a lease beyond its session", maxHoldDetached, []string{"max-hold-does-not-outlive-the-session"}},
		{"a renewal renews MaxHold", maxHoldRenewed, []string{"max-hold-is-not-renewed"}},
	}
}

func maxHoldIgnored(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		hold := req.MaxHold
		req.MaxHold = 0
		grants, err := w.inner.Acquire(ctx, req)
		for i := range grants {
			grants[i].HoldLeft = hold
		}
		return grants, err
	}
}

func maxHoldDetached(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		if req.MaxHold == 0 {
			return w.inner.Acquire(ctx, req)
		}
		own := w.session(req.Session)
		ttl := own.TTL
		own.ID, own.TTL = sibling(own.ID, 1), req.MaxHold
		if _, err := w.inner.Open(ctx, own); err != nil {
			return nil, err
		}
		req.Session = own.ID
		grants, err := w.inner.Acquire(ctx, req)
		for i := range grants {
			grants[i].Remaining = min(grants[i].Remaining, ttl)
		}
		return grants, err
	}
}

func maxHoldRenewed(h *harness) {
	w := replace(h)
	until := map[fence.ID]time.Duration{}
	over := func(ctx context.Context) {
		for id, at := range until {
			if req, _ := w.known(id); w.now() >= at {
				_, _ = w.inner.Release(ctx, lease.ReleaseRequest{Session: req.Session, ID: id, Names: req.Names})
			}
		}
	}
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		over(ctx)
		hold := req.MaxHold
		req.MaxHold = 0
		if _, known := until[req.ID]; !known && hold > 0 {
			until[req.ID] = w.now() + hold
		}
		grants, err := w.inner.Acquire(ctx, req)
		for i := range grants {
			grants[i].HoldLeft = hold
		}
		return grants, err
	}
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		over(ctx)
		for id := range until {
			until[id] = w.now() + 10*time.Second
		}
		return w.inner.Renew(ctx, req)
	}
}
