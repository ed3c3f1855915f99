package memory

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// opCore is the serial model of the contract in package operation: which calls change what, and when. What follows from what is learned is said by the rules of that package alone.
type opCore struct {
	now     time.Duration
	counter fence.Token // the latest number of an attempt
	order   int         // of the latest submission
	records map[string]*record
}

// record is an operation with what is kept beside it.
type record struct {
	op         *operation.Operation // replaced, never written
	request    []byte
	priority   int
	order      string
	submission int
	created    time.Duration
	decided    time.Duration
	first      time.Duration // when its first attempt was recorded
	due        time.Duration // of its step; of Watch: when the claim expires
	until      time.Duration // the current attempt's timeout: its claim is not renewed beyond
	againUntil time.Duration // another attempt may follow an unknown outcome until then; -1: none may
	notAfter   time.Duration // of op.NotAfter, by this clock
	asks       bool
	undoes     bool
	undoneBy   string
	inquiries  int
	conflicts  int
	kept       operation.Kept
}

func clone(b []byte) []byte { return bytes.Clone(b) }

func (c *opCore) step(r *record) operation.Step {
	return r.op.Next(operation.Means{Again: r.againUntil >= 0 && r.due <= r.againUntil, Asks: r.asks, Undoes: r.undoes, Undone: r.undoneBy != ""})
}

// blocked reports whether an earlier operation of its order is undecided.
func (c *opCore) blocked(r *record) bool {
	if r.order == "" || r.op.State.Decided() {
		return false
	}
	for _, other := range c.records {
		if other.order == r.order && other.submission < r.submission && !other.op.State.Decided() {
			return true
		}
	}
	return false
}

func (c *opCore) submit(req operation.SubmitRequest) (operation.Submitted, error) {
	if r := c.records[req.ID]; r != nil {
		if err := r.op.Same(req.Kind, req.Fingerprint); err != nil {
			return operation.Submitted{}, err
		}
		return operation.Submitted{Record: c.tell(r, true), Known: true}, nil
	}
	if req.Compensates != "" {
		target := c.records[req.Compensates]
		if target == nil {
			return operation.Submitted{}, &operation.NotFoundError{ID: req.Compensates}
		}
		if err := target.op.MayCompensate(); err != nil {
			return operation.Submitted{}, err
		}
	}
	c.order++
	r := &record{
		op: &operation.Operation{ID: req.ID, Kind: req.Kind, Fingerprint: req.Fingerprint, State: operation.Pending, Compensates: req.Compensates}, request: clone(req.Request),
		priority: req.Priority, order: req.Order, submission: c.order, created: c.now, due: c.now + req.RunIn, againUntil: -1, kept: operation.Whole,
	}
	c.records[req.ID] = r
	return operation.Submitted{Record: c.tell(r, true)}, nil
}

// move stores what a rule returned, which may be something together with an error.
func (c *opCore) move(r *record, next *operation.Operation, err error) error {
	if next == nil {
		return err
	}
	if len(next.Conflicts) > len(r.op.Conflicts) {
		r.conflicts++
	}
	if len(next.Conflicts) > operation.MaxConflicts {
		next.Conflicts = next.Conflicts[:operation.MaxConflicts]
	}
	for i, was := range r.op.Attempts { // Began and Ended are instants here
		if a := &next.Attempts[i]; was.Known == operation.Open && a.Known != operation.Open {
			a.Ended = c.now
		}
	}
	if next.State.Decided() && !r.op.State.Decided() {
		r.decided = c.now
	}
	r.op = next
	return err
}

func (c *opCore) cancel(r *record, reason string) error {
	next, err := r.op.Cancel(reason)
	return c.move(r, next, err)
}

func (c *opCore) respond(r *record, resp operation.Response) error {
	if resp.Number == 0 && resp.Known == operation.Refused || r.kept == operation.VerdictOnly {
		switch {
		case r.kept == operation.VerdictOnly && resp.Known != operation.Effective:
			return nil // what contradicts nothing has nowhere to be kept
		case r.kept != operation.VerdictOnly && len(r.op.Attempts) != 1:
			return &operation.InvalidError{Field: "attempt", Problem: "none, and a refusal of one attempt says nothing of the others"}
		case r.kept != operation.VerdictOnly:
			resp.Number = r.op.Current()
		}
	}
	if resp.Number == 0 || r.kept == operation.VerdictOnly {
		next, err := r.op.Inquired(operation.Found, clone(resp.Result), resp.Reason)
		return c.evidence(r, next, err)
	}
	answer := resp.Answer
	answer.Result = clone(answer.Result)
	next, err := r.op.Report(resp.Number, answer)
	return c.evidence(r, next, err)
}

