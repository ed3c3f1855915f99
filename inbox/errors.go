package inbox

import (
	"errors"
	"fmt"
)

// The kinds of error. None satisfies another.
var (
	// ErrInvalid: the input makes no sense. Nothing was changed. See [InvalidError].
	ErrInvalid = errors.New("invalid")
	// ErrUnknown: the request may or may not have been applied. Repeating it settles it. See [UnknownError].
	ErrUnknown = errors.New("outcome unknown")
	// ErrUnavailable: the store could not be asked. The request was certainly not applied. See [UnavailableError].
	ErrUnavailable = errors.New("unavailable")
)

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field, Problem string
}

// Error names the field and what is wrong with it.
func (e *InvalidError) Error() string { return "inbox: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// UnknownError matches [ErrUnknown].
type UnknownError struct {
	Op  string
	Err error
}

// Error says what is unknown and what to do.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("inbox: whether %s was applied is unknown: %v; the same call again settles it", e.Op, e.Err)
}

// Is makes the error match [ErrUnknown].
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// Unwrap returns the cause.
func (e *UnknownError) Unwrap() error { return e.Err }

// UnavailableError matches [ErrUnavailable].
type UnavailableError struct {
	Op  string
	Err error
}

// Error says that nothing was done.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("inbox: %s was not applied: %v", e.Op, e.Err)
}

// Is makes the error match [ErrUnavailable].
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }
