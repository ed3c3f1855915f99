package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func trusts(w *world) { w.holding = trust }

// warnings keeps what OnWarn was told.
type warnings chan time.Duration

func (n warnings) on(left time.Duration) { n <- left }

// L21: about-to-lose is told once an episode, before the deadline; again in the next episode.
func TestL21WarnedOnce(t *testing.T) {
	sound(t, func(w *world) error {
		n := make(warnings, 8)
		_, p := w.client(lease.Options{OnWarn: n.on})
		pass(2 * ttl)
		for episode := range 2 {
			if got := len(n); got != 0 {
				return fmt.Errorf("%d warnings more before episode %d", got, episode)
			}
			p.all(unavailable, "renew")
			if left := <-n; left > ttl/3 || left < ttl/3-margin {
				return fmt.Errorf("warned with %v left", left)
			}
			pass(ttl/3 - margin)
			p.heal()
			pass(ttl)
		}
		if got := len(n); got != 0 {
			return fmt.Errorf("%d warnings too many", got)
		}
		return nil
	})
}

// L21: the watcher slept past both the warning and the deadline: one warning, with nothing left.
func TestL21WarnedOnceAfterSuspend(t *testing.T) {
	for name, wake := range map[string]func(s *lease.Session){
		"by the watchdog": func(*lease.Session) { pass(margin) },
		"by a use":        func(s *lease.Session) { _ = s.Left(); pass(margin) },
	} {
		t.Run(name, func(t *testing.T) {
			sound(t, func(w *world) error {
				n := make(warnings, 8)
				s, _ := w.client(lease.Options{OnWarn: n.on})
				w.suspend(2 * ttl)
				wake(s)
				pass(ttl)
				if left := <-n; left != 0 || len(n) != 0 {
					return fmt.Errorf("warned with %v left, and %d times more", left, len(n))
				}
				return want(lease.ErrUncertain, context.Cause(s.Context()))
			})
		})
	}
}

// A panic in OnWarn goes no further; an OnWarn that hangs delays nothing.
func TestWarningPanicsOrHangs(t *testing.T) {
	until := make(chan struct{})
	for _, on := range []func(time.Duration){
		func(time.Duration) { panic("the callback broke") },
		func(time.Duration) { <-until },
	} {
		sound(t, func(w *world) error {
			until = make(chan struct{})
			defer close(until)
			s, p := w.client(lease.Options{OnWarn: on})
			p.all(blackHole, "renew")
			return endsWithin(s.Context(), ttl-margin, ttl-margin, lease.ErrUncertain)
		})
	}
}

// L23: why a lease was lost is typed, as the cause of its context.
func TestL23CauseIsTyped(t *testing.T) {
	lost := func(how lease.End, reason string) func(error) bool {
		return func(err error) bool {
			var lost *lease.LostError
			return errors.As(err, &lost) && *lost == lease.LostError{How: how, Reason: reason}
		}
	}
	uncertain := func(maxHold bool) func(error) bool {
		return func(err error) bool {
			var e *lease.UncertainError
			return errors.As(err, &e) && e.MaxHold == maxHold
		}
	}
	for name, c := range map[string]struct {
		end   func(w *world, s *lease.Session, p *proxy, l *lease.Lease) error
		cause func(error) bool
		how   lease.End // as Claim tells it
	}{
		"expired": {func(w *world, _ *lease.Session, _ *proxy, _ *lease.Lease) error {
			w.authority.Advance(ttl)
			return nil
		}, lost(lease.EndExpired, ""), lease.EndExpired},
		"revoked": {func(w *world, _ *lease.Session, _ *proxy, _ *lease.Lease) error {
			_, err := w.authority.Revoke(w.t.Context(), lease.RevokeRequest{Name: "a", Token: w.info("a").Token, Reason: "by hand"})
			return err
		}, lost(lease.EndRevoked, "by hand"), lease.EndRevoked},
		"released": {func(w *world, _ *lease.Session, _ *proxy, l *lease.Lease) error {
			return l.Release(w.t.Context())
		}, lost(lease.EndReleased, ""), lease.EndReleased},
		"closed": {func(w *world, s *lease.Session, _ *proxy, _ *lease.Lease) error {
			return s.Close(w.t.Context())
		}, lost(lease.EndClosed, ""), lease.EndClosed},
		"unreachable": {func(_ *world, _ *lease.Session, p *proxy, _ *lease.Lease) error {
			p.all(blackHole, everyOp()...)
			return nil
		}, uncertain(false), 0},
		"longest hold": {func(*world, *lease.Session, *proxy, *lease.Lease) error { return nil }, uncertain(true), 0},
	} {
		t.Run(name, func(t *testing.T) {
			sound(t, func(w *world) error {
				s, p := w.client(lease.Options{})
				l, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}, MaxHold: 2 * ttl})
				if err != nil {
					return err
				}
				ctx := l.Context()
				if err := c.end(w, s, p, l); err != nil {
					return err
				}
				<-ctx.Done()
				if cause := context.Cause(ctx); !c.cause(cause) {
					return fmt.Errorf("cause %w", cause)
				}
				_, err = l.Claim()
				var ended *lease.EndedError
				if !errors.As(err, &ended) || ended.How != c.how || ended.ID != l.ID() || errors.Is(err, lease.ErrLost) || errors.Is(err, lease.ErrUncertain) {
					return fmt.Errorf("Claim answers %w", err)
				}
				return nil
			})
		})
	}
}

