package worker

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// watch ends the contexts of attempts whose claims or timeouts are over, also where Go's timers have slept with the machine, abandons handlers that do not return, and gives back what waits for a slot too long. It never
// calls the store.
func (w *Worker) watch(ctx context.Context) {
	tick := max(min(w.o.Margin/2, w.o.queueMost()/2), leastPause)
	for sleep(ctx, tick) {
		w.look()
	}
}

func (w *Worker) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.o.Clock()
	for _, k := range w.kinds {
		w.lookAtQueueLocked(k, now)
	}
	oldest := time.Duration(0)
	for i := len(w.tasks) - 1; i >= 0; i-- { // from the end: an abandoned one is taken out
		t := w.tasks[i]
		oldest = max(oldest, now-t.queued)
		if t.state != running {
			continue
		}
		stopped := w.hard.Err() != nil
		switch {
		case t.cut > 0:
		case now >= t.deadline && t.deadline < t.until || t.lost:
			w.stats.LostClaims++
			w.o.Logger.Warn("worker: the claim of a running attempt is lost", "kind", t.kind.e.name, "id", t.attempt.job.ID, "attempt", t.attempt.job.Number, "told", t.lost)
			t.endLocked(now, &ClaimLostError{Told: t.lost})
		case now >= t.stop:
			t.endLocked(now, timeoutError{})
		case stopped:
			t.endLocked(now, ErrStopped)
		}
		if t.cut > 0 && now-t.cut >= w.o.Grace {
			w.abandonLocked(t, "its handler did not return after its context had ended")
			w.leaveLocked(t.kind)
			w.fillLocked(t.kind)
		}
	}
	w.stats.Oldest = oldest
}

// endLocked ends the attempt's context.
func (t *task) endLocked(now time.Duration, cause error) {
	t.cut = now
	if t.cancel != nil {
		t.cancel(cause)
	}
}

func (w *Worker) lookAtQueueLocked(k *kindState, now time.Duration) {
	kept := k.queue[:0]
	for _, t := range k.queue {
		switch {
		case !w.inTime(t, now):
			w.waitedLocked(t, now)
		default:
			kept = append(kept, t)
		}
	}
	clear(k.queue[len(kept):])
	k.queue = kept
}

// abandonLocked reports an attempt whose handler has not returned. The caller gives its slot to another.
func (w *Worker) abandonLocked(t *task, why string) {
	k := t.kind
	t.given = true
	k.abandoned++
	w.stats.Abandoned++
	w.stats.EverAbandoned++
	w.o.Logger.Error("worker: a handler does not return although its context has ended; its attempt is reported as without an answer", "kind", k.e.name, "id", t.attempt.job.ID, "attempt", t.attempt.job.Number, "abandoned", k.abandoned)
	if k.abandoned >= k.limit && !k.full {
		k.full = true
		w.o.Logger.Error("worker: too many handlers of this kind do not return; it claims nothing more until one does", "kind", k.e.name, "abandoned", k.abandoned)
	}
	w.reportLocked(t, operation.Answer{Known: operation.NoAnswer, Reason: why}, k.e.retryIn(t.attempt.job.Ordinal, 0))
}

// abandonAll gives up all handlers that still run, at the end.
func (w *Worker) abandonAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.tasks) - 1; i >= 0; i-- {
		if t := w.tasks[i]; t.state == running {
			w.abandonLocked(t, "the worker stopped, and its handler had not returned")
			w.leaveLocked(t.kind)
		}
	}
}

// renew keeps the claims of what waits and runs: all that are due in one call.
func (w *Worker) renew(ctx context.Context) {
	every := w.o.TTL / 3
	failed := false
	for pause := every / 4; sleep(ctx, around(pause)); {
		all := w.dueForRenewal(every - every/4)
		for len(all) > 0 && ctx.Err() == nil {
			part := all[:min(len(all), operation.MaxBatch)]
			all = all[len(part):]
			err := w.renewOnce(ctx, part, every)
			if err != nil && !failed {
				w.o.Logger.Warn("worker: renewing claims failed; asking again until their deadlines", "claims", len(part), "err", err)
			}
			if failed = err != nil; failed {
				break // the others are due again at once
			}
		}
	}
}

// dueForRenewal are the claims that were last renewed that long ago.
func (w *Worker) dueForRenewal(age time.Duration) []*task {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.o.Clock()
	var all []*task
	for _, t := range w.tasks {
		if now-t.renewed >= age && t.cut == 0 && !t.lost && now < t.until {
			all = append(all, t)
		}
	}
	return all
}

// renewOnce asks for one batch of claims and takes in the reply. The deadlines count from before the call.
func (w *Worker) renewOnce(ctx context.Context, all []*task, most time.Duration) error {
	refs := make([]operation.Ref, len(all))
	at := make(map[operation.Ref]*task, len(all))
	for i, t := range all {
		refs[i] = t.attempt.job.Ref
		at[refs[i]] = t
	}
	call, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	sent := w.o.Clock()
	lost, err := w.source.Renew(call, operation.RenewRequest{Refs: refs, TTL: w.o.TTL})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.stats.FailedRenewals++
		return err
	}
	w.stats.Renewals++
	for _, ref := range lost {
		if t := at[ref]; t != nil {
			delete(at, ref)
			t.lost = t.state != reporting // one that was reported meanwhile is over for that reason
		}
	}
	for _, t := range at {
		if t.state != reporting && w.o.Clock() < t.deadline { // what is past it was ended, or is about to be
			t.renewed = sent
			t.deadline = max(t.deadline, min(sent+w.o.TTL-w.o.Margin, t.until))
		}
	}
	return nil
}
