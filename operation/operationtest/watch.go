package operationtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// watch is the harness's store, and checks each reply for what must hold whatever the case is about. It is safe for concurrent use.
type watch struct {
	h Harness

	mu      sync.Mutex
	known   map[string]operation.Record // the latest that was told of each
	numbers map[fence.Token]string      // of every attempt that was told of, to its operation
	claimed map[fence.Token]bool        // what a claim has returned
	highest fence.Token
	faults  []error
}

func newWatch(h Harness) *watch {
	return &watch{h: h, known: map[string]operation.Record{}, numbers: map[fence.Token]string{}, claimed: map[fence.Token]bool{}}
}

// maxFaults bounds what one run reports.
const maxFaults = 5

func (w *watch) faultLocked(format string, args ...any) {
	if len(w.faults) < maxFaults {
		w.faults = append(w.faults, fmt.Errorf(format, args...))
	}
}

// before is what had been told when a call began: a reply may not be older.
func (w *watch) before() (map[string]operation.Record, fence.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.known), w.highest
}

// told checks a record against what had been told before its call began.
func (w *watch) told(before map[string]operation.Record, rec operation.Record, bodies bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := CheckRecord(rec); err != nil {
		w.faultLocked("%w", err)
	}
	if !bodies && holdsBodies(rec) {
		w.faultLocked("%q was listed with its bodies, and nobody asked for them", rec.ID)
	}
	if was, ok := before[rec.ID]; ok {
		if err := follows(was, rec, bodies); err != nil {
			w.faultLocked("%q: %w\n  before: %+v\n  now:    %+v", rec.ID, err, was, rec)
		}
	}
	for _, a := range rec.Attempts {
		w.numberLocked(a.Number, rec.ID)
	}
	if now := w.known[rec.ID]; !now.State.Decided() || rec.State.Decided() && rec.Kept >= now.Kept {
		if bodies {
			w.known[rec.ID] = rec
		}
	}
}

func (w *watch) numberLocked(number fence.Token, id string) {
	if other, ok := w.numbers[number]; ok && other != id {
		w.faultLocked("attempt %d is of %q and of %q: a number was given out twice", number, other, id)
	}
	w.numbers[number] = id
}

// CheckRecord demands what must hold of every record, whatever came before: the state agrees with the attempts and with the step, and numbers rise.
func CheckRecord(rec operation.Record) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%q is %v and %w: %+v", rec.ID, rec.State, fmt.Errorf(format, args...), rec)
	}
	steps := map[operation.State][]operation.Step{
		operation.Pending: {operation.Work}, operation.Attempting: {operation.Watch}, operation.Uncertain: {operation.Work, operation.Ask, operation.Idle},
		operation.Succeeded: {operation.Idle, operation.Undo}, operation.Failed: {operation.Idle}, operation.Cancelled: {operation.Idle},
	}
	var open, unsure int
	var last fence.Token
	for _, a := range rec.Attempts {
		if a.Number <= last {
			return wrong("its attempt %d comes after %d", a.Number, last)
		}
		last = a.Number
		switch a.Known {
		case operation.Open:
			open++
			unsure++
		case operation.NoAnswer, operation.Effective:
			unsure++
		case operation.NotSent, operation.Refused:
		default:
			return wrong("of its attempt %d is known %v", a.Number, a.Known)
		}
		if a.Began < 0 || a.Ended < 0 || a.Ended > a.Began || a.Known == operation.Open && a.Ended != 0 {
			return wrong("its attempt %d began %v ago and ended %v ago", a.Number, a.Began, a.Ended)
		}
	}
	decided := rec.State.Decided()
	switch {
	case !slices.Contains(steps[rec.State], rec.Step):
		return wrong("its step is %v", rec.Step)
	case rec.Step == operation.Undo && (!rec.CancelWished || rec.UndoneBy != ""):
		return wrong("it is to be undone, though nobody wished for that or it was")
	case rec.State == operation.Attempting && (open != 1 || rec.Attempts[len(rec.Attempts)-1].Known != operation.Open):
		return wrong("its latest attempt is not the one that is open")
	case !decided && rec.State != operation.Attempting && open > 0:
		return wrong("an attempt is open")
	case rec.State == operation.Pending && unsure > 0:
		return wrong("an attempt may have had an effect")
	case rec.State == operation.Uncertain && unsure == 0:
		return wrong("no attempt can have had an effect")
	case rec.Age < 0 || rec.StepIn < 0 || rec.Decided < 0 || rec.Decided > rec.Age || !decided && rec.Decided != 0:
		return wrong("its age is %v, since its decision %v, until its step %v", rec.Age, rec.Decided, rec.StepIn)
	case !decided && (len(rec.Conflicts) > 0 || rec.ConflictCount > 0):
		return wrong("has conflicts with a decision that there is not")
	case len(rec.Conflicts) > rec.ConflictCount || len(rec.Conflicts) > operation.MaxConflicts:
		return wrong("%d conflicts are kept, of %d", len(rec.Conflicts), rec.ConflictCount)
	case rec.Kept < operation.Whole || rec.Kept > operation.VerdictOnly || !decided && rec.Kept != operation.Whole:
		return wrong("what is kept of it is %d", rec.Kept)
	case decided && rec.Blocked:
		return wrong("blocked")
	}
	return nil
}

