package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/lease"
)

func givesNothingBack(w *world) {
	w.wrap = func(s lease.Store) lease.Store { return neverGivesBack{forgetsReleases{s}} }
}

// L3, L8, F8: an acquire is cancelled at every step it can be at. It leaves nothing behind: the next client is served
// within one round trip, under a session that goes on. L8 is the step right after the commit.
func TestL3L8F8CancelledAcquire(t *testing.T) {
	type step func(cancel func()) rule
	steps := map[string]step{
		"before it is sent": nil,
		"on its way there": func(cancel func()) rule {
			return func(ctx context.Context, forward func(context.Context) error) error {
				cancel()
				return blackHole(ctx, forward)
			}
		},
		"applied": func(cancel func()) rule {
			return func(ctx context.Context, forward func(context.Context) error) error {
				_ = forward(ctx)
				cancel()
				return unknownTo(context.Cause(ctx))
			}
		},
		"applied later": func(cancel func()) rule {
			return func(ctx context.Context, forward func(context.Context) error) error {
				cancel()
				time.AfterFunc(time.Second, func() { _ = forward(context.WithoutCancel(ctx)) })
				return unknownTo(context.Cause(ctx))
			}
		},
	}
	check := func(at step) func(w *world) error {
		return func(w *world) error {
			a, p := w.client(lease.Options{})
			b, _ := w.client(lease.Options{Owner: "b"})
			ctx, cancel := context.WithCancel(w.t.Context())
			if at == nil {
				cancel()
			} else {
				p.next("acquire", at(cancel))
			}
			_, err := a.Acquire(ctx, lease.Want{Names: []string{"a"}})
			if err := want(lease.ErrWaitEnded, err); err != nil {
				return err
			}
			synctest.Wait()
			if _, err := b.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}, Try: true}); err != nil {
				return err
			}
			pass(2 * ttl)
			if token := w.info("a").Token; token > 2 {
				return fmt.Errorf("token %d was granted", token)
			}
			return a.Context().Err()
		}
	}
	for name, at := range steps {
		t.Run(name, func(t *testing.T) {
			if name == "applied" {
				both(t, check(at), givesNothingBack)
				return
			}
			sound(t, check(at))
		})
	}
}

// L3: a waiter that is cancelled while it polls leaves nothing behind, and says who held the name.
func TestL3CancelledWaiter(t *testing.T) {
	sound(t, func(w *world) error {
		a, _ := w.client(lease.Options{Owner: "the holder"})
		b, _ := w.client(lease.Options{Owner: "b"})
		l := w.mustAcquire(a, "a")
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := b.Acquire(ctx, lease.Want{Names: []string{"a"}})
		var ended *lease.WaitEndedError
		if !errors.As(err, &ended) || ended.Held == nil || ended.Held.Owner != "the holder" || !errors.Is(ended.Err, context.DeadlineExceeded) {
			return fmt.Errorf("got %w", orNone(err))
		}
		if took := time.Since(start); took != time.Second {
			return fmt.Errorf("the wait took %v", took)
		}
		if err := l.Release(w.t.Context()); err != nil {
			return err
		}
		pass(ttl)
		return w.free("a")
	})
}

// L8: the caller's context is cancelled exactly after the commit, and the network stays down. When it heals,
// a renewal carries the release; a release by id then succeeds.
func TestL8CancelledAfterCommit(t *testing.T) {
	both(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		ctx, cancel := context.WithCancel(w.t.Context())
		p.next("acquire", func(ctx context.Context, forward func(context.Context) error) error {
			_ = forward(ctx)
			cancel()
			p.all(loseRequest, everyOp()...)
			return unknownTo(context.Cause(ctx))
		})
		_, err := s.Acquire(ctx, lease.Want{Names: []string{"a"}})
		if err := want(lease.ErrWaitEnded, err); err != nil {
			return err
		}
		pass(time.Second)
		held := w.info("a")
		if !held.Held || s.Stats().PendingReleases != 1 {
			return fmt.Errorf("the case needs a grant that nobody knows: %+v", held)
		}
		p.heal()
		pass(ttl / 3)
		if err := w.free("a"); err != nil {
			return err
		}
		if n := s.Stats().PendingReleases; n != 0 {
			return fmt.Errorf("%d releases are pending", n)
		}
		_, err = w.authority.Release(w.t.Context(), lease.ReleaseRequest{Session: held.Session, ID: held.Acquisition, Names: []string{"a"}})
		return err
	}, func(w *world) {
		w.wrap = func(s lease.Store) lease.Store { return forgetsReleases{s} }
	})
}

