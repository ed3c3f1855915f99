package budget

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

var errTest = errors.New("test")

func failing(c Class) *Error { return &Error{Class: c, Err: errTest} }

// repeats is how Do treats a failure: how many attempts it makes of three, and why there are no more.
func repeats(t *testing.T, p Policy, fail func(n int) error) (attempts int, err error) {
	t.Helper()
	b := start(t, time.Hour, Reserve(time.Second))
	err = Do(b.Context(), p, func(ctx context.Context) error {
		attempts++
		if AttemptNumber(ctx) != attempts {
			t.Errorf("attempt %d says it is %d", attempts, AttemptNumber(ctx))
		}
		return fail(attempts)
	})
	return attempts, err
}

// TestWhatIsRepeated: what was certainly not done, and what is unknown only where it was declared idempotent.
func TestWhatIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		p        Policy
		err      error
		attempts int
		why      error
		class    Class
	}{
		"not sent":                      {Policy{}, failing(NotSent), 3, ErrAttempts, NotSent},
		"unknown":                       {Policy{}, failing(Unknown), 1, ErrNotRepeated, Unknown},
		"unknown, idempotent":           {Policy{Idempotent: true}, failing(Unknown), 3, ErrAttempts, Unknown},
		"nobody classified it":          {Policy{}, errTest, 1, ErrNotRepeated, Unknown},
		"refused":                       {Policy{Idempotent: true}, failing(Refused), 1, ErrNotRepeated, Refused},
		"refused for now":               {Policy{}, &Error{Class: Refused, Again: true, Err: errTest}, 3, ErrAttempts, Refused},
		"refused until later":           {Policy{}, &Error{Class: Refused, RetryAfter: time.Second, Err: errTest}, 3, ErrAttempts, Refused},
		"the other side asks for peace": {Policy{Idempotent: true}, &Error{Class: NotSent, NoRetry: true, Err: errTest}, 1, ErrNotRepeated, NotSent},
		"it was repeated below":         {Policy{Idempotent: true}, &GaveUpError{Why: ErrAttempts, Last: failing(NotSent), Class: NotSent, Attempts: 3}, 1, ErrNotRepeated, NotSent},
		"classified by the policy":      {Policy{Classify: func(error) Class { return NotSent }}, errTest, 3, ErrAttempts, NotSent},
		"classified as nothing":         {Policy{Classify: func(error) Class { return 0 }}, errTest, 1, ErrNotRepeated, Unknown},
		"one of two asks for peace":     {Policy{}, errors.Join(failing(NotSent), &Error{Class: NotSent, NoRetry: true, Err: errTest}), 1, ErrNotRepeated, NotSent},
		"one of two refused for good":   {Policy{}, errors.Join(&Error{Class: NotSent, Again: true, Err: errTest}, failing(Refused)), 1, ErrNotRepeated, Refused},
		"more attempts":                 {Policy{Attempts: 7}, failing(NotSent), 7, ErrAttempts, NotSent},
		"one attempt":                   {Policy{Attempts: 1}, failing(NotSent), 1, ErrAttempts, NotSent},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts, err := repeats(t, c.p, func(int) error { return c.err })
				var gave *GaveUpError
				if attempts != c.attempts || !errors.As(err, &gave) || !errors.Is(err, c.why) || !errors.Is(gave.Last, c.err) || gave.Class != c.class || gave.Attempts != attempts {
					t.Errorf("%d attempts, %v", attempts, err)
				}
			})
		})
	}
}

