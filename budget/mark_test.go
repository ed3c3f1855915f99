package budget

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// doer is Do, or a twin of it.
type doer func(context.Context, Policy, func(context.Context) error) error

// bottomWork is the work at the bottom of three layers that make three attempts each, the topmost being the one that is to repeat, and the error from the top. There is no throttle.
func bottomWork(t *testing.T, do doer, fail error) (bottom int, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		policy := Policy{Idempotent: true, Base: 1, Most: 1}
		top := policy
		top.NoRetryBelow = true
		err = do(start(t, time.Hour).Context(), top, func(ctx context.Context) error {
			return do(ctx, policy, func(ctx context.Context) error {
				return do(ctx, policy, func(context.Context) error { bottom++; return fail })
			})
		})
	})
	return bottom, err
}

// marks holds a Do to the mark: one layer repeats, and it does.
func marks(t *testing.T, do doer) error {
	t.Helper()
	var wrong []error
	for name, c := range map[string]struct {
		fail   error
		bottom int
		why    error
	}{
		"not sent": {failing(NotSent), 3, ErrAttempts}, "unknown": {failing(Unknown), 3, ErrAttempts}, "nobody classified it": {errTest, 3, ErrAttempts},
		"refused": {failing(Refused), 1, ErrNotRepeated}, "peace": {&Error{Class: NotSent, NoRetry: true, Err: errTest}, 1, ErrNotRepeated},
	} {
		bottom, err := bottomWork(t, do, c.fail)
		var gave *GaveUpError
		if bottom != c.bottom || !errors.As(err, &gave) || !errors.Is(gave.Why, c.why) || gave.Attempts != c.bottom {
			wrong = append(wrong, fmt.Errorf("%s: %d at the bottom, %w", name, bottom, err))
		}
	}
	return errors.Join(wrong...)
}

func TestTheMarkLeavesRepeatingToOneLayer(t *testing.T) {
	if err := marks(t, Do); err != nil {
		t.Error(err)
	}
}

// TestDosThatLoseTheMarkAreCaught: none of these passes [TestTheMarkLeavesRepeatingToOneLayer].
func TestDosThatLoseTheMarkAreCaught(t *testing.T) {
	for name, twin := range map[string]doer{
		"the mark is not heeded": func(ctx context.Context, p Policy, fn func(context.Context) error) error {
			return Do(WithoutAttempt(ctx), p, fn)
		},
		"the mark is not set": func(ctx context.Context, p Policy, fn func(context.Context) error) error {
			p.NoRetryBelow = false
			return Do(ctx, p, fn)
		},
		"the mark is not carried on": func(ctx context.Context, p Policy, fn func(context.Context) error) error {
			return Do(ctx, p, func(ctx context.Context) error {
				if p.NoRetryBelow {
					return fn(ctx)
				}
				return fn(WithoutAttempt(ctx))
			})
		},
		"who set it heeds it too": func(ctx context.Context, p Policy, fn func(context.Context) error) error {
			if p.NoRetryBelow {
				ctx = NoRetry(ctx)
			}
			return Do(ctx, p, fn)
		},
		"giving up by it counts as repeating": func(ctx context.Context, p Policy, fn func(context.Context) error) error {
			return Do(ctx, p, func(ctx context.Context) error {
				err := fn(ctx)
				var gave *GaveUpError
				if errors.As(err, &gave) {
					gave.Why = ErrAttempts
				}
				return err
			})
		},
	} {
		if marks(t, twin) == nil {
			t.Errorf("%s: it passes", name)
		}
	}
}

