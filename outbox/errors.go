package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// The kinds of error. None satisfies another.
var (
	// ErrInvalid: the input makes no sense, or is over a limit. Nothing was changed. See [InvalidError].
	ErrInvalid = errors.New("invalid")
	// ErrMismatch: the id is in use for another message. Nothing was changed. See [MismatchError].
	ErrMismatch = errors.New("mismatch")
	// ErrNotFound: no message has that id. Nothing was changed. See [NotFoundError].
	ErrNotFound = errors.New("not found")
	// ErrUnknown: the request may or may not have been applied. See [UnknownError].
	ErrUnknown = errors.New("outcome unknown")
	// ErrUnavailable: the store could not be asked. The request was certainly not applied. See [UnavailableError].
	ErrUnavailable = errors.New("unavailable")
	// ErrOutage: the destination as a whole does not take messages now, which says nothing of this message. A [Sink] says so: see [Outage].
	ErrOutage = errors.New("destination unavailable")
	// ErrRefused: the destination will never take this message as it is. A [Sink] says so: see [Refused].
	ErrRefused = errors.New("refused by the destination")
)

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field, Problem string
}

// Error names the field and what is wrong with it.
func (e *InvalidError) Error() string { return "outbox: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// MismatchError matches [ErrMismatch].
type MismatchError struct {
	ID   fence.ID
	What string // "topic", "key", "order", "headers" or "payload": the first that differs
}

// Error says what differs.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("outbox: %v is known with another %s; nothing was changed", e.ID, e.What)
}

// Is makes the error match [ErrMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// NotFoundError matches [ErrNotFound].
type NotFoundError struct{ ID fence.ID }

// Error names what was not found.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("outbox: no message %v is known; nothing was changed", e.ID)
}

// Is makes the error match [ErrNotFound].
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// UnknownError matches [ErrUnknown].
type UnknownError struct {
	Op  string
	Err error
}

// Error says what is unknown and what to do.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("outbox: whether %s was applied is unknown: %v; the same call again settles it, and a claim is over at its deadline", e.Op, e.Err)
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
	return fmt.Sprintf("outbox: %s was not applied: %v", e.Op, e.Err)
}

// Is makes the error match [ErrUnavailable].
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// sinkError is what a sink says about an error.
type sinkError struct {
	err  error
	kind error
	rest time.Duration
}

func (e *sinkError) Error() string        { return e.err.Error() }
func (e *sinkError) Unwrap() error        { return e.err }
func (e *sinkError) Is(target error) bool { return target == e.kind }

// Outage makes err match [ErrOutage], keeping its text and its chain. It is nil for nil.
func Outage(err error) error {
	if err == nil {
		return nil
	}
	return &sinkError{err, ErrOutage, 0}
}

// OutageFor is [Outage] where the destination has said for how long it wants to be left alone. It is nil for a nil err, whatever rest is.
func OutageFor(err error, rest time.Duration) error {
	if err == nil {
		return nil
	}
	return &sinkError{err, ErrOutage, max(rest, 0)}
}

// RestOf is how long the destination wants to be left alone, if err came from [OutageFor]; else 0.
func RestOf(err error) time.Duration {
	var said *sinkError
	if errors.As(err, &said) {
		return said.rest
	}
	return 0
}

// Refused makes err match [ErrRefused], keeping its text and its chain. It is nil for nil.
func Refused(err error) error {
	if err == nil {
		return nil
	}
	return &sinkError{err, ErrRefused, 0}
}
