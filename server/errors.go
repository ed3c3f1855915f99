package server

import "errors"

// ErrInvalid is the kind of error for options that make no sense. See [InvalidError].
var ErrInvalid = errors.New("invalid")

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field, Problem string
}

// Error names the field and what is wrong with it.
func (e *InvalidError) Error() string { return "server: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
