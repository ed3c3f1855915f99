package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

const (
	reportFirst = 10 * time.Millisecond // between two tries to record, doubling up to failMost
	reportBytes = 8 << 20               // of results in one call
	slowMost    = 3                     // failures of one call, before it is made in parts
	lateMost    = 30 * time.Second      // for recording what an abandoned handler returns
)

// report records what has ended: whatever waits, in one call, and while that is on its way the next gathers.
func (w *Worker) report(ctx context.Context) {
	for {
		batch := w.takeReports()
		if len(batch) > 0 {
			w.complete(ctx, batch)
			continue
		}
		select {
		case <-w.toTell:
		case <-ctx.Done():
			return
		}
	}
}

// takeReports takes as many reports as one call may carry.
func (w *Worker) takeReports() []*task {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, size := 0, 0
	for n < len(w.reports) && n < operation.MaxBatch && (n == 0 || size+len(w.reports[n].report.Result) <= reportBytes) {
		size += len(w.reports[n].report.Result)
		n++
	}
	batch := w.reports[:n:n]
	if w.reports = w.reports[n:]; len(w.reports) == 0 {
		w.reports = nil
	}
	return batch
}

// complete asks until it is known what became of the reports, or ctx ends. What fails again and again, and not because the store is away, is asked in parts: all of it may be more than the store can record within a call. Asking again does no harm: a report that was recorded is stale, and as evidence it agrees with the record.
func (w *Worker) complete(ctx context.Context, batch []*task) {
	all := make([]operation.Completion, len(batch))
	for i, t := range batch {
		all[i] = t.report
	}
	failed, slow := false, 0
	for pause := reportFirst; ; pause = min(2*pause, failMost) {
		call, cancel := context.WithTimeout(ctx, callMost)
		errs, err := w.source.Complete(call, all)
		cancel()
		if err == nil && len(errs) != len(all) {
			err = fmt.Errorf("the store answered %d of %d reports", len(errs), len(all))
		}
		switch {
		case err == nil:
			if failed {
				w.o.Logger.Info("worker: reports are recorded again")
			}
			w.recorded(batch, errs)
			return
		case (errors.Is(err, operation.ErrInvalid) || slow >= slowMost) && len(batch) > 1: // strangers share no fate
			w.complete(ctx, batch[:len(batch)/2])
			w.complete(ctx, batch[len(batch)/2:])
			return
		case errors.Is(err, operation.ErrInvalid):
			w.recorded(batch, []error{err})
			return
		}
		if !failed {
			w.o.Logger.Warn("worker: recording reports failed; asking again", "reports", len(all), "err", err)
		}
		failed = true
		if !errors.Is(err, operation.ErrUnavailable) {
			slow++
			for _, t := range batch {
				t.again = true
			}
		}
		if !sleep(ctx, around(pause)) {
			return
		}
	}
}

// recorded takes in the answers to reports.
func (w *Worker) recorded(batch []*task, errs []error) {
	w.mu.Lock()
	for i, t := range batch {
		w.recordedLocked(t, errs[i])
	}
	w.mu.Unlock()
	poke(w.freed)
	poke(w.changed)
	if w.o.OnAttempt == nil {
		return
	}
	for i, t := range batch {
		if !errors.Is(errs[i], operation.ErrInvalid) {
			w.tell(t, errs[i])
		}
	}
}

func (w *Worker) recordedLocked(t *task, err error) {
	k := t.kind
	switch {
	case err == nil:
		k.countLocked(t.report.Known)
	case errors.Is(err, operation.ErrStale):
		if !t.again {
			k.stats.Stale++
			w.o.Logger.Warn("worker: the report of an attempt is stale; what it learned is evidence", "kind", k.e.name, "id", t.report.ID, "attempt", t.report.Number, "known", t.report.Known.String(), "err", err)
		}
		if t.again && t.report.Known == operation.NoAnswer {
			k.countLocked(operation.NoAnswer)
		}
		if t.report.Known != operation.NoAnswer { // which says nothing
			w.evidence = append(w.evidence, t)
			poke(w.toProve)
			return
		}
	case errors.Is(err, operation.ErrInvalid) && !t.bare: // once more, without what may be wrong with it
		w.o.Logger.Error("worker: the store refused the report of an attempt; it is reported without its body", "kind", k.e.name, "id", t.report.ID, "attempt", t.report.Number, "err", err)
		t.bare = true
		t.report.Result, t.report.Reason, t.report.RetryIn = nil, operation.Cut("its report was refused: "+err.Error()), k.e.base
		w.reports = append(w.reports, t)
		poke(w.toTell)
		return
	default:
		w.o.Logger.Error("worker: the report of an attempt cannot be recorded", "kind", k.e.name, "id", t.report.ID, "attempt", t.report.Number, "known", t.report.Known.String(), "err", err)
	}
	w.unreported--
}

