package fencegrpc

import "google.golang.org/grpc/status"

// refusalError is a refusal as a status and as the error that it tells.
type refusalError struct {
	status *status.Status
	err    error
}

// Error says what was refused, and what to do.
func (e *refusalError) Error() string { return e.err.Error() }

// Unwrap is the error that the refusal tells.
func (e *refusalError) Unwrap() error { return e.err }

// GRPCStatus is the status as it came.
func (e *refusalError) GRPCStatus() *status.Status { return e.status }
