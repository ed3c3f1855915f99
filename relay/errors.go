package relay

import (
	"errors"
	"fmt"
	"time"
)

// The kinds of error. None satisfies another.
var (
	// ErrInvalid: the options make no sense. See [InvalidError].
	ErrInvalid = errors.New("invalid")
	// ErrDrain: the destination did not return in time when the relay ended. See [DrainError].
	ErrDrain = errors.New("not drained")
)

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field, Problem string
}

// Error names the field and what is wrong with it.
func (e *InvalidError) Error() string { return "relay: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// DrainError matches [ErrDrain].
type DrainError struct {
	Messages int
	Waited   time.Duration
}

// Error says what is known of what was left.
func (e *DrainError) Error() string {
	return fmt.Sprintf("relay: the destination still had %d messages after %v: whether they were published is not known, and they are claimed again after their deadline", e.Messages, e.Waited)
}

// Is makes the error match [ErrDrain].
func (e *DrainError) Is(target error) bool { return target == ErrDrain }

// sinkError is a sink that did not do what its contract says.
type sinkError struct{ problem string }

func (e *sinkError) Error() string { return "relay: the sink " + e.problem }

// errNotHanded is of a message that was not handed over because the claim may have ended, or the relay has.
var errNotHanded = errors.New("not handed over")