// prove records as evidence what stale attempts have learned.
func (w *Worker) prove(ctx context.Context) {
	for {
		w.mu.Lock()
		var t *task
		if len(w.evidence) > 0 {
			t = w.evidence[0]
			w.evidence = w.evidence[1:]
		}
		w.mu.Unlock()
		if t == nil {
			select {
			case <-w.toProve:
				continue
			case <-ctx.Done():
				return
			}
		}
		if w.respond(ctx, t) {
			w.mu.Lock()
			w.unreported--
			w.mu.Unlock()
			poke(w.freed)
			poke(w.changed)
		}
	}
}

// respond asks until the evidence is recorded, and reports whether it was, rather than ctx ending first.
func (w *Worker) respond(ctx context.Context, t *task) bool {
	resp := operation.Response{ID: t.report.ID, Number: t.report.Number, Answer: t.report.Answer}
	for pause := reportFirst; ; pause = min(2*pause, failMost) {
		call, cancel := context.WithTimeout(ctx, callMost)
		rec, err := w.source.Respond(call, resp)
		cancel()
		stale := errors.Is(err, operation.ErrStale) || errors.Is(err, operation.ErrDecided)
		switch {
		case err == nil || stale:
			w.proved(ctx, t, rec, stale)
			return true
		case errors.Is(err, operation.ErrInvalid) || errors.Is(err, operation.ErrNotFound):
			w.o.Logger.ErrorContext(ctx, "worker: evidence cannot be recorded", "id", resp.ID, "attempt", resp.Number, "known", resp.Known.String(), "err", err)
			return true
		}
		if !sleep(ctx, around(pause)) {
			return false
		}
	}
}

// proved takes in what the record says after the evidence.
func (w *Worker) proved(ctx context.Context, t *task, rec operation.Record, stale bool) {
	w.mu.Lock()
	switch {
	case !stale && t.again: // it had been recorded at the first call
		t.kind.countLocked(t.report.Known)
	default:
		w.stats.Evidence++
	}
	conflict := stale && rec.State.Decided() && contradicts(rec, t.report.Number)
	if conflict {
		w.stats.Conflicts++
	}
	w.mu.Unlock()
	if !conflict {
		return
	}
	w.o.Logger.ErrorContext(ctx, "worker: what an attempt has learned contradicts the decision; the decision stays", "kind", t.kind.e.name, "id", rec.ID, "attempt", t.report.Number, "state", rec.State.String(), "known", t.report.Known.String())
	if w.o.OnConflict != nil {
		w.o.OnConflict(rec)
	}
}

// contradicts reports whether a conflict of that attempt is among those that are kept, or may be among the others.
func contradicts(rec operation.Record, number fence.Token) bool {
	return rec.ConflictCount > len(rec.Conflicts) || slices.ContainsFunc(rec.Conflicts, func(c operation.Conflict) bool { return c.Attempt == number })
}

// late records what an abandoned handler has returned after all, on that handler's own goroutine.
func (w *Worker) late(t *task, answer operation.Answer) {
	w.o.Logger.Warn("worker: an abandoned handler has returned", "kind", t.kind.e.name, "id", t.attempt.job.ID, "attempt", t.attempt.job.Number, "known", answer.Known.String())
	if answer.Known == operation.NoAnswer {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.hard), lateMost)
	defer cancel()
	own := &task{kind: t.kind, report: operation.Completion{Ref: t.attempt.job.Ref, Answer: answer}}
	if !w.respond(ctx, own) {
		w.o.Logger.Error("worker: what an abandoned handler returned was not recorded", "kind", t.kind.e.name, "id", t.attempt.job.ID, "attempt", t.attempt.job.Number, "known", answer.Known.String())
	}
}