// evidence moves an operation from outside of its worker: what follows is due at once.
func (c *opCore) evidence(r *record, next *operation.Operation, err error) error {
	was := r.op.State
	err = c.move(r, next, err)
	if r.op.State != was {
		r.due = c.now
	}
	return err
}

func (c *opCore) complete(done operation.Completion) error {
	if err := done.Check(); err != nil {
		return err
	}
	r := c.records[done.ID]
	if r == nil {
		return &operation.NotFoundError{ID: done.ID}
	}
	answer := done.Answer
	answer.Result = clone(answer.Result)
	next, err := r.op.Complete(done.Number, answer)
	if err == nil {
		r.due = c.now + done.RetryIn
		if next.State.Decided() { // what follows a decision does not wait
			r.due = c.now
		}
	}
	return c.move(r, next, err)
}

// byDue is the order in which work is done.
func byDue(a, b *record) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.due, b.due), cmp.Compare(a.submission, b.submission))
}

// claim settles first what was due for another attempt and can have none any more.
func (c *opCore) claim(req operation.ClaimRequest) []operation.Job {
	var found []*record
	for _, k := range req.Kinds {
		var ofKind []*record
		for _, r := range c.records {
			if r.op.Kind == k.Kind && (req.ID == "" || req.ID == r.op.ID) && c.step(r) == operation.Work && r.due <= c.now && !c.blocked(r) {
				ofKind = append(ofKind, r)
			}
		}
		slices.SortFunc(ofKind, byDue)
		found = append(found, ofKind[:min(len(ofKind), k.Limit)]...)
	}
	slices.SortFunc(found, byDue)
	jobs := []operation.Job{}
	for _, r := range found[:min(len(found), req.Limit)] {
		i := slices.IndexFunc(req.Kinds, func(k operation.KindClaim) bool { return k.Kind == r.op.Kind })
		if c.mayBegin(r, req.Kinds[i]) {
			jobs = append(jobs, c.beginAttempt(r, req, req.Kinds[i]))
		}
	}
	return jobs
}

// mayBegin reports whether an attempt may begin under what this worker knows of the kind. If it may not, what follows from that is stored.
func (c *opCore) mayBegin(r *record, k operation.KindClaim) bool {
	past := !r.op.NotAfter.IsZero() && c.now >= r.notAfter
	used := r.op.Tries() >= k.MaxAttempts
	if r.op.State == operation.Pending {
		if !past && !used {
			return true
		}
		reason := "no attempt is left"
		if past {
			reason = "the instant after which the provider refuses it has passed"
		}
		next, err := r.op.GiveUp(reason)
		_ = c.move(r, next, err) // it is pending, so that the rule agrees
		return false
	}
	if k.Window == operation.Forever || k.Window > 0 && c.now <= r.first+k.Window-k.Timeout {
		if !past && !used {
			return true
		}
	}
	r.againUntil, r.asks = -1, k.Asks
	return false
}

func (c *opCore) beginAttempt(r *record, req operation.ClaimRequest, k operation.KindClaim) operation.Job {
	c.counter++
	job := operation.Job{Ref: operation.Ref{ID: r.op.ID, Number: c.counter}, Kind: r.op.Kind, Ordinal: len(r.op.Attempts) + 1, Request: clone(r.request), Priority: r.priority, Order: r.order}
	job.Unsure = r.op.State == operation.Uncertain
	next, err := r.op.Begin(c.counter, req.Worker, true)
	if err != nil {
		panic(err) // the step was Work, and the number is the highest
	}
	next.Attempts[len(next.Attempts)-1].Began = c.now
	if job.Ordinal == 1 {
		r.first = c.now
		if k.NotAfter > 0 {
			r.notAfter = c.now + k.NotAfter
			next.NotAfter = time.Now().Add(k.NotAfter)
		}
	}
	r.until = c.now + k.Timeout
	r.asks, r.undoes, r.againUntil = k.Asks, k.Undoes, -1
	switch {
	case next.Tries() >= k.MaxAttempts || k.Window == 0:
	case k.Window == operation.Forever:
		r.againUntil = operation.Forever
	default:
		r.againUntil = max(r.first+k.Window-k.Timeout, -1)
	}
	_ = c.move(r, next, nil) // the rule has agreed
	r.due = min(c.now+req.TTL, r.until)
	job.Remaining, job.TimeLeft, job.NotAfter = r.due-c.now, k.Timeout, r.op.NotAfter
	return job
}

