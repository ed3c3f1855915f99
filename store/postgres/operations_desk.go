package postgres

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// Expire is part of [operation.Desk]. Operations whose rows are locked at this moment are left for the next call.
func (o *Operations) Expire(ctx context.Context, limit int) (n int, err error) {
	if limit < 1 || limit > operation.MaxBatch {
		return 0, &operation.InvalidError{Field: "limit", Problem: "want 1 to MaxBatch"}
	}
	err = o.one(ctx, "expire", []any{&n}, `SELECT tenure.op_expire($1::int)`, limit)
	return n, err
}

// Due is part of [operation.Desk]. Operations whose rows are locked at this moment are skipped.
func (o *Operations) Due(ctx context.Context, req operation.DueRequest) ([]operation.Record, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	return o.all(ctx, "due", `SELECT `+recordColumns+` FROM tenure.op_due($1::text[], $2::int, $3::interval)`, distinct(req.Kinds), req.Limit, interval0(max(req.Hold, time.Microsecond)))
}

// distinct is the kinds without repetitions.
func distinct(kinds []string) []string {
	seen := map[string]bool{}
	var all []string
	for _, k := range kinds {
		if !seen[k] {
			seen[k] = true
			all = append(all, k)
		}
	}
	return all
}

// Inquired is part of [operation.Desk].
func (o *Operations) Inquired(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
	if err := inq.Check(); err != nil {
		return operation.Record{}, err
	}
	rec, err := o.call(ctx, "inquired", inq.ID, `SELECT `+recordColumns+` FROM tenure.op_inquired($1, $2, $3::bytea, $4, $5::interval, $6)`,
		inq.ID, findingText(inq.Finding), inq.Result, inq.Reason, interval0(inq.AskIn), int64(inq.AsOf))
	return rec.Record, found(&rec, err)
}

// Undone is part of [operation.Desk].
func (o *Operations) Undone(ctx context.Context, id, compensation string) (operation.Record, error) {
	if err := operation.CheckID(id); err != nil {
		return operation.Record{}, err
	}
	if err := operation.CheckID(compensation); err != nil {
		return operation.Record{}, err
	}
	rec, err := o.call(ctx, "undone", id, `SELECT `+recordColumns+` FROM tenure.op_undone($1, $2)`, id, compensation)
	return rec.Record, err
}

// one runs a statement that returns one row, in a transaction of its own, again where it met others at the same rows.
func (o *Operations) one(ctx context.Context, op string, dest []any, text string, args ...any) error {
	if err := o.store.enter(op); err != nil {
		return o.store.opFailed(op, "", false, err)
	}
	defer o.store.leave()
	return o.store.opFailed(op, "", true, o.again(ctx, op, func() error { return o.store.row(ctx, op, dest, text, args...) }))
}

// all runs a function that returns operations, in a transaction of its own.
func (o *Operations) all(ctx context.Context, op, text string, args ...any) ([]operation.Record, error) {
	if err := o.store.enter(op); err != nil {
		return nil, o.store.opFailed(op, "", false, err)
	}
	defer o.store.leave()
	var all []operation.Record
	err := o.again(ctx, op, func() (err error) {
		all, err = o.records(ctx, op, text, args...)
		return err
	})
	if err != nil {
		return nil, o.store.opFailed(op, "", true, err)
	}
	return all, nil
}

func (o *Operations) records(ctx context.Context, op, text string, args ...any) ([]operation.Record, error) {
	conn, err := o.store.conn(ctx, op)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []operation.Record{}
	for rows.Next() {
		var rec opRecord
		if err := rows.Scan(rec.dest()...); err != nil {
			return nil, err
		}
		if err := rec.read(); err != nil {
			return nil, err
		}
		all = append(all, rec.Record)
	}
	rows.Close() // the server's final word: the commit
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return all, replicated(conn.Conn())
}
