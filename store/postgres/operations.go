package postgres

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// Operations keeps operations in the database of a [Store], by the functions op_* of its schema. Submissions and completions that many goroutines ask for at once are coalesced
// into calls for many: whatever is waiting, never for a time; a stranger that cannot be handled with the others is handled by itself. Safe for concurrent use.
//
// Numbers of attempts come from the sequence of the leases' tokens, so that they rise, and never come twice, across failovers as those do.
type Operations struct {
	store     *Store
	submits   opLane[*operation.SubmitRequest]
	completes opLane[*operation.Completion]
	turns     *opTurns
	looks     opLooks
}

var _ operation.Backend = (*Operations)(nil)

// Operations are the operations of the store's database: always the same value. They end with the store.
func (s *Store) Operations() *Operations { return s.operations }

func newOperations(s *Store) *Operations {
	o := &Operations{store: s, turns: newOpTurns(int(s.pool.Config().MaxConns))}
	o.submits = opLane[*operation.SubmitRequest]{
		store: s, op: "submit", key: func(r *operation.SubmitRequest) string { return r.ID }, size: func(r *operation.SubmitRequest) int { return len(r.Request) }, own: ownSubmission, many: o.submitMany,
	}
	o.completes = opLane[*operation.Completion]{
		store: s, op: "complete", key: func(c *operation.Completion) string { return c.ID }, size: func(c *operation.Completion) int { return len(c.Result) }, own: ownCompletion, many: o.completeMany,
	}
	return o
}

func ownSubmission(r *operation.SubmitRequest) *operation.SubmitRequest {
	own := *r
	own.Request = bytes.Clone(own.Request)
	return &own
}

func ownCompletion(c *operation.Completion) *operation.Completion {
	own := *c
	own.Result = bytes.Clone(own.Result)
	return &own
}

// Guarantees is part of [operation.Store].
func (o *Operations) Guarantees() operation.Guarantees {
	return operation.Guarantees{Store: "postgres", Durable: true, Failover: true, MaxBody: operation.MaxBody, Deduplicates: operation.MinForget}
}

// The functions that a caller's transaction may run too. The casts are for connections that send no types.
const (
	submitText   = `SELECT ` + recordColumns + ` FROM tenure.op_submit($1, $2, $3::bytea, $4::interval, $5::int, $6, $7, $8::bytea)`
	completeText = `SELECT tenure.op_complete($1, $2::bigint, $3, $4::bytea, $5, $6::boolean, $7::interval)`

	// In a transaction that may be of whatever database: one that is a copy has operations of the same ids, and numbers.
	completeHereText = `SELECT CASE WHEN tenure.authority_id() = $8::uuid THEN tenure.op_complete($1, $2::bigint, $3, $4::bytea, $5, $6::boolean, $7::interval)
		ELSE tenure.fail('TN004', 'invalid transaction: it is in the database of another authority, ' || tenure.authority_id(), jsonb_build_object('field', 'transaction'), 'Nothing was changed.') END`
)

func submitArgs(req *operation.SubmitRequest) []any {
	return []any{req.ID, req.Kind, req.Request, interval0(req.RunIn), req.Priority, req.Order, req.Compensates, req.Fingerprint[:]}
}

func completeArgs(c *operation.Completion) []any {
	return []any{c.ID, int64(c.Number), c.Known.String(), c.Result, c.Reason, c.Final, interval0(c.RetryIn)}
}

// Submit is part of [operation.Store]. A transaction that is submitting the same id is waited for, and for an operation with an order those that are submitting or deciding another one of
// it, until ctx ends.
func (o *Operations) Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
	if err := req.Check(); err != nil {
		return operation.Submitted{}, err
	}
	if err := o.store.enter("submit"); err != nil {
		return operation.Submitted{}, o.store.opFailed("submit", req.ID, false, err)
	}
	defer o.store.leave()
	if req.Order == "" && req.Compensates == "" {
		g := o.submits.group([]*operation.SubmitRequest{&req})
		if err := o.submits.do(ctx, g); err != nil {
			return operation.Submitted{}, o.store.opFailed("submit", req.ID, true, err)
		}
		if len(g.left) == 0 {
			return operation.Submitted{Record: submittedRecord(&req)}, nil
		}
	}
	key := "id " + req.ID
	if req.Order != "" { // it waits for its order first
		key = "order " + req.Order
	}
	rec, err := o.record(ctx, "submit", req.ID, key, submitText, submitArgs(&req)...)
	return operation.Submitted{Record: rec.Record, Known: rec.outcome == "known"}, err
}

