package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/lease"
)

func forgets(w *world) {
	w.wrap = func(s lease.Store) lease.Store { return forgetsReleases{s} }
}

// waitsToRelease has a row locked by somebody: whatever would release waits.
type waitsToRelease struct {
	lease.Store
	locked <-chan struct{}
}

func (s waitsToRelease) wait(ctx context.Context, releases int) error {
	if releases == 0 {
		return nil
	}
	select {
	case <-s.locked:
		return nil
	case <-ctx.Done():
		return &lease.UnavailableError{Op: "release", Err: context.Cause(ctx)}
	}
}

func (s waitsToRelease) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	if err := s.wait(ctx, len(req.Release)); err != nil {
		return lease.Renewal{}, err
	}
	return s.Store.Renew(ctx, req)
}

func (s waitsToRelease) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	if err := s.wait(ctx, 1); err != nil {
		return lease.Released{}, err
	}
	return s.Store.Release(ctx, req)
}

// A release that waits for a stranger's transaction does not cost the session, and is done when it can be.
func TestReleaseThatWaits(t *testing.T) {
	sound(t, func(w *world) error {
		locked := make(chan struct{})
		w.wrap = func(s lease.Store) lease.Store { return waitsToRelease{s, locked} }
		s, _ := w.client(lease.Options{})
		l, other := w.mustAcquire(s, "a"), w.mustAcquire(s, "b")
		if err := want(lease.ErrUnavailable, l.Release(w.t.Context())); err != nil {
			return err
		}
		pass(10 * ttl)
		if err := context.Cause(other.Context()); err != nil {
			return fmt.Errorf("another lease ended: %w", err)
		}
		close(locked)
		pass(ttl)
		if n := s.Stats().PendingReleases; n != 0 {
			return fmt.Errorf("%d releases are pending", n)
		}
		return errors.Join(w.free("a"), context.Cause(other.Context()))
	})
}

// L1: the reply to a release is lost, the client acquires again, then the old release is repeated, by the
// renewals and by the caller: the new lease stays.
func TestL1OldReleaseRepeated(t *testing.T) {
	both(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		old := w.mustAcquire(s, "a")
		p.next("release", loseReply)
		if err := want(lease.ErrUnknown, old.Release(w.t.Context())); err != nil {
			return err
		}
		l := w.mustAcquire(s, "a")
		pass(ttl)
		if err := old.Release(w.t.Context()); err != nil {
			return err
		}
		pass(ttl)
		claim, err := l.Claim()
		if err == nil && (!w.info("a").Held || w.info("a").Token != claim.Token) {
			err = errors.New("the new lease was released with the old one")
		}
		return err
	}, func(w *world) {
		w.wrap = func(s lease.Store) lease.Store { return releasesByName{s} }
	})
}

// L2, L10: a release that failed, before or after it was applied, can be repeated; then the name can be
// acquired, and a handle is never stuck.
func TestL2L10ReleaseRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		fault rule
		kind  error
	}{
		"away":          {unavailable, lease.ErrUnavailable},
		"request lost":  {loseRequest, lease.ErrUnknown},
		"reply lost":    {loseReply, lease.ErrUnknown},
		"black hole":    {blackHole, lease.ErrUnknown},
		"driver's text": {answers(errors.New("driver: bad connection")), lease.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			sound(t, func(w *world) error {
				s, p := w.client(lease.Options{})
				for range 3 {
					l := w.mustAcquire(s, "a")
					for range 2 {
						p.next("release", c.fault)
						if err := want(c.kind, l.Release(w.t.Context())); err != nil {
							return err
						}
						if err := l.Context().Err(); err == nil {
							return errors.New("the context goes on after a release")
						}
					}
					for range 2 {
						if err := l.Release(w.t.Context()); err != nil {
							return err
						}
					}
					if n := s.Stats().PendingReleases; n != 0 {
						return fmt.Errorf("%d releases are pending", n)
					}
				}
				return w.free("a")
			})
		})
	}
}

