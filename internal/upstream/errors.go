package upstream

import (
	"errors"
	"fmt"
)

// The kinds of error. None satisfies another.
var (
	// ErrOption: settings that make no sense. Nothing was opened.
	ErrOption = errors.New("settings do not fit")
	// ErrLeftBehind: the guard ended while the service was at work on requests that it had passed on.
	ErrLeftBehind = errors.New("the service may still be at work")
)

// errTooLong ends a wait for the service; errSilent one for the authority; errGivenUp a call that nobody waits for.
var (
	errTooLong = errors.New("the service did not answer in time")
	errSilent  = errors.New("the store did not answer in time")
	errGivenUp = errors.New("the service did not answer, and was given up")
)

// leftBehindError matches [ErrLeftBehind].
type leftBehindError struct{ calls int }

// Error says what is not known, and what to do.
func (e *leftBehindError) Error() string {
	return fmt.Sprintf("guard: %d requests were passed on and not answered when the time to drain was over: the service may still be at work on them, and a guard that is started now does not wait for it; see that the service has finished or restart it first", e.calls)
}

// Is makes the error match [ErrLeftBehind].
func (e *leftBehindError) Is(target error) bool { return target == ErrLeftBehind }

// sentError is the error of a request of which something may have been sent.
type sentError struct{ err error }

// Error is the error's own.
func (e *sentError) Error() string { return e.err.Error() }

// Unwrap is the error.
func (e *sentError) Unwrap() error { return e.err }
