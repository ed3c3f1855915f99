package memory_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/memory"
)

// manual is a clock that a test sets.
type manual struct {
	mu  sync.Mutex
	now time.Duration
}

func (c *manual) read() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manual) set(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

func open(t *testing.T, s *memory.Store, ttl time.Duration) fence.ID {
	t.Helper()
	id := lease.NewID()
	if _, err := s.Open(t.Context(), lease.OpenRequest{ID: id, Owner: "w", TTL: ttl}); err != nil {
		t.Fatal(err)
	}
	return id
}

func acquire(t *testing.T, s *memory.Store, session fence.ID, names ...string) fence.Claim {
	t.Helper()
	grants, err := s.Acquire(t.Context(), lease.AcquireRequest{Session: session, ID: lease.NewID(), Names: names})
	if err != nil {
		t.Fatal(err)
	}
	return grants[0].Claim
}

// The clock of a store never goes back, whatever its source does: an expiry that was seen stays.
func TestClockNeverGoesBack(t *testing.T) {
	clock := &manual{now: time.Hour}
	s := memory.New(memory.Options{Clock: clock.read})
	session := open(t, s, 5*time.Second)
	clock.set(time.Hour + 3*time.Second)
	acquire(t, s, session, "n")
	clock.set(0)
	info, err := s.Get(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if info.Remaining != 2*time.Second {
		t.Errorf("after the source went back, %v remain; want 2s", info.Remaining)
	}
}

// While guarded work runs nobody is recognised as a successor, and who waits for its turn may give up.
func TestFencedKeepsSuccessorsOut(t *testing.T) {
	clock := &manual{}
	s := memory.New(memory.Options{Clock: clock.read})
	claim := acquire(t, s, open(t, s, 5*time.Second), "n")
	other := open(t, s, time.Minute)
	err := s.Fenced(t.Context(), claim, func(context.Context) error {
		clock.set(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := s.Acquire(ctx, lease.AcquireRequest{Session: other, ID: lease.NewID(), Names: []string{"n"}})
		if !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquire during guarded work: %v; want ErrUnavailable for the deadline", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var refused *fence.RefusedError
	err = s.Fenced(t.Context(), claim, func(context.Context) error { t.Error("stale work ran"); return nil })
	if !errors.As(err, &refused) || refused.Why != fence.Expired {
		t.Errorf("guarded work after the expiry: %v; want a refusal: expired", err)
	}
	acquire(t, s, other, "n")
	err = s.Fenced(t.Context(), claim, func(context.Context) error { t.Error("stale work ran"); return nil })
	if !errors.As(err, &refused) || refused.Why != fence.Superseded || refused.Newer <= claim.Token {
		t.Errorf("guarded work after a successor: %v; want a refusal that names the newer token", err)
	}
}

// Guarded work gets the sooner of one second and what remains of the lease.
func TestFencedBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for ttl, want := range map[time.Duration]time.Duration{time.Minute: time.Second, 300 * time.Millisecond: 300 * time.Millisecond} {
			clock := &manual{}
			s := memory.New(memory.Options{Clock: clock.read})
			claim := acquire(t, s, open(t, s, ttl), "n")
			begun := time.Now()
			err := s.Fenced(t.Context(), claim, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != want {
				t.Errorf("TTL %v: %v after %v; want the deadline after %v", ttl, err, time.Since(begun), want)
			}
		}
	})
}

// A claim from the future stops the name, and only that name, until the epoch is raised.
func TestTokenFromTheFuture(t *testing.T) {
	s := memory.New(memory.Options{})
	session := open(t, s, time.Minute)
	claim := acquire(t, s, session, "other")
	claim.Name, claim.Token = "n", 1000
	if err := s.Fenced(t.Context(), claim, func(context.Context) error { return nil }); !errors.Is(err, fence.ErrAhead) {
		t.Fatalf("presenting it: %v", err)
	}
	req := lease.AcquireRequest{Session: session, ID: lease.NewID(), Names: []string{"n"}}
	if _, err := s.Acquire(t.Context(), req); !errors.Is(err, fence.ErrAhead) {
		t.Fatalf("acquire: %v; want the stop", err)
	}
	acquire(t, s, session, "a third")
	floor, err := s.RaiseEpoch(t.Context(), 1000)
	if err != nil || floor < 1000 {
		t.Fatalf("floor %d, %v", floor, err)
	}
	grants, err := s.Acquire(t.Context(), req)
	if err != nil || grants[0].Claim.Token <= 1000 {
		t.Fatalf("after raising: %v, %v", grants, err)
	}
}

// A call with a context that is done is not applied.
func TestDoneContext(t *testing.T) {
	s := memory.New(memory.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Open(ctx, lease.OpenRequest{ID: lease.NewID(), TTL: time.Second})
	if !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want ErrUnavailable because of the context", err)
	}
}