// Rule 4: a release that nobody could confirm is repeated by the renewals, because it would not simply expire.
func TestUnconfirmedReleaseIsRepeated(t *testing.T) {
	both(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		p.next("release", loseRequest)
		p.next("renew", loseRequest, loseReply)
		if err := want(lease.ErrUnknown, l.Release(w.t.Context())); err != nil {
			return err
		}
		pass(ttl)
		if n := s.Stats().PendingReleases; n != 0 {
			return fmt.Errorf("%d releases are pending", n)
		}
		return errors.Join(w.free("a"), s.Context().Err(), l.Release(w.t.Context()))
	}, forgets)
}

// L48: a release whose context is already cancelled still releases.
func TestL48ReleaseDetached(t *testing.T) {
	both(t, func(w *world) error {
		s, _ := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		if err := w.release(ctx, l); err != nil {
			return err
		}
		return w.free("a")
	}, func(w *world) { w.release = releaseAttached })
}

// Release and Close are bounded although their caller's context is not.
func TestReleaseAndCloseBounded(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		p.all(blackHole, everyOp()...)
		for _, end := range []func(context.Context) error{l.Release, s.Close} {
			start := time.Now()
			if err := want(lease.ErrUnknown, end(context.Background())); err != nil {
				return err
			}
			if took := time.Since(start); took != 5*time.Second {
				return fmt.Errorf("took %v", took)
			}
		}
		p.heal()
		return errors.Join(s.Close(context.Background()), l.Release(context.Background()), w.free("a"))
	})
}

// A release says so if the lease had been over before: by expiry, by a revocation that was not yet told, by MaxHold.
func TestReleaseOfWhatIsOver(t *testing.T) {
	for how, gone := range map[lease.End]func(w *world, s *lease.Session){
		lease.EndExpired: func(w *world, _ *lease.Session) { w.authority.Advance(2 * ttl) },
		lease.EndRevoked: func(w *world, _ *lease.Session) {
			_, _ = w.authority.Revoke(w.t.Context(), lease.RevokeRequest{Name: "a", Token: 1, Reason: "by hand"})
		},
		lease.EndSuperseded: func(w *world, s *lease.Session) {
			pass(2 * ttl)
			w.mustAcquire(s, "a")
		},
	} {
		t.Run(how.String(), func(t *testing.T) {
			sound(t, func(w *world) error {
				s, _ := w.client(lease.Options{})
				l, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}, MaxHold: 2 * ttl})
				if err != nil {
					return err
				}
				gone(w, s)
				for range 2 {
					var ended *lease.EndedError
					if err := l.Release(w.t.Context()); !errors.As(err, &ended) || ended.How != how {
						return fmt.Errorf("got %w", orNone(err))
					}
				}
				return nil
			})
		})
	}
}

// What the session knows already needs no call: a loss that a renewal told, a close that was confirmed.
func TestReleaseAnsweredWithoutAsking(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		w.authority.Advance(ttl)
		pass(ttl / 3)
		p.all(unavailable, "release")
		return want(lease.ErrEnded, l.Release(w.t.Context()))
	})
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		p.all(unavailable, "release")
		return errors.Join(s.Close(w.t.Context()), l.Release(w.t.Context()))
	})
}