func (c *opCore) renew(req operation.RenewRequest) []operation.Ref {
	lost := []operation.Ref{}
	for _, ref := range req.Refs {
		r := c.records[ref.ID]
		if r == nil || r.op.State != operation.Attempting || r.op.Current() != ref.Number || r.until <= c.now {
			lost = append(lost, ref)
			continue
		}
		r.due = min(c.now+req.TTL, r.until)
	}
	return lost
}

// pick returns the records that are wanted, at most limit of them, by when they are due.
func (c *opCore) pick(limit int, wanted func(*record) bool) []*record {
	all := slices.DeleteFunc(slices.Collect(maps.Values(c.records)), func(r *record) bool { return !wanted(r) })
	slices.SortFunc(all, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.submission, b.submission))
	})
	return all[:min(len(all), limit)]
}

func (c *opCore) expire(limit int) int {
	over := c.pick(limit, func(r *record) bool { return c.step(r) == operation.Watch && r.due <= c.now })
	for _, r := range over {
		next, err := r.op.Report(r.op.Current(), operation.Answer{Known: operation.NoAnswer, Reason: "its claim expired"})
		r.due = c.now
		_ = c.move(r, next, err) // it is the current attempt, and open
	}
	return len(over)
}

func (c *opCore) dueNow(req operation.DueRequest) []operation.Record {
	found := []operation.Record{}
	for _, r := range c.pick(req.Limit, func(r *record) bool {
		s := c.step(r)
		return (s == operation.Ask || s == operation.Undo) && r.due <= c.now && slices.Contains(req.Kinds, r.op.Kind)
	}) {
		if c.step(r) == operation.Ask {
			r.inquiries++
		}
		r.due = c.now + req.Hold
		found = append(found, c.tell(r, true))
	}
	return found
}

func (c *opCore) inquired(r *record, inq operation.Inquiry) error {
	inq.Finding = inq.Of(r.op.Current())
	if inq.Finding == operation.PastInstant && !r.op.NotAfter.IsZero() && c.now < r.notAfter {
		return &operation.InvalidError{Field: "finding", Problem: "the instant has not passed by the store's clock"}
	}
	next, err := r.op.Inquired(inq.Finding, clone(inq.Result), inq.Reason)
	if next != nil && !next.State.Decided() && c.step(r) == operation.Ask {
		r.due = c.now + inq.AskIn
	}
	return c.evidence(r, next, err)
}

