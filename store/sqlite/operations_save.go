package sqlite

import (
	"bytes"

	"github.com/tenure-go/tenure/operation"
)

const (
	insertOperation = `INSERT INTO tenure_operation (id, kind, fingerprint, state, step, due, priority, ord, blocked, compensates, created)
		VALUES (?1, ?2, ?3, 1, 2, ?4, ?5, ?6, ?6 <> '' AND EXISTS (SELECT 1 FROM tenure_operation WHERE ord = ?6 AND ord <> '' AND state <= 3), ?7, ?8) RETURNING n, blocked`
	updateOperation = `UPDATE tenure_operation SET state = ?2, step = ?3, due = ?4, wished = ?5, reason = ?6, instant = ?7, blocked = ?8, decided = ?9, first = ?10, until = ?11,
		again_until = ?12, not_after = ?13, asks = ?14, undoes = ?15, undone_by = ?16, inquiries = ?17, conflicts = ?18, result_of = ?19, attempts = ?20, number = ?21, worker = ?22,
		known = ?23, began = ?24, ended = ?25, why = ?26 WHERE n = ?1`
	insertAttempt = `INSERT INTO tenure_attempt (n, number, worker, known, began, ended, why) VALUES (?, ?, ?, ?, ?, ?, ?)`
	updateAttempt = `UPDATE tenure_attempt SET known = ?3, ended = ?4, why = ?5 WHERE n = ?1 AND number = ?2`
	insertBody    = `INSERT INTO tenure_body (n, part, body) VALUES (?, ?, ?) ON CONFLICT (n, part) DO UPDATE SET body = excluded.body`
	// The first of an order that is undecided is the only one that may begin.
	unblockNext = `UPDATE tenure_operation SET blocked = 0 WHERE blocked = 1 AND n = (SELECT n FROM tenure_operation WHERE ord = ? AND ord <> '' AND state <= 3 ORDER BY n LIMIT 1)`
)

// save writes what a rule has changed.
func (b *opBatch) save(r *opRecord) error {
	op, was := r.op, r.was
	if op != was {
		if err := b.saveAttempts(r); err != nil {
			return err
		}
		if err := b.saveConflicts(r); err != nil {
			return err
		}
	}
	newly := op.State.Decided() && !was.State.Decided()
	if newly {
		if r.blocked = false; len(op.Result) > 0 {
			if err := b.saveResult(r); err != nil {
				return err
			}
		}
	}
	if err := b.saveRow(r); err != nil {
		return err
	}
	if newly && r.order != "" {
		if _, err := b.exec(unblockNext, r.order); err != nil {
			return err
		}
	}
	r.was = op
	return nil
}

func (b *opBatch) saveRow(r *opRecord) error {
	op := r.op
	var current operation.Attempt
	if n := len(op.Attempts); n > 0 {
		current = op.Attempts[n-1]
	}
	var instant int64
	if !op.NotAfter.IsZero() {
		instant = op.NotAfter.UnixNano()
	}
	return b.one(updateOperation, r.n, int(op.State), int(r.step()), r.due, op.CancelWished, op.Reason, instant, r.blocked, r.decided, r.first, r.until,
		r.againUntil, r.notAfter, r.asks, r.undoes, r.undoneBy, r.inquiries, r.conflicts, r.resultOf, r.attempts, int64(current.Number), current.Worker,
		int(current.Known), int64(current.Began), int64(current.Ended), current.Reason)
}

// saveAttempts writes attempts that are not the current one, and results that are new. An attempt changes only together with what is known of it.
func (b *opBatch) saveAttempts(r *opRecord) error {
	before, last := r.was.Attempts, len(r.op.Attempts)-1
	for i, a := range r.op.Attempts {
		var err error
		switch {
		case i == len(before)-1 && i < last: // it was the current one
			_, err = b.exec(insertAttempt, r.n, int64(a.Number), a.Worker, int(a.Known), int64(a.Began), int64(a.Ended), a.Reason)
		case i < last && a.Known != before[i].Known:
			err = b.one(updateAttempt, r.n, int64(a.Number), int(a.Known), int64(a.Ended), a.Reason)
		}
		if err == nil && len(a.Result) > 0 && (i >= len(before) || a.Known != before[i].Known) {
			_, err = b.exec(insertBody, r.n, int64(a.Number), a.Result)
		}
		if err != nil {
			return err
		}
	}
	r.attempts = len(r.op.Attempts)
	return nil
}

func (b *opBatch) saveConflicts(r *opRecord) error {
	for i := len(r.was.Conflicts); i < len(r.op.Conflicts); i++ {
		c := r.op.Conflicts[i]
		if c.Result == nil {
			c.Result = []byte{} // an empty column, not NULL
		}
		if _, err := b.exec(`INSERT INTO tenure_conflict (n, ordinal, attempt, result, why) VALUES (?, ?, ?, ?, ?)`, r.n, i, int64(c.Attempt), c.Result, c.Reason); err != nil {
			return err
		}
	}
	return nil
}

// saveResult notes whose result the operation's is, so that one which an attempt has brought is written once.
func (b *opBatch) saveResult(r *opRecord) error {
	for _, a := range r.op.Attempts {
		if a.Known == operation.Effective && bytes.Equal(a.Result, r.op.Result) {
			r.resultOf = int64(a.Number)
			return nil
		}
	}
	r.resultOf = ownResult
	_, err := b.exec(insertBody, r.n, ownResult, r.op.Result)
	return err
}