func holdsBodies(rec operation.Record) bool {
	if len(rec.Request) > 0 || len(rec.Result) > 0 {
		return true
	}
	return slices.ContainsFunc(rec.Attempts, func(a operation.Attempt) bool { return len(a.Result) > 0 }) ||
		slices.ContainsFunc(rec.Conflicts, func(c operation.Conflict) bool { return len(c.Result) > 0 })
}

// follows demands that a later record takes nothing back.
func follows(was, now operation.Record, bodies bool) error {
	switch {
	case was.Kind != now.Kind || was.Fingerprint != now.Fingerprint:
		return errors.New("its kind or its fingerprint changed")
	case was.State.Decided() && was.State != now.State:
		return fmt.Errorf("it was %v and is %v: a decision changed", was.State, now.State)
	case now.Kept < was.Kept || now.ConflictCount < was.ConflictCount:
		return errors.New("what was forgotten is known again, or a conflict is not")
	case now.Kept == operation.VerdictOnly:
		return nil
	case bodies && was.State.Decided() && now.Kept == was.Kept && string(was.Result) != string(now.Result):
		return fmt.Errorf("its result was %q and is %q: a decision changed", was.Result, now.Result)
	case was.CancelWished && !now.CancelWished || was.UndoneBy != "" && was.UndoneBy != now.UndoneBy:
		return errors.New("a wish, or that it was undone, was forgotten")
	case was.Priority != now.Priority || was.Order != now.Order || was.Compensates != now.Compensates:
		return errors.New("its priority, order or what it compensates changed")
	case len(now.Attempts) < len(was.Attempts) || len(now.Conflicts) < len(was.Conflicts):
		return errors.New("attempts or conflicts are missing")
	}
	for i, a := range was.Attempts {
		b := now.Attempts[i]
		switch {
		case a.Number != b.Number || a.Worker != b.Worker:
			return fmt.Errorf("attempt %d was erased", a.Number)
		case a.Known != b.Known && a.Known != operation.Open && b.Known != operation.Effective && (a.Known != operation.NoAnswer || b.Known == operation.Open):
			return fmt.Errorf("of attempt %d was known %v, and now less: %v", a.Number, a.Known, b.Known)
		}
	}
	return nil
}

// finish lists all that there is, checks it, and asks the harness to check its store.
func (w *watch) finish(ctx context.Context) error {
	var after string
	for {
		page, err := w.List(ctx, operation.ListRequest{After: after, Limit: operation.MaxList, Bodies: true})
		if err != nil {
			return fmt.Errorf("listing all at the end: %w", err)
		}
		if len(page) < operation.MaxList {
			break
		}
		after = page[len(page)-1].ID
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(errors.Join(w.faults...), w.h.Check(ctx))
}

// one passes the reply about one operation on.
func (w *watch) one(call func() (operation.Record, error)) (operation.Record, error) {
	before, _ := w.before()
	rec, err := call()
	if rec.ID != "" {
		w.told(before, rec, true)
	}
	return rec, err
}

func (w *watch) many(bodies bool, call func() ([]operation.Record, error)) ([]operation.Record, error) {
	before, _ := w.before()
	all, err := call()
	for _, rec := range all {
		w.told(before, rec, bodies)
	}
	return all, err
}

func (w *watch) Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
	before, _ := w.before()
	sub, err := w.h.Store().Submit(ctx, req)
	if err == nil {
		w.told(before, sub.Record, true)
	}
	return sub, err
}

func (w *watch) Get(ctx context.Context, id string) (operation.Record, error) {
	return w.one(func() (operation.Record, error) { return w.h.Store().Get(ctx, id) })
}

func (w *watch) Cancel(ctx context.Context, id, reason string) (operation.Record, error) {
	return w.one(func() (operation.Record, error) { return w.h.Store().Cancel(ctx, id, reason) })
}

func (w *watch) Respond(ctx context.Context, resp operation.Response) (operation.Record, error) {
	return w.one(func() (operation.Record, error) { return w.h.Store().Respond(ctx, resp) })
}

func (w *watch) Guarantees() operation.Guarantees { return w.h.Store().Guarantees() }

func (w *watch) Claim(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
	_, highest := w.before()
	jobs, err := w.h.Store().Claim(ctx, req)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && len(jobs) > req.Limit {
		w.faultLocked("%d operations were claimed, with a limit of %d", len(jobs), req.Limit)
	}
	ids := map[string]bool{}
	for _, j := range jobs {
		if j.Number <= highest {
			w.faultLocked("%q was claimed as attempt %d, after %d had been given out", j.ID, j.Number, highest)
		}
		if w.claimed[j.Number] {
			w.faultLocked("%q was claimed as attempt %d, which was claimed before", j.ID, j.Number)
		}
		w.claimed[j.Number] = true
		if ids[j.ID] {
			w.faultLocked("%q was claimed twice in one claim", j.ID)
		}
		ids[j.ID] = true
		w.numberLocked(j.Number, j.ID)
		w.jobLocked(req, j)
	}
	for _, j := range jobs {
		w.highest = max(w.highest, j.Number)
	}
	return jobs, err
}

func (w *watch) jobLocked(req operation.ClaimRequest, j operation.Job) {
	i := slices.IndexFunc(req.Kinds, func(k operation.KindClaim) bool { return k.Kind == j.Kind })
	if i < 0 {
		w.faultLocked("%q of kind %q was claimed by a worker that does not know it", j.ID, j.Kind)
		return
	}
	if j.Remaining <= 0 || j.Remaining > req.TTL || j.TimeLeft <= 0 || j.TimeLeft > req.Kinds[i].Timeout || j.Remaining > j.TimeLeft || j.Ordinal < 1 {
		w.faultLocked("the claim of %q for %v, its attempt for %v: %+v", j.ID, req.TTL, req.Kinds[i].Timeout, j)
	}
}

func (w *watch) Renew(ctx context.Context, req operation.RenewRequest) ([]operation.Ref, error) {
	return w.h.Store().Renew(ctx, req)
}

func (w *watch) Complete(ctx context.Context, all []operation.Completion) ([]error, error) {
	errs, err := w.h.Store().Complete(ctx, all)
	if err == nil && len(errs) != len(all) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.faultLocked("%d completions were answered by %d errors", len(all), len(errs))
		return make([]error, len(all)), err
	}
	return errs, err
}

func (w *watch) Expire(ctx context.Context, limit int) (int, error) {
	return w.h.Store().Expire(ctx, limit)
}

func (w *watch) Due(ctx context.Context, req operation.DueRequest) ([]operation.Record, error) {
	return w.many(true, func() ([]operation.Record, error) { return w.h.Store().Due(ctx, req) })
}

func (w *watch) Inquired(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
	return w.one(func() (operation.Record, error) { return w.h.Store().Inquired(ctx, inq) })
}

func (w *watch) Undone(ctx context.Context, id, compensation string) (operation.Record, error) {
	return w.one(func() (operation.Record, error) { return w.h.Store().Undone(ctx, id, compensation) })
}

func (w *watch) List(ctx context.Context, req operation.ListRequest) ([]operation.Record, error) {
	all, err := w.many(req.Bodies, func() ([]operation.Record, error) { return w.h.Store().List(ctx, req) })
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && len(all) > req.Limit {
		w.faultLocked("%d operations were listed, with a limit of %d", len(all), req.Limit)
	}
	last := req.After
	for _, rec := range all {
		if rec.ID <= last {
			w.faultLocked("%q is listed after %q", rec.ID, last)
		}
		last = rec.ID
	}
	return all, err
}

func (w *watch) Resolve(ctx context.Context, v operation.Verdict) (operation.Record, error) {
	return w.one(func() (operation.Record, error) { return w.h.Store().Resolve(ctx, v) })
}

func (w *watch) Prune(ctx context.Context, req operation.PruneRequest) (operation.Pruned, error) {
	p, err := w.h.Store().Prune(ctx, req)
	if p.Forgotten > 0 { // an id that comes again is a new operation
		w.mu.Lock()
		defer w.mu.Unlock()
		clear(w.known)
		clear(w.numbers)
	}
	return p, err
}

func (w *watch) Stats(ctx context.Context) ([]operation.Stat, error) { return w.h.Store().Stats(ctx) }