// TestTheOutermostClassDecides: what is known of an inner call is not known of the outer one, and of joined errors the one that proves least counts.
func TestTheOutermostClassDecides(t *testing.T) {
	gave := &GaveUpError{Why: ErrAttempts, Last: failing(NotSent), Real: errTest, Class: NotSent}
	for name, c := range map[string]struct {
		err  error
		want Class
	}{
		"an error around a call that gave up": {&Error{Class: Unknown, Err: gave}, Unknown}, "a call that gave up": {fmt.Errorf("while paying: %w", gave), NotSent},
		"joined": {errors.Join(failing(NotSent), failing(Unknown), errTest), Unknown}, "joined the other way": {errors.Join(failing(Unknown), failing(NotSent)), Unknown},
		"with a kind": {fmt.Errorf("%w: %w", errTest, failing(Refused)), Refused}, "no class": {&Error{Err: errTest}, Unknown}, "nobody's": {errTest, Unknown}, "nil": {nil, 0},
		"no time": {fmt.Errorf("x: %w", &NoTimeError{}), NotSent}, "joined with nobody's": {errors.Join(errTest, failing(NotSent)), Unknown}, "and with no time": {fmt.Errorf("x: %w", errors.Join(errTest, &NoTimeError{})), Unknown},
		"joined, all of one kind": {errors.Join(failing(NotSent), &NoTimeError{}, ErrThrottled), NotSent}, "a kind of no time": {fmt.Errorf("%w: %w", errTest, &NoTimeError{}), NotSent}, "joined alone": {errors.Join(failing(Refused)), Refused},
	} {
		if got := ClassOf(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestSuccessEndsIt: a later attempt may succeed, and its value is returned.
func TestSuccessEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, time.Minute)
		n := 0
		got, err := DoValue(b.Context(), Policy{}, func(context.Context) (string, error) {
			if n++; n < 3 {
				return "bad", failing(NotSent)
			}
			return "good", nil
		})
		if got != "good" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if got, err := DoValue(b.Context(), Policy{}, func(context.Context) (string, error) { return "bad", errTest }); got != "" || !errors.Is(err, errTest) {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestPausesFit: a pause that does not fit is not begun, whoever asks for it; Do never sleeps into a deadline that it cannot meet.
func TestPausesFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 10*time.Second, Reserve(time.Second))
		begun := time.Now()
		err := Do(b.Context(), Policy{Try: Try{Minimum: time.Second, Timeout: 2 * time.Second}}, func(context.Context) error {
			return &Error{Class: Refused, RetryAfter: 8*time.Second + 1, Err: errTest}
		})
		if !errors.Is(err, ErrNoTime) || !errors.Is(err, errTest) || time.Since(begun) != 0 {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		n := 0
		err = Do(b.Context(), Policy{Try: Try{Minimum: time.Second, Timeout: 2 * time.Second}, Attempts: 2}, func(context.Context) error {
			n++
			return &Error{Class: Refused, RetryAfter: 8 * time.Second, Err: errTest}
		})
		if n != 2 || !errors.Is(err, ErrAttempts) || time.Since(begun) != 8*time.Second {
			t.Errorf("%d attempts, after %v: %v", n, time.Since(begun), err)
		}
	})
}