// A revocation is told with the next renewal, ends that lease alone, and is closed with the renewal after.
func TestRevocationEndsOneLease(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		gone, kept := w.mustAcquire(s, "a"), w.mustAcquire(s, "b")
		if _, err := w.authority.Revoke(w.t.Context(), lease.RevokeRequest{Name: "a", Token: w.info("a").Token, Reason: "by hand"}); err != nil {
			return err
		}
		if err := endsWithin(gone.Context(), 0, ttl/3, lease.ErrLost); err != nil {
			return err
		}
		pass(ttl)
		if _, err := kept.Claim(); err != nil {
			return err
		}
		seen := p.calls("renew")
		if len(seen[1].released) != 1 || seen[1].released[0] != gone.ID() || len(seen[2].released) != 0 {
			return fmt.Errorf("renewals released %v, %v", seen[1].released, seen[2].released)
		}
		var ended *lease.EndedError
		if err := gone.Release(w.t.Context()); !errors.As(err, &ended) || ended.How != lease.EndRevoked || ended.Reason != "by hand" {
			return fmt.Errorf("release answers %w", orNone(err))
		}
		return nil
	})
}

// L62, F3: the machine sleeps longer than the TTL. After it nothing is started: the first use of the claim
// fails before anything is asked, and the contexts end within a tick although no timer has moved.
func TestL62F3Suspend(t *testing.T) {
	both(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		ctx, worker := l.Context(), w.holding(l)
		before := len(p.calls("renew"))
		w.suspend(ttl)
		if _, err := worker.Claim(); err == nil {
			return errors.New("a claim was given out after the suspend")
		}
		if err := want(lease.ErrUncertain, context.Cause(ctx)); err != nil {
			return err
		}
		pass(ttl)
		if n := len(p.calls("renew")); n != before {
			return errors.New("the session was renewed after it was over")
		}
		return nil
	}, trusts)
}

// Nobody uses the claim after the suspend: the watchdog's tick notices, also while the loop that renews hangs.
func TestL62NoticedByTheWatchdog(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		ctx := s.Context()
		p.next("renew", late(ttl))
		pass(ttl/3 + time.Millisecond)
		w.suspend(ttl)
		defer pass(ttl) // the late reply has come then
		return endsWithin(ctx, 0, margin/2, lease.ErrUncertain)
	})
}

// The loop that renews wakes first after the suspend: it sends nothing, the session is over.
func TestL62NothingIsSentAfterIt(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		pass(6*margin/2 + time.Millisecond) // just after a tick of the watchdog, just before the first renewal
		before := len(p.calls("renew"))
		w.suspend(ttl)
		pass(ttl)
		if n := len(p.calls("renew")); n != before {
			return errors.New("the session was renewed after it was over")
		}
		return want(lease.ErrUncertain, context.Cause(s.Context()))
	})
}

// A sleep that leaves something of the TTL is survived: the renewal is sent when the clock says so, not
// when the timer that stood still would have.
func TestL62ShortSuspend(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		w.suspend(ttl - margin - time.Second)
		pass(margin / 2)
		if n := len(p.calls("renew")); n != 1 {
			return fmt.Errorf("%d renewals", n)
		}
		pass(2 * ttl)
		_, err := l.Claim()
		return err
	})
}

// Once ended, a lease never comes back, even while the authority still counts it as held. The twin asks it.
func TestEndedLeaseNeverComesBack(t *testing.T) {
	both(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		worker := w.holding(l)
		p.all(blackHole, "renew")
		if err := endsWithin(l.Context(), 0, ttl, lease.ErrUncertain); err != nil {
			return err
		}
		p.heal()
		if !w.info("a").Held {
			return errors.New("the case needs an authority that still counts it as held")
		}
		if _, err := worker.Claim(); err == nil {
			return errors.New("the lease came back")
		}
		if _, err := l.Claims(); l.Left() != 0 || s.Left() != 0 || err == nil {
			return errors.New("something is left")
		}
		return nil
	}, func(w *world) {
		w.holding = func(l *lease.Lease) holding { return asksAgain{w.authority, l} }
	})
}

