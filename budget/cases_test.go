package budget

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestT61DelaysSaturate: attempt 310 and 2^31 pause no longer than the most, and never less than nothing.
func TestT61DelaysSaturate(t *testing.T) {
	p := Policy{Base: 100 * time.Millisecond, Most: 10 * time.Second}
	for _, n := range []int{310, math.MaxInt32, math.MaxInt32 + 1} {
		if d := p.pause(n); d < 0 || d > p.Most {
			t.Errorf("attempt %d: %v", n, d)
		}
	}
}

// TestT62NoHotLoop: without pauses the attempts end all the same, and a negative one is refused.
func TestT62NoHotLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := repeats(t, Policy{Attempts: maxAttempts, Base: 1, Most: 1}, func(int) error { return failing(NotSent) })
		if n != maxAttempts || !errors.Is(err, ErrAttempts) {
			t.Errorf("%d attempts, %v", n, err)
		}
		if err := Do(start(t, time.Second).Context(), Policy{Base: -1}, nil); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	})
}

// TestT63RealErrorAtOnce: a second is left and the pause is ten: the last real error comes at once.
func TestT63RealErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		b := start(t, time.Second)
		err := Do(b.Context(), Policy{}, func(context.Context) error {
			return &Error{Class: NotSent, RetryAfter: 10 * time.Second, Err: errTest}
		})
		if !errors.Is(err, errTest) || !errors.Is(err, ErrNoTime) || time.Since(begun) != 0 {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

// TestT64NoTimeout: 0 is all that is left, and a negative one is refused.
func TestT64NoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 3*time.Second, Reserve(time.Second))
		begun := time.Now()
		err := Do(b.Context(), Policy{}, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		if err := Do(b.Context(), Policy{Try: Try{Timeout: -1}}, nil); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	})
}

// TestT65RealErrorIsKept: the last attempt ends before the reserve begins; what is reported is the error of the attempt before it, not that its own time ended. What is
// known of the call is what is known of all attempts.
func TestT65RealErrorIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 10*time.Second, Reserve(time.Second))
		n := 0
		err := Do(b.Context(), Policy{Idempotent: true}, func(ctx context.Context) error {
			if n++; n == 1 {
				return &Error{Class: Refused, Again: true, Err: errTest}
			}
			<-ctx.Done()
			return ctx.Err()
		})
		var gave *GaveUpError
		if !errors.As(err, &gave) || !errors.Is(gave.Real, errTest) || !errors.Is(gave.Last, context.DeadlineExceeded) || gave.Class != Unknown || b.RemainingTotal() != time.Second {
			t.Errorf("%v left, %v", b.RemainingTotal(), err)
		}
		b = start(t, time.Minute)
		n = 0
		err = Do(b.Context(), Policy{Idempotent: true, Attempts: 2}, func(context.Context) error {
			if n++; n == 1 {
				return failing(Unknown)
			}
			return &Error{Class: Refused, Err: errTest}
		})
		if ClassOf(err) != Unknown {
			t.Errorf("a refusal proves nothing about the attempt before it: %v", err)
		}
	})
}

// TestT68ThrottleAtAnyRate: at one request a second and at a thousand the throttle takes away repetitions alone: each request is still made once.
func TestT68ThrottleAtAnyRate(t *testing.T) {
	for _, every := range []time.Duration{time.Second, time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			th, err := NewThrottle(ThrottleOptions{})
			if err != nil {
				t.Fatal(err)
			}
			b := start(t, 24*time.Hour)
			made := 0
			const requests = 2000
			for range requests {
				_ = Do(b.Context(), Policy{Try: Try{Name: "x"}, Throttle: th, Base: 1, Most: 1}, func(context.Context) error { made++; return failing(NotSent) })
				<-time.After(every)
			}
			if made < requests || made > requests+500/5 {
				t.Errorf("%d requests every %v were made %d times", requests, every, made)
			}
		})
	}
}

// TestT69WhatCannotFit: three attempts of 600 ms in a second: the second is not started.
func TestT69WhatCannotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, time.Second)
		n := 0
		err := Do(b.Context(), Policy{Try: Try{Timeout: 600 * time.Millisecond}, Idempotent: true}, func(ctx context.Context) error { n++; <-ctx.Done(); return ctx.Err() })
		if n != 1 || !errors.Is(err, ErrNoTime) {
			t.Errorf("%d attempts, %v", n, err)
		}
	})
}
