package server

import (
	"context"

	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
	"github.com/tenure-go/tenure/operation"
)

// ExpireAttempts is [operation.Desk.Expire].
func (s *operations) ExpireAttempts(ctx context.Context, m *v1.ExpireAttemptsRequest) (*v1.ExpireAttemptsResponse, error) {
	desk, ok := s.store.(operation.Desk)
	if !ok {
		return nil, unimplemented("reconcile operations")
	}
	return one(ctx, int(m.GetLimit()), nil, desk.Expire, func(n int) *v1.ExpireAttemptsResponse { return &v1.ExpireAttemptsResponse{Expired: int32(n)} }, wire.OperationErrorOf)
}

// DueOperations is [operation.Desk.Due].
func (s *operations) DueOperations(ctx context.Context, m *v1.DueOperationsRequest) (*v1.DueOperationsResponse, error) {
	desk, ok := s.store.(operation.Desk)
	if !ok {
		return nil, unimplemented("reconcile operations")
	}
	req, err := wire.GetDue(m)
	return one(ctx, req, err, desk.Due, func(all []operation.Record) *v1.DueOperationsResponse {
		return &v1.DueOperationsResponse{Operations: wire.All(all, wire.PutRecord)}
	}, wire.OperationErrorOf)
}

// InquiredOperation is [operation.Desk.Inquired].
func (s *operations) InquiredOperation(ctx context.Context, m *v1.InquiredOperationRequest) (*v1.InquiredOperationResponse, error) {
	desk, ok := s.store.(operation.Desk)
	if !ok {
		return nil, unimplemented("reconcile operations")
	}
	inq, err := wire.GetInquiry(m)
	if err != nil {
		return nil, wire.OperationErrorOf(err)
	}
	rec, err := desk.Inquired(ctx, inq)
	if err != nil && rec.ID == "" {
		return nil, wire.OperationErrorOf(err)
	}
	reply := &v1.InquiredOperationResponse{Operation: wire.PutRecord(rec)}
	reply.Fault, reply.Message = recorded(err)
	return reply, nil
}

// UndoneOperation is [operation.Desk.Undone].
func (s *operations) UndoneOperation(ctx context.Context, m *v1.UndoneOperationRequest) (*v1.UndoneOperationResponse, error) {
	desk, ok := s.store.(operation.Desk)
	if !ok {
		return nil, unimplemented("reconcile operations")
	}
	rec, err := desk.Undone(ctx, m.GetId(), m.GetCompensation())
	if err != nil {
		return nil, wire.OperationErrorOf(err)
	}
	return &v1.UndoneOperationResponse{Operation: wire.PutRecord(rec)}, nil
}

// ListOperations is [operation.Office.List].
func (s *operations) ListOperations(ctx context.Context, m *v1.ListOperationsRequest) (*v1.ListOperationsResponse, error) {
	office, ok := s.store.(operation.Office)
	if !ok {
		return nil, unimplemented("list operations")
	}
	return one(ctx, wire.GetOperationList(m), nil, office.List, func(all []operation.Record) *v1.ListOperationsResponse {
		return &v1.ListOperationsResponse{Operations: wire.All(all, wire.PutRecord)}
	}, wire.OperationErrorOf)
}

// ResolveOperation is [operation.Office.Resolve].
func (s *operations) ResolveOperation(ctx context.Context, m *v1.ResolveOperationRequest) (*v1.ResolveOperationResponse, error) {
	office, ok := s.store.(operation.Office)
	if !ok {
		return nil, unimplemented("resolve operations")
	}
	verdict := operation.Verdict{ID: m.GetId(), State: operation.State(m.GetState()), Result: m.GetResult(), Reason: m.GetReason()}
	return one(ctx, verdict, nil, office.Resolve, func(r operation.Record) *v1.ResolveOperationResponse {
		return &v1.ResolveOperationResponse{Operation: wire.PutRecord(r)}
	}, wire.OperationErrorOf)
}

// PruneOperations is [operation.Office.Prune].
func (s *operations) PruneOperations(ctx context.Context, m *v1.PruneOperationsRequest) (*v1.PruneOperationsResponse, error) {
	office, ok := s.store.(operation.Office)
	if !ok {
		return nil, unimplemented("prune operations")
	}
	req, err := wire.GetOperationPrune(m)
	return one(ctx, req, err, office.Prune, func(p operation.Pruned) *v1.PruneOperationsResponse {
		return &v1.PruneOperationsResponse{Bodies: int32(p.Bodies), Records: int32(p.Records), Forgotten: int32(p.Forgotten)}
	}, wire.OperationErrorOf)
}

// GetOperationStats is [operation.Office.Stats].
func (s *operations) GetOperationStats(ctx context.Context, _ *v1.GetOperationStatsRequest) (*v1.GetOperationStatsResponse, error) {
	office, ok := s.store.(operation.Office)
	if !ok {
		return nil, unimplemented("count operations")
	}
	stats, err := office.Stats(ctx)
	if err != nil {
		return nil, wire.OperationErrorOf(err)
	}
	return &v1.GetOperationStatsResponse{Stats: wire.All(stats, wire.PutStat)}, nil
}
