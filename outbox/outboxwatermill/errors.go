package outboxwatermill

import "errors"

// The kinds of error. None satisfies another.
var (
	// ErrInvalid: an option makes no sense. See [InvalidError].
	ErrInvalid = errors.New("invalid")
	// ErrProduced: a handler behind [Once] has returned messages. Its effect was rolled back, if the Once that it was given does that with an error of its function.
	ErrProduced = errors.New("outboxwatermill: a handler behind Once returned messages, which are published after its transaction and would be lost where that fails: append them to an outbox in the transaction instead")
	// ErrNotDone: the Once that a middleware was given says that the message is new, and has not called its function.
	ErrNotDone = errors.New("outboxwatermill: the message is neither done nor known: the inbox has not called the handler")
)

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field, Problem string
}

// Error names the option and what is wrong with it.
func (e *InvalidError) Error() string {
	return "outboxwatermill: invalid " + e.Field + ": " + e.Problem
}

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
