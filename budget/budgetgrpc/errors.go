package budgetgrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/budget"
)

// unsentError is why a call was not sent, as a status too.
type unsentError struct{ err error }

// Error is the reason's.
func (e *unsentError) Error() string { return e.err.Error() }

// Unwrap is the reason.
func (e *unsentError) Unwrap() error { return e.err }

// GRPCStatus is the code that gRPC itself gives such a call.
func (e *unsentError) GRPCStatus() *status.Status {
	code := codes.DeadlineExceeded
	if !errors.Is(e.err, budget.ErrNoTime) && !errors.Is(e.err, context.DeadlineExceeded) {
		code = codes.Canceled
	}
	return status.New(code, e.err.Error())
}
