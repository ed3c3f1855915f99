package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// opBatch is what a transaction does with operations. What follows from what is learned is said by the rules of package operation alone; here stands what is read and written.
type opBatch struct {
	*txWork
	wall  func() int64 // nanoseconds of Unix time, for instants that a provider enforces
	token func() int64 // draws a number; nil where none may be drawn
}

// noAgain and ownResult stand in columns where there is nothing else.
const (
	noAgain   = -1 // no attempt may follow an unknown outcome
	ownResult = -1 // the result is an operator's, or an inquiry's
)

// opRecord is a row of tenure_operation, with what belongs to it.
type opRecord struct {
	n          int64
	op         *operation.Operation // replaced, never written; the attempts' Began and Ended are instants
	was        *operation.Operation // as it was read
	request    []byte
	priority   int
	order      string
	blocked    bool
	created    int64
	decided    int64
	first      int64
	due        int64
	until      int64
	againUntil int64
	notAfter   int64
	asks       bool
	undoes     bool
	undoneBy   string
	inquiries  int
	conflicts  int
	kept       operation.Kept
	resultOf   int64
	attempts   int // the current one included
}

const opColumns = `o.n, o.id, o.kind, o.fingerprint, o.state, o.wished, o.reason, o.compensates, o.instant, o.priority, o.ord, o.blocked, o.created, o.decided, o.first, o.due,
	o.until, o.again_until, o.not_after, o.asks, o.undoes, o.undone_by, o.inquiries, o.conflicts, o.kept, o.result_of, o.attempts, o.number, o.worker, o.known, o.began, o.ended, o.why`

const selectOperation = `SELECT ` + opColumns + ` FROM tenure_operation o WHERE o.id = ?`

// scanRecord reads opColumns, and behind them what more is named. Of the attempts it has the current one alone: see the rest in history.
func scanRecord(scan func(...any) error, more ...any) (*opRecord, error) {
	r, op := new(opRecord), new(operation.Operation)
	var fingerprint []byte
	var instant int64
	var current operation.Attempt
	err := scan(append([]any{&r.n, &op.ID, &op.Kind, &fingerprint, (*int)(&op.State), &op.CancelWished, &op.Reason, &op.Compensates, &instant, &r.priority, &r.order, &r.blocked,
		&r.created, &r.decided, &r.first, &r.due, &r.until, &r.againUntil, &r.notAfter, &r.asks, &r.undoes, &r.undoneBy, &r.inquiries, &r.conflicts, (*int)(&r.kept), &r.resultOf,
		&r.attempts, (*int64)(&current.Number), &current.Worker, (*int)(&current.Known), (*int64)(&current.Began), (*int64)(&current.Ended), &current.Reason}, more...)...)
	if err != nil {
		return nil, err
	}
	copy(op.Fingerprint[:], fingerprint)
	if instant != 0 {
		op.NotAfter = time.Unix(0, instant).UTC()
	}
	if r.attempts > 0 {
		op.Attempts = []operation.Attempt{current}
	}
	r.op, r.was = op, op
	return r, nil
}

