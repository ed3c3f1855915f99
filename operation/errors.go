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
	// ErrNotFound: no operation has that id, or it was forgotten. Nothing was changed. See [NotFoundError].
	ErrNotFound = errors.New("not found")
	// ErrUnknown: the request may or may not have been applied. Repeating it settles which. See [UnknownError].
	ErrUnknown = errors.New("outcome unknown")
	// ErrUnavailable: the store could not be asked. The request was certainly not applied. See [UnavailableError].
	ErrUnavailable = errors.New("unavailable")
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

// NotFoundError matches [ErrNotFound].
type NotFoundError struct {
	ID string
}

// Error names the id.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("operation: %q is not known: it was never submitted, or it was forgotten long after its decision", e.ID)
}

// Is makes the error match [ErrNotFound].
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// UnknownError matches [ErrUnknown].
type UnknownError struct {
	Op  string
	ID  string // empty for a call about many
	Err error
}

// Error says what is unknown and what to do.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("operation: whether %s of %q was applied is unknown: %v; the same call again settles it", e.Op, e.ID, e.Err)
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
	return fmt.Sprintf("operation: %s was not applied: %v", e.Op, e.Err)
}

// Is makes the error match [ErrUnavailable].
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// UndecidedError is what [Wait] returns when the wait ended first. It matches [ErrUndecided], and what Why matches: it never says that the operation failed.
type UndecidedError struct {
	ID      string
	State   State // when it was last read; 0: it never was
	Why     error // the cause of the context's end
	Failure error // of the last reading, or nil
}

// Error says that nothing is decided yet, and what to do.
func (e *UndecidedError) Error() string {
	text := fmt.Sprintf("operation: %q is not decided yet", e.ID)
	if e.State != 0 {
		text += fmt.Sprintf(", it is %v", e.State)
	}
	text += fmt.Sprintf(": the wait ended (%v), which says nothing of the operation; ask again under the same id", e.Why)
	if e.Failure != nil {
		text += fmt.Sprintf("; the store's last answer: %v", e.Failure)
	}
	return text
}

// Is makes the error match [ErrUndecided].
func (e *UndecidedError) Is(target error) bool { return target == ErrUndecided }

// Unwrap returns why the wait ended.
func (e *UndecidedError) Unwrap() error { return e.Why }
