package sqlite

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// asInstant is how an attempt in a record holds an instant.
func asInstant(at int64) time.Duration { return time.Duration(at) }

// candidate is an operation whose step is due.
type candidate struct {
	n, due   int64
	priority int
	kind     int // index of the kind that was asked for
}

// selectWork has a part for each priority, so that none walks over what is due later.
const (
	workAt     = `SELECT n, priority, due FROM (SELECT n, priority, due FROM tenure_operation WHERE step = 2 AND kind = ?1 AND blocked = 0 AND priority = `
	workDue    = ` AND due <= ?2 ORDER BY due, n LIMIT ?3)`
	selectWork = workAt + `3` + workDue + ` UNION ALL ` + workAt + `2` + workDue + ` UNION ALL ` + workAt + `1` + workDue + ` UNION ALL ` + workAt + `0` + workDue
	anyWork    = `SELECT EXISTS (SELECT 1 FROM json_each(?1) k CROSS JOIN tenure_operation o ON o.kind = k.value
		WHERE o.step = 2 AND o.blocked = 0 AND o.priority IN (0, 1, 2, 3) AND o.due <= ?2)`
	selectOne   = `SELECT n, priority, due, kind FROM tenure_operation WHERE id = ?1 AND step = 2 AND blocked = 0 AND due <= ?2`
	selectDesk  = `SELECT n, due FROM tenure_operation WHERE step >= 4 AND kind = ?1 AND due <= ?2 ORDER BY due, n LIMIT ?3`
	selectWatch = `SELECT n FROM tenure_operation WHERE step = 3 AND due <= ?1 ORDER BY due, n LIMIT ?2`
)

// worked reports whether there is work for the claim.
func (b *opBatch) worked(req *operation.ClaimRequest) (some bool, err error) {
	if req.ID != "" {
		found, err := b.workOf(req)
		return len(found) > 0, err
	}
	names := make([]string, len(req.Kinds))
	for i, k := range req.Kinds {
		names[i] = k.Kind
	}
	list, err := json.Marshal(names)
	if err != nil {
		return false, b.fail(err)
	}
	if err = b.conn.row(anyWork, string(list), b.now).Scan(&some); err != nil {
		return false, b.fail(err)
	}
	return some, nil
}

// workOf is work, of the one operation that is asked for.
func (b *opBatch) workOf(req *operation.ClaimRequest) ([]candidate, error) {
	var found []candidate
	err := b.each(func(rows *sql.Rows) error {
		var c candidate
		var kind string
		err := rows.Scan(&c.n, &c.priority, &c.due, &kind)
		if c.kind = slices.IndexFunc(req.Kinds, func(k operation.KindClaim) bool { return k.Kind == kind }); c.kind >= 0 {
			found = append(found, c)
		}
		return err
	}, selectOne, req.ID, b.now)
	return found, err
}

// work returns what is due of the kinds, in the order in which it is done.
func (b *opBatch) work(req *operation.ClaimRequest) ([]candidate, error) {
	if req.ID != "" {
		return b.workOf(req)
	}
	var found []candidate
	for i := range req.Kinds {
		k, first := &req.Kinds[i], len(found)
		err := b.each(func(rows *sql.Rows) error {
			c := candidate{kind: i}
			err := rows.Scan(&c.n, &c.priority, &c.due)
			found = append(found, c)
			return err
		}, selectWork, k.Kind, b.now, min(k.Limit, req.Limit))
		if err != nil {
			return nil, err
		}
		found = found[:min(len(found), first+k.Limit)] // by priority, and so the most urgent
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.due, b.due), cmp.Compare(a.n, b.n))
	})
	return found[:min(len(found), req.Limit)], nil
}

// claim settles first what was due for another attempt and can have none any more.
func (b *opBatch) claim(req operation.ClaimRequest) ([]operation.Job, error) {
	found, err := b.work(&req)
	if err != nil {
		return nil, err
	}
	jobs, bytes := make([]operation.Job, 0, len(found)), 0
	for some := range slices.Chunk(found, claimAtOnce) {
		begun, err := b.claimSome(some, &req)
		if err != nil {
			return nil, err
		}
		for _, job := range begun {
			bytes += len(job.Request)
		}
		if jobs = append(jobs, begun...); bytes >= claimBytes {
			break
		}
	}
	return jobs, nil
}

// A claim whose requests are large hands out fewer operations than it may: no reply is larger than both together, claimAtOnce of the largest requests and claimBytes.
const (
	claimAtOnce = 32
	claimBytes  = 32 << 20
)

