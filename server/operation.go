package server

import (
	"context"
	"errors"
	"time"

	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
	"github.com/tenure-go/tenure/operation"
)

// waitMargin is how long before the call's own deadline a wait ends, so that the operation as it stands still reaches the caller.
const waitMargin = 100 * time.Millisecond

type operations struct {
	store    operation.Store
	draining <-chan struct{}
}

// SubmitOperation is [operation.Store.Submit].
func (s *operations) SubmitOperation(ctx context.Context, m *v1.SubmitOperationRequest) (*v1.SubmitOperationResponse, error) {
	req, err := wire.GetSubmit(m)
	return one(ctx, req, err, s.store.Submit, func(r operation.Submitted) *v1.SubmitOperationResponse {
		return &v1.SubmitOperationResponse{Operation: wire.PutRecord(r.Record), Known: r.Known}
	}, wire.OperationErrorOf)
}

// GetOperation is [operation.Store.Get].
func (s *operations) GetOperation(ctx context.Context, m *v1.GetOperationRequest) (*v1.GetOperationResponse, error) {
	return one(ctx, m.GetId(), nil, s.store.Get, func(r operation.Record) *v1.GetOperationResponse {
		return &v1.GetOperationResponse{Operation: wire.PutRecord(r)}
	}, wire.OperationErrorOf)
}

// WaitOperation is [operation.Wait], for at most 30 seconds.
func (s *operations) WaitOperation(ctx context.Context, m *v1.WaitOperationRequest) (*v1.WaitOperationResponse, error) {
	most, err := wire.GetWait(m)
	if err != nil {
		return nil, wire.OperationErrorOf(err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		most = max(0, min(most, time.Until(deadline)-waitMargin))
	}
	wait, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-s.draining:
			cancel()
		case <-stop:
		}
	}()
	rec, err := operation.Wait(wait, s.store, m.GetId())
	var undecided *operation.UndecidedError
	switch {
	case errors.As(err, &undecided) && undecided.State == 0: // never read within the wait: one look without it
		if rec, err = s.store.Get(ctx, m.GetId()); err != nil {
			return nil, wire.OperationErrorOf(err)
		}
	case err != nil && undecided == nil:
		return nil, wire.OperationErrorOf(err)
	}
	return &v1.WaitOperationResponse{Operation: wire.PutRecord(rec), Decided: rec.State.Decided()}, nil
}

// CancelOperation is [operation.Store.Cancel].
func (s *operations) CancelOperation(ctx context.Context, m *v1.CancelOperationRequest) (*v1.CancelOperationResponse, error) {
	rec, err := s.store.Cancel(ctx, m.GetId(), m.GetReason())
	if err != nil {
		return nil, wire.OperationErrorOf(err)
	}
	return &v1.CancelOperationResponse{Operation: wire.PutRecord(rec)}, nil
}

// RespondOperation is [operation.Store.Respond].
func (s *operations) RespondOperation(ctx context.Context, m *v1.RespondOperationRequest) (*v1.RespondOperationResponse, error) {
	rec, err := s.store.Respond(ctx, wire.GetResponse(m))
	if err != nil && rec.ID == "" {
		return nil, wire.OperationErrorOf(err)
	}
	reply := &v1.RespondOperationResponse{Operation: wire.PutRecord(rec)}
	reply.Fault, reply.Message = recorded(err)
	return reply, nil
}

// recorded is an error that came with a record which was changed all the same, or of one report of several. An error of no contract is an unknown outcome: without a fault the caller would take it for done.
func recorded(err error) (*v1.Fault, string) {
	if err == nil {
		return nil, ""
	}
	fault := wire.OperationFault(err)
	if fault == nil {
		fault = wire.OperationFault(&operation.UnknownError{Op: "record", Err: err})
	}
	return fault, err.Error()
}

// ClaimOperations is [operation.Queue.Claim].
func (s *operations) ClaimOperations(ctx context.Context, m *v1.ClaimOperationsRequest) (*v1.ClaimOperationsResponse, error) {
	queue, ok := s.store.(operation.Queue)
	if !ok {
		return nil, unimplemented("hand out operations")
	}
	req, err := wire.GetClaimRequest(m)
	return one(ctx, req, err, queue.Claim, func(all []operation.Job) *v1.ClaimOperationsResponse {
		return &v1.ClaimOperationsResponse{Jobs: wire.All(all, wire.PutJob)}
	}, wire.OperationErrorOf)
}

// RenewAttempts is [operation.Queue.Renew].
func (s *operations) RenewAttempts(ctx context.Context, m *v1.RenewAttemptsRequest) (*v1.RenewAttemptsResponse, error) {
	queue, ok := s.store.(operation.Queue)
	if !ok {
		return nil, unimplemented("hand out operations")
	}
	req, err := wire.GetRenewAttempts(m)
	return one(ctx, req, err, queue.Renew, func(lost []operation.Ref) *v1.RenewAttemptsResponse {
		return &v1.RenewAttemptsResponse{Lost: wire.All(lost, wire.PutRef)}
	}, wire.OperationErrorOf)
}

// CompleteAttempts is [operation.Queue.Complete].
func (s *operations) CompleteAttempts(ctx context.Context, m *v1.CompleteAttemptsRequest) (*v1.CompleteAttemptsResponse, error) {
	queue, ok := s.store.(operation.Queue)
	if !ok {
		return nil, unimplemented("hand out operations")
	}
	all, err := wire.TryAll(m.GetCompletions(), wire.GetCompletion)
	return one(ctx, all, err, queue.Complete, func(errs []error) *v1.CompleteAttemptsResponse {
		return &v1.CompleteAttemptsResponse{Results: wire.All(errs, func(err error) *v1.CompletionResult {
			fault, message := recorded(err)
			return &v1.CompletionResult{Fault: fault, Message: message}
		})}
	}, wire.OperationErrorOf)
}
