package worker

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-go/tenure/operation"
)

const (
	pollFirst     = 10 * time.Millisecond  // between two looks for work, doubling
	failMost      = 5 * time.Second        // between two after the store has failed
	callMost      = 10 * time.Second       // for one call to the store
	prefetchAhead = 100 * time.Millisecond // as much is fetched ahead as is begun in that time
)

// claim looks for work until ctx ends: at once where there is room and the last look found as much as there was room for, otherwise after a pause that doubles up to Options.Poll, or on [Worker.Wake].
func (w *Worker) claim(ctx context.Context) {
	pause := pollFirst
	timer := time.NewTimer(w.o.Poll)
	defer timer.Stop()
	due := true // the pause is over
	for ctx.Err() == nil {
		req := w.room(due)
		if len(req.Kinds) > 0 {
			n, err := w.claimOnce(ctx, req)
			switch {
			case err != nil:
				pause = min(2*pause, failMost)
			case n == 0:
				pause = min(2*pause, w.o.Poll)
			default:
				pause = pollFirst
			}
			if err != nil {
				w.dryAll()
			}
			if due || err != nil {
				timer.Reset(around(pause))
				due = false
			}
			if err == nil && n > 0 {
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
			due = true
		case <-w.hint:
			due, pause = true, pollFirst
		case <-w.freed:
		}
	}
}

// room is what may be claimed now: of the kinds that have room, those that were not found dry, or all where a look is due.
func (w *Worker) room(due bool) operation.ClaimRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	req := operation.ClaimRequest{Worker: w.o.Label, TTL: w.o.TTL}
	if w.unreported >= maxUnreported {
		return req
	}
	for _, k := range w.kinds {
		free := k.freeLocked(w.o.Prefetch)
		if free < 1 || k.dry && !due || len(k.queue) > k.low && !due { // many small claims cost more than one
			continue
		}
		c := w.o.claimed(k.e)
		c.Limit = free
		req.Kinds = append(req.Kinds, c)
		req.Limit += free
	}
	req.Limit = min(req.Limit, operation.MaxBatch)
	return req
}

// freeLocked is how many more of the kind may be here.
func (k *kindState) freeLocked(prefetch int) int {
	if k.abandoned >= k.limit {
		return 0
	}
	ahead := 0
	if k.took > 0 {
		ahead = int(min(int64(prefetch), int64(k.e.concurrency)*int64(prefetchAhead)/int64(k.took)))
	}
	if k.e.window == 0 { // of each that a killed worker had here, somebody has to be asked what became of it
		ahead = min(ahead, k.e.concurrency)
	}
	k.low = ahead / 2
	return min(k.e.concurrency+ahead-k.running-len(k.queue), operation.MaxBatch)
}

// claimOnce asks once, and hands what it got to the slots. Its call is not ended by ctx: what is claimed in a call whose reply nobody awaits is uncertain.
func (w *Worker) claimOnce(ctx context.Context, req operation.ClaimRequest) (int, error) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(callMost, w.o.TTL))
	defer cancel()
	sent := w.o.Clock()
	jobs, err := w.source.Claim(call, req)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if !w.down {
			w.o.Logger.Warn("worker: claiming failed; asking again", "err", err, "unknown", errors.Is(err, operation.ErrUnknown))
		}
		w.down = true
		w.stats.FailedClaims++
		return 0, err
	}
	if w.down {
		w.o.Logger.Info("worker: claiming again")
	}
	w.down = false
	w.stopping = w.stopping || ctx.Err() != nil
	w.takeLocked(sent, req, jobs)
	return len(jobs), nil
}

// dryAll lets the next look wait for the pause.
func (w *Worker) dryAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.kinds {
		k.dry = true
	}
}

// takeLocked takes in what was claimed, and begins what has a slot.
func (w *Worker) takeLocked(sent time.Duration, req operation.ClaimRequest, jobs []operation.Job) {
	got := map[string]int{}
	all := make([]task, len(jobs))
	for i := range jobs {
		k := w.byName[jobs[i].Kind]
		if k == nil { // no kind that was asked for: a store that answers something else is not believed
			w.o.Logger.Error("worker: a claim of a kind that was not asked for is left to expire", "kind", jobs[i].Kind, "id", jobs[i].ID)
			continue
		}
		t := &all[i]
		t.attempt.job, t.attempt.entry, t.kind, t.state = jobs[i], k.e, k, waiting
		t.queued, t.renewed = sent, sent
		t.until = sent + jobs[i].TimeLeft - w.o.Margin
		t.deadline = min(sent+min(jobs[i].Remaining, w.o.TTL)-w.o.Margin, t.until)
		t.at = len(w.tasks)
		w.tasks = append(w.tasks, t)
		k.queue = append(k.queue, t)
		k.stats.Claimed++
		got[jobs[i].Kind]++
	}
	for _, c := range req.Kinds {
		k := w.byName[c.Kind]
		k.dry = got[c.Kind] < c.Limit && len(jobs) < req.Limit
		w.fillLocked(k)
	}
}

// fillLocked begins what waits, as far as there are slots.
func (w *Worker) fillLocked(k *kindState) {
	for k.running < k.e.concurrency {
		t := w.nextLocked(k)
		if t == nil {
			return
		}
		k.running++
		w.running++
		go w.slot(k, t)
	}
}

// nextLocked takes the next operation that can begin in time. What cannot is given back.
func (w *Worker) nextLocked(k *kindState) *task {
	for len(k.queue) > 0 {
		t := k.queue[0]
		k.queue[0] = nil
		if k.queue = k.queue[1:]; len(k.queue) == 0 {
			k.queue = nil
		}
		now := w.o.Clock()
		if w.stopping || !w.inTime(t, now) {
			w.waitedLocked(t, now)
			continue
		}
		w.beginLocked(t, now)
		return t
	}
	return nil
}

// inTime reports whether an attempt may begin: its claim is believed in, and it has not waited for so long that its timeout would end after its claim does.
func (w *Worker) inTime(t *task, now time.Duration) bool {
	return !t.lost && now < t.deadline && now-t.queued <= w.o.queueMost() && now < t.until
}

// waitedLocked gives back what has waited for a slot for too long. The kind has become slow, although none of its attempts has ended to tell so: less is fetched ahead, or the same would be fetched and given back again and again.
func (w *Worker) waitedLocked(t *task, now time.Duration) {
	t.kind.took = max(t.kind.took, now-t.queued)
	w.giveBackLocked(t, "it waited for a slot for too long")
}

// giveBackLocked reports what never began, and is not in its kind's queue any more.
func (w *Worker) giveBackLocked(t *task, why string) {
	w.stats.GivenBack++
	w.reportLocked(t, operation.Answer{Known: operation.NotSent, Reason: why}, 0)
}