// submittedRecord is what was recorded at this moment.
func submittedRecord(req *operation.SubmitRequest) operation.Record {
	return operation.Record{
		Operation: operation.Operation{ID: req.ID, Kind: req.Kind, Fingerprint: req.Fingerprint, State: operation.Pending},
		Request:   bytes.Clone(req.Request), Priority: req.Priority, Step: operation.Work, StepIn: req.RunIn, Kept: operation.Whole,
	}
}

// submitMany records new operations, and returns which it has not.
func (o *Operations) submitMany(ctx context.Context, all []*operation.SubmitRequest) (left []int32, err error) {
	n := len(all)
	ids, kinds, requests, prints, priorities, runIns := make([]string, n), make([]string, n), make([][]byte, n), make([][]byte, n), make([]int32, n), make([]interval64, n)
	for i, r := range all {
		ids[i], kinds[i], requests[i], prints[i], priorities[i], runIns[i] = r.ID, r.Kind, r.Request, r.Fingerprint[:], int32(r.Priority), interval0(r.RunIn)
	}
	err = o.store.row(ctx, "submit", []any{&left}, `SELECT tenure.op_submit_many($1::text[], $2::text[], $3::bytea[], $4::bytea[], $5::int[], $6::interval[])`,
		ids, kinds, requests, prints, priorities, runIns)
	return left, err
}

// Get is part of [operation.Store].
func (o *Operations) Get(ctx context.Context, id string) (operation.Record, error) {
	if err := operation.CheckID(id); err != nil {
		return operation.Record{}, err
	}
	if err := o.store.enter("get"); err != nil {
		return operation.Record{}, o.store.opFailed("get", id, false, err)
	}
	defer o.store.leave()
	var rec opRecord
	err := o.store.row(ctx, "get", rec.dest(), `SELECT `+recordColumns+` FROM tenure.op_get($1, true)`, id)
	if err == nil {
		err = rec.read()
	}
	if err != nil {
		return operation.Record{}, o.store.opFailed("get", id, true, err)
	}
	return rec.Record, nil
}

// Cancel is part of [operation.Store].
func (o *Operations) Cancel(ctx context.Context, id, reason string) (operation.Record, error) {
	if err := operation.CheckID(id); err != nil {
		return operation.Record{}, err
	}
	if err := operation.CheckReason(reason, false); err != nil {
		return operation.Record{}, err
	}
	rec, err := o.call(ctx, "cancel", id, `SELECT `+recordColumns+` FROM tenure.op_cancel($1, $2)`, id, reason)
	return rec.Record, err
}

// Respond is part of [operation.Store].
func (o *Operations) Respond(ctx context.Context, resp operation.Response) (operation.Record, error) {
	if err := resp.Check(); err != nil {
		return operation.Record{}, err
	}
	rec, err := o.call(ctx, "respond", resp.ID, `SELECT `+recordColumns+` FROM tenure.op_respond($1, $2::bigint, $3, $4::bytea, $5, $6::boolean)`,
		resp.ID, int64(resp.Number), resp.Known.String(), resp.Result, resp.Reason, resp.Final)
	if err == nil && rec.outcome == "stale" {
		err = &operation.StaleError{ID: resp.ID, Attempt: staleAttempt(&rec, resp), Newer: rec.Current(), State: rec.State}
	}
	return rec.Record, found(&rec, err)
}

// call runs a function that returns one operation, in a transaction of its own.
func (o *Operations) call(ctx context.Context, op, id, text string, args ...any) (opRecord, error) {
	if err := o.store.enter(op); err != nil {
		return opRecord{}, o.store.opFailed(op, id, false, err)
	}
	defer o.store.leave()
	return o.record(ctx, op, id, "id "+id, text, args...)
}

// record is call for a caller that has entered, whose turn is at key. A call that met others at the same rows begins again.
func (o *Operations) record(ctx context.Context, op, id, key, text string, args ...any) (opRecord, error) {
	give, err := o.turns.take(ctx, op, key)
	if err != nil {
		return opRecord{}, o.store.opFailed(op, id, false, err)
	}
	defer give()
	var rec opRecord
	err = o.again(ctx, op, func() error { return o.store.row(ctx, op, rec.dest(), text, args...) })
	o.looks.forget() // it may have unblocked another one
	if err == nil {
		err = rec.read()
	}
	if err != nil {
		return opRecord{}, o.store.opFailed(op, id, true, err)
	}
	return rec, nil
}

// again repeats what the server has rolled back because others were at the same rows.
func (o *Operations) again(ctx context.Context, op string, call func() error) (err error) {
	for range maxAttempts {
		err = call()
		if code := state(err); code != stateBeginAgain && code != stateSerialization && code != stateDeadlock || ctx.Err() != nil {
			return err
		}
	}
	return &lease.UnavailableError{Op: op, Err: fmt.Errorf("%w: %w", errTooMany, err)}
}