// L5, F7: the reply to an acquire is lost. The client asks again, recognises itself, and has the same token.
func TestL5F7LostGrant(t *testing.T) {
	both(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		p.next("acquire", loseReply, loseRequest, swallowReply)
		l, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}, Try: true})
		if err != nil {
			return err
		}
		claim, err := l.Claim()
		if info := w.info("a"); err != nil || claim.Token != 1 || info.Token != 1 || info.Acquisition != l.ID() {
			return fmt.Errorf("claim %v, authority %+v: %w", claim, info, orNone(err))
		}
		seen := p.calls("acquire")
		for _, c := range seen {
			if c.id != seen[0].id {
				return errors.New("a lost reply was asked for under another id")
			}
		}
		return nil
	}, func(w *world) {
		w.wrap = func(s lease.Store) lease.Store { return freshIDs{s} }
	})
}

// The first attempt is delayed on its way, its retry under the same id is refused, and when the first
// arrives the name has become free: it must not be granted to somebody who went away with the refusal.
func TestDelayedAttemptAfterRefusal(t *testing.T) {
	both(t, func(w *world) error {
		a, p := w.client(lease.Options{})
		b, _ := w.client(lease.Options{Owner: "b"})
		holder := w.mustAcquire(b, "a")
		p.next("acquire", func(ctx context.Context, forward func(context.Context) error) error {
			time.AfterFunc(time.Second, func() { _ = forward(context.WithoutCancel(ctx)) })
			return unknownTo(errLost)
		})
		_, err := a.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}, Try: true})
		if err := want(lease.ErrHeld, err); err != nil {
			return err
		}
		if err := holder.Release(w.t.Context()); err != nil {
			return err
		}
		pass(2 * time.Second)
		return w.free("a")
	}, givesNothingBack)
}

// After a refusal each poll has a new id; each refusal is told.
func TestPollsHaveNewIDs(t *testing.T) {
	sound(t, func(w *world) error {
		a, _ := w.client(lease.Options{})
		b, p := w.client(lease.Options{Owner: "b"})
		w.mustAcquire(a, "a")
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		defer cancel()
		told := 0
		_, err := b.Acquire(ctx, lease.Want{Names: []string{"a"}, OnHeld: func(e *lease.HeldError) { told++ }})
		if err := want(lease.ErrWaitEnded, err); err != nil {
			return err
		}
		seen := p.calls("acquire")
		for i, c := range seen[1:] {
			gap := c.at.Sub(seen[i].at)
			if !seen[i].id.Less(c.id) || c.closedBelow != c.id || gap > 250*time.Millisecond || gap < 10*time.Millisecond {
				return fmt.Errorf("poll %d came after %v, id %v after %v, closed below %v", i+1, gap, c.id, seen[i].id, c.closedBelow)
			}
		}
		if told != len(seen) || told > 50 {
			return fmt.Errorf("%d polls, %d refusals told", len(seen), told)
		}
		return nil
	})
}

// L43: the context that the acquire was called with ends after the grant; holding and renewing go on.
func TestL43ContextOfAcquireEnds(t *testing.T) {
	both(t, func(w *world) error {
		s, _ := w.client(lease.Options{})
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		l, err := s.Acquire(ctx, lease.Want{Names: []string{"a"}})
		if err != nil {
			return err
		}
		pass(3 * ttl)
		_, err = l.Claim()
		if !w.info("a").Held {
			err = errors.Join(err, errors.New("the authority lost it"))
		}
		return err
	}, func(w *world) {
		w.wrap = func(s lease.Store) lease.Store { return tiesGrantToCall{s} }
	})
}

// L47: the session ends while the grant is on its way: nobody can keep it, so it is handed back.
func TestL47GrantWithoutKeeper(t *testing.T) {
	both(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		p.all(blackHole, "renew")
		p.next("acquire", late(ttl-margin+time.Millisecond))
		_, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}})
		if err := want(lease.ErrEnded, err); err != nil {
			return err
		}
		info := w.info("a")
		if info.Token == 0 || info.End == lease.EndExpired {
			return fmt.Errorf("the case needs a grant under a session that the authority has not ended: %+v", info)
		}
		return w.free("a")
	}, givesNothingBack)
}

// F9: a waiter whose own session ended while it queued gets an error, and nothing is granted to it later.
func TestF9WaiterWithoutSession(t *testing.T) {
	sound(t, func(w *world) error {
		a, _ := w.client(lease.Options{})
		b, p := w.client(lease.Options{Owner: "b"})
		holder := w.mustAcquire(a, "a")
		p.all(blackHole, "renew")
		start := time.Now()
		_, err := b.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}})
		if err := want(lease.ErrEnded, err); err != nil {
			return err
		}
		if took := time.Since(start); took != ttl-margin {
			return fmt.Errorf("the wait ended after %v", took)
		}
		if err := holder.Release(w.t.Context()); err != nil {
			return err
		}
		pass(time.Second)
		return w.free("a")
	})
}

