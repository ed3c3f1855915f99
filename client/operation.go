package client

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
	"github.com/tenure-go/tenure/operation"
)

// Operations is the authority's operations, for whoever asks for them, does them, reconciles or operates them. It is safe for concurrent use.
type Operations struct{ client *Client }

var _ operation.Backend = (*Operations)(nil)

// Operations returns the authority's operations.
func (c *Client) Operations() *Operations { return &Operations{c} }

func operationFailed(op, id string, err error) error {
	if fault := wire.FaultOf(err); fault != nil {
		if told := wire.OperationError(fault); told != nil {
			return told
		}
	} else if !applied(err) {
		return &operation.UnavailableError{Op: op, Err: err}
	}
	return &operation.UnknownError{Op: op, ID: id, Err: err}
}

func operationUnread(op string, err error) error {
	if fault := wire.FaultOf(err); fault != nil {
		if told := wire.OperationError(fault); told != nil {
			return told
		}
	}
	return &operation.UnavailableError{Op: op, Err: err}
}

// record is the operation that a reply carries.
func record(op, id string, m *v1.Operation) (operation.Record, error) {
	rec, err := wire.GetRecord(m)
	if err != nil {
		return operation.Record{}, &operation.UnknownError{Op: op, ID: id, Err: nonsense(err)}
	}
	return rec, nil
}

// recorded is the operation that a reply carries, with the error that says that what was recorded did not decide.
func recorded(op, id string, m *v1.Operation, fault *v1.Fault) (operation.Record, error) {
	rec, err := record(op, id, m)
	if err != nil || fault == nil {
		return rec, err
	}
	if told := wire.OperationError(fault); told != nil {
		return rec, told
	}
	return rec, &operation.UnknownError{Op: op, ID: id, Err: errors.New("a fault that this version does not know")}
}

// Submit implements [operation.Store].
func (o *Operations) Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
	if err := req.Check(); err != nil {
		return operation.Submitted{}, err
	}
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.SubmitOperationResponse, error) {
		return e.operations.SubmitOperation(ctx, wire.PutSubmit(req))
	})
	if err != nil {
		return operation.Submitted{}, operationFailed("submit", req.ID, err)
	}
	rec, err := record("submit", req.ID, m.GetOperation())
	return operation.Submitted{Record: rec, Known: m.GetKnown()}, err
}

// Get implements [operation.Store].
func (o *Operations) Get(ctx context.Context, id string) (operation.Record, error) {
	if err := operation.CheckID(id); err != nil {
		return operation.Record{}, err
	}
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.GetOperationResponse, error) {
		return e.operations.GetOperation(ctx, &v1.GetOperationRequest{Id: id})
	})
	if err != nil {
		return operation.Record{}, operationUnread("get", err)
	}
	rec, err := wire.GetRecord(m.GetOperation())
	if err != nil {
		return operation.Record{}, &operation.UnavailableError{Op: "get", Err: nonsense(err)}
	}
	return rec, nil
}

// Cancel implements [operation.Store].
func (o *Operations) Cancel(ctx context.Context, id, reason string) (operation.Record, error) {
	if err := operation.CheckID(id); err != nil {
		return operation.Record{}, err
	}
	if err := operation.CheckReason(reason, false); err != nil {
		return operation.Record{}, err
	}
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.CancelOperationResponse, error) {
		return e.operations.CancelOperation(ctx, &v1.CancelOperationRequest{Id: id, Reason: reason})
	})
	if err != nil {
		return operation.Record{}, operationFailed("cancel", id, err)
	}
	return record("cancel", id, m.GetOperation())
}

// Respond implements [operation.Store].
func (o *Operations) Respond(ctx context.Context, resp operation.Response) (operation.Record, error) {
	if err := resp.Check(); err != nil {
		return operation.Record{}, err
	}
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.RespondOperationResponse, error) {
		return e.operations.RespondOperation(ctx, wire.PutResponse(resp))
	})
	if err != nil {
		return operation.Record{}, operationFailed("respond", resp.ID, err)
	}
	return recorded("respond", resp.ID, m.GetOperation(), m.GetFault())
}

// Guarantees implements [operation.Store]: what the authority's store keeps.
func (o *Operations) Guarantees() operation.Guarantees { return o.client.operations }

