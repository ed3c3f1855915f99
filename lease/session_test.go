package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// Settings that contradict each other fail at the start, and nothing is asked.
func TestOptionsChecked(t *testing.T) {
	for _, o := range []lease.Options{
		{TTL: -1}, {TTL: time.Microsecond}, {TTL: 25 * time.Hour}, {TTL: time.Second, Margin: 700 * time.Millisecond},
		{TTL: 600 * time.Millisecond}, {Margin: -1}, {Margin: 20 * time.Second}, {Warn: -1}, {Warn: 14 * time.Second},
		{Owner: strings.Repeat("x", lease.MaxOwner+1)}, {Owner: "\xff"},
	} {
		bubble(t, func(w *world) {
			p := newProxy(w.authority)
			_, err := lease.Start(w.t.Context(), p, o)
			if !errors.Is(err, lease.ErrInvalid) || len(p.calls("open")) != 0 {
				t.Errorf("%+v: got %v", o, err)
			}
		})
	}
	bubble(t, func(w *world) {
		s, p := w.client(lease.Options{})
		for _, c := range []lease.Want{
			{}, {Names: []string{""}}, {Names: []string{"a", "a"}}, {Names: []string{"a#1"}}, {Names: []string{"a\x00"}},
			{Names: []string{"a"}, MaxHold: -1}, {Names: []string{"a"}, MaxHold: margin}, {Names: make([]string, lease.MaxNames+1)},
		} {
			if _, err := s.Acquire(w.t.Context(), c); !errors.Is(err, lease.ErrInvalid) {
				t.Errorf("%+v: got %v", c, err)
			}
		}
		if len(p.calls("acquire")) != 0 {
			t.Error("what cannot be granted was asked for")
		}
	})
}

// Start repeats an open of unknown outcome under the same id, and gives up with the context.
func TestStart(t *testing.T) {
	bubble(t, func(w *world) {
		p := newProxy(w.authority)
		p.next("open", loseRequest, loseReply, swallowReply)
		s, err := lease.Start(w.t.Context(), p, lease.Options{Clock: w.clock()})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.calls("open") {
			if c.id != s.ID() {
				t.Error("the open was repeated under another id")
			}
		}
		// The last reply told what was left of a TTL that began with the second attempt.
		if left := s.Left(); left > ttl-margin-5*time.Second {
			t.Errorf("left %v", left)
		}
		if err := s.Close(w.t.Context()); err != nil {
			t.Error(err)
		}
	})
	bubble(t, func(w *world) { // a slow open leaves less time to the first renewal
		p := newProxy(w.authority)
		p.next("open", late(ttl/4))
		s, err := lease.Start(w.t.Context(), p, lease.Options{Clock: w.clock()})
		if err != nil {
			t.Fatal(err)
		}
		pass(ttl/3 - ttl/4)
		if n := len(p.calls("renew")); n != 1 {
			t.Errorf("%d renewals in a third of the TTL since the open was sent", n)
		}
		if err := s.Close(w.t.Context()); err != nil {
			t.Error(err)
		}
	})
	for kind, fault := range map[error]rule{lease.ErrUnavailable: unavailable, lease.ErrUnknown: blackHole, lease.ErrEnded: late(ttl)} {
		bubble(t, func(w *world) {
			p := newProxy(w.authority)
			p.all(fault, "open")
			ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
			defer cancel()
			if _, err := lease.Start(ctx, p, lease.Options{Clock: w.clock()}); !errors.Is(err, kind) {
				t.Errorf("got %v, want %v", err, kind)
			}
		})
	}
}

// The context that Start was called with bounds the opening alone.
func TestSessionOutlivesContextOfStart(t *testing.T) {
	bubble(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.t.Context())
		s, err := lease.Start(ctx, w.authority, lease.Options{Clock: w.clock()})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		pass(3 * ttl)
		if err := s.Context().Err(); err != nil {
			t.Error(context.Cause(s.Context()))
		}
		start := time.Now()
		if err := errors.Join(s.Close(ctx), s.Close(ctx)); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("closing took %v beside an authority that answers at once", took)
		}
	})
}

// Close tells a session that was over before, as the authority told it.
func TestCloseOfWhatIsOver(t *testing.T) {
	for name, told := range map[string]time.Duration{"told by the close": 0, "told by a renewal": ttl / 3} {
		t.Run(name, func(t *testing.T) {
			sound(t, func(w *world) error {
				s, _ := w.client(lease.Options{})
				w.authority.Advance(ttl)
				pass(told)
				for range 2 {
					var ended *lease.EndedError
					if err := s.Close(w.t.Context()); !errors.As(err, &ended) || ended.How != lease.EndExpired || ended.ID != s.ID() {
						return fmt.Errorf("got %w", orNone(err))
					}
				}
				return nil
			})
		})
	}
}

// Close asks again until its bound, and says what is known if it got no answer.
func TestCloseAsksAgain(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		w.mustAcquire(s, "a")
		p.next("close", unavailable, loseRequest, loseReply)
		return errors.Join(s.Close(w.t.Context()), w.free("a"))
	})
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		p.all(unavailable, "close")
		return want(lease.ErrUnavailable, s.Close(w.t.Context()))
	})
	sound(t, func(w *world) error { // the first attempt may have been applied, whatever the last one says
		s, p := w.client(lease.Options{})
		p.next("close", loseReply)
		p.all(unavailable, "close")
		return want(lease.ErrUnknown, s.Close(w.t.Context()))
	})
}

// A store whose Renew never returns does not keep Close from closing.
func TestCloseBesideHungRenewal(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		w.mustAcquire(s, "a")
		until := make(chan struct{})
		defer synctest.Wait()
		defer close(until)
		p.all(stuck(until), "renew")
		pass(ttl / 3)
		start := time.Now()
		if err := s.Close(w.t.Context()); err != nil {
			return err
		}
		if took := time.Since(start); took != 5*time.Second/2 {
			return fmt.Errorf("took %v", took)
		}
		return w.free("a")
	})
}

// Several names in one lease: claims in the order asked for, one end for all.
func TestManyNames(t *testing.T) {
	sound(t, func(w *world) error {
		s, _ := w.client(lease.Options{})
		asked := []string{"c", "a", "b"}
		l, err := s.Acquire(w.t.Context(), lease.Want{Names: asked})
		if err != nil {
			return err
		}
		asked[0] = "changed by the caller"
		claims, err := l.Claims()
		if err != nil || len(claims) != 3 || !slices.Equal(l.Names(), []string{"c", "a", "b"}) {
			return fmt.Errorf("claims %v of %q: %w", claims, l.Names(), orNone(err))
		}
		for i, name := range l.Names() {
			if claims[i].Name != name || claims[i].Acquisition != l.ID() {
				return fmt.Errorf("claim %d is %v", i, claims[i])
			}
		}
		if _, err := l.Claim(); !errors.Is(err, lease.ErrInvalid) {
			return fmt.Errorf("Claim of three names: %w", orNone(err))
		}
		return errors.Join(l.Release(w.t.Context()), w.free("a"), w.free("b"), w.free("c"))
	})
}
