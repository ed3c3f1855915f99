package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestOwnDeadline: a context within the budget may end before the reserve does, as in an attempt of another call. What cannot fit before that is not started, and no pause
// is slept into it: the real error comes at once.
func TestOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, time.Minute, Reserve(time.Second))
		begun := time.Now()
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
		defer cancel()
		never := func(context.Context) error { t.Error("started"); return nil }
		var no *NoTimeError
		if err := Do(ctx, Policy{Try: Try{Timeout: 5 * time.Second}}, never); !errors.As(err, &no) || no.Left != 2*time.Second {
			t.Errorf("5 s in 2 s: %v", err)
		}
		if _, _, err := b.Attempt(ctx, Try{Minimum: 2*time.Second + 1}); !errors.Is(err, ErrNoTime) {
			t.Errorf("an attempt: %v", err)
		}
		if err := Do(ctx, Policy{Try: Try{Timeout: 2 * time.Second}}, func(context.Context) error { return nil }); err != nil {
			t.Errorf("what fits just so: %v", err)
		}
		for name, within := range map[string]context.Context{"a deadline": ctx, "beyond other values": context.WithValue(ctx, attemptKey{}, 1)} {
			n := 0
			err := Do(within, Policy{}, func(context.Context) error {
				n++
				return &Error{Class: NotSent, RetryAfter: 3 * time.Second, Err: errTest}
			})
			if n != 1 || !errors.Is(err, ErrNoTime) || !errors.Is(err, errTest) || time.Since(begun) != 0 {
				t.Errorf("%s: %d attempts, after %v: %v", name, n, time.Since(begun), err)
			}
		}
		err := Do(b.Context(), Policy{Try: Try{Timeout: 2 * time.Second}}, func(ctx context.Context) error {
			return Do(ctx, Policy{Try: Try{Timeout: 3 * time.Second}}, never)
		})
		if !errors.Is(err, ErrNoTime) || ClassOf(err) != NotSent {
			t.Errorf("a call in a call: %v", err)
		}
	})
}

// TestEndedIsNoTimeLeft: what has ended has nothing left, however long it was to be.
func TestEndedIsNoTimeLeft(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var no *NoTimeError
	if _, err := Start(ended, time.Hour); !errors.As(err, &no) || no.Left != 0 {
		t.Error(err)
	}
}

// TestNoMomentOfTheReserve: on a real clock too, where moments pass between asking what is left and starting, nothing that is started may end after the reserve has begun.
func TestNoMomentOfTheReserve(t *testing.T) {
	b := start(t, time.Hour, Reserve(time.Second))
	before := func(ctx context.Context, what string) {
		if end, ok := ctx.Deadline(); !ok || end.After(b.begun.Add(time.Hour-time.Second)) {
			t.Errorf("%s ends at %v, with a reserve from %v on", what, end, b.begun.Add(time.Hour-time.Second))
		}
	}
	attempt, done, err := b.Attempt(b.Context(), Try{})
	if err != nil {
		t.Fatal(err)
	}
	defer done(nil)
	before(attempt, "an attempt")
	if err := Do(b.Context(), Policy{}, func(ctx context.Context) error { before(ctx, "a call"); return nil }); err != nil {
		t.Error(err)
	}
	s, err := b.Split(Part{Name: "all", Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	part, err := s.Part("all")
	if err != nil {
		t.Fatal(err)
	}
	defer part.End()
	before(part.Context(), "a part")
}
