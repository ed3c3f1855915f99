package budget

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Class is what is known of a call that failed.
type Class int

// The classes. The zero value is none.
const (
	NotSent Class = iota + 1 // certainly not: nothing of the request left this process, or it was not started
	Refused                  // answered: the other side says that it did not do it
	Unknown                  // it may have been done
)

// String is the class as texts and log attributes use it.
func (c Class) String() string {
	switch c {
	case NotSent:
		return "not sent"
	case Refused:
		return "refused"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// Phase is how far a call had come when it failed, for a person; what may be repeated goes by [Class].
type Phase string

// The phases, in order. Not every protocol has each.
const (
	PhaseConnection Phase = "waiting for a connection" // of a pool
	PhaseDNS        Phase = "looking up the name"
	PhaseConnect    Phase = "connecting"
	PhaseTLS        Phase = "TLS handshake"
	PhaseSending    Phase = "sending"
	PhaseAnswer     Phase = "waiting for the answer"
	PhaseReading    Phase = "reading the answer"
)

// ClassOf is what is known of a call that failed with err: what the outermost [*Error] or [*GaveUpError] in its chain says; [NotSent] for an error that matches [ErrNoTime] or
// [ErrThrottled]; [Unknown] for everything else, because an error that nobody has classified proves nothing. It is 0 for nil.
//
// Of errors that errors.Join has joined all happened, so the one that proves least decides. Where an error wraps several in another way, such as by two %w, those without a class are
// taken for kinds, and of the others the one that proves least decides.
func ClassOf(err error) Class {
	if err == nil {
		return 0
	}
	if class := classIn(err); class != 0 {
		return class
	}
	if errors.Is(err, ErrNoTime) || errors.Is(err, ErrThrottled) {
		return NotSent
	}
	return Unknown
}

// classIn is the class that somebody has given err, or 0.
func classIn(err error) (class Class) {
	switch e := err.(type) { //nolint:errorlint // the outermost one decides, so the chain is walked here
	case *GaveUpError:
		return e.Class
	case *Error:
		if e.Class >= NotSent && e.Class <= Unknown {
			return e.Class
		}
		return Unknown
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return classIn(inner)
		}
	case interface{ Unwrap() []error }:
		all := reflect.TypeOf(err) == reflect.TypeOf(errors.Join(err))
		for _, one := range e.Unwrap() {
			found := classIn(one)
			if found == 0 && all {
				found = ClassOf(one)
			}
			class = max(class, found) // they are in the order of what they leave open
		}
	}
	return class
}

// anothers reports whether what err says is known of another call, whose failure has ended ctx: clients such as net/http's return the cause of a context that ends while they wait.
func anothers(ctx context.Context, err error) bool {
	if ctx.Err() == nil {
		return false
	}
	if same(err, context.Cause(ctx)) {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // the chain is walked here
	case *Error, *GaveUpError: // of this one, whatever it wraps
	case interface{ Unwrap() error }:
		return e.Unwrap() != nil && anothers(ctx, e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(one error) bool { return anothers(ctx, one) })
	}
	return false
}

// told hands to f the outermost [*Error] of each branch of err.
func told(err error, f func(*Error)) {
	switch e := err.(type) { //nolint:errorlint // the chain is walked here
	case *Error:
		f(e)
	case interface{ Unwrap() error }:
		told(e.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			told(one, f)
		}
	}
}

// pushBack is what the other side has asked for; where several have, the longest pause, and no repetition if any wants none.
func pushBack(err error) (after time.Duration, never bool) {
	told(err, func(e *Error) {
		after, never = max(after, e.RetryAfter), never || e.NoRetry
	})
	return after, never
}

// repeatedBelow reports whether another [Do] has given up, other than by the mark that leaves repeating to whoever set it.
func repeatedBelow(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the chain is walked here
	case *GaveUpError:
		return !errors.Is(e.Why, ErrNoRetry) || repeatedBelow(e.Last)
	case interface{ Unwrap() error }:
		return repeatedBelow(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), repeatedBelow)
	}
	return false
}

// refusedForNow reports whether another attempt may pass: nobody has refused for good.
func refusedForNow(err error) bool {
	now, good := false, false
	told(err, func(e *Error) {
		again := e.Again || e.RetryAfter > 0
		now, good = now || again, good || e.Class == Refused && !again
	})
	return now && !good
}

// timedOut reports whether an attempt ended because its time did.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded)
}
