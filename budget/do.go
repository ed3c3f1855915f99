package budget

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Policy says how a call is made, and when it is made again. The zero value is three attempts of whatever was certainly not done.
type Policy struct {
	Try
	// Attempts is how many at most, the first included; 0: 3, most 100.
	Attempts int
	// Idempotent declares that making the call again does no harm, however far an earlier attempt came, as where the other side knows it by a key. Without it a call
	// whose outcome is unknown is never repeated.
	Idempotent bool
	// Base and Most bound the pause before another attempt: a random part of Base, of twice that, four times and so on, never of more than Most ("full jitter",
	// M. Brooker, Exponential Backoff And Jitter, 2015). 0: 100 ms and 10 s.
	Base, Most time.Duration
	// Throttle bounds what is repeated towards Name by everybody who shares it; nil: nothing does.
	Throttle *Throttle
	// NoRetryBelow marks the contexts of the attempts with [NoRetry]: whatever is called under them, in this process or, through the adapters, in others, makes one attempt, and
	// repeating is left to this layer (or to one above, if ctx is marked already). It is for the one layer that is to repeat; with it three layers of three attempts make three.
	//
	// Default false, because the layer next to a failure repeats the least work, and may repeat what this one may not: a query below is idempotent where the call around it is not. What was
	// repeated below is told by the answer then, and not repeated here, if those below tell it as the adapters' Fail does.
	NoRetryBelow bool
	// Classify says what is known of a call that failed; nil: [ClassOf]. What is none of the classes is [Unknown].
	Classify func(error) Class
}

const (
	defaultAttempts = 3
	maxAttempts     = 100
	defaultBase     = 100 * time.Millisecond
	defaultMost     = 10 * time.Second
	maxPause        = maxTotal // longer does not fit into any budget
)

func (p *Policy) attempts() int {
	if p.Attempts == 0 {
		return defaultAttempts
	}
	return p.Attempts
}

func (p *Policy) check() error {
	switch {
	case p.Attempts < 0 || p.Attempts > maxAttempts:
		return &InvalidError{"attempts", fmt.Sprintf("%d; want 0 to %d", p.Attempts, maxAttempts)}
	case p.Base < 0 || p.Most < 0 || p.Base > 0 && p.Most > 0 && p.Base > p.Most:
		return &InvalidError{"pause", fmt.Sprintf("base %v and most %v; want at least 0, and the base at most the most", p.Base, p.Most)}
	}
	return nil
}

// pause is before attempt n+1.
func (p *Policy) pause(n int) time.Duration {
	base, most := p.Base, p.Most
	if base == 0 {
		base = defaultBase
	}
	if most == 0 {
		most = max(defaultMost, base)
	}
	if shift := n - 1; shift < 62 && base <= math.MaxInt64>>shift { // else it would overflow, and is the most
		most = min(most, base<<shift)
	}
	return rand.N(min(most, maxPause) + 1)
}

// Do calls fn within the budget that ctx carries, and again where the policy and what is known of the failure allow it, until one attempt succeeds.
//
// An attempt is repeated if it was certainly not sent, if it was refused with the mark that another may pass, or if its outcome is unknown and the
// policy says Idempotent. It is not if the other side asks for that, if it was a Do of its own that gave up, if the throttle is empty, if the pause (the other
// side's wish where that is longer) and the minimum of another attempt do not fit before the reserve and before ctx's own deadline, or if ctx has ended. Nor is it if ctx carries the mark of
// [NoRetry]: why is [ErrNoRetry] then, which Explain shows, and no token of the throttle is taken. A Do that gave up for that is no Do that has repeated: the one that set the mark may.
//
// Do returns nil, fn's success; before the first attempt an error matching [ErrNoTime] or [ErrInvalid], or ctx's cause, and nothing was started; after it a
// [*GaveUpError], which matches whatever the last attempt's error matches and knows its class. What fn returns is taken for what is known of all that it did: of several calls, the last of which was not sent or not
// started, fn says that itself, by an [*Error] with the class [Unknown]. fn's context ends with its attempt, and fn must heed it: Do waits
// for fn to return. fn that panics passes through; Explain shows that attempt with [ErrNotReturned].
func Do(ctx context.Context, p Policy, fn func(context.Context) error) error {
	b := From(ctx)
	if b == nil {
		return &InvalidError{"context", "it carries no budget; use that of a Budget's Context"}
	}
	if err := p.check(); err != nil {
		return err
	}
	var failed GaveUpError
	for n := 1; ; n++ {
		within, at, err := b.fits(ctx, p.Try)
		if err != nil && n == 1 {
			return err
		} else if err != nil { // it did fit, before the pause
			return failed.because(err)
		}
		err = b.one(ctx, &p, n, within, at, fn)
		if err == nil {
			p.Throttle.succeeded(p.Name)
			return nil
		}
		failed.attempt(ctx, &p, err)
		if why := b.again(ctx, &p, n, err); why != nil {
			return failed.because(why)
		}
	}
}

