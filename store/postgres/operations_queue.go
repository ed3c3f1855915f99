package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/operation"
)

// renewWait is how long a renewal waits for rows that somebody has locked, a transaction that completes them, say. Until such a transaction ends nobody can end the claim.
const renewWait = 250 * time.Millisecond

// Claim is part of [operation.Queue]. Among more than it may take, what became work long after it was due may wait for a second: an operation of a transaction that took long to commit, or
// one that another process unblocked.
func (o *Operations) Claim(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	n := len(req.Kinds)
	kinds, limits, most, asks, undoes := make([]string, n), make([]int32, n), make([]int32, n), make([]bool, n), make([]bool, n)
	timeouts, windows, notAfters := make([]interval64, n), make([]interval64, n), make([]interval64, n)
	for i, k := range req.Kinds {
		kinds[i], limits[i], most[i], asks[i], undoes[i] = k.Kind, int32(k.Limit), int32(k.MaxAttempts), k.Asks, k.Undoes //nolint:gosec // Check has bounded them
		timeouts[i], windows[i], notAfters[i] = interval0(k.Timeout), interval0(k.Window), interval0(k.NotAfter)
	}
	if err := o.store.enter("claim"); err != nil {
		return nil, o.store.opFailed("claim", "", false, err)
	}
	defer o.store.leave()
	var jobs []operation.Job
	claim := func() error {
		look := o.looks.begin(req.ID, kinds)
		found, err := o.claim(ctx, &look, req.Worker, interval0(req.TTL), req.Limit, kinds, limits, timeouts, windows, notAfters, most, asks, undoes, req.ID, look.froms)
		if jobs = found; err == nil {
			o.looks.end(look)
		}
		return err
	}
	err := o.again(ctx, "claim", claim)
	if state(err) == stateCheckViolation {
		if err = o.mend(ctx, err); err == nil {
			err = o.again(ctx, "claim", claim)
		}
	}
	if err != nil {
		return nil, o.store.opFailed("claim", "", true, err)
	}
	return jobs, nil
}

const claimText = `SELECT id, number, kind, ordinal, request, unsure, priority, ord, remaining, time_left, not_after, was_due
	FROM tenure.op_claim_many($1, $2::interval, $3::int, $4::text[], $5::int[], $6::interval[], $7::interval[], $8::interval[], $9::int[], $10::boolean[], $11::boolean[], $12, $13::timestamptz[])`

// claim runs the function in a transaction of its own.
func (o *Operations) claim(ctx context.Context, look *opLook, args ...any) ([]operation.Job, error) {
	conn, err := o.store.conn(ctx, "claim")
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, claimText, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	jobs := []operation.Job{}
	for rows.Next() {
		var (
			j               operation.Job
			order           *string
			remaining, left interval64
			notAfter        *time.Time
			due             pgtype.Timestamptz
		)
		if err := rows.Scan(&j.ID, &j.Number, &j.Kind, &j.Ordinal, &j.Request, &j.Unsure, &j.Priority, &order, &remaining, &left, &notAfter, &due); err != nil {
			return nil, err
		}
		j.Order, j.Remaining, j.TimeLeft = text(order), duration(remaining), duration(left)
		if notAfter != nil {
			j.NotAfter = notAfter.UTC()
		}
		look.found(j.Kind, j.Priority, due)
		jobs = append(jobs, j)
	}
	rows.Close() // the server's final word: the commit
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return jobs, replicated(conn.Conn())
}

// mend raises the sequence where a number that was drawn is not above the row's own, after whatever wrote to it by hand.
func (o *Operations) mend(ctx context.Context, err error) error {
	o.store.log.ErrorContext(ctx, "the token sequence stood below a number of an attempt; it is raised", "error", err)
	_, err = o.store.pool.Exec(ctx, `SELECT tenure.op_mend_sequence()`)
	return err
}

// Renew is part of [operation.Queue]. A claim whose row another transaction has locked for longer than a quarter of a second is not among those that were not renewed: nobody can end
// it before that transaction has ended.
func (o *Operations) Renew(ctx context.Context, req operation.RenewRequest) ([]operation.Ref, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := o.store.enter("renew"); err != nil {
		return nil, o.store.opFailed("renew", "", false, err)
	}
	defer o.store.leave()
	lost := []operation.Ref{}
	refs, wait := req.Refs, time.Duration(0)
	for len(refs) > 0 {
		gone, locked, err := o.renew(ctx, refs, req.TTL, wait)
		if state(err) == stateLockTimeout {
			return lost, nil
		}
		if err != nil {
			return nil, o.store.opFailed("renew", "", true, err)
		}
		for _, i := range gone {
			lost = append(lost, refs[i-1])
		}
		if wait > 0 {
			break
		}
		var held []operation.Ref
		for _, i := range locked {
			held = append(held, refs[i-1])
		}
		refs, wait = held, renewWait
	}
	return lost, nil
}

