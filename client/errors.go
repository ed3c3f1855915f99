package client

import (
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/fence"
)

// The kinds of error of [Dial].
var (
	// ErrInvalid: the options make no sense. See [InvalidError].
	ErrInvalid = errors.New("invalid")
	// ErrUnreachable: no server answered. See [UnreachableError].
	ErrUnreachable = errors.New("unreachable")
	// ErrForeign: a server serves another authority. See [ForeignError].
	ErrForeign = errors.New("another authority's server")
)

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field, Problem string
}

// Error names the field and what is wrong with it.
func (e *InvalidError) Error() string { return "client: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// UnreachableError matches [ErrUnreachable].
type UnreachableError struct {
	Endpoints []string
	Err       error // of the last one
}

// Error names who was asked.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("client: none of %q answered: %v; nothing was asked for; check that a server listens there (tenure serve)", e.Endpoints, e.Err)
}

// Is makes the error match [ErrUnreachable].
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// ForeignError matches [ErrForeign].
type ForeignError struct {
	Endpoint         string
	Authority, Other fence.ID
}

// Error names both authorities.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("client: %s serves authority %v, and the others %v: they share no leases; nothing was asked of it", e.Endpoint, e.Other, e.Authority)
}

// Is makes the error match [ErrForeign].
func (e *ForeignError) Is(target error) bool { return target == ErrForeign }

// errStreamOver says that a stream ended before it answered: the renewal may have been done.
var errStreamOver = errors.New("the stream of renewals has ended")

// nonsense is a reply that cannot be read. It matches no kind of error: what the reader of it calls invalid is no request.
func nonsense(err error) error { return fmt.Errorf("the reply makes no sense: %v", err) } //nolint:errorlint // on purpose
