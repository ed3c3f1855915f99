package main

import (
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/store/postgres"
)

// The exit codes of every command. `tenure run` adds the command's own and 128 + n for a signal.
const (
	exitOK          = 0
	exitFailed      = 1  // the request was understood and refused, or failed in a way that has no code of its own
	exitUsage       = 64 // the command line makes no sense; nothing was looked up or changed
	exitNotAcquired = 75
	exitLost        = 76
	exitNoStore     = 77
	exitUncertain   = 78 // an operation is uncertain: an attempt may have had its effect
	exitCannotRun   = 126
	exitNotFound    = 127
)

// errNoUse ends a wait that no answer can end.
var errNoUse = errors.New("asking again mends nothing")

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// storeError is a store that could not be opened or asked.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// codedError carries the exit code of a command that has already said all there is to say.
type codedError struct{ code int }

func (e *codedError) Error() string { return fmt.Sprintf("exit %d", e.code) }

// exitCode is the exit code for an error of any command.
func exitCode(err error) int {
	var coded *codedError
	var usage *usageError
	var store *storeError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage), errors.Is(err, lease.ErrInvalid), errors.Is(err, fence.ErrInvalid), errors.Is(err, operation.ErrInvalid), errors.Is(err, hold.ErrInvalid),
		errors.Is(err, outbox.ErrInvalid):
		return exitUsage
	case errors.Is(err, lease.ErrHeld), errors.Is(err, lease.ErrWaitEnded):
		return exitNotAcquired
	case errors.As(err, &store), errors.Is(err, lease.ErrUnavailable), errors.Is(err, lease.ErrUnknown), errors.Is(err, postgres.ErrSetup),
		errors.Is(err, operation.ErrUnavailable), errors.Is(err, operation.ErrUnknown), errors.Is(err, hold.ErrUnavailable), errors.Is(err, hold.ErrUnknown),
		errors.Is(err, outbox.ErrUnavailable), errors.Is(err, outbox.ErrUnknown):
		return exitNoStore
	}
	return exitFailed
}
