package outboxhttp

import (
	"errors"
	"fmt"
)

// The kinds of error. None satisfies another.
var (
	// ErrInvalid is an option that makes no sense. See [InvalidError].
	ErrInvalid = errors.New("invalid")
	// ErrSignature is a request that nobody with one of the secrets has signed, or whose headers are not those of a webhook. Nothing of it is to be believed.
	ErrSignature = errors.New("outboxhttp: the signature is not one of ours")
	// ErrTimestamp is a request that was signed too long ago, or too far ahead: it may be an old one that somebody sends again, or one of two clocks is wrong.
	ErrTimestamp = errors.New("outboxhttp: the request's time is out of the tolerance")
)

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field, Problem string
}

// Error names the option and what is wrong with it.
func (e *InvalidError) Error() string { return "outboxhttp: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// redirectError is an answer that sends the sender elsewhere.
type redirectError struct{ code int }

func (e *redirectError) Error() string {
	return fmt.Sprintf("outboxhttp: the service answered %d: redirections are not followed; set the URL that is meant", e.code)
}
