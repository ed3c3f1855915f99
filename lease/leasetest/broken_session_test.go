package leasetest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func sessionTwins() []twin {
	return []twin{
		{"opening again renews", openRenews, []string{"opening-again-is-the-same-session-and-renews-nothing"}},
		{"opening ignores other particulars", openIgnores, []string{"opening-with-other-particulars-is-a-mismatch"}},
		{"opening revives an ended session", openRevives, []string{"opening-an-ended-session-is-refused"}},
		{"a session id that comes again brings its leases back", comesBackHolding, []string{
			"a-session-id-that-comes-again-holds-nothing-of-before", "strict-refuses-the-claim-of-a-session-before-one-with-its-id",
		}},
		{"a session id that comes again has used no ids yet", comesBackBlank, []string{"a-session-id-that-comes-again-holds-nothing-of-before"}},
		{"close of an unknown session is forgotten", closeForgets, []string{"close-overtakes-open"}},
		{"closing twice is an error", closeOnce, []string{"closing-twice-is-success"}},
		{"close never says that the session had expired", closeSilent, []string{"close-after-expiry-says-so"}},
		{"close ends the session and leaves its leases", closeLeaves, []string{"close-frees-every-lease"}},
		{"close does nothing", closeNothing, []string{"a-closed-session-acquires-and-renews-nothing"}},
		{"an acquire opens the session that it names", acquireOpens, []string{"acquire-in-an-unknown-session-is-refused"}},
		{"guarantees are not stated", statesNothing, []string{"guarantees-are-within-the-contract"}},
		{"the owner label is cut short", ownerCut, []string{"sessions-that-make-no-sense-are-refused"}},
	}
}

func openRenews(h *harness) {
	w := replace(h)
	w.open = func(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
		if w.session(req.ID).TTL == req.TTL && req.TTL != 0 {
			r, err := w.inner.Renew(ctx, lease.RenewRequest{Session: req.ID})
			return r.Remaining, err
		}
		return w.inner.Open(ctx, req)
	}
}

func openIgnores(h *harness) {
	w := replace(h)
	w.open = func(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
		left, err := w.inner.Open(ctx, req)
		if errors.Is(err, lease.ErrMismatch) {
			return req.TTL, nil
		}
		return left, err
	}
}

func openRevives(h *harness) {
	w := replace(h)
	var sessions aliases
	w.open = func(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
		left, err := w.inner.Open(ctx, req)
		if errors.Is(err, lease.ErrEnded) {
			req.ID = sessions.renew(req.ID)
			return w.inner.Open(ctx, req)
		}
		return left, err
	}
}

// forgetful opens the id of a session that is over for a day again, under another id, which back tells of.
func forgetful(w *wrap, back *aliases) {
	w.open = func(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
		left, err := w.inner.Open(ctx, req)
		if errors.Is(err, lease.ErrEnded) && w.now() > 24*time.Hour {
			req.ID = back.renew(req.ID)
			return w.inner.Open(ctx, req)
		}
		return left, err
	}
}

// comesBackHolding asks of a lease only whether a session of that id lives.
func comesBackHolding(h *harness) {
	w, f := replace(h), refence(h)
	var back aliases
	forgetful(w, &back)
	w.get = func(ctx context.Context, name string) (lease.Info, error) {
		info, err := w.inner.Get(ctx, name)
		if info.End == lease.EndExpired && back.get(info.Session) != info.Session {
			info.Held, info.End, info.Remaining = true, 0, time.Second
		}
		return info, err
	}
	f.strict = func(ctx context.Context, c fence.Claim, value string, between func()) error {
		if info, _ := w.get(ctx, c.Name); info.Held && info.Token == c.Token {
			call(between)
			f.put(value)
			return nil
		}
		return f.list.Strict(ctx, c, value, between)
	}
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		req.Session = back.get(req.Session)
		return w.inner.Renew(ctx, req)
	}
}

// comesBackBlank grants to the session what was granted and over under the same acquisition id before.
func comesBackBlank(h *harness) {
	w := replace(h)
	var back aliases
	forgetful(w, &back)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		asked := req
		if req.Session = back.get(asked.Session); req.Session != asked.Session {
			req.ID = sibling(asked.ID, 1)
		}
		grants, err := w.inner.Acquire(ctx, req)
		return claimed(grants, asked.ID), err
	}
}

func closeForgets(h *harness) {
	w := replace(h)
	w.close = func(ctx context.Context, id fence.ID) error {
		if w.session(id).TTL == 0 {
			return nil
		}
		return w.inner.Close(ctx, id)
	}
}