// load reads an operation, or answers with a [*operation.NotFoundError].
func (b *opBatch) load(id string, bodies bool) (*opRecord, error) {
	r, err := scanRecord(b.conn.row(selectOperation, id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, &operation.NotFoundError{ID: id}
	}
	if err != nil {
		return nil, b.fail(err)
	}
	return r, b.rest(r, bodies)
}

// loadAll reads operations by number, in that order and in one statement; those that are gone are left out. The request comes with bodies, or with the
// request alone, or not at all.
func (b *opBatch) loadAll(numbers []int64, bodies, request bool) ([]*opRecord, error) {
	list, err := json.Marshal(numbers)
	if err != nil {
		return nil, b.fail(err)
	}
	text, more := `SELECT `+opColumns+` FROM json_each(?) j CROSS JOIN tenure_operation o ON o.n = j.value`, 0
	if request {
		text, more = `SELECT `+opColumns+`, t.body FROM json_each(?) j CROSS JOIN tenure_operation o ON o.n = j.value LEFT JOIN tenure_body t ON t.n = o.n AND t.part = 0`, 1
	}
	found := make([]*opRecord, 0, len(numbers))
	err = b.each(func(rows *sql.Rows) error {
		var body []byte
		r, err := scanRecord(rows.Scan, []any{&body}[:more]...)
		if err == nil {
			r.request = body
			found = append(found, r)
		}
		return err
	}, text, string(list))
	if err != nil {
		return nil, err
	}
	for _, r := range found {
		if err := b.rest(r, bodies); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// rest reads what stands outside of the row. It replaces nothing that a rule has changed: it comes first.
func (b *opBatch) rest(r *opRecord, bodies bool) error {
	if err := b.history(r); err != nil {
		return err
	}
	if r.conflicts > 0 {
		err := b.each(func(rows *sql.Rows) error {
			var c operation.Conflict
			err := rows.Scan((*int64)(&c.Attempt), &c.Result, &c.Reason)
			r.op.Conflicts = append(r.op.Conflicts, c)
			return err
		}, `SELECT attempt, result, why FROM tenure_conflict WHERE n = ? ORDER BY ordinal`, r.n)
		if err != nil {
			return err
		}
	}
	if bodies && r.kept < operation.VerdictOnly { // what was said after bodies were forgotten is kept
		return b.bodies(r)
	}
	return nil
}

// history reads the attempts before the current one.
func (b *opBatch) history(r *opRecord) error {
	if r.attempts < 2 {
		return nil
	}
	all := make([]operation.Attempt, 0, r.attempts)
	err := b.each(func(rows *sql.Rows) error {
		var a operation.Attempt
		err := rows.Scan((*int64)(&a.Number), &a.Worker, (*int)(&a.Known), (*int64)(&a.Began), (*int64)(&a.Ended), &a.Reason)
		all = append(all, a)
		return err
	}, `SELECT number, worker, known, began, ended, why FROM tenure_attempt WHERE n = ? ORDER BY number`, r.n)
	r.op.Attempts = append(all, r.op.Attempts...)
	return err
}

// bodies reads the request and all results.
func (b *opBatch) bodies(r *opRecord) error {
	return b.each(func(rows *sql.Rows) error {
		var part int64
		var body []byte
		if err := rows.Scan(&part, &body); err != nil {
			return err
		}
		if part == 0 {
			r.request = body
			return nil
		}
		if part == r.resultOf {
			r.op.Result = body
		}
		for i := range r.op.Attempts {
			if int64(r.op.Attempts[i].Number) == part {
				r.op.Attempts[i].Result = bytes.Clone(body)
			}
		}
		return nil
	}, `SELECT part, body FROM tenure_body WHERE n = ?`, r.n)
}

// step is what comes next for the operation, as it stands.
func (r *opRecord) step() operation.Step {
	return r.op.Next(operation.Means{Again: r.againUntil >= 0 && r.due <= r.againUntil, Asks: r.asks, Undoes: r.undoes, Undone: r.undoneBy != ""})
}

// tell makes of the record what may be told, which shares nothing with it that is written later.
func (b *opBatch) tell(r *opRecord, bodies bool) operation.Record {
	op := *r.op
	op.Attempts, op.Conflicts = append([]operation.Attempt(nil), op.Attempts...), append([]operation.Conflict(nil), op.Conflicts...)
	op.Result = told(op.Result, bodies)
	for i := range op.Attempts {
		a := &op.Attempts[i]
		a.Result = told(a.Result, bodies)
		if a.Began = time.Duration(b.now) - a.Began; a.Known == operation.Open {
			a.Ended = 0
		} else {
			a.Ended = time.Duration(b.now) - a.Ended
		}
	}
	for i := range op.Conflicts {
		op.Conflicts[i].Result = told(op.Conflicts[i].Result, bodies)
	}
	record := operation.Record{
		Operation: op, Request: told(r.request, bodies), Priority: r.priority, Order: r.order, Step: r.step(), Blocked: r.blocked, Age: time.Duration(b.now - r.created),
		Kept: r.kept, Inquiries: r.inquiries, ConflictCount: r.conflicts, UndoneBy: r.undoneBy,
	}
	if record.Step != operation.Idle {
		record.StepIn = time.Duration(max(r.due-b.now, 0))
	}
	if op.State.Decided() {
		record.Decided = time.Duration(b.now - r.decided)
	}
	return record
}

// told is a body, of which nothing else has a copy.
func told(body []byte, bodies bool) []byte {
	if !bodies || len(body) == 0 {
		return nil
	}
	return bytes.Clone(body)
}