// A waiting Acquire ends when its session is closed.
func TestCloseEndsWaiters(t *testing.T) {
	sound(t, func(w *world) error {
		a, _ := w.client(lease.Options{})
		b, _ := w.client(lease.Options{Owner: "b"})
		w.mustAcquire(a, "a")
		time.AfterFunc(time.Second, func() { _ = b.Close(context.Background()) })
		_, err := b.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}})
		var ended *lease.EndedError
		if !errors.As(err, &ended) || ended.What != "session" || ended.How != lease.EndClosed {
			return fmt.Errorf("got %w", orNone(err))
		}
		return nil
	})
}

// L59: two clients with different TTLs: expiry follows the holder's, for the waiter with the long one too.
// L60: a waiter that starts late acquires at the true expiry, and does not wait a TTL of its own.
func TestL59L60SuccessorAtTrueExpiry(t *testing.T) {
	for _, began := range []time.Duration{0, ttl / 2, ttl - time.Millisecond} {
		sound(t, func(w *world) error {
			a, p := w.client(lease.Options{})
			b, _ := w.client(lease.Options{Owner: "b", TTL: 4 * ttl})
			w.mustAcquire(a, "a")
			p.all(blackHole, everyOp()...)
			expiry := time.Now().Add(ttl)
			pass(began)
			l, err := b.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}})
			if err != nil {
				return err
			}
			if late := time.Since(expiry); late < 0 || late > 20*time.Millisecond {
				return fmt.Errorf("granted %v after the holder's expiry", late)
			}
			if left := l.Left(); left < 2*ttl {
				return fmt.Errorf("the successor has %v left of its own TTL", left)
			}
			return nil
		})
	}
}

// L68: waiting is bounded by the context alone, not by a TTL.
func TestL68WaitsLongerThanAnyTTL(t *testing.T) {
	sound(t, func(w *world) error {
		a, _ := w.client(lease.Options{})
		b, _ := w.client(lease.Options{Owner: "b", TTL: 2 * time.Second})
		holder := w.mustAcquire(a, "a")
		time.AfterFunc(10*ttl, func() { _ = holder.Release(context.Background()) })
		start := time.Now()
		if _, err := b.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}}); err != nil {
			return err
		}
		if took := time.Since(start) - 10*ttl; took < 0 || took > 250*time.Millisecond {
			return fmt.Errorf("granted %v after the release", took)
		}
		return nil
	})
}

// An authority that is away is waited out; with Try it is an error at once.
func TestAcquireWhileAway(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		p.all(unavailable, "acquire")
		_, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}, Try: true})
		if err := want(lease.ErrUnavailable, err); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		_, err = s.Acquire(ctx, lease.Want{Names: []string{"a"}})
		var ended *lease.WaitEndedError
		if !errors.As(err, &ended) || !errors.Is(ended.Err, lease.ErrUnavailable) || !errors.Is(ended.Err, context.DeadlineExceeded) {
			return fmt.Errorf("got %w", orNone(err))
		}
		time.AfterFunc(time.Second, p.heal)
		_, err = s.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}})
		return err
	})
}

// Each failure that is waited out is told, and who is told may end the wait; the last answer is in the error.
func TestFailuresAreToldWhileWaiting(t *testing.T) {
	sound(t, func(w *world) error {
		a, p := w.client(lease.Options{})
		down := func(context.Context, func(context.Context) error) error {
			return &lease.UnavailableError{Op: "acquire", Err: errLost}
		}
		reset := func(context.Context, func(context.Context) error) error { return errLost }
		p.next("acquire", down, reset)
		p.all(down, "acquire")
		bounded, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		defer cancel()
		ctx, giveUp := context.WithCancelCause(bounded)
		defer giveUp(nil)
		var told []error
		_, err := a.Acquire(ctx, lease.Want{Names: []string{"a"}, OnFailure: func(err error) {
			if told = append(told, err); len(told) == 3 {
				giveUp(errors.New("enough"))
			}
		}})
		var ended *lease.WaitEndedError
		if len(told) != 3 || !errors.Is(told[0], lease.ErrUnavailable) || !errors.Is(told[1], lease.ErrUnknown) || !errors.Is(told[2], lease.ErrUnavailable) {
			return fmt.Errorf("told %v", told)
		}
		if !errors.As(err, &ended) || !errors.Is(ended.Err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "enough") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}
