package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// A grant counts from sending too, with its MaxHold: a slow reply shortens both.
func TestF5SlowGrantShortensValidity(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		const delay = 2 * time.Second
		p.next("acquire", late(delay))
		l, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}, MaxHold: 5 * time.Second})
		if err != nil {
			return err
		}
		if hold, session := l.Left(), s.Left(); hold != 5*time.Second-margin-delay || session != ttl-margin-delay {
			return fmt.Errorf("left %v of the hold, %v of the session", hold, session)
		}
		return nil
	})
}

// A grant whose reply came when nothing of its MaxHold was left is handed back.
func TestGrantTooLateForItsHold(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		p.next("acquire", late(time.Second))
		_, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}, MaxHold: margin + time.Second})
		return errors.Join(want(lease.ErrEnded, err), w.free("a"), s.Context().Err())
	})
}

// A grant tells as much of the TTL as a renewal does; and a reply that comes late never takes back what a
// later request was told.
func TestLatestDeadlineCounts(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		p.next("acquire", late(ttl/2)) // a renewal is sent and answered meanwhile
		w.mustAcquire(s, "a")
		renewed := p.calls("renew")[0].at
		if left := s.Left(); left != ttl-margin-time.Since(renewed) {
			return fmt.Errorf("left %v after a renewal %v ago", left, time.Since(renewed))
		}
		return nil
	})
}

// A renewal's reply arrives after the deadline, before any timer has noticed it: it revives nothing.
func TestReplyAfterDeadlineRevivesNothing(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		deliver := make(chan struct{})
		p.next("renew", func(ctx context.Context, forward func(context.Context) error) error {
			err := forward(ctx)
			<-deliver
			return err
		})
		pass(ttl / 3)
		w.suspend(ttl - margin - ttl/3)
		close(deliver)
		synctest.Wait()
		_, err := l.Claim()
		return want(lease.ErrEnded, err)
	})
}

// inflates tells more of the TTL than there is.
type inflates struct{ lease.Store }

func (s inflates) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	r, err := s.Store.Renew(ctx, req)
	r.Remaining += time.Hour
	return r, err
}

// misnames answers for another name than was asked for.
type misnames struct{ lease.Store }

func (s misnames) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	grants, err := s.Store.Acquire(ctx, req)
	for i := range grants {
		grants[i].Claim.Name = "another"
	}
	return grants, err
}

// A store that says what cannot be is not believed.
func TestImpossibleReplies(t *testing.T) {
	sound(t, func(w *world) error {
		w.wrap = func(s lease.Store) lease.Store { return inflates{s} }
		s, _ := w.client(lease.Options{})
		pass(ttl / 3)
		if left := s.Left(); left > ttl-margin {
			return fmt.Errorf("left %v of a TTL of %v", left, ttl)
		}
		return nil
	})
	sound(t, func(w *world) error {
		w.wrap = func(s lease.Store) lease.Store { return misnames{s} }
		s, _ := w.client(lease.Options{})
		_, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}, Try: true})
		return errors.Join(want(lease.ErrUnknown, err), w.free("a"))
	})
}

// An acquire that hears nothing is asked again, and ends with its session: a black hole holds nobody for longer.
func TestAcquireInBlackHole(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		p.next("acquire", blackHole)
		start := time.Now()
		l := w.mustAcquire(s, "a")
		if took := time.Since(start); took > ttl/3+time.Second/10 {
			return fmt.Errorf("asked again after %v", took)
		}
		return l.Release(w.t.Context())
	})
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		p.all(blackHole, everyOp()...)
		start := time.Now()
		_, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}, Try: true})
		if took := time.Since(start); took != ttl-margin {
			return fmt.Errorf("ended after %v: %w", took, orNone(err))
		}
		return want(lease.ErrEnded, err)
	})
}

// The authority's word that the session is over counts whichever call it answers.
func TestAcquireLearnsThatTheSessionIsOver(t *testing.T) {
	sound(t, func(w *world) error {
		s, _ := w.client(lease.Options{})
		ctx := s.Context()
		w.authority.Advance(ttl)
		_, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"a"}})
		return errors.Join(want(lease.ErrEnded, err), want(lease.ErrLost, context.Cause(ctx)))
	})
}

// A crowd whose acquires are cancelled at once gives back by a few goroutines and by renewals, not by one each.
func TestGivingBackIsBounded(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		var running, most atomic.Int64
		p.all(loseReply, "acquire")
		p.all(func(ctx context.Context, forward func(context.Context) error) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-time.After(time.Second)
			return forward(ctx)
		}, "release")
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		for i := range 100 {
			go func() { _, _ = s.Acquire(ctx, lease.Want{Names: []string{fmt.Sprint(i)}, Try: true}) }()
		}
		pass(ttl)
		for i := range 100 {
			if err := w.free(fmt.Sprint(i)); err != nil {
				return err
			}
		}
		if n := most.Load(); n < 2 || n > 16 {
			return fmt.Errorf("%d releases at a time", n)
		}
		return nil
	})
}