// L75: a stale handle's token never becomes the successor's.
func TestL75TokenOfHandleNeverChanges(t *testing.T) {
	both(t, func(w *world) error {
		a, p := w.client(lease.Options{})
		stale := w.mustAcquire(a, "a")
		worker := w.holding(stale)
		first, err := stale.Claim()
		if err != nil {
			return err
		}
		p.all(blackHole, everyOp()...)
		pass(ttl)
		p.heal()
		b, _ := w.client(lease.Options{Owner: "a"})
		second, err := w.mustAcquire(b, "a").Claim()
		if err != nil || second.Token <= first.Token {
			return fmt.Errorf("the successor has token %d after %d: %w", second.Token, first.Token, orNone(err))
		}
		if claim, err := worker.Claim(); err == nil || claim.Token == second.Token {
			return fmt.Errorf("the stale handle shows token %d", claim.Token)
		}
		return nil
	}, func(w *world) {
		w.holding = func(l *lease.Lease) holding { return asksAgain{w.authority, l} }
	})
}

// resource is content in this process, guarded by the authority's strict check.
type resource struct {
	content string
	refused int
}

func (r *resource) write(w *world, claim fence.Claim, text string) error {
	err := w.authority.Fenced(context.Background(), claim, func(context.Context) error {
		r.content = text
		return nil
	})
	if errors.Is(err, fence.ErrRefused) {
		r.refused++
	}
	return err
}

// F1, F2: the holder is paused past its TTL. Its first guarded action after that fails before a call leaves the
// process; and if the pause fell between check and write, the resource refuses the write.
func TestF1F2PausedHolder(t *testing.T) {
	both(t, func(w *world) error {
		var r resource
		a, p := w.client(lease.Options{})
		l := w.mustAcquire(a, "a")
		worker := w.holding(l)
		checked, err := l.Claim()
		if err != nil {
			return err
		}
		calls := len(p.calls("renew")) + len(p.calls("acquire"))
		w.suspend(3 * ttl)
		b, _ := w.client(lease.Options{Owner: "b"})
		successor, err := w.mustAcquire(b, "a").Claim()
		if err := errors.Join(err, r.write(w, successor, "of the successor")); err != nil {
			return err
		}
		if _, err := worker.Claim(); err == nil {
			return errors.New("F1: the check after the pause passed")
		}
		if n := len(p.calls("renew")) + len(p.calls("acquire")); n != calls {
			return errors.New("F1: a call left the process")
		}
		if err := want(fence.ErrRefused, r.write(w, checked, "late")); err != nil {
			return fmt.Errorf("F2: %w", err)
		}
		if r.content != "of the successor" || r.refused != 1 {
			return fmt.Errorf("F2: content %q, refused %d", r.content, r.refused)
		}
		return nil
	}, trusts)
}

// L20: the holder is cut off, a successor writes, the network heals: the former holder's write is refused.
func TestL20HealedPartition(t *testing.T) {
	sound(t, func(w *world) error {
		var r resource
		a, p := w.client(lease.Options{})
		old, err := w.mustAcquire(a, "a").Claim()
		if err != nil {
			return err
		}
		p.all(blackHole, everyOp()...)
		pass(ttl)
		b, _ := w.client(lease.Options{Owner: "b"})
		successor, err := w.mustAcquire(b, "a").Claim()
		if err := errors.Join(err, r.write(w, successor, "of the successor")); err != nil {
			return err
		}
		p.heal()
		pass(time.Second)
		if err := want(fence.ErrRefused, r.write(w, old, "late")); err != nil || r.content != "of the successor" {
			return fmt.Errorf("content %q: %w", r.content, orNone(err))
		}
		return nil
	})
}

// MaxHold ends the lease although the session lives, on time, and the others stay.
func TestMaxHold(t *testing.T) {
	sound(t, func(w *world) error {
		s, _ := w.client(lease.Options{})
		kept := w.mustAcquire(s, "kept")
		for i, hold := range []time.Duration{3*ttl + 1, ttl + time.Second/10, 2 * ttl, margin + time.Second/10} {
			l, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{fmt.Sprint(i)}, MaxHold: hold})
			if err != nil {
				return err
			}
			start := time.Now()
			context.AfterFunc(l.Context(), func() {
				if took := time.Since(start); took != hold-margin {
					w.t.Errorf("a hold of %v ended after %v", hold, took)
				}
			})
			if left := l.Left(); left != min(hold, ttl)-margin {
				return fmt.Errorf("left %v of a hold of %v", left, hold)
			}
		}
		pass(4 * ttl)
		if n := s.Stats().Leases; n != 5 {
			return fmt.Errorf("%d leases are known, want all five until they are released", n)
		}
		_, err := kept.Claim()
		return err
	})
}
