package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// L32: cancelling the work is not releasing. The name stays held until the function has returned, and is
// free right after. The twin releases on the cancellation.
func TestL32ReleasedAfterReturn(t *testing.T) {
	both(t, func(w *world) error {
		s, _ := w.client(lease.Options{})
		ctx, cancel := context.WithCancel(w.t.Context())
		err := w.do(ctx, s, "a", func(ctx context.Context, l *lease.Lease) error {
			cancel()
			<-ctx.Done()
			pass(2 * ttl) // it takes its time to notice
			if !w.info("a").Held {
				return errors.New("released while the work was running")
			}
			_, err := l.Claim()
			return err
		})
		return errors.Join(err, w.free("a"))
	}, func(w *world) { w.do = releaseOnCancel })
}

// The work's context has the caller's values, ends with the caller's context, and ends with the lease and its cause.
func TestDoContext(t *testing.T) {
	type key struct{}
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		ctx := context.WithValue(w.t.Context(), key{}, "value")
		var seen error
		err := w.do(ctx, s, "a", func(ctx context.Context, l *lease.Lease) error {
			if ctx.Value(key{}) != "value" {
				seen = errors.New("the caller's values are missing")
			}
			p.all(blackHole, "renew")
			seen = errors.Join(seen, endsWithin(ctx, 0, ttl-margin, lease.ErrUncertain))
			return nil
		})
		if seen != nil {
			return seen
		}
		if err := want(lease.ErrEnded, err); err != nil {
			return err
		}
		var ended *lease.EndedError
		if !errors.As(err, &ended) || ended.How != 0 {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// What Do returns: the function's error first, and never silence about a lease that was over before.
func TestDoReturns(t *testing.T) {
	errWork := errors.New("the work failed")
	revoke := func(w *world) {
		_, _ = w.authority.Revoke(w.t.Context(), lease.RevokeRequest{Name: "a", Token: 1, Reason: "by hand"})
	}
	for name, c := range map[string]struct {
		fn    func(w *world, p *proxy, l *lease.Lease) error
		kinds []error // all that the error must match; nil for success
	}{
		"success": {func(*world, *proxy, *lease.Lease) error { return nil }, nil},
		"failure": {func(*world, *proxy, *lease.Lease) error { return errWork }, []error{errWork}},
		"lost, and noticed": {func(w *world, _ *proxy, l *lease.Lease) error {
			revoke(w)
			<-l.Context().Done()
			return nil
		}, []error{lease.ErrEnded}},
		"lost, and not yet noticed": {func(w *world, _ *proxy, _ *lease.Lease) error { revoke(w); return nil }, []error{lease.ErrEnded}},
		"lost and failed": {func(w *world, _ *proxy, _ *lease.Lease) error { revoke(w); return errWork },
			[]error{errWork, lease.ErrEnded}},
		"released by itself": {func(w *world, _ *proxy, l *lease.Lease) error { return l.Release(w.t.Context()) }, nil},
		"release not confirmed": {func(_ *world, p *proxy, _ *lease.Lease) error { p.next("release", loseReply); return nil },
			[]error{lease.ErrUnknown}},
		"slept past the deadline": {func(w *world, _ *proxy, _ *lease.Lease) error { w.suspend(ttl); return nil }, []error{lease.ErrEnded}},
	} {
		t.Run(name, func(t *testing.T) {
			sound(t, func(w *world) error {
				s, p := w.client(lease.Options{})
				err := w.do(w.t.Context(), s, "a", func(_ context.Context, l *lease.Lease) error { return c.fn(w, p, l) })
				if c.kinds == nil {
					return err
				}
				for _, kind := range c.kinds {
					if err := want(kind, err); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// A panic of the work goes on to the caller, after the release.
func TestDoPanics(t *testing.T) {
	sound(t, func(w *world) (err error) {
		s, _ := w.client(lease.Options{})
		defer func() {
			if r := recover(); r != "the work broke" {
				err = fmt.Errorf("recovered %v", r)
			}
			err = errors.Join(err, w.free("a"))
		}()
		return w.do(w.t.Context(), s, "a", func(context.Context, *lease.Lease) error { panic("the work broke") })
	})
}

// Do does not run the work if the name was not granted.
func TestDoWaits(t *testing.T) {
	sound(t, func(w *world) error {
		a, _ := w.client(lease.Options{})
		b, _ := w.client(lease.Options{Owner: "b"})
		w.mustAcquire(a, "a")
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		return want(lease.ErrWaitEnded, w.do(ctx, b, "a", func(context.Context, *lease.Lease) error {
			w.t.Error("the work ran without the lease")
			return nil
		}))
	})
}