// TestCallerEndsWaiting: the caller's context ends a pause and the repeating, with its cause and the last real error.
func TestCallerEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, time.Hour)
		ctx, cancel := context.WithCancelCause(b.Context())
		cause := errors.New("the caller has gone")
		time.AfterFunc(3*time.Second, func() { cancel(cause) })
		err := Do(ctx, Policy{}, func(context.Context) error { return &Error{Class: Refused, RetryAfter: time.Minute, Err: errTest} })
		if !errors.Is(err, cause) || !errors.Is(err, errTest) {
			t.Error(err)
		}
		if err := Do(ctx, Policy{}, func(context.Context) error { t.Error("started"); return nil }); !errors.Is(err, cause) {
			t.Error(err)
		}
	})
	if err := Do(t.Context(), Policy{}, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("no budget: %v", err)
	}
	b := start(t, time.Hour)
	for name, p := range map[string]Policy{"attempts": {Attempts: -1}, "too many": {Attempts: 101}, "base": {Base: -1}, "base above most": {Base: 2, Most: 1}, "timeout": {Try: Try{Timeout: -1}}} {
		if err := Do(b.Context(), p, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPausesSaturate: they grow up to the most, whatever the number of attempts, and are spread over all of it.
func TestPausesSaturate(t *testing.T) {
	for _, p := range []Policy{{}, {Base: time.Second}, {Base: math.MaxInt64 / 2, Most: math.MaxInt64 - 1}, {Base: time.Hour}, {Base: 1, Most: 1}, {Base: math.MaxInt64}, {Most: math.MaxInt64}} {
		for _, n := range []int{1, 2, 10, 62, 63, 64, 65, 1000} {
			most := p.Most
			if most == 0 {
				most = max(defaultMost, p.Base)
			}
			for range 50 {
				if d := p.pause(n); d < 0 || d > most {
					t.Fatalf("%+v, attempt %d: a pause of %v", p, n, d)
				}
			}
		}
	}
	p := Policy{Base: time.Millisecond, Most: time.Second}
	low, high := 0, 0
	for range 1000 {
		switch d := p.pause(20); {
		case d < time.Second/4:
			low++
		case d > time.Second*3/4:
			high++
		}
	}
	if low < 150 || high < 150 {
		t.Errorf("of 1000 pauses %d are short and %d long", low, high)
	}
}

// TestThrottle: it lets a few be repeated, none when it is empty, and successes fill it again.
func TestThrottle(t *testing.T) {
	for name, o := range map[string]ThrottleOptions{"negative": {Tokens: -1}, "too small": {Tokens: 4}, "destinations": {Destinations: -1}} {
		if _, err := NewThrottle(o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		th, err := NewThrottle(ThrottleOptions{Tokens: 20, Destinations: 2})
		if err != nil {
			t.Fatal(err)
		}
		b := start(t, 24*time.Hour)
		call := func(to string, fail error) (attempts int, err error) {
			err = Do(b.Context(), Policy{Try: Try{Name: to}, Throttle: th, Idempotent: true}, func(context.Context) error { attempts++; return fail })
			return attempts, err
		}
		for i, want := range []int{3, 3, 1, 1} { // 20 tokens are 4 repetitions
			n, err := call("a", failing(NotSent))
			if n != want || (n == 1) != errors.Is(err, ErrThrottled) {
				t.Errorf("call %d: %d attempts, %v", i, n, err)
			}
		}
		if n, _ := call("b", context.DeadlineExceeded); n != 3 || th.Left("b") != 0 {
			t.Errorf("another destination: %d attempts, %d left: a timeout takes twice as much", n, th.Left("b"))
		}
		if n, _ := call("c", failing(NotSent)); n != 3 || th.Left("") != 10 {
			t.Errorf("beyond the destinations: %d attempts, %d left", n, th.Left(""))
		}
		for range 5 {
			if _, err := call("a", nil); err != nil {
				t.Fatal(err)
			}
		}
		if n, _ := call("a", failing(NotSent)); n != 2 || th.Left("a") != 0 {
			t.Errorf("after five successes: %d attempts, %d left", n, th.Left("a"))
		}
		for range 100 {
			if _, err := call("a", nil); err != nil {
				t.Fatal(err)
			}
		}
		if th.Left("a") != 20 {
			t.Errorf("%d in a bucket of 20", th.Left("a"))
		}
	})
}

// amplification is the work at the bottom of three layers that make three attempts each, per request from above.
func amplification(t *testing.T, requests int, throttled bool) float64 {
	t.Helper()
	var bottom int
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 360*24*time.Hour)
		policies := make([]Policy, 3)
		for i := range policies {
			policies[i] = Policy{Try: Try{Name: fmt.Sprint("layer ", i)}, Idempotent: true, Base: 1, Most: 1}
			// A layer that is not ours unwraps what it got, and says nothing of having repeated it.
			policies[i].Classify = func(error) Class { return NotSent }
			if throttled {
				th, err := NewThrottle(ThrottleOptions{})
				if err != nil {
					t.Fatal(err)
				}
				policies[i].Throttle = th
			}
		}
		var call func(ctx context.Context, layer int) error
		call = func(ctx context.Context, layer int) error {
			if layer == len(policies) {
				bottom++
				return errTest
			}
			if err := Do(ctx, policies[layer], func(ctx context.Context) error { return call(ctx, layer+1) }); err != nil {
				return errTest
			}
			return nil
		}
		for range requests {
			_ = call(b.Context(), 0)
		}
	})
	return float64(bottom) / float64(requests)
}

// TestLayersDoNotMultiply: three layers of three attempts make 27 of one, and not much more than one with throttles.
func TestLayersDoNotMultiply(t *testing.T) {
	if got := amplification(t, 100, false); got != 27 {
		t.Errorf("without throttles %.2f for one", got)
	}
	if got := amplification(t, 10_000, true); got > 1.2 {
		t.Errorf("with throttles %.3f for one", got)
	}
}