func (b *opBatch) claimSome(found []candidate, req *operation.ClaimRequest) ([]operation.Job, error) {
	numbers := make([]int64, len(found))
	for i := range found {
		numbers[i] = found[i].n
	}
	records, err := b.loadAll(numbers, false, true)
	if err != nil {
		return nil, err
	}
	jobs := make([]operation.Job, 0, len(found))
	for i, r := range records { // all of them: they were found under the same lock
		k := &req.Kinds[found[i].kind]
		may, err := b.mayBegin(r, k)
		if err != nil {
			return nil, err
		}
		if may {
			job, err := b.begin(r, req, k)
			if err != nil {
				return nil, err
			}
			job.Request = told(r.request, true)
			jobs = append(jobs, job)
		}
		if err := b.save(r); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// mayBegin reports whether an attempt may begin under what this worker knows of the kind. If it may not, what follows from that is in the record.
func (b *opBatch) mayBegin(r *opRecord, k *operation.KindClaim) (bool, error) {
	past := !r.op.NotAfter.IsZero() && b.now >= r.notAfter
	used := r.op.Tries() >= k.MaxAttempts
	if r.op.State == operation.Pending {
		if !past && !used {
			return true, nil
		}
		reason := "no attempt is left"
		if past {
			reason = "the instant after which the provider refuses it has passed"
		}
		next, err := r.op.GiveUp(reason)
		if err = b.move(r, next, err); err != nil {
			return false, b.fail(err) // it is pending: no rule of a sound file refuses
		}
		return false, nil
	}
	if k.Window == operation.Forever || k.Window > 0 && b.now <= r.first+int64(k.Window)-int64(k.Timeout) {
		if !past && !used {
			return true, nil
		}
	}
	r.againUntil, r.asks = noAgain, k.Asks
	return false, nil
}

func (b *opBatch) begin(r *opRecord, req *operation.ClaimRequest, k *operation.KindClaim) (operation.Job, error) {
	number := fence.Token(b.token())
	job := operation.Job{Ref: operation.Ref{ID: r.op.ID, Number: number}, Kind: r.op.Kind, Ordinal: len(r.op.Attempts) + 1, Priority: r.priority, Order: r.order}
	job.Unsure = r.op.State == operation.Uncertain
	next, err := r.op.Begin(number, req.Worker, true)
	if err != nil {
		return job, b.fail(err) // the step was work, and the number is the highest: no rule of a sound file refuses
	}
	next.Attempts[len(next.Attempts)-1].Began = asInstant(b.now)
	if job.Ordinal == 1 {
		r.first = b.now
		if k.NotAfter > 0 {
			r.notAfter = b.now + int64(k.NotAfter)
			next.NotAfter = time.Unix(0, b.wall()+int64(k.NotAfter)).UTC()
		}
	}
	r.until = b.now + int64(k.Timeout)
	r.asks, r.undoes, r.againUntil = k.Asks, k.Undoes, noAgain
	switch {
	case next.Tries() >= k.MaxAttempts || k.Window == 0:
	case k.Window == operation.Forever:
		r.againUntil = int64(operation.Forever)
	default:
		r.againUntil = max(r.first+int64(k.Window)-int64(k.Timeout), noAgain)
	}
	if err := b.move(r, next, nil); err != nil {
		return job, err
	}
	r.due = min(b.now+int64(req.TTL), r.until)
	job.Remaining, job.TimeLeft, job.NotAfter = time.Duration(r.due-b.now), k.Timeout, r.op.NotAfter
	return job, nil
}

// renewClaim is the rule in one statement: the open current attempt, within its timeout, also when its claim's own time has passed.
const renewClaim = `UPDATE tenure_operation SET due = min(?1, until) WHERE id = ?2 AND number = ?3 AND state = 2 AND until > ?4`

func (b *opBatch) renew(req operation.RenewRequest) ([]operation.Ref, error) {
	lost := []operation.Ref{}
	for _, ref := range req.Refs {
		n, err := b.exec(renewClaim, b.now+int64(req.TTL), ref.ID, int64(ref.Number), b.now)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			lost = append(lost, ref)
		}
	}
	return lost, nil
}

// watched returns the operations whose claims have expired, the longest over first.
func (b *opBatch) watched(limit int) ([]int64, error) {
	var over []int64
	err := b.each(func(rows *sql.Rows) error {
		var n int64
		err := rows.Scan(&n)
		over = append(over, n)
		return err
	}, selectWatch, b.now, limit)
	return over, err
}

func (b *opBatch) anyExpired() (bool, error) {
	over, err := b.watched(1)
	return len(over) > 0, err
}

// expire is a verdict: it looks and writes under one writer lock, by a clock that was read after it was won.
func (b *opBatch) expire(limit int) (int, error) {
	over, err := b.watched(limit)
	if err != nil {
		return 0, err
	}
	records, err := b.loadAll(over, false, false)
	if err != nil {
		return 0, err
	}
	for _, r := range records {
		next, err := r.op.Report(r.op.Current(), operation.Answer{Known: operation.NoAnswer, Reason: "its claim expired"})
		r.due = b.now
		if err := b.move(r, next, err); err != nil {
			return 0, b.fail(err) // it is the current attempt, and open: no rule of a sound file refuses
		}
		if err := b.save(r); err != nil {
			return 0, err
		}
	}
	return len(records), nil
}

// desk returns what a reconciler has to do, by when it was due. The kinds are different ones.
func (b *opBatch) desk(kinds []string, limit int) ([]int64, error) {
	var found []candidate
	for _, kind := range kinds {
		err := b.each(func(rows *sql.Rows) error {
			var c candidate
			err := rows.Scan(&c.n, &c.due)
			found = append(found, c)
			return err
		}, selectDesk, kind, b.now, limit)
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.n, b.n)) })
	numbers := make([]int64, min(len(found), limit))
	for i := range numbers {
		numbers[i] = found[i].n
	}
	return numbers, nil
}

func (b *opBatch) due(req operation.DueRequest) ([]operation.Record, error) {
	numbers, err := b.desk(req.Kinds, req.Limit)
	if err != nil {
		return nil, err
	}
	records, err := b.loadAll(numbers, true, false)
	if err != nil {
		return nil, err
	}
	found := make([]operation.Record, 0, len(records))
	for _, r := range records {
		if r.step() == operation.Ask {
			r.inquiries++
		}
		r.due = b.now + int64(req.Hold)
		if err := b.save(r); err != nil {
			return nil, err
		}
		found = append(found, b.tell(r, true))
	}
	return found, nil
}
