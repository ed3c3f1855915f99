package rpc

import "context"

// lateError is a failure with the code of a time that ended. It matches context.DeadlineExceeded, which package budget tells the end of an attempt's time by and statuses do not.
type lateError struct{ err error }

// Late is err, which has the code [DeadlineExceeded], so that it is known for the end of an attempt's time.
func Late(err error) error { return &lateError{err} }

// Error is the failure's.
func (e *lateError) Error() string { return e.err.Error() }

// Unwrap is the failure.
func (e *lateError) Unwrap() error { return e.err }

// Is reports whether target is context.DeadlineExceeded.
func (e *lateError) Is(target error) bool { return target == context.DeadlineExceeded }
