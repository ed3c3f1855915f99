package operation

import (
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/fence"
)

// The kinds of error. None satisfies another.
var (
	// ErrInvalid: the input makes no sense. Nothing was changed.
	ErrInvalid = errors.New("invalid")
	// ErrMismatch: the id is in use for another kind or request. Nothing was changed. See [MismatchError].
	ErrMismatch = errors.New("mismatch")
	// ErrDecided: the operation is decided, and what was asked for needs one that is not. See [StateError].
	ErrDecided = errors.New("decided")
	// ErrUndecided: the operation is not decided, and what was asked for needs that. See [StateError].
	ErrUndecided = errors.New("undecided")
	// ErrStale: the attempt is not the current one any more. What it reported was recorded; it moved nothing. See [StaleError].
	ErrStale = errors.New("stale attempt")
)

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field, Problem string
}

// Error names the field and what is wrong with it.
func (e *InvalidError) Error() string { return "operation: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// MismatchError matches [ErrMismatch].
type MismatchError struct {
	ID   string
	What string // "kind" or "request"
}

// Error says what differs and what to do.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("operation: %q was submitted with another %s; nothing was changed; an id is for one request, ever", e.ID, e.What)
}

// Is makes the error match [ErrMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// StateError matches [ErrDecided] or [ErrUndecided], by its Kind.
type StateError struct {
	Kind  error
	ID    string
	State State
	What  string // what was asked for
}

// Error names the state and what was asked for.
func (e *StateError) Error() string {
	return fmt.Sprintf("operation: %q is %v: %s is refused; nothing was changed", e.ID, e.State, e.What)
}

// Is makes the error match its kind.
func (e *StateError) Is(target error) bool { return target == e.Kind }

// StaleError matches [ErrStale].
type StaleError struct {
	ID             string
	Attempt, Newer fence.Token
	State          State
}

// Error names both attempts and what to do.
func (e *StaleError) Error() string {
	return fmt.Sprintf("operation: attempt %d of %q is not the current one (%d), and the operation is %v: roll back what this attempt has changed", e.Attempt, e.ID, e.Newer, e.State)
}

// Is makes the error match [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }
