package sqlite

import (
	"bytes"
	"context"
	"slices"

	"github.com/tenure-go/tenure/operation"
)

// Operations keeps operations in the store's file, beside the leases and the tables of an application: its work and their records can share one commit, see
// [Operations.SubmitTx] and [Operations.CompleteTx]. What it tells is durable, and attempts' numbers are drawn from the counter that tokens come from: they rise across
// restarts, restored copies and reboots as tokens do.
//
// Its writes go through the store's writer, together with whatever else is waiting, and wait for its turn among processes. Each call is one transaction, but for
// [Operations.Prune], and keeps the writer for a few microseconds for each operation that it handles: a call about a thousand lets every renewal of a lease wait for some
// tens of milliseconds. Safe for concurrent use.
type Operations struct{ store *Store }

var _ operation.Backend = (*Operations)(nil)

// Operations returns the operations that the store's file keeps. They end with the store.
func (s *Store) Operations() *Operations { return &Operations{store: s} }

// Guarantees implements [operation.Store].
func (o *Operations) Guarantees() operation.Guarantees {
	return operation.Guarantees{Store: "sqlite", Durable: true, Failover: true, MaxBody: operation.MaxBody, Deduplicates: operation.MinForget}
}

// write runs f in the writer's next transaction, with weight operations to handle at most.
func (o *Operations) write(ctx context.Context, op, id string, weight int, f func(*opBatch) error) error {
	return o.writeAs(ctx, &request{op: op, weight: weight}, id, false, f)
}

func (o *Operations) writeAs(ctx context.Context, r *request, id string, urgent bool, f func(*opBatch) error) error {
	r.do = func(b *batch) error {
		ob := &opBatch{txWork: b.work(), wall: o.store.cfg.wall, token: b.token}
		err := f(ob)
		if ob.err != nil {
			return b.fail(ob.err)
		}
		b.wrote = b.wrote || ob.wrote
		return err
	}
	return asOperationError(id, o.store.writer.do(ctx, r, urgent))
}

// read runs f on one state of the file, without any lock.
func (o *Operations) read(ctx context.Context, op string, f func(*opBatch) error) error {
	return asOperationError("", o.store.readWork(ctx, op, nil, func(w *txWork) error { return f(&opBatch{txWork: w, wall: o.store.cfg.wall}) }))
}

// Submit implements [operation.Store].
func (o *Operations) Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
	if err := req.Check(); err != nil {
		return operation.Submitted{}, err
	}
	req.Request = bytes.Clone(req.Request) // the writer may read it after the caller's context has ended
	var submitted operation.Submitted
	err := o.write(ctx, "submit", req.ID, 1, func(b *opBatch) (err error) {
		submitted, err = b.submit(req)
		return err
	})
	if err != nil {
		return operation.Submitted{}, err // the writer may still be at work on it: not even read
	}
	return submitted, nil
}

// Get implements [operation.Store].
func (o *Operations) Get(ctx context.Context, id string) (operation.Record, error) {
	if err := operation.CheckID(id); err != nil {
		return operation.Record{}, err
	}
	var found operation.Record
	err := o.read(ctx, "get", func(b *opBatch) error {
		r, err := b.load(id, true)
		if err == nil {
			found, err = b.tell(r, true), nil
		}
		return err
	})
	return found, err
}

// Cancel implements [operation.Store].
func (o *Operations) Cancel(ctx context.Context, id, reason string) (operation.Record, error) {
	err := operation.CheckID(id)
	if err == nil {
		err = operation.CheckReason(reason, false)
	}
	return o.change(ctx, "cancel", id, err, func(b *opBatch, r *opRecord) error {
		next, err := r.op.Cancel(reason)
		return b.move(r, next, err)
	})
}

// Respond implements [operation.Store].
func (o *Operations) Respond(ctx context.Context, resp operation.Response) (operation.Record, error) {
	resp.Result = bytes.Clone(resp.Result)
	return o.change(ctx, "respond", resp.ID, resp.Check(), func(b *opBatch, r *opRecord) error { return b.respond(r, resp) })
}

// Inquired implements [operation.Desk].
func (o *Operations) Inquired(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
	inq.Result = bytes.Clone(inq.Result)
	return o.change(ctx, "inquired", inq.ID, inq.Check(), func(b *opBatch, r *opRecord) error { return b.inquired(r, inq) })
}

// Undone implements [operation.Desk].
func (o *Operations) Undone(ctx context.Context, id, compensation string) (operation.Record, error) {
	err := operation.CheckID(id)
	if err == nil {
		err = operation.CheckID(compensation)
	}
	return o.change(ctx, "undone", id, err, func(b *opBatch, r *opRecord) error { return b.undone(r, compensation) })
}