func closeOnce(h *harness) {
	w := replace(h)
	var closed sync.Map
	w.close = func(ctx context.Context, id fence.ID) error {
		if _, twice := closed.LoadOrStore(id, true); twice {
			return &lease.EndedError{What: "session", ID: id, How: lease.EndClosed}
		}
		return w.inner.Close(ctx, id)
	}
}

func closeSilent(h *harness) {
	w := replace(h)
	w.close = func(ctx context.Context, id fence.ID) error {
		if err := w.inner.Close(ctx, id); err != nil && !errors.Is(err, lease.ErrEnded) {
			return err
		}
		return nil
	}
}

func closeLeaves(h *harness) {
	w := replace(h)
	var closed sync.Map
	over := func(id fence.ID) error {
		if _, is := closed.Load(id); is {
			return &lease.EndedError{What: "session", ID: id, How: lease.EndClosed}
		}
		return nil
	}
	w.close = func(_ context.Context, id fence.ID) error { closed.Store(id, true); return nil }
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		if err := over(req.Session); err != nil {
			return nil, err
		}
		return w.inner.Acquire(ctx, req)
	}
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		if err := over(req.Session); err != nil {
			return lease.Renewal{}, err
		}
		return w.inner.Renew(ctx, req)
	}
}

func closeNothing(h *harness) {
	replace(h).close = func(context.Context, fence.ID) error { return nil }
}

func acquireOpens(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		if w.session(req.Session).TTL == 0 {
			if _, err := w.Open(ctx, lease.OpenRequest{ID: req.Session, TTL: 10 * time.Second}); err != nil {
				return nil, err
			}
		}
		return w.inner.Acquire(ctx, req)
	}
}

func statesNothing(h *harness) {
	replace(h).states = func() lease.Guarantees { return lease.Guarantees{MaxNames: 1 << 20} }
}

func ownerCut(h *harness) {
	w := replace(h)
	w.open = func(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
		req.Owner = req.Owner[:min(len(req.Owner), lease.MaxOwner)]
		return w.inner.Open(ctx, req)
	}
}

func renewalTwins() []twin {
	return []twin{
		{"renewal that creates", renewCreates, []string{
			"L25-renewal-never-creates", "fault-6-renewal-after-a-take-over-restores-nothing", "expiry-is-a-verdict-that-a-take-over-writes",
		}},
		{"a renewal compares what the last one wrote", renewCompares, []string{"L7-a-renewal-whose-reply-was-lost-is-repeated"}},
		{"a renewal drops the oldest lease", renewDrops, []string{"L80-one-renewal-keeps-every-lease-of-a-session"}},
		{"a renewal is told and not written", renewNotWritten, []string{"no-grant-before-the-last-renewal-ran-out"}},
		{"expiry is decided anew each time and never written", verdictUnwritten, []string{
			"expiry-is-a-verdict-that-a-take-over-writes", "expiry-is-a-verdict-that-a-call-of-the-session-writes", "a-verdict-survives-a-restart",
		}},
		{"reading writes the verdict", readingWrites, []string{"reading-writes-no-verdict"}},
		{"a renewal forgets the releases in it", renewForgets, []string{"a-renewal-releases-what-was-given-up"}},
		{"a renewal in flight revives what was released meanwhile", renewRevives, []string{"L38-no-renewal-revives-what-was-released"}},
	}
}

// renewAnew opens the session again under another id when a renewal finds it over and may says so.
func renewAnew(h *harness, may func(w *wrap) bool) {
	w := replace(h)
	var sessions aliases
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		asked := req.Session
		req.Session = sessions.get(asked)
		r, err := w.inner.Renew(ctx, req)
		if !errors.Is(err, lease.ErrEnded) || !may(w) {
			return r, err
		}
		open := w.session(asked)
		if open.TTL == 0 {
			open = lease.OpenRequest{TTL: 10 * time.Second}
		}
		open.ID = sessions.renew(asked)
		left, err := w.inner.Open(ctx, open)
		return lease.Renewal{Remaining: left}, err
	}
}

func renewCreates(h *harness) { renewAnew(h, func(*wrap) bool { return true }) }

// verdictUnwritten forgives an expiry once the clock stands before it again.
func verdictUnwritten(h *harness) { renewAnew(h, func(w *wrap) bool { return w.now() < 0 }) }

func renewCompares(h *harness) {
	w := replace(h)
	var last sync.Map
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		at := w.now().Truncate(time.Second)
		if was, ok := last.Swap(req.Session, at); ok && was == at {
			return lease.Renewal{}, &lease.EndedError{What: "session", ID: req.Session, How: lease.EndForgotten}
		}
		return w.inner.Renew(ctx, req)
	}
}