func (c *opCore) undone(r *record, compensation string) error {
	other := c.records[compensation]
	switch {
	case other == nil:
		return &operation.NotFoundError{ID: compensation}
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

func (c *opCore) list(req operation.ListRequest) []operation.Record {
	found := []operation.Record{}
	for _, id := range slices.Sorted(maps.Keys(c.records)) {
		r := c.records[id]
		if id <= req.After || !strings.HasPrefix(id, req.Prefix) || req.Kind != "" && r.op.Kind != req.Kind || len(req.States) > 0 && !slices.Contains(req.States, r.op.State) ||
			req.Conflicts && r.conflicts == 0 || req.Wished && (!r.op.CancelWished || r.op.State == operation.Failed || r.op.State == operation.Cancelled || c.isUndone(r)) {
			continue
		}
		if found = append(found, c.tell(r, req.Bodies)); len(found) == req.Limit {
			break
		}
	}
	return found
}

// isUndone reports whether an operation has a compensation that has not come to nothing.
func (c *opCore) isUndone(r *record) bool {
	by := c.records[r.undoneBy]
	return r.undoneBy != "" && (by == nil || by.op.State != operation.Failed && by.op.State != operation.Cancelled)
}

// prune handles each operation once: the last stage that it has reached.
func (c *opCore) prune(req operation.PruneRequest) (p operation.Pruned) {
	for _, id := range slices.Sorted(maps.Keys(c.records)) {
		r := c.records[id]
		if !r.op.State.Decided() || c.step(r) != operation.Idle || c.undoing(r) {
			continue
		}
		reached := func(age time.Duration) bool { return age > 0 && c.now-r.decided >= age }
		switch {
		case reached(req.Forget):
			delete(c.records, id)
			p.Forgotten++
		case reached(req.Records) && r.kept < operation.VerdictOnly:
			*r = record{op: &operation.Operation{ID: id, Kind: r.op.Kind, Fingerprint: r.op.Fingerprint, State: r.op.State}, submission: r.submission, created: r.created,
				decided: r.decided, due: r.due, againUntil: -1, conflicts: r.conflicts, kept: operation.VerdictOnly}
			p.Records++
		case reached(req.Bodies) && r.kept < operation.WithoutBodies:
			r.forgetBodies()
			p.Bodies++
		default:
			continue
		}
		if req.Limit--; req.Limit == 0 {
			break
		}
	}
	return p
}

// undoing reports whether r is the compensation of an operation by which that was not noted yet: forgotten, it would be submitted and done again.
func (c *opCore) undoing(r *record) bool {
	of := c.records[r.op.Compensates]
	return of != nil && c.step(of) == operation.Undo
}

func (r *record) forgetBodies() {
	next := *r.op
	next.Result, next.Attempts, next.Conflicts = nil, slices.Clone(next.Attempts), slices.Clone(next.Conflicts)
	for i := range next.Attempts {
		next.Attempts[i].Result = nil
	}
	for i := range next.Conflicts {
		next.Conflicts[i].Result = nil
	}
	r.op, r.request, r.kept = &next, nil, operation.WithoutBodies
}

func (c *opCore) stats() []operation.Stat {
	type key struct {
		kind  string
		state operation.State
	}
	counts := map[key]*operation.Stat{}
	for _, r := range c.records {
		k := key{kind: r.op.Kind, state: r.op.State}
		if k.state.Decided() {
			if k.state = 0; r.conflicts == 0 {
				continue
			}
		}
		s := counts[k]
		if s == nil {
			s = &operation.Stat{Kind: k.kind, State: k.state}
			counts[k] = s
		}
		s.Count++
		s.Oldest = max(s.Oldest, c.now-r.created)
		if k.state == operation.Uncertain && c.step(r) == operation.Idle {
			s.Stuck++
		}
	}
	all := []operation.Stat{}
	for _, s := range counts {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b operation.Stat) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	})
	return all
}

// tell copies what may be told of a record.
func (c *opCore) tell(r *record, bodies bool) operation.Record {
	op := *r.op
	op.Result, op.Attempts, op.Conflicts = clone(op.Result), slices.Clone(op.Attempts), slices.Clone(op.Conflicts)
	for i := range op.Attempts {
		a := &op.Attempts[i]
		a.Result = clone(a.Result)
		if a.Began = c.now - a.Began; a.Known == operation.Open {
			a.Ended = 0
		} else {
			a.Ended = c.now - a.Ended
		}
		if !bodies {
			a.Result = nil
		}
	}
	for i := range op.Conflicts {
		if op.Conflicts[i].Result = clone(op.Conflicts[i].Result); !bodies {
			op.Conflicts[i].Result = nil
		}
	}
	told := operation.Record{
		Operation: op, Priority: r.priority, Order: r.order, Step: c.step(r), Blocked: c.blocked(r), Age: c.now - r.created, Kept: r.kept, Inquiries: r.inquiries,
		ConflictCount: r.conflicts, UndoneBy: r.undoneBy,
	}
	if told.Step != operation.Idle {
		told.StepIn = max(r.due-c.now, 0)
	}
	if op.State.Decided() {
		told.Decided = c.now - r.decided
	}
	if bodies {
		told.Request = clone(r.request)
	} else {
		told.Result = nil
	}
	return told
}
