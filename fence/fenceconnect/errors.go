package fenceconnect

import (
	"errors"

	"connectrpc.com/connect"
)

// errOutlived is told of a call whose lease ended while it was served.
var errOutlived = errors.New("the call was served and outlived its lease: its successor may have been let in before it ended; look at the resource")

// refusalError is a refusal as Connect has it and as the error that it tells.
type refusalError struct {
	as  *connect.Error
	err error
}

// Error says what was refused, and what to do.
func (e *refusalError) Error() string { return e.err.Error() }

// Unwrap is both.
func (e *refusalError) Unwrap() []error { return []error{e.err, e.as} }