func renewDrops(h *harness) {
	w := replace(h)
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		oldest, _ := w.known(w.order[0])
		_, _ = w.inner.Release(ctx, lease.ReleaseRequest{Session: oldest.Session, ID: oldest.ID, Names: oldest.Names})
		return w.inner.Renew(ctx, req)
	}
}

func renewNotWritten(h *harness) {
	w := replace(h)
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		info, _ := w.inner.Get(ctx, "n")
		if info.Session == req.Session && !info.Held {
			return w.inner.Renew(ctx, req)
		}
		return lease.Renewal{Remaining: w.session(req.Session).TTL}, nil
	}
}

func readingWrites(h *harness) {
	w := replace(h)
	w.get = func(ctx context.Context, name string) (lease.Info, error) {
		info, err := w.inner.Get(ctx, name)
		if err == nil && info.End == lease.EndExpired {
			_, _ = w.inner.Open(ctx, w.session(info.Session)) // the session's own call
		}
		return info, err
	}
}

func renewForgets(h *harness) {
	w := replace(h)
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		req.Release = nil
		return w.inner.Renew(ctx, req)
	}
}

func renewRevives(h *harness) {
	w := replace(h)
	var n atomic.Int64
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		before, _ := w.inner.Get(ctx, "n")
		mine := before.Held && before.Session == req.Session
		after := before
		for i := 0; mine && after.Held && i < 5; i++ { // a release is under way, or comes too late for this twin
			pause()
			after, _ = w.inner.Get(ctx, "n")
		}
		if mine && !after.Held {
			again := sibling(before.Acquisition, int(n.Add(1)))
			_, _ = w.Acquire(ctx, lease.AcquireRequest{Session: req.Session, ID: again, Names: []string{"n"}})
		}
		return w.inner.Renew(ctx, req)
	}
}

func ttlTwins() []twin {
	return []twin{
		{"TTLs are cut to whole seconds", ttlSeconds, []string{"L56-ttl-is-exact-or-refused"}},
		{"TTLs are cut to whole seconds and told as asked for", ttlSecondsHidden, []string{"L56-ttl-is-exact-or-refused"}},
		{"a TTL out of range is moved into it", ttlClamped, []string{"L55-a-ttl-out-of-range-is-refused"}},
		{"one TTL for all", ttlShared, []string{"L59-expiry-follows-the-recorded-ttl"}},
		{"expiry computed by the client", expiryByClient, []string{"L66-expiry-is-computed-by-the-store"}},
		{"expiry computed before waiting for the store's turn", expiryBeforeWait, []string{"a-call-that-waited-reads-the-clock-afterwards"}},
		{"what is left is told as half of it", leftHalved, []string{"L60-a-waiter-acquires-at-the-true-expiry"}},
	}
}

// withTTL stores another TTL than the one asked for; tell says what the replies speak of.
func withTTL(h *harness, stored func(asked time.Duration) time.Duration, hidden bool) {
	w := replace(h)
	w.open = func(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
		asked := req.TTL
		req.TTL = stored(asked)
		left, err := w.inner.Open(ctx, req)
		if hidden && err == nil {
			left = asked
		}
		return left, err
	}
	if hidden {
		w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
			r, err := w.inner.Renew(ctx, req)
			r.Remaining = w.session(req.Session).TTL
			return r, err
		}
	}
}

func seconds(d time.Duration) time.Duration { return d.Truncate(time.Second) }

func ttlSeconds(h *harness)       { withTTL(h, seconds, false) }
func ttlSecondsHidden(h *harness) { withTTL(h, seconds, true) }
func ttlClamped(h *harness) {
	withTTL(h, func(d time.Duration) time.Duration { return min(max(d, lease.MinTTL), lease.MaxTTL) }, false)
}

func ttlShared(h *harness) {
	var first atomic.Int64
	withTTL(h, func(d time.Duration) time.Duration {
		first.CompareAndSwap(0, int64(d))
		return time.Duration(first.Load())
	}, true)
}

// expiryByClient is a store that writes the expiry which a client's slow clock gave.
func expiryByClient(h *harness) {
	withTTL(h, func(d time.Duration) time.Duration { return d - 3*time.Second }, true)
}

func expiryBeforeWait(h *harness) {
	w := replace(h)
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		sent := time.Now()
		r, err := w.inner.Renew(ctx, req)
		w.h.mem.Advance(time.Since(sent)) // expiry = when it was sent + TTL
		return r, err
	}
}

func leftHalved(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		grants, err := w.inner.Acquire(ctx, req)
		var held *lease.HeldError
		if errors.As(err, &held) {
			held.Left /= 2
		}
		return grants, err
	}
}