// claimMost is how many operations are claimed in one call: their requests fit into a reply, however large they are.
const claimMost = maxReply/operation.MaxBody - 4

// Claim implements [operation.Queue]. What may be too much for one reply is claimed in several calls; where a later one fails, those that were begun before are returned all the same.
func (o *Operations) Claim(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	var all []operation.Job
	for left := req; ; {
		one := left
		one.Limit = min(left.Limit, claimMost)
		jobs, err := o.claim(ctx, one)
		if len(all) > 0 && err != nil {
			jobs, err = nil, nil // as if there were no more
		}
		all = append(all, jobs...)
		if left.Limit -= len(jobs); left.Limit <= 0 || len(jobs) < claimMost {
			return all, err
		}
		if left.Kinds = without(left.Kinds, jobs); len(left.Kinds) == 0 {
			return all, nil
		}
	}
}

// without is what may still be claimed of kinds.
func without(kinds []operation.KindClaim, jobs []operation.Job) (left []operation.KindClaim) {
	for _, k := range kinds {
		for _, j := range jobs {
			if j.Kind == k.Kind {
				k.Limit--
			}
		}
		if k.Limit > 0 {
			left = append(left, k)
		}
	}
	return left
}

func (o *Operations) claim(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.ClaimOperationsResponse, error) {
		return e.operations.ClaimOperations(ctx, wire.PutClaimRequest(req))
	})
	if err != nil {
		return nil, operationFailed("claim", req.ID, err)
	}
	jobs, err := wire.TryAll(m.GetJobs(), wire.GetJob)
	if err != nil {
		return nil, &operation.UnknownError{Op: "claim", ID: req.ID, Err: nonsense(err)}
	}
	return jobs, nil
}

// Renew implements [operation.Queue].
func (o *Operations) Renew(ctx context.Context, req operation.RenewRequest) ([]operation.Ref, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.RenewAttemptsResponse, error) {
		return e.operations.RenewAttempts(ctx, wire.PutRenewAttempts(req))
	})
	if err != nil {
		return nil, operationFailed("renew", "", err)
	}
	return wire.All(m.GetLost(), wire.GetRef), nil
}

// completeBytes is how much of results goes into one request.
const completeBytes = maxRequest / 4

// Complete implements [operation.Queue]. What is too much for one request goes in several.
func (o *Operations) Complete(ctx context.Context, all []operation.Completion) ([]error, error) {
	if len(all) > operation.MaxBatch {
		return nil, &operation.InvalidError{Field: "completions", Problem: fmt.Sprintf("%d; at most %d", len(all), operation.MaxBatch)}
	}
	errs := make([]error, len(all))
	var sent []*v1.Completion
	var at []int
	size := 0
	for i := range all {
		if errs[i] = all[i].Check(); errs[i] != nil {
			continue
		}
		if size += len(all[i].Result); size > completeBytes && len(sent) > 0 {
			if err := o.complete(ctx, sent, at, errs); err != nil {
				return nil, err
			}
			sent, at, size = nil, nil, len(all[i].Result)
		}
		sent, at = append(sent, wire.PutCompletion(all[i])), append(at, i)
	}
	if len(sent) == 0 && len(all) > 0 {
		return errs, nil
	}
	return errs, o.complete(ctx, sent, at, errs)
}

// complete sends reports, and notes what became of each at its place.
func (o *Operations) complete(ctx context.Context, sent []*v1.Completion, at []int, errs []error) error {
	m, err := ask(ctx, o.client, func(ctx context.Context, e *endpoint) (*v1.CompleteAttemptsResponse, error) {
		return e.operations.CompleteAttempts(ctx, &v1.CompleteAttemptsRequest{Completions: sent})
	})
	if err != nil {
		return operationFailed("complete", "", err)
	}
	if len(m.GetResults()) != len(sent) {
		return &operation.UnknownError{Op: "complete", Err: fmt.Errorf("%d results for %d reports", len(m.GetResults()), len(sent))}
	}
	for n, result := range m.GetResults() {
		fault := result.GetFault()
		if fault == nil {
			continue
		}
		if errs[at[n]] = wire.OperationError(fault); errs[at[n]] == nil {
			errs[at[n]] = &operation.UnknownError{Op: "complete", ID: sent[n].GetRef().GetId(), Err: errors.New(result.GetMessage())}
		}
	}
	return nil
}
