package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhoSetTheMarkRepeatsWhatTimedOut: an attempt that has run out of time is what is repeated most. A marked Do below gave up because its context had ended, and has repeated nothing.
func TestWhoSetTheMarkRepeatsWhatTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, time.Minute)
		bottom := 0
		err := Do(b.Context(), Policy{Try: Try{Timeout: time.Second}, Idempotent: true, NoRetryBelow: true, Base: 1, Most: 1}, func(ctx context.Context) error {
			return Do(ctx, Policy{Idempotent: true}, func(ctx context.Context) error {
				return Do(ctx, Policy{Idempotent: true}, func(ctx context.Context) error {
					bottom++
					<-ctx.Done()
					<-time.After(time.Millisecond) // until it is noticed: the contexts around it have ended too by then
					return ctx.Err()
				})
			})
		})
		if bottom != 3 || !errors.Is(err, ErrAttempts) || !errors.Is(err, context.DeadlineExceeded) || ClassOf(err) != Unknown {
			t.Errorf("%d at the bottom: %v", bottom, err)
		}
	})
}