// attempt notes how another attempt failed.
func (e *GaveUpError) attempt(ctx context.Context, p *Policy, err error) {
	e.Attempts++
	e.Last = err
	if e.Real == nil || !timedOut(err) || timedOut(e.Real) {
		e.Real = err
	}
	if class := p.class(ctx, err); e.Class != Unknown {
		e.Class = class
	}
}

func (e *GaveUpError) because(why error) *GaveUpError {
	all := *e
	all.Why = why
	return &all
}

// DoValue is [Do] for a call that returns a value. It is the zero value with an error.
func DoValue[T any](ctx context.Context, p Policy, fn func(context.Context) (T, error)) (T, error) {
	var value T
	err := Do(ctx, p, func(ctx context.Context) (err error) {
		value, err = fn(ctx)
		return err
	})
	if err != nil {
		var zero T
		return zero, err
	}
	return value, nil
}

// one makes attempt n.
func (b *Budget) one(ctx context.Context, p *Policy, n int, within, at time.Duration, fn func(context.Context) error) error {
	timed, cancel := context.WithDeadline(ctx, b.instant(at+within)) // however long it takes to come here
	defer cancel()
	own := &attemptContext{Context: timed, n: n}
	if p.NoRetryBelow {
		own.mark = marked
	}
	err := ErrNotReturned
	defer func() { // also if fn panics, which is not caught: who reads the trace wants that of fn
		b.note(Entry{Kind: KindAttempt, Name: p.Name, At: at, Took: b.spent() - at, Allowed: within, Err: err})
	}()
	err = fn(own)
	return err
}

func (p *Policy) class(ctx context.Context, err error) Class {
	switch {
	case p.Classify == nil && anothers(ctx, err):
		return Unknown
	case p.Classify == nil:
		return ClassOf(err)
	}
	if class := p.Classify(err); class >= NotSent && class <= Unknown {
		return class
	}
	return Unknown
}

// mayRepeat says why the failure of an attempt forbids another one, or nil.
func (p *Policy) mayRepeat(ctx context.Context, n int, err error) error {
	_, never := pushBack(err)
	class := p.class(ctx, err)
	switch {
	case never:
		return fmt.Errorf("%w: the other side asks for that", ErrNotRepeated)
	case repeatedBelow(err):
		return fmt.Errorf("%w: it has been repeated below", ErrNotRepeated)
	case class == Refused && !refusedForNow(err):
		return fmt.Errorf("%w: it was refused", ErrNotRepeated)
	case ForbidsRetry(ctx): // before what another layer may see otherwise
		return fmt.Errorf("%w: a layer above has marked the request, and repeats it itself", ErrNoRetry)
	case class == Unknown && !p.Idempotent:
		return fmt.Errorf("%w: its outcome is unknown, and it was not declared idempotent", ErrNotRepeated)
	case n >= p.attempts():
		return ErrAttempts
	}
	return nil
}

// again pauses before the next attempt, or says why there is none.
func (b *Budget) again(ctx context.Context, p *Policy, n int, failed error) error {
	if ctx.Err() != nil && ForbidsRetry(ctx) { // it would not have been repeated, so that who has set the mark may, with time of its own
		return fmt.Errorf("%w: a layer above has marked the request, and its time here is over: %w", ErrNoRetry, context.Cause(ctx))
	} else if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if why := p.mayRepeat(ctx, n, failed); why != nil {
		if errors.Is(why, ErrNoRetry) {
			at := b.spent()
			b.note(Entry{Kind: KindNotStarted, Name: p.Name, At: at, Allowed: max(0, b.left(ctx, at)), Err: why})
		}
		return why
	}
	asked, _ := pushBack(failed)
	pause := max(p.pause(n), asked)
	if needs, left := p.minimum(), max(0, b.left(ctx, b.spent())); left-pause < needs { // pause + needs may overflow
		why := &NoTimeError{What: named("another attempt", p.Name), Needs: needs, Left: left - pause, Reserve: b.reserve}
		if pause >= time.Millisecond {
			why.What += fmt.Sprintf(" after a pause of %v", short(pause))
		}
		b.note(Entry{Kind: KindNotStarted, Name: p.Name, At: b.spent(), Allowed: left, Err: why})
		return why
	}
	if !p.Throttle.allow(p.Name, timedOut(failed)) {
		return ErrThrottled
	}
	at := b.spent()
	err := sleep(ctx, pause)
	b.note(Entry{Kind: KindPause, Name: p.Name, At: at, Took: b.spent() - at, Allowed: pause, Err: err})
	return err
}

// sleep ends early with ctx, and returns its cause then.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