// TestMarked: under the mark a failed attempt is not repeated, whatever the policy; the error says so, and Explain does. A success is one, and the throttle is not asked.
func TestMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th, err := NewThrottle(ThrottleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b := start(t, time.Minute, Reserve(time.Second))
		n := 0
		got, err := DoValue(NoRetry(b.Context()), Policy{Try: Try{Name: "stock"}, Attempts: 7, Idempotent: true, Throttle: th}, func(ctx context.Context) (int, error) {
			if n++; !ForbidsRetry(ctx) || AttemptNumber(ctx) != 1 {
				t.Errorf("the attempt is marked %v, number %d", ForbidsRetry(ctx), AttemptNumber(ctx))
			}
			return 7, failing(Unknown)
		})
		var gave *GaveUpError
		if got != 0 || n != 1 || !errors.As(err, &gave) || !errors.Is(err, ErrNoRetry) || errors.Is(err, ErrNotRepeated) || errors.Is(err, ErrAttempts) || !errors.Is(err, errTest) || gave.Class != Unknown || gave.Attempts != 1 {
			t.Errorf("%d attempts, %v", n, err)
		}
		if th.Left("stock") != 500 {
			t.Errorf("%d tokens left", th.Left("stock"))
		}
		e := b.Explain()
		if len(e.Entries) != 2 || e.Entries[1].Kind != KindNotStarted || e.Entries[1].Name != "stock" || !errors.Is(e.Entries[1].Err, ErrNoRetry) || e.Entries[1].Allowed != 59*time.Second || !strings.Contains(e.String(), "marked") {
			t.Errorf("explained as\n%v", e)
		}
		if got, err := DoValue(NoRetry(b.Context()), Policy{}, func(context.Context) (int, error) { return 7, nil }); got != 7 || err != nil {
			t.Errorf("a success: %d, %v", got, err)
		}
		for name, c := range map[string]struct{ err, why error }{
			"refused for good": {failing(Refused), ErrNotRepeated}, "repeated below": {&GaveUpError{Why: ErrAttempts, Last: errTest, Real: errTest, Class: NotSent, Attempts: 3}, ErrNotRepeated},
			"the only attempt": {failing(NotSent), ErrNoRetry},
		} {
			if err := Do(NoRetry(b.Context()), Policy{Attempts: 1}, func(context.Context) error { return c.err }); !errors.Is(err, c.why) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestWhatCarriesTheMark: attempts and budgets under it do; work that is not one request's alone does not, and is of no attempt.
func TestWhatCarriesTheMark(t *testing.T) {
	b := start(t, time.Minute)
	if ForbidsRetry(t.Context()) || ForbidsRetry(b.Context()) || ForbidsRetry(WithoutAttempt(b.Context())) {
		t.Error("marked by nobody")
	}
	err := Do(b.Context(), Policy{}, func(ctx context.Context) error {
		if ForbidsRetry(ctx) || ForbidsRetry(WithoutAttempt(NoRetry(ctx))) {
			t.Error("a Do marks what it is not asked to, or a mark cannot be taken off")
		}
		within := NoRetry(ctx)
		if !ForbidsRetry(within) || AttemptNumber(within) != 1 || From(within) != b {
			t.Errorf("marked %v, attempt %d", ForbidsRetry(within), AttemptNumber(within))
		}
		part, err := Start(within, time.Second)
		if err != nil {
			return err
		}
		defer part.End()
		attempt, done, err := part.Attempt(part.Context(), Try{})
		if err != nil {
			return err
		}
		defer done(nil)
		if w, err := Outgoing(attempt); err != nil || !w.NoRetry || w.Mark() != "1" || w.Attempt != 1 {
			t.Errorf("sent: %+v, %v", w, err)
		}
		if w, err := Outgoing(WithoutAttempt(attempt)); err != nil || w.NoRetry || w.Mark() != "" || w.Attempt != 0 || w.Remaining <= 0 {
			t.Errorf("apart: %+v, %v", w, err)
		}
		return Do(attempt, Policy{NoRetryBelow: true}, func(ctx context.Context) error {
			if !ForbidsRetry(ctx) || ForbidsRetry(WithoutAttempt(ctx)) || From(WithoutAttempt(ctx)) != part {
				t.Error("under both")
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRepeatedBelow: of joined failures one suffices that was repeated, however deep, and giving up by the mark is none.
func TestRepeatedBelow(t *testing.T) {
	by := func(why, last error) error {
		return &GaveUpError{Why: why, Last: last, Real: last, Class: NotSent, Attempts: 1}
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nil": {nil, false}, "an error": {errTest, false}, "attempts": {by(ErrAttempts, errTest), true}, "the mark": {by(fmt.Errorf("%w: x", ErrNoRetry), errTest), false}, "wrapped": {fmt.Errorf("x: %w", by(ErrNoTime, errTest)), true},
		"the mark twice": {by(ErrNoRetry, by(ErrNoRetry, errTest)), false}, "the mark, and attempts below": {by(ErrNoRetry, fmt.Errorf("x: %w", by(ErrAttempts, errTest))), true},
		"joined": {errors.Join(by(ErrNoRetry, errTest), &Error{Class: NotSent, Err: by(ErrThrottled, errTest)}), true},
	} {
		if got := repeatedBelow(c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestParseNoRetry(t *testing.T) {
	for text, want := range map[string]bool{"1": true, "": false, "0": false, " 1": false, "1 ": false, "01": false, "11": false, "1,1": false, "+1": false, "true": false, "١": false, "\x001": false, strings.Repeat("1", 1<<20): false} {
		if got := ParseNoRetry(text); got != want {
			t.Errorf("%.40q: %v", text, got)
		}
	}
}

// TestWhatDoesNotReturnIsExplained: an attempt that panics or ends its goroutine passes through, and is in Explain.
func TestWhatDoesNotReturnIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, time.Minute)
		for name, fn := range map[string]func(){"panics": func() { panic("broken") }, "exits": runtime.Goexit} {
			over := make(chan any)
			go func() {
				defer func() { over <- recover() }()
				_ = Do(b.Context(), Policy{Try: Try{Name: name}}, func(context.Context) error { <-time.After(time.Second); fn(); return nil })
				t.Errorf("%s: Do returned", name)
			}()
			if p := <-over; name == "panics" && p != "broken" {
				t.Errorf("%s: what passed is %v", name, p)
			}
			entries := b.Explain().Entries
			if last := entries[len(entries)-1]; last.Name != name || last.Kind != KindAttempt || last.Took != time.Second || !errors.Is(last.Err, ErrNotReturned) {
				t.Errorf("%s: %+v", name, last)
			}
		}
		if n := len(b.Explain().Entries); n != 2 {
			t.Errorf("%d entries", n)
		}
	})
}