func (o *Operations) renew(ctx context.Context, refs []operation.Ref, ttl, wait time.Duration) (lost, locked []int32, err error) {
	ids, numbers := make([]string, len(refs)), make([]int64, len(refs))
	for i, r := range refs {
		ids[i], numbers[i] = r.ID, int64(r.Number)
	}
	err = o.again(ctx, "renew", func() error {
		return o.store.row(ctx, "renew", []any{&lost, &locked}, `SELECT lost, locked FROM tenure.op_renew($1::text[], $2::bigint[], $3::interval, $4::int)`, ids, numbers, interval0(ttl), wait.Milliseconds())
	})
	return lost, locked, err
}

// Complete is part of [operation.Queue]. A completion whose row another transaction has locked is waited for, by itself, until ctx ends.
func (o *Operations) Complete(ctx context.Context, all []operation.Completion) ([]error, error) {
	if len(all) > operation.MaxBatch {
		return nil, &operation.InvalidError{Field: "completions", Problem: "too many"}
	}
	if err := o.store.enter("complete"); err != nil {
		return nil, o.store.opFailed("complete", "", false, err)
	}
	defer o.store.leave()
	errs := make([]error, len(all))
	var items []*operation.Completion
	var at, singly []int // where in all
	count := make(map[string]int, len(all))
	for i := range all {
		count[all[i].ID]++
	}
	for i := range all {
		switch c := &all[i]; {
		case check(c, &errs[i]):
		case count[c.ID] > 1: // of several for one operation each finds what those before it have made of it
			singly = append(singly, i)
		default:
			items, at = append(items, c), append(at, i)
		}
	}
	done := false
	for len(items) > 0 {
		some := items[:o.completes.fit(items)]
		g := o.completes.group(some)
		if err := o.completes.do(ctx, g); err != nil {
			return nil, partly(o.store.opFailed("complete", "", true, err), "", done)
		}
		for _, i := range g.left {
			singly = append(singly, at[i])
		}
		done = done || len(g.left) < len(some)
		items, at = items[len(some):], at[len(some):]
	}
	return errs, o.completeSingly(ctx, all, singly, errs, done)
}

// partly is the error of a call about many whose first part was done, if it was: what was certainly not applied is a part then. It does not match [operation.ErrUnavailable] any more.
func partly(err error, id string, done bool) error {
	var rest *operation.UnavailableError
	if done && errors.As(err, &rest) {
		return &operation.UnknownError{Op: rest.Op, ID: id, Err: rest.Err}
	}
	return err
}

// check reports whether a completion is invalid.
func check(c *operation.Completion, err *error) bool {
	*err = c.Check()
	return *err != nil
}

// completeSingly completes some of all, each in a transaction of its own. done: others were completed before.
func (o *Operations) completeSingly(ctx context.Context, all []operation.Completion, some []int, errs []error, done bool) error {
	for _, i := range some {
		err := o.completeOne(ctx, &all[i])
		if errors.Is(err, operation.ErrUnavailable) || errors.Is(err, operation.ErrUnknown) {
			return partly(err, all[i].ID, done)
		}
		errs[i], done = err, true
	}
	return nil
}

// completeOne completes by the whole rule.
func (o *Operations) completeOne(ctx context.Context, c *operation.Completion) error {
	give, err := o.turns.take(ctx, "complete", "id "+c.ID)
	if err != nil {
		return o.store.opFailed("complete", c.ID, false, err)
	}
	defer give()
	defer o.looks.forget()
	err = o.again(ctx, "complete", func() error { return o.store.row(ctx, "complete", []any{nil}, completeText, completeArgs(c)...) })
	return o.store.opFailed("complete", c.ID, true, err)
}

// completeMany completes what is the open current attempt and is not locked, and returns which it has not.
func (o *Operations) completeMany(ctx context.Context, all []*operation.Completion) (left []int32, err error) {
	n := len(all)
	ids, numbers, knowns, results, reasons, finals, retryIns := make([]string, n), make([]int64, n), make([]int16, n), make([][]byte, n), make([]string, n), make([]bool, n), make([]interval64, n)
	for i, c := range all {
		ids[i], numbers[i], knowns[i], results[i], reasons[i] = c.ID, int64(c.Number), int16(c.Known), c.Result, c.Reason //nolint:gosec // Check has bounded it
		finals[i], retryIns[i] = c.Final, interval0(c.RetryIn)
	}
	var unblocked bool
	err = o.store.row(ctx, "complete", []any{&left, &unblocked}, `SELECT left_over, unblocked FROM tenure.op_complete_many($1::text[], $2::bigint[], $3::smallint[], $4::bytea[], $5::text[], $6::boolean[], $7::interval[])`,
		ids, numbers, knowns, results, reasons, finals, retryIns)
	if unblocked || err != nil {
		o.looks.forget()
	}
	return left, err
}
