package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/memory"
)

func takesFailureForEnd(w *world) {
	w.wrap = func(s lease.Store) lease.Store { return failureIsEnd{s} }
}

func takesFailureForSuccess(w *world) {
	w.wrap = func(s lease.Store) lease.Store { return hopes{s} }
}

// L7: a renewal was applied and its reply lost, at once or after a silence; the lease survives.
func TestL7LostRenewalReply(t *testing.T) {
	for _, lose := range []rule{loseReply, swallowReply} {
		both(t, func(w *world) error {
			s, p := w.client(lease.Options{})
			l := w.mustAcquire(s, "a")
			p.next("renew", lose, through)
			p.next("renew", lose)
			pass(3 * ttl)
			_, err := l.Claim()
			return err
		}, takesFailureForEnd)
	}
}

// L16, L22: the authority is black-holed, its connections end with an error, it is away; the contexts end by
// the safe deadline and not earlier, because every outcome was unknown.
func TestL16L22AuthorityAway(t *testing.T) {
	for name, fault := range map[string]rule{"black hole": blackHole, "reset": loseRequest, "away": unavailable} {
		t.Run(name, func(t *testing.T) {
			both(t, func(w *world) error {
				s, p := w.client(lease.Options{})
				l := w.mustAcquire(s, "a")
				p.all(fault, everyOp()...)
				if err := endsWithin(l.Context(), ttl-margin, ttl-margin, lease.ErrUncertain); err != nil {
					return err
				}
				var uncertain *lease.UncertainError
				if !errors.As(context.Cause(s.Context()), &uncertain) || uncertain.MaxHold || uncertain.Err == nil {
					return fmt.Errorf("cause of the session's end: %w", context.Cause(s.Context()))
				}
				if n := len(p.calls("renew")); n < 2 || n > 30 {
					return fmt.Errorf("%d renewals were tried, want some and not a storm", n)
				}
				if !w.info("a").Held {
					return errors.New("the client believed for longer than the authority")
				}
				return nil
			}, takesFailureForSuccess)
		})
	}
}

// L29: an authority that is away for 2 s does not touch work under a TTL of 15 s.
func TestL29ShortOutage(t *testing.T) {
	for _, fault := range []rule{unavailable, blackHole} {
		both(t, func(w *world) error {
			s, p := w.client(lease.Options{})
			return w.do(w.t.Context(), s, "a", func(ctx context.Context, l *lease.Lease) error {
				pass(ttl/3 - time.Second)
				p.all(fault, everyOp()...)
				pass(2 * time.Second)
				p.heal()
				pass(2 * ttl)
				_, err := l.Claim()
				return errors.Join(err, context.Cause(ctx))
			})
		}, takesFailureForEnd)
	}
}

// L31: every renewal is answered with a refusal that is not the end; work stops by the deadline.
func TestL31RenewalsRefused(t *testing.T) {
	for _, refusal := range []error{&lease.MismatchError{What: "ttl"}, &lease.InvalidError{Field: "session"}, errors.New("quota exceeded")} {
		both(t, func(w *world) error {
			s, p := w.client(lease.Options{})
			p.all(answers(refusal), "renew")
			return endsWithin(s.Context(), ttl-margin, ttl-margin, lease.ErrUncertain)
		}, takesFailureForSuccess)
	}
}

// L25: renewing never creates. After an expiry, or a flush, a renewal answers lost, and the contexts end
// with that reply and not at the deadline. One twin asks on, the other opens again.
func TestL25RenewalNeverCreates(t *testing.T) {
	check := func(how lease.End, gone func(w *world, p *proxy)) func(w *world) error {
		return func(w *world) error {
			s, p := w.client(lease.Options{})
			l := w.mustAcquire(s, "a")
			gone(w, p)
			if err := endsWithin(l.Context(), 0, ttl/3, lease.ErrLost); err != nil {
				return err
			}
			var lost *lease.LostError
			if !errors.As(context.Cause(s.Context()), &lost) || lost.How != how {
				return fmt.Errorf("cause %w, want %v", context.Cause(s.Context()), how)
			}
			pass(ttl)
			if n := len(p.calls("renew")); n != 1 {
				return fmt.Errorf("%d renewals were sent, want the one that was answered", n)
			}
			return nil
		}
	}
	expired := check(lease.EndExpired, func(w *world, _ *proxy) { w.authority.Advance(ttl) })
	flushed := check(lease.EndForgotten, func(w *world, p *proxy) { p.switchTo(memory.New(memory.Options{Clock: w.clock()})) })
	both(t, expired, func(w *world) { w.wrap = func(s lease.Store) lease.Store { return endIsFailure{s} } })
	both(t, flushed, func(w *world) { w.wrap = func(s lease.Store) lease.Store { return creates{s} } })
}

