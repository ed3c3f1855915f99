package fencehttp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// The kinds of error beside those of package fence. None satisfies another. After each of them the request was not let in.
var (
	// ErrMissing: a protected request carried no claim. See [MissingError].
	ErrMissing = errors.New("no claim")
	// ErrBusy: the turn did not come in time, or too many were waiting. See [BusyError].
	ErrBusy = errors.New("busy")
	// ErrFull: the marks that are kept in memory have no room for another resource. Those that are there still work.
	ErrFull = errors.New("no room for another resource's mark")
	// ErrUnavailable: the check could not be made. See [UnavailableError].
	ErrUnavailable = errors.New("the claim could not be checked")
	// ErrResource: it is not clear what the request is about. See [ResourceError].
	ErrResource = errors.New("no such resource")
	// ErrOption: options that make no sense. Nothing was made.
	ErrOption = errors.New("options do not fit")
)

// MissingError matches [ErrMissing].
type MissingError struct{ Resource string }

// Error says what to send.
func (e *MissingError) Error() string {
	return fmt.Sprintf("fencehttp: a change of %q needs the claim of the lease that guards it, in the header %s; nothing was passed on; acquire the lease and send its claim",
		e.Resource, ClaimHeader)
}

// Is makes the error match [ErrMissing].
func (e *MissingError) Is(target error) bool { return target == ErrMissing }

// BusyError matches [ErrBusy]: somebody else's request for the resource was at work all the time.
type BusyError struct {
	Resource string
	Why      string        // "the turn did not come", "too many are waiting", ...
	After    time.Duration // when asking again makes sense
}

// Error says that nothing happened, and what to do.
func (e *BusyError) Error() string {
	return fmt.Sprintf("fencehttp: another request for %q is at work: %s; nothing was passed on; try again", e.Resource, e.Why)
}

// Is makes the error match [ErrBusy].
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// UnavailableError matches [ErrUnavailable]. What could not be checked is not let in.
type UnavailableError struct{ Err error }

// Error says that nothing happened, and why.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("fencehttp: the claim could not be checked: %v; nothing was passed on; try again", e.Err)
}

// Is makes the error match [ErrUnavailable].
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap is what the check returned.
func (e *UnavailableError) Unwrap() error { return e.Err }

// ResourceError matches [ErrResource].
type ResourceError struct{ Problem string }

// Error says what is wrong with the request.
func (e *ResourceError) Error() string {
	return "fencehttp: which resource the request is about is not clear: " + e.Problem + "; nothing was passed on"
}

// Is makes the error match [ErrResource].
func (e *ResourceError) Is(target error) bool { return target == ErrResource }

// errBadCheck is what a check did that neither refused nor let in.
var errBadCheck = errors.New("the check neither refused the claim nor served the request")

// errUnanswered is all that the other side is told of a check that could not be made.
var errUnanswered = errors.New("the authority did not answer")

// refused gives every error of the door one of its kinds: what is none of them was a check that could not be made.
func refused(err error) error {
	for _, kind := range []error{fence.ErrInvalid, fence.ErrRefused, fence.ErrForeign, fence.ErrAhead,
		ErrMissing, ErrBusy, ErrFull, ErrUnavailable, ErrResource, context.Canceled} {
		if errors.Is(err, kind) {
			return err
		}
	}
	return &UnavailableError{Err: err}
}
