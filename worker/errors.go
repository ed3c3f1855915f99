package worker

import (
	"context"
	"errors"
	"fmt"
)

// The kinds of error. None satisfies another.
var (
	// ErrInvalid: a handler or an option makes no sense, or two of them contradict each other. Nothing was started.
	ErrInvalid = errors.New("invalid")
	// ErrClaimLost is a cause of an attempt's ended context: the claim is another's, or nobody can tell any more that it is not. See [ClaimLostError].
	ErrClaimLost = errors.New("claim lost")
	// ErrStopped is a cause of an attempt's ended context: the worker was stopped, and the attempt did not end within the time for that.
	ErrStopped = errors.New("worker stopped")
	// ErrDrain: a worker stopped without knowing that everything was recorded. See [DrainError].
	ErrDrain = errors.New("not everything was recorded")
)

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	What    string // the handler's kind, or what was made
	Field   string
	Problem string
}

// Error names the setting and what is wrong with it.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("worker: %s: invalid %s: %s", e.What, e.Field, e.Problem)
}

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// ClaimLostError matches [ErrClaimLost].
type ClaimLostError struct {
	// Told: the store said that the claim is over. Otherwise no renewal was answered up to the deadline, less the margin.
	Told bool
}

// Error says how it is known, and what follows.
func (e *ClaimLostError) Error() string {
	if e.Told {
		return "worker: the store said that this attempt is not the current one, or out of time: stop; what the provider has answered is evidence still"
	}
	return "worker: no renewal of this attempt's claim was answered in time, so it may not be the current one any more: stop; what the provider has answered is evidence still"
}

// Is makes the error match [ErrClaimLost].
func (e *ClaimLostError) Is(target error) bool { return target == ErrClaimLost }

// timeoutError is the cause of an attempt's end where Go's own timer had slept with the machine.
type timeoutError struct{}

func (timeoutError) Error() string { return "worker: the attempt's timeout has passed" }

// Is makes it match [context.DeadlineExceeded].
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// DrainError matches [ErrDrain].
type DrainError struct {
	Abandoned  int // attempts whose handlers had not returned: they were reported as without an answer
	Unreported int // attempts of whose report it is not known whether it was recorded: they are uncertain when their claims expire
}

// Error says what is left and what becomes of it.
func (e *DrainError) Error() string {
	return fmt.Sprintf("worker: stopped; handlers of %d attempts had not returned, and it is not known whether the reports of %d were recorded: what was not is uncertain when its claim expires",
		e.Abandoned, e.Unreported)
}

// Is makes the error match [ErrDrain].
func (e *DrainError) Is(target error) bool { return target == ErrDrain }

// errDeaf is of an inquiry that did not return in time.
var errDeaf = errors.New("worker: the inquiry did not return after its context had ended")

// finalError marks a refusal for good. See [Final].
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// Final marks an error of a [Handler.Perform] as a refusal for good: asking again under the same id can never do it, as with a card that does not exist. An error that carries no class of its own is taken
// for a refusal then, and so is one of what was not sent. One that is classified as unknown, or is the end of a context, stays unknown: who waited in vain was not refused. Final(nil) is nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}