// F5: the reply to a renewal is delayed by two TTLs. The holder gives up on time although a
// positive answer arrives later, and that answer changes nothing.
func TestF5RenewalReplyDelayed(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		p.next("renew", late(2*ttl))
		if err := endsWithin(l.Context(), ttl-margin, ttl-margin, lease.ErrUncertain); err != nil {
			return err
		}
		pass(2 * ttl)
		_, err := l.Claim()
		return want(lease.ErrEnded, err)
	})
}

// Validity counts from sending also where the reply comes in time: the deadline is that of a reply without delay.
// The pure rule has its twin in rules_internal_test.go.
func TestF5SlowReplyShortensValidity(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		const delay = 4 * time.Second
		p.next("renew", late(delay))
		pass(ttl/3 + delay)
		sent := p.calls("renew")[0].at
		if got, want := s.Left(), ttl-margin-time.Since(sent); got != want {
			return fmt.Errorf("left %v, want %v", got, want)
		}
		pass(ttl / 3)
		if gap := p.calls("renew")[1].at.Sub(sent); gap > ttl/3 {
			return fmt.Errorf("the next renewal was sent after %v", gap)
		}
		return nil
	})
}

// F6: a renewal cannot be answered "ok" after the lease was granted to another. The holder's clock runs at half
// speed here, so that it still believes when the authority has given the name away.
func TestF6RenewalAfterRegrant(t *testing.T) {
	sound(t, func(w *world) error {
		running := w.clock()
		a, p := w.client(lease.Options{Clock: func() time.Duration { return running() / 2 }})
		old := w.mustAcquire(a, "a")
		p.all(blackHole, everyOp()...)
		pass(ttl)
		b, _ := w.client(lease.Options{Owner: "b"})
		successor := w.mustAcquire(b, "a")
		p.heal()
		if err := endsWithin(old.Context(), 0, ttl, lease.ErrLost); err != nil {
			return err
		}
		pass(ttl)
		claim, err := successor.Claim()
		if err == nil && w.info("a").Token != claim.Token {
			err = errors.New("the successor's lease was touched")
		}
		return err
	})
}

// A loop that renews and hangs, heeding no context, ends nothing too late; nor does one that panics. The twin
// watches the deadline in the loop itself.
func TestHungOrPanickingRenewalEndsOnTime(t *testing.T) {
	panics := func(context.Context, func(context.Context) error) error { panic("the driver broke") }
	for name, fault := range map[string]func(<-chan struct{}) rule{
		"hung":      stuck,
		"panicking": func(<-chan struct{}) rule { return panics },
	} {
		check := func(start func(w *world, fault rule) (context.Context, error)) func(w *world) error {
			return func(w *world) error {
				until := make(chan struct{})
				defer synctest.Wait()
				defer close(until)
				ctx, err := start(w, fault(until))
				if err != nil {
					return err
				}
				return endsWithin(ctx, ttl-margin, ttl-margin, lease.ErrUncertain)
			}
		}
		t.Run(name, func(t *testing.T) {
			sound(t, check(func(w *world, fault rule) (context.Context, error) {
				s, p := w.client(lease.Options{})
				p.all(fault, "renew")
				return s.Context(), nil
			}))
			bubble(t, func(w *world) {
				if err := check(func(w *world, fault rule) (context.Context, error) {
					p := newProxy(w.authority)
					p.all(fault, "renew")
					return watchInTheLoop(p)
				})(w); err == nil {
					t.Error("the broken twin was not caught")
				}
			})
		})
	}
}

// A lost request must leave time to ask again before the deadline: each attempt is bounded.
func TestEachRenewalIsBounded(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		p.next("renew", blackHole)
		pass(2 * ttl)
		if err := s.Context().Err(); err != nil {
			return context.Cause(s.Context())
		}
		seen := p.calls("renew")
		if gap := seen[1].at.Sub(seen[0].at); gap < ttl/3 || gap > ttl/3+ttl/30 {
			return fmt.Errorf("the second attempt came %v after the first", gap)
		}
		return nil
	})
}

// Figures for metrics.
func TestStats(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		w.mustAcquire(s, "a")
		p.next("renew", through, unavailable)
		pass(ttl/3 + time.Second)
		first := s.Stats()
		if first.Renewals != 1 || first.FailedRenewals != 0 || first.Leases != 1 || first.LastRenewal > 3*time.Second/2 ||
			first.Left != ttl-margin-first.LastRenewal {
			return fmt.Errorf("after one renewal: %+v", first)
		}
		pass(ttl / 3)
		if second := s.Stats(); second.Renewals != 2 || second.FailedRenewals != 1 {
			return fmt.Errorf("after a failure and a recovery: %+v", second)
		}
		p.all(unavailable, everyOp()...)
		pass(ttl)
		if third := s.Stats(); third.Left != 0 || third.Leases != 0 || third.FailedRenewals < 3 {
			return fmt.Errorf("after the end: %+v", third)
		}
		return nil
	})
}
