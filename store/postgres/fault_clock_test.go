package postgres

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// stepped has a session of the client that holds a name, and a successor that waits for it.
type stepped struct {
	*rig
	former, successor *lease.Session
	held              *lease.Lease
}

const steppedTTL = 3 * time.Second

func newStepped(ctx context.Context, t *testing.T) *stepped {
	t.Helper()
	s := &stepped{rig: &rig{t: t, harness: newHarness(t)}}
	begin := func(owner string) *lease.Session {
		session, err := lease.Start(ctx, s.store, lease.Options{Owner: owner, TTL: steppedTTL, Margin: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close(context.Background()) }) // it may have been lost
		return session
	}
	s.former, s.successor = begin("former"), begin("successor")
	var err error
	if s.held, err = s.former.Acquire(ctx, lease.Want{Names: []string{"n"}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClockStepsForward: the authority's clock steps beyond the expiry. The lease ends early: the former holder still believes, and its next
// renewal tells it; meanwhile the resource refuses what it writes under the check.
func TestClockStepsForward(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s := newStepped(ctx, t)
	claim, err := s.held.Claim()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Advance(ctx, steppedTTL); err != nil {
		t.Fatal(err)
	}
	if err := s.Resource().Strict(ctx, claim, "late", nil); !errors.Is(err, fence.ErrRefused) {
		t.Errorf("a write after the end: %v", err)
	}
	<-s.former.Context().Done()
	if cause := context.Cause(s.former.Context()); !errors.Is(cause, lease.ErrLost) {
		t.Errorf("the former holder's context ended with: %v", cause)
	}
	<-s.successor.Context().Done() // it had the same clock
	if content, err := readContent(ctx, s.own); err != nil || len(content) > 0 {
		t.Errorf("content %q, %v", content, err)
	}
}

// TestClockStepsBack: the lease ends late, by the step; nobody is granted it meanwhile, and the holder renews as before.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s := newStepped(ctx, t)
	const step = 20 * time.Second
	if err := s.Advance(ctx, -step); err != nil {
		t.Fatal(err)
	}
	_, err := s.successor.Acquire(ctx, lease.Want{Names: []string{"n"}, Try: true})
	var held *lease.HeldError
	if !errors.As(err, &held) || held.Left > steppedTTL+step {
		t.Errorf("want a refusal that tells at most %v, got: %v", steppedTTL+step, err)
	}
	renewals := s.former.Stats().Renewals
	for tick := time.NewTicker(5 * time.Millisecond); s.former.Stats().Renewals < renewals+2; <-tick.C {
		if err := s.former.Context().Err(); err != nil {
			t.Fatal(context.Cause(s.former.Context()))
		}
	}
	if err := s.held.Release(ctx); err != nil {
		t.Error(err)
	}
	next, err := s.successor.Acquire(ctx, lease.Want{Names: []string{"n"}})
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.held.Claims()
	after, err2 := next.Claims()
	if err2 != nil || err == nil && before[0].Token >= after[0].Token {
		t.Errorf("claims %v, then %v, %v", before, after, err2)
	}
}

// TestClockStepsToAndFro: sessions race for names while the clock steps. Steps forward make two believers by nature, so only what does
// not rest on the clock is judged: tokens, tombstones, and that nothing is revived.
func TestClockStepsToAndFro(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, harness: newHarness(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	stepping := start(func() error {
		for i := 0; ctx.Err() == nil; i++ {
			d := []time.Duration{raceTTL, -raceTTL, 20 * time.Millisecond, -50 * time.Millisecond}[i%4]
			if err := r.Advance(context.WithoutCancel(ctx), d); err != nil {
				return err
			}
			(&course{over: ctx}).pause(50 * time.Millisecond)
		}
		return nil
	})
	c := &course{rules: []rule{tokensRise, noneRevived}, lenient: true, stepped: true}
	r.race(ctx, c, 3)
	if err := <-stepping; err != nil && !slices.Contains([]string{stateDeadlock, stateSerialization}, state(err)) {
		t.Error(err)
	}
}
