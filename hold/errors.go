package hold

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// The kinds of error. None satisfies another.
var (
	// ErrInvalid: the input makes no sense. Nothing was changed. See [InvalidError].
	ErrInvalid = errors.New("invalid")
	// ErrTaken: something that is asked for is not free. Nothing was changed. See [TakenError].
	ErrTaken = errors.New("taken")
	// ErrLimit: the actor holds as much as it may. Nothing was changed. See [LimitError].
	ErrLimit = errors.New("limit")
	// ErrMismatch: the id is in use for another hold, or the hold was confirmed under another reference. Nothing was changed. See [MismatchError].
	ErrMismatch = errors.New("mismatch")
	// ErrActor: the hold is another actor's. Nothing was changed. See [ActorError].
	ErrActor = errors.New("another actor's")
	// ErrOver: the hold has ended otherwise. Nothing was changed. See [OverError].
	ErrOver = errors.New("over")
	// ErrNotFound: no hold has that id, or no item that name. Nothing was changed. See [NotFoundError].
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
func (e *InvalidError) Error() string { return "hold: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// TakenError matches [ErrTaken]. It is about the first item, by name, of which too little is free.
type TakenError struct {
	Item         string
	Wanted, Free int64
	// Next is when, at most, unless extended, the next hold on the item expires; 0: none is live, and what is missing is sold.
	Next time.Duration
}

// Error names the item and what is free of it.
func (e *TakenError) Error() string {
	if e.Next == 0 {
		return fmt.Sprintf("hold: %d of %q wanted, %d free, and nothing is held; nothing was changed", e.Wanted, e.Item, e.Free)
	}
	return fmt.Sprintf("hold: %d of %q wanted, %d free; the next hold on it expires within %v, unless extended; nothing was changed", e.Wanted, e.Item, e.Free, e.Next)
}

// Is makes the error match [ErrTaken].
func (e *TakenError) Is(target error) bool { return target == ErrTaken }

// LimitError matches [ErrLimit].
type LimitError struct {
	Actor string
	What  string // "holds" or "units"
	Most  int64
	Live  int64 // that the actor holds already
}

// Error names the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("hold: %q has %d live %s, and may have %d; nothing was changed", e.Actor, e.Live, e.What, e.Most)
}

// Is makes the error match [ErrLimit].
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// MismatchError matches [ErrMismatch].
type MismatchError struct {
	ID   fence.ID
	What string // "actor", "lines", "ttl" or "reference"
}

// Error says what differs.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("hold: %v is known with another %s; nothing was changed", e.ID, e.What)
}

// Is makes the error match [ErrMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// ActorError matches [ErrActor]. It does not say whose the hold is.
type ActorError struct {
	ID    fence.ID
	Actor string // who asked
}

// Error names the hold and who asked.
func (e *ActorError) Error() string {
	return fmt.Sprintf("hold: %v is not %q's; nothing was changed", e.ID, e.Actor)
}

// Is makes the error match [ErrActor].
func (e *ActorError) Is(target error) bool { return target == ErrActor }

// OverError matches [ErrOver].
type OverError struct {
	ID    fence.ID
	State State  // how it ended
	What  string // what was asked for
}

// Error says how the hold ended.
func (e *OverError) Error() string {
	return fmt.Sprintf("hold: %v is %v: %s is refused; nothing was changed", e.ID, e.State, e.What)
}

// Is makes the error match [ErrOver].
func (e *OverError) Is(target error) bool { return target == ErrOver }

// NotFoundError matches [ErrNotFound].
type NotFoundError struct {
	What string // "hold" or "item"
	Name string
}

// Error names what was not found.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("hold: no %s %q is known; nothing was changed", e.What, e.Name)
}

// Is makes the error match [ErrNotFound].
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// UnknownError matches [ErrUnknown].
type UnknownError struct {
	Op  string
	ID  fence.ID
	Err error
}

// Error says what is unknown and what to do.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("hold: whether %s of %v was applied is unknown: %v; the same call again settles it", e.Op, e.ID, e.Err)
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
	return fmt.Sprintf("hold: %s was not applied: %v", e.Op, e.Err)
}

// Is makes the error match [ErrUnavailable].
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }
