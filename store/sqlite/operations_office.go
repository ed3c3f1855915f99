package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// List implements [operation.Office]. It reads without any lock, and all of its answer from one state of the file.
func (o *Operations) List(ctx context.Context, req operation.ListRequest) ([]operation.Record, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	req.States = slices.Clone(req.States)
	found := []operation.Record{}
	err := o.read(ctx, "list", func(b *opBatch) error {
		records, err := b.list(req)
		if err != nil {
			return err
		}
		for _, r := range records {
			if err := b.rest(r, req.Bodies); err != nil {
				return err
			}
			found = append(found, b.tell(r, req.Bodies))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// list finds operations by what is in their rows. Ids are valid UTF-8, so none that starts with the prefix sorts at or above prefix + 0xff.
func (b *opBatch) list(req operation.ListRequest) ([]*opRecord, error) {
	text := `SELECT ` + opColumns + ` FROM tenure_operation o WHERE o.id > ?1 AND o.id >= ?2 AND (?2 = '' OR CAST(o.id AS BLOB) < ?3) AND (?4 = '' OR o.kind = ?4) AND (?5 >> o.state) & 1`
	states := 0
	for _, s := range req.States {
		states |= 1 << s
	}
	switch states {
	case 0:
		states = -1
	case 1 << operation.Uncertain:
		text += ` AND o.state = 3` // by its index
	}
	if req.Conflicts {
		text += ` AND o.conflicts > 0`
	}
	if req.Wished {
		text += ` AND o.wished = 1 AND o.state NOT IN (5, 6) AND (o.undone_by = '' OR EXISTS (SELECT 1 FROM tenure_operation u WHERE u.id = o.undone_by AND u.state IN (5, 6)))`
	}
	var found []*opRecord
	err := b.each(func(rows *sql.Rows) error {
		r, err := scanRecord(rows.Scan)
		found = append(found, r)
		return err
	}, text+` ORDER BY o.id LIMIT ?6`, req.After, req.Prefix, []byte(req.Prefix+"\xff"), req.Kind, states, req.Limit)
	return found, err
}

// statRows are the rows that count, found by the indexes of what is undecided, uncertain, or has conflicts.
const statRows = `SELECT kind, state, created, 0 AS stuck FROM tenure_operation WHERE step = 2
	UNION ALL SELECT kind, state, created, 0 FROM tenure_operation WHERE step = 3
	UNION ALL SELECT kind, state, created, 0 FROM tenure_operation WHERE step >= 4 AND state <= 3
	UNION ALL SELECT kind, state, created, 1 FROM tenure_operation WHERE state = 3 AND step = 1
	UNION ALL SELECT kind, 0, created, 0 FROM tenure_operation WHERE conflicts > 0 AND state >= 4`

// Stats implements [operation.Office]. It reads without any lock.
func (o *Operations) Stats(ctx context.Context) ([]operation.Stat, error) {
	all := []operation.Stat{}
	err := o.read(ctx, "stats", func(b *opBatch) error {
		return b.each(func(rows *sql.Rows) error {
			var s operation.Stat
			var oldest int64
			err := rows.Scan(&s.Kind, (*int)(&s.State), &s.Count, &oldest, &s.Stuck)
			s.Oldest = time.Duration(b.now - oldest)
			all = append(all, s)
			return err
		}, `SELECT kind, state, count(*), min(created), sum(stuck) FROM (`+statRows+`) GROUP BY kind, state ORDER BY kind, state`)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// pruneAtOnce is how many operations one transaction of Prune handles: every renewal of a lease waits for it.
const pruneAtOnce = 128

// notUndoing leaves out the compensation of an operation by which that was not noted yet: forgotten, it would be submitted and done again.
const notUndoing = ` AND (o.compensates = '' OR NOT EXISTS (SELECT 1 FROM tenure_operation t WHERE t.id = o.compensates AND t.step = 5))`

// selectPrunable has a part for each stage at which an operation can be. An age of 0 leaves a part out. By id, so that whoever prunes in small steps comes to all.
const selectPrunable = `SELECT n FROM (SELECT n, id FROM tenure_operation o WHERE decided > 0 AND kept = 1 AND ?1 > 0 AND decided <= ?4 - ?1 AND step = 1` + notUndoing + `
	UNION ALL SELECT n, id FROM tenure_operation o WHERE decided > 0 AND kept = 2 AND ?2 > 0 AND decided <= ?4 - ?2 AND step = 1` + notUndoing + `
	UNION ALL SELECT n, id FROM tenure_operation o WHERE decided > 0 AND kept = 3 AND ?3 > 0 AND decided <= ?4 - ?3 AND step = 1) ORDER BY id LIMIT ?5`

// Prune implements [operation.Office]. It looks without any lock, and then forgets in transactions of a bounded size: an error says that some were not
// handled, and not that none was: then it matches [operation.ErrUnknown].
func (o *Operations) Prune(ctx context.Context, req operation.PruneRequest) (operation.Pruned, error) {
	if err := req.Check(); err != nil {
		return operation.Pruned{}, err
	}
	var numbers []int64
	err := o.read(ctx, "prune", func(b *opBatch) error {
		return b.each(func(rows *sql.Rows) error {
			var n int64
			err := rows.Scan(&n)
			numbers = append(numbers, n)
			return err
		}, selectPrunable, soonest(req.Bodies, req.Records, req.Forget), soonest(req.Records, req.Forget), int64(req.Forget), b.now, req.Limit)
	})
	if err != nil {
		return operation.Pruned{}, err
	}
	var total operation.Pruned
	for some := range slices.Chunk(numbers, pruneAtOnce) {
		var p operation.Pruned
		err := o.write(ctx, "prune", "", len(some), func(b *opBatch) (err error) {
			p, err = b.prune(some, &req)
			return err
		})
		if err != nil {
			return operation.Pruned{}, partly(err, total != operation.Pruned{}) // the writer may still be at work on it: p is not even read
		}
		total.Bodies, total.Records, total.Forgotten = total.Bodies+p.Bodies, total.Records+p.Records, total.Forgotten+p.Forgotten
	}
	return total, nil
}

// partly is the error of a call whose first part was done, if it was: what was certainly not applied is a part then, and the whole does not match [operation.ErrUnavailable].
func partly(err error, done bool) error {
	if rest, ok := errors.AsType[*operation.UnavailableError](err); ok && done {
		return &operation.UnknownError{Op: rest.Op, Err: rest.Err}
	}
	return err
}

// soonest is the least of the ages that are set, or 0.
func soonest(ages ...time.Duration) int64 {
	var least time.Duration
	for _, age := range ages {
		if age > 0 && (least == 0 || age < least) {
			least = age
		}
	}
	return int64(least)
}

// prune handles each operation once: the last stage that it has reached.
func (b *opBatch) prune(numbers []int64, req *operation.PruneRequest) (p operation.Pruned, err error) {
	records, err := b.loadAll(numbers, false, false)
	if err != nil {
		return p, err
	}
	for _, r := range records {
		if !r.op.State.Decided() || r.step() != operation.Idle {
			continue
		}
		reached := func(age time.Duration) bool { return age > 0 && b.now-r.decided >= int64(age) }
		switch {
		case reached(req.Forget):
			p.Forgotten++
			err = b.forget(r.n, `DELETE FROM tenure_body WHERE n = ?`, `DELETE FROM tenure_attempt WHERE n = ?`, `DELETE FROM tenure_conflict WHERE n = ?`, `DELETE FROM tenure_operation WHERE n = ?`)
		case reached(req.Records) && r.kept < operation.VerdictOnly:
			p.Records++
			err = b.forget(r.n, `DELETE FROM tenure_body WHERE n = ?`, `DELETE FROM tenure_attempt WHERE n = ?`, `DELETE FROM tenure_conflict WHERE n = ?`, verdictOnly)
		case reached(req.Bodies) && r.kept < operation.WithoutBodies:
			p.Bodies++
			err = b.forget(r.n, `DELETE FROM tenure_body WHERE n = ?`, `UPDATE tenure_conflict SET result = x'' WHERE n = ?`,
				`UPDATE tenure_operation SET kept = 2, result_of = 0 WHERE n = ?`)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

const verdictOnly = `UPDATE tenure_operation SET kept = 3, wished = 0, reason = '', compensates = '', instant = 0, priority = 0, ord = '', first = 0, until = 0, again_until = -1,
	not_after = 0, asks = 0, undoes = 0, undone_by = '', inquiries = 0, result_of = 0, attempts = 0, number = 0, worker = '', known = 0, began = 0, ended = 0, why = '' WHERE n = ?`

func (b *opBatch) forget(n int64, statements ...string) error {
	for _, statement := range statements {
		if _, err := b.exec(statement, n); err != nil {
			return err
		}
	}
	return nil
}