// Resolve implements [operation.Office].
func (o *Operations) Resolve(ctx context.Context, v operation.Verdict) (operation.Record, error) {
	v.Result = bytes.Clone(v.Result)
	return o.change(ctx, "resolve", v.ID, v.Check(), func(b *opBatch, r *opRecord) error {
		next, err := r.op.Resolve(v.State, v.Result, v.Reason)
		return b.evidence(r, next, err)
	})
}

// change applies a rule to one operation. A rule may refuse and change something all the same: then the record comes with the error.
func (o *Operations) change(ctx context.Context, op, id string, invalid error, rule func(*opBatch, *opRecord) error) (operation.Record, error) {
	if invalid != nil {
		return operation.Record{}, invalid
	}
	var told operation.Record
	var refusal error
	err := o.write(ctx, op, id, 1, func(b *opBatch) error {
		r, err := b.load(id, true)
		if err != nil {
			return err
		}
		told, refusal = operation.Record{}, rule(b, r)
		if b.err != nil || refusal != nil && r.op == r.was {
			return b.err
		}
		if err := b.save(r); err != nil {
			return err
		}
		told = b.tell(r, true)
		return nil
	})
	if err != nil {
		return operation.Record{}, err // the writer may still be at work on it: nothing else is even read
	}
	return told, refusal
}

// Complete implements [operation.Queue].
func (o *Operations) Complete(ctx context.Context, all []operation.Completion) ([]error, error) {
	if len(all) > operation.MaxBatch {
		return nil, &operation.InvalidError{Field: "completions", Problem: "too many"}
	}
	if len(all) == 0 {
		return []error{}, nil
	}
	mine := slices.Clone(all)
	for i := range mine {
		mine[i].Result = bytes.Clone(mine[i].Result)
	}
	var errs []error
	err := o.write(ctx, "complete", "", len(mine), func(b *opBatch) error {
		errs = make([]error, len(mine))
		for i := range mine {
			errs[i] = b.complete(&mine[i])
			if b.err != nil {
				return b.err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err // the writer may still be at work on it: not even read
	}
	return errs, nil
}

// Claim implements [operation.Queue]. A worker that finds nothing to do has only read, without any lock.
func (o *Operations) Claim(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	req.Kinds = slices.Clone(req.Kinds)
	none, err := o.nothing(ctx, "claim", func(b *opBatch) (bool, error) { return b.worked(&req) })
	if none || err != nil {
		return []operation.Job{}, err
	}
	var jobs []operation.Job
	err = o.write(ctx, "claim", "", req.Limit, func(b *opBatch) (err error) {
		jobs, err = b.claim(req)
		return err
	})
	if err != nil {
		return nil, err // the writer may still be at work on it: not even read
	}
	return jobs, nil
}

// nothing reports whether there is nothing to write.
func (o *Operations) nothing(ctx context.Context, op string, look func(*opBatch) (bool, error)) (bool, error) {
	none := false
	err := o.read(ctx, op, func(b *opBatch) error {
		some, err := look(b)
		none = err == nil && !some
		return err
	})
	return none, err
}

// Renew implements [operation.Queue]. It goes before what waits, as a renewal of leases does.
func (o *Operations) Renew(ctx context.Context, req operation.RenewRequest) ([]operation.Ref, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	req.Refs = slices.Clone(req.Refs)
	var lost []operation.Ref
	err := o.writeAs(ctx, &request{op: "renew", weight: len(req.Refs)}, "", true, func(b *opBatch) (err error) {
		lost, err = b.renew(req)
		return err
	})
	if err != nil {
		return nil, err // the writer may still be at work on it: not even read
	}
	return lost, nil
}

// Expire implements [operation.Desk].
func (o *Operations) Expire(ctx context.Context, limit int) (int, error) {
	if limit < 1 || limit > operation.MaxBatch {
		return 0, &operation.InvalidError{Field: "limit", Problem: "want 1 to MaxBatch"}
	}
	none, err := o.nothing(ctx, "expire", (*opBatch).anyExpired)
	if none || err != nil {
		return 0, err
	}
	var n int
	err = o.write(ctx, "expire", "", limit, func(b *opBatch) (err error) {
		n, err = b.expire(limit)
		return err
	})
	if err != nil {
		return 0, err // the writer may still be at work on it: not even read
	}
	return n, nil
}

// Due implements [operation.Desk].
func (o *Operations) Due(ctx context.Context, req operation.DueRequest) ([]operation.Record, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	req.Kinds = slices.Compact(slices.Sorted(slices.Values(req.Kinds)))
	none, err := o.nothing(ctx, "due", func(b *opBatch) (bool, error) {
		found, err := b.desk(req.Kinds, 1)
		return len(found) > 0, err
	})
	if none || err != nil {
		return []operation.Record{}, err
	}
	var found []operation.Record
	err = o.write(ctx, "due", "", req.Limit, func(b *opBatch) (err error) {
		found, err = b.due(req)
		return err
	})
	if err != nil {
		return nil, err // the writer may still be at work on it: not even read
	}
	return found, nil
}
