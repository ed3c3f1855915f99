package sqlite

import (
	"errors"

	"github.com/tenure-go/tenure/operation"
)

func (b *opBatch) submit(req operation.SubmitRequest) (operation.Submitted, error) {
	known, err := b.load(req.ID, true)
	if err == nil {
		if err := known.op.Same(req.Kind, req.Fingerprint); err != nil {
			return operation.Submitted{}, err
		}
		return operation.Submitted{Record: b.tell(known, true), Known: true}, nil
	}
	if !errors.Is(err, operation.ErrNotFound) {
		return operation.Submitted{}, err
	}
	if req.Compensates != "" {
		target, err := b.load(req.Compensates, false)
		if err == nil {
			err = target.op.MayCompensate()
		}
		if err != nil {
			return operation.Submitted{}, err
		}
	}
	op := &operation.Operation{ID: req.ID, Kind: req.Kind, Fingerprint: req.Fingerprint, State: operation.Pending, Compensates: req.Compensates}
	r := &opRecord{op: op, was: op, request: req.Request, priority: req.Priority, order: req.Order, created: b.now, due: b.now + int64(req.RunIn), againUntil: noAgain, kept: operation.Whole}
	err = b.conn.row(insertOperation, op.ID, op.Kind, op.Fingerprint[:], r.due, r.priority, r.order, op.Compensates, r.created).Scan(&r.n, &r.blocked)
	if err != nil {
		return operation.Submitted{}, b.fail(err)
	}
	b.wrote = true
	if len(req.Request) > 0 {
		if _, err := b.exec(insertBody, r.n, 0, req.Request); err != nil {
			return operation.Submitted{}, err
		}
	}
	return operation.Submitted{Record: b.tell(r, true)}, nil
}

// move takes over what a rule returned, which may be something together with an error.
func (b *opBatch) move(r *opRecord, next *operation.Operation, err error) error {
	if next == nil {
		return err
	}
	if len(next.Conflicts) > len(r.op.Conflicts) {
		r.conflicts++
	}
	if len(next.Conflicts) > operation.MaxConflicts {
		next.Conflicts = next.Conflicts[:operation.MaxConflicts]
	}
	for i, was := range r.op.Attempts {
		if a := &next.Attempts[i]; was.Known == operation.Open && a.Known != operation.Open {
			a.Ended = asInstant(b.now)
		}
	}
	if next.State.Decided() && !r.op.State.Decided() {
		r.decided = b.now
	}
	r.op = next
	return err
}

// evidence moves an operation from outside of its worker: what follows is due at once.
func (b *opBatch) evidence(r *opRecord, next *operation.Operation, err error) error {
	was := r.op.State
	err = b.move(r, next, err)
	if r.op.State != was {
		r.due = b.now
	}
	return err
}

func (b *opBatch) respond(r *opRecord, resp operation.Response) error {
	if r.kept == operation.VerdictOnly {
		if resp.Known != operation.Effective {
			return nil // what contradicts nothing has nowhere to be kept
		}
		resp.Number = 0
	}
	if resp.Number == 0 && resp.Known == operation.Refused {
		if len(r.op.Attempts) != 1 {
			return &operation.InvalidError{Field: "attempt", Problem: "none, and a refusal of one attempt says nothing of the others"}
		}
		resp.Number = r.op.Current()
	}
	if resp.Number == 0 {
		next, err := r.op.Inquired(operation.Found, resp.Result, resp.Reason)
		return b.evidence(r, next, err)
	}
	next, err := r.op.Report(resp.Number, resp.Answer)
	return b.evidence(r, next, err)
}

func (b *opBatch) inquired(r *opRecord, inq operation.Inquiry) error {
	inq.Finding = inq.Of(r.op.Current())
	if inq.Finding == operation.PastInstant && !r.op.NotAfter.IsZero() && b.now < r.notAfter {
		return &operation.InvalidError{Field: "finding", Problem: "the instant has not passed by the store's clock"}
	}
	next, err := r.op.Inquired(inq.Finding, inq.Result, inq.Reason)
	if next != nil && !next.State.Decided() && r.step() == operation.Ask {
		r.due = b.now + int64(inq.AskIn)
	}
	return b.evidence(r, next, err)
}

func (b *opBatch) undone(r *opRecord, compensation string) error {
	other, err := b.load(compensation, false)
	switch {
	case err != nil:
		return err
	case other.op.Compensates != r.op.ID:
		return &operation.InvalidError{Field: "compensation", Problem: "it does not undo this operation"}
	case r.op.State != operation.Succeeded:
		return r.op.MayCompensate()
	case r.undoneBy != "" && r.undoneBy != compensation:
		return &operation.MismatchError{ID: r.op.ID, What: "compensation"}
	}
	r.undoneBy = compensation
	return nil
}

// succeed is the common completion: the current attempt of an operation that nobody wished to cancel, and that no other waits for, is open and was effective. That decides, whatever is
// known of earlier attempts. Anything else moves no row, and is left to the rules.
const (
	succeed = `UPDATE tenure_operation SET state = 4, step = 1, due = ?1, decided = ?1, known = 5, ended = ?1, why = ?4, result_of = iif(?5, number, 0)
		WHERE id = ?2 AND number = ?3 AND state = 2 AND wished = 0 AND ord = ''`
	insertResult = `INSERT INTO tenure_body (n, part, body) SELECT n, number, ?2 FROM tenure_operation WHERE id = ?1`
)

func (b *opBatch) complete(done *operation.Completion) error {
	if err := done.Check(); err != nil {
		return err
	}
	if done.Known == operation.Effective {
		n, err := b.exec(succeed, b.now, done.ID, int64(done.Number), done.Reason, len(done.Result) > 0)
		if err == nil && n == 1 && len(done.Result) > 0 {
			err = b.one(insertResult, done.ID, done.Result)
		}
		if err != nil || n == 1 {
			return err
		}
	}
	r, err := b.load(done.ID, false) // the rule looks at no body of what is undecided
	if err != nil {
		return err
	}
	next, err := r.op.Complete(done.Number, done.Answer)
	if err != nil {
		return err // nothing is stored of what a stale worker reports
	}
	if r.due = b.now + int64(done.RetryIn); next.State.Decided() { // what follows a decision does not wait
		r.due = b.now
	}
	if err := b.move(r, next, nil); err != nil {
		return err
	}
	return b.save(r)
}
