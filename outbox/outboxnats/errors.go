package outboxnats

import (
	"errors"
	"fmt"
)

// ErrInvalid is an option that makes no sense. See [InvalidError].
var ErrInvalid = errors.New("invalid")

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field, Problem string
}

// Error names the option and what is wrong with it.
func (e *InvalidError) Error() string { return "outboxnats: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// errAway is of a connection that is being made again, or is closed.
var errAway = errors.New("outboxnats: not sent: the connection to NATS is down; it is made again by itself, unless it was closed")

// noStreamError is of a subject that nothing has answered for.
type noStreamError struct {
	subject string
	err     error
}

func (e *noStreamError) Error() string {
	return fmt.Sprintf("outboxnats: no stream takes the subject %q: create one whose subjects include it, and see that JetStream is on for this account; nothing was stored: %v", e.subject, e.err)
}

func (e *noStreamError) Unwrap() error { return e.err }

// unfitError is of a message that JetStream cannot carry.
type unfitError struct{ problem string }

func (e *unfitError) Error() string { return "outboxnats: not sent: " + e.problem }
