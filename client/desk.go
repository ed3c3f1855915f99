package client

import (
	"context"

	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
	"github.com/tenure-go/tenure/operation"
)

// Expire implements [operation.Desk].
func (o *Operations) Expire(ctx context.Context, limit int) (int, error) {
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.ExpireAttemptsResponse, error) {
		return e.operations.ExpireAttempts(ctx, &v1.ExpireAttemptsRequest{Limit: wire.Int32(limit)})
	})
	if err != nil {
		return 0, operationFailed("expire", "", err)
	}
	return int(m.GetExpired()), nil
}

// Due implements [operation.Desk].
func (o *Operations) Due(ctx context.Context, req operation.DueRequest) ([]operation.Record, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.DueOperationsResponse, error) {
		return e.operations.DueOperations(ctx, wire.PutDue(req))
	})
	if err != nil {
		return nil, operationFailed("due", "", err)
	}
	all, err := wire.TryAll(m.GetOperations(), wire.GetRecord)
	if err != nil {
		return nil, &operation.UnknownError{Op: "due", Err: nonsense(err)}
	}
	return all, nil
}

// Inquired implements [operation.Desk].
func (o *Operations) Inquired(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
	if err := inq.Check(); err != nil {
		return operation.Record{}, err
	}
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.InquiredOperationResponse, error) {
		return e.operations.InquiredOperation(ctx, wire.PutInquiry(inq))
	})
	if err != nil {
		return operation.Record{}, operationFailed("inquired", inq.ID, err)
	}
	return recorded("inquired", inq.ID, m.GetOperation(), m.GetFault())
}

// Undone implements [operation.Desk].
func (o *Operations) Undone(ctx context.Context, id, compensation string) (operation.Record, error) {
	for _, one := range []string{id, compensation} {
		if err := operation.CheckID(one); err != nil {
			return operation.Record{}, err
		}
	}
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.UndoneOperationResponse, error) {
		return e.operations.UndoneOperation(ctx, &v1.UndoneOperationRequest{Id: id, Compensation: compensation})
	})
	if err != nil {
		return operation.Record{}, operationFailed("undone", id, err)
	}
	return record("undone", id, m.GetOperation())
}

// List implements [operation.Office].
func (o *Operations) List(ctx context.Context, req operation.ListRequest) ([]operation.Record, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.ListOperationsResponse, error) {
		return e.operations.ListOperations(ctx, wire.PutOperationList(req))
	})
	if err != nil {
		return nil, operationUnread("list", err)
	}
	all, err := wire.TryAll(m.GetOperations(), wire.GetRecord)
	if err != nil {
		return nil, &operation.UnavailableError{Op: "list", Err: nonsense(err)}
	}
	return all, nil
}

// Resolve implements [operation.Office].
func (o *Operations) Resolve(ctx context.Context, v operation.Verdict) (operation.Record, error) {
	if err := v.Check(); err != nil {
		return operation.Record{}, err
	}
	req := &v1.ResolveOperationRequest{Id: v.ID, State: v1.OperationState(v.State), Result: v.Result, Reason: v.Reason}
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.ResolveOperationResponse, error) {
		return e.operations.ResolveOperation(ctx, req)
	})
	if err != nil {
		return operation.Record{}, operationFailed("resolve", v.ID, err)
	}
	return record("resolve", v.ID, m.GetOperation())
}

// Prune implements [operation.Office].
func (o *Operations) Prune(ctx context.Context, req operation.PruneRequest) (operation.Pruned, error) {
	if err := req.Check(); err != nil {
		return operation.Pruned{}, err
	}
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.PruneOperationsResponse, error) {
		return e.operations.PruneOperations(ctx, wire.PutOperationPrune(req))
	})
	if err != nil {
		return operation.Pruned{}, operationFailed("prune", "", err)
	}
	return operation.Pruned{Bodies: int(m.GetBodies()), Records: int(m.GetRecords()), Forgotten: int(m.GetForgotten())}, nil
}

// Stats implements [operation.Office].
func (o *Operations) Stats(ctx context.Context) ([]operation.Stat, error) {
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.GetOperationStatsResponse, error) {
		return e.operations.GetOperationStats(ctx, &v1.GetOperationStatsRequest{})
	})
	if err != nil {
		return nil, operationUnread("stats", err)
	}
	all, err := wire.TryAll(m.GetStats(), wire.GetStat)
	if err != nil {
		return nil, &operation.UnavailableError{Op: "stats", Err: nonsense(err)}
	}
	return all, nil
}
