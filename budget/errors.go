package budget

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// The kinds of error. None satisfies another.
var (
	// ErrInvalid: the arguments make no sense. Nothing was started.
	ErrInvalid = errors.New("invalid")
	// ErrNoTime: what is left does not hold what was to be started. It was not started. See [NoTimeError].
	ErrNoTime = errors.New("no time")
	// ErrThrottled: too much is repeated towards this destination already, so this was not repeated.
	ErrThrottled = errors.New("throttled")
	// ErrNotRepeated: an attempt failed in a way that forbids another one: it was refused for good, or its outcome is unknown and the call was not declared idempotent.
	ErrNotRepeated = errors.New("not repeated")
	// ErrNoRetry: an attempt failed, and the request that it serves carries the mark of [NoRetry]: it is repeated above, if at all.
	ErrNoRetry = errors.New("not to be repeated here")
	// ErrNotReturned: an attempt did not return: it panicked, or ended its goroutine. Nothing is known of what it did. It is in an [Explanation] alone.
	ErrNotReturned = errors.New("it did not return: it panicked, or ended its goroutine")
	// ErrAttempts: as many attempts as were allowed have failed.
	ErrAttempts = errors.New("no more attempts")
)

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field   string
	Problem string
}

// Error names the field and what is wrong with it.
func (e *InvalidError) Error() string { return "budget: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// NoTimeError matches [ErrNoTime].
type NoTimeError struct {
	What    string        // an attempt, a pause before one, or a part of a budget
	Needs   time.Duration // at least
	Left    time.Duration // before the reserve, or before the end of the context that it was to run under where that is sooner; 0 or less if nothing is
	Reserve time.Duration // kept for answering and asking
}

// Error says what did not fit.
func (e *NoTimeError) Error() string {
	return fmt.Sprintf("budget: %s needs %v and %v are left before the reserve of %v; it was not started", e.What, e.Needs, short(max(0, e.Left)), e.Reserve)
}

// Is makes the error match [ErrNoTime].
func (e *NoTimeError) Is(target error) bool { return target == ErrNoTime }

// sleptError is the cause of contexts whose budget was spent while the machine slept. It is none of the kinds: what was under way may have been done.
type sleptError struct {
	name         string
	total, slept time.Duration
}

// Error says what ended, and by what.
func (e *sleptError) Error() string {
	return fmt.Sprintf("budget: %s of %v is spent: the machine slept for %v", e.name, e.total, short(e.slept))
}

// Is makes the error match context.DeadlineExceeded: it is the end of a time as any other.
func (e *sleptError) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout is for those who ask as of a net.Error.
func (e *sleptError) Timeout() bool { return true }

// GaveUpError is what [Do] returns after an attempt has failed: why there was no other one, and how the attempts failed. It matches the kind in Why, and
// whatever Last and Real match.
type GaveUpError struct {
	Why  error // matches [ErrNoTime], [ErrThrottled], [ErrNotRepeated], [ErrNoRetry] or [ErrAttempts], or is the cause of the caller's context
	Last error // of the last attempt
	// Real is the last error that was more than the end of an attempt's time: what a person needs to know. It is Last if all timed out.
	Real error
	// Class is what is known of the whole call: [Unknown] if any attempt's outcome is, whatever the last one was.
	Class    Class
	Attempts int // that were started
}

// Error says why, and what went wrong.
func (e *GaveUpError) Error() string {
	text := fmt.Sprintf("budget: gave up after %d attempts (%v); %v: %v", e.Attempts, e.Why, e.Class, e.Real)
	if !same(e.Real, e.Last) {
		text += fmt.Sprintf("; the last: %v", e.Last)
	}
	return text
}

// same reports whether two errors are the very same value, as far as Go can say: of types that cannot be compared, such as slices, whether they say the same.
func same(a, b error) bool {
	if a != nil && b != nil && (!reflect.ValueOf(a).Comparable() || !reflect.ValueOf(b).Comparable()) {
		return a.Error() == b.Error()
	}
	return a == b //nolint:errorlint // the very same value
}

// Unwrap returns all of them.
func (e *GaveUpError) Unwrap() []error { return []error{e.Why, e.Last, e.Real} }

// Error is a failed call with what is known of it. Adapters make it; [ClassOf] and [Do] read it.
type Error struct {
	Class Class
	Phase Phase // empty where it is not known
	// Again: a refusal that another attempt may find otherwise, such as "too many requests". So is one with RetryAfter.
	Again bool
	// RetryAfter is how long the other side asks to be left alone; 0: it has not said.
	RetryAfter time.Duration
	// NoRetry: the other side, or a layer behind it, asks that this is not repeated.
	NoRetry bool
	Err     error // never nil
}

// Error is the class, the phase and the cause.
func (e *Error) Error() string {
	if e.Phase == "" {
		return fmt.Sprintf("%v: %v", e.Class, e.Err)
	}
	return fmt.Sprintf("%v (%s): %v", e.Class, e.Phase, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