// L38, L40: acquires and releases in a loop, with renewals in flight at every moment, then a close. No renewal is
// sent once the session was closed, and none revives a lease.
func TestL38L40NoRenewalAfterTheEnd(t *testing.T) {
	both(t, func(w *world) error {
		s, p := w.client(lease.Options{TTL: 3 * time.Second})
		p.all(func(ctx context.Context, forward func(context.Context) error) error {
			err := forward(ctx)
			select { // a renewal is in flight for most of the time
			case <-time.After(900 * time.Millisecond):
			case <-ctx.Done():
			}
			return err
		}, "renew")
		for range 200 {
			l := w.mustAcquire(s, "a")
			pass(7 * time.Millisecond)
			if err := l.Release(w.t.Context()); err != nil {
				return err
			}
			pass(14 * time.Millisecond)
			if err := w.free("a"); err != nil {
				return err
			}
		}
		w.mustAcquire(s, "a")
		if err := s.Close(w.t.Context()); err != nil {
			return err
		}
		closed := p.calls("close")[0].at
		pass(ttl)
		for _, c := range p.calls("renew") {
			if !c.at.Before(closed) {
				return fmt.Errorf("a renewal was sent %v after the close", c.at.Sub(closed))
			}
		}
		return w.free("a")
	}, func(w *world) {
		w.wrap = func(s lease.Store) lease.Store { return straysAfterClose{s} }
	})
}

// L42: the work returns while a renewal is in flight: the name is free at once, and the renewal's late reply
// changes nothing.
func TestL42ReleaseDuringRenewal(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		p.all(late(time.Second), "renew")
		err := w.do(w.t.Context(), s, "a", func(context.Context, *lease.Lease) error {
			pass(ttl / 3)
			if len(p.calls("renew")) != 1 || s.Stats().Renewals != 0 {
				return errors.New("the case needs a renewal in flight")
			}
			return nil
		})
		if err := errors.Join(err, w.free("a")); err != nil {
			return err
		}
		pass(2 * time.Second)
		return errors.Join(w.free("a"), s.Context().Err())
	})
}

// A renewal that was sent before a revocation, or that carries the news of one, meets a lease that its holder has
// released meanwhile: nothing is told twice and nothing is left over.
func TestRevokedWhileReleasing(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		if _, err := w.authority.Revoke(w.t.Context(), lease.RevokeRequest{Name: "a", Token: 1, Reason: "by hand"}); err != nil {
			return err
		}
		p.next("renew", late(time.Second))
		pass(ttl / 3)
		if err := want(lease.ErrEnded, l.Release(w.t.Context())); err != nil {
			return err
		}
		pass(3 * ttl)
		if stats := s.Stats(); stats.Leases != 0 || stats.PendingReleases != 0 {
			return fmt.Errorf("left over: %+v", stats)
		}
		var lost *lease.LostError
		if cause := context.Cause(l.Context()); !errors.As(cause, &lost) || lost.How != lease.EndReleased {
			return fmt.Errorf("cause %w", cause)
		}
		return nil
	})
}

// ClosedBelow never falls and never passes an acquire in flight. The twin closes an id that is still asked for.
func TestClosedBelow(t *testing.T) {
	both(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		p.next("acquire", blackHole) // in flight for 5 s, across a renewal
		got := make(chan error, 1)
		go func() {
			_, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"slow"}, Try: true})
			got <- err
		}()
		synctest.Wait()
		slow := p.calls("acquire")[0].id
		for range 10 {
			if err := w.mustAcquire(s, "a").Release(w.t.Context()); err != nil {
				return err
			}
		}
		if err := <-got; err != nil {
			return err
		}
		pass(ttl)
		for _, op := range []string{"acquire", "release", "renew"} {
			seen := p.calls(op)
			for i, c := range seen {
				if i > 0 && c.closedBelow.Less(seen[i-1].closedBelow) {
					return fmt.Errorf("%s: closed below fell", op)
				}
			}
			if seen[0].closedBelow != slow {
				return fmt.Errorf("%s: closed below %v, want %v, the lowest in flight", op, seen[0].closedBelow, slow)
			}
		}
		renewals := p.calls("renew")
		if last := renewals[len(renewals)-1]; !slow.Less(last.closedBelow) {
			return errors.New("the id stays open although its outcome is known")
		}
		return nil
	}, func(w *world) {
		w.wrap = func(s lease.Store) lease.Store { return closesTooMuch{s} }
	})
}
