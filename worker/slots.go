package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// beginLocked gives an operation its slot.
func (w *Worker) beginLocked(t *task, now time.Duration) {
	t.state = running
	t.began, t.waited = time.Now(), now-t.queued
	t.stop = min(now+t.kind.e.timeout, t.until)
	w.stats.Started++
}

// slot runs one attempt after the other, until nothing waits, or until it is left to an abandoned handler.
func (w *Worker) slot(k *kindState, t *task) {
	returned := false
	defer func() {
		if !returned { // the handler has ended the goroutine, which takes the slot with it
			w.mu.Lock()
			if !t.given {
				w.leaveLocked(k)
			}
			w.fillLocked(k)
			w.mu.Unlock()
		}
	}()
	for t != nil {
		if !w.attempt(t) {
			returned = true // it was abandoned, and its slot given to another
			return
		}
		w.mu.Lock()
		if t = w.nextLocked(k); t == nil {
			w.leaveLocked(k)
		}
		ready := len(k.queue) <= k.low
		w.mu.Unlock()
		if ready {
			poke(w.freed)
		}
	}
	returned = true
}

func (w *Worker) leaveLocked(k *kindState) {
	k.running--
	w.running--
	poke(w.freed)
	poke(w.changed)
}

// attempt runs one attempt, and reports what is known of it. It returns false if the attempt was abandoned meanwhile, so that the slot is another's.
func (w *Worker) attempt(t *task) bool {
	e := t.kind.e
	req, err := e.decode(t.attempt.job.Request)
	if err != nil { // nobody can do it, today or later, and nothing was sent
		return w.ended(t, operation.Answer{Known: operation.Refused, Final: true, Reason: e.reason((&undecodableError{"request", err}).Error())}, 0)
	}
	if !t.attempt.job.NotAfter.IsZero() && e.notAfter == 0 {
		reason := "earlier attempts carry an instant after which the provider refuses the effect, and this worker's handler has none: a version that has is to send it"
		return w.ended(t, operation.Answer{Known: operation.NotSent, Reason: reason}, e.retryIn(t.attempt.job.Ordinal, 0))
	}
	ctx, cancel := context.WithCancelCause(w.hard)
	defer cancel(nil)
	w.mu.Lock()
	t.cancel = cancel
	if t.cut > 0 { // before it came here
		cancel(timeoutError{})
	}
	total := t.stop - w.o.Clock()
	w.mu.Unlock()
	if e.lease != nil {
		var done func()
		if ctx, done, err = w.own(ctx, cancel, t, req); err != nil {
			return w.ended(t, operation.Answer{Known: operation.NotSent, Reason: e.reason(err.Error())}, e.heldFor(t, err))
		}
		defer done()
		total = t.stop - w.o.Clock()
	}
	b, err := budget.Start(ctx, max(total, 1), budget.Reserve(min(e.reserve, max(total, 1)/2)))
	if err != nil { // it has waited for its lease, or for a processor, for all of its time
		return w.ended(t, operation.Answer{Known: operation.NotSent, Reason: e.reason(err.Error())}, e.retryIn(t.attempt.job.Ordinal, 0))
	}
	defer b.End()
	t.attempt.budget = b
	answer, retryIn := w.run(b.Context(), t, req)
	return w.ended(t, answer, retryIn)
}

// run calls the handler. A panic is an answer that was not given, and so is the end of the goroutine, of which the deferred call tells.
func (w *Worker) run(ctx context.Context, t *task, req any) (answer operation.Answer, retryIn time.Duration) {
	e := t.kind.e
	returned := false
	defer func() {
		if returned {
			return
		}
		cause := recover()
		answer, retryIn = operation.Answer{Known: operation.NoAnswer}, e.retryIn(t.attempt.job.Ordinal, 0)
		if e.local {
			answer.Known = operation.Refused
		}
		answer.Reason = e.reason(fmt.Sprintf("the handler panicked: %v", cause))
		w.o.Logger.ErrorContext(ctx, "worker: a handler panicked", "kind", e.name, "id", t.attempt.job.ID, "attempt", t.attempt.job.Number, "panic", e.reason(fmt.Sprint(cause)), "stack", string(debug.Stack()))
		w.mu.Lock()
		t.panicked = t.state == running // else it was abandoned, and reported
		w.mu.Unlock()
		if cause == nil { // runtime.Goexit: nothing after this runs but deferred calls
			answer.Reason = e.reason("the handler ended its goroutine")
			w.ended(t, answer, retryIn)
		}
	}()
	res, err := e.perform(ctx, &t.attempt, req)
	answer, retryIn = t.attempt.outcome(res, err)
	returned = true
	return answer, retryIn
}

// own acquires the lease under which an attempt runs. The context that it returns ends with the lease; done releases it.
func (w *Worker) own(ctx context.Context, cancel context.CancelCauseFunc, t *task, req any) (under context.Context, done func(), err error) {
	name, err := leaseName(t.kind.e, req)
	if err != nil || name == "" {
		return ctx, func() {}, err
	}
	wait, stop := context.WithTimeout(ctx, min(callMost, w.o.TTL))
	defer stop()
	session, err := w.leases.get(wait)
	if err != nil {
		return ctx, nil, err
	}
	l, err := session.Acquire(wait, lease.Want{Names: []string{name}, Try: true})
	if err != nil {
		return ctx, nil, err
	}
	t.attempt.lease = l
	unhook := context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })
	return ctx, func() {
		unhook()
		if err := l.Release(context.WithoutCancel(ctx)); err != nil {
			w.o.Logger.WarnContext(ctx, "worker: the lease of an attempt was over, or its release is not confirmed", "kind", t.kind.e.name, "id", t.attempt.job.ID, "name", name, "err", err)
		}
	}, nil
}

// leaseName asks the handler, whose panic is an error: nothing was sent.
func leaseName(e *Entry, req any) (name string, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &InvalidError{fmt.Sprintf("the handler of %q", e.name), "lease", fmt.Sprintf("naming it panicked: %v", cause)}
		}
	}()
	return e.lease(req), nil
}

// heldFor is when an attempt that did not get its lease comes again: not before the holder's time would end, but soon enough where it is released before.
func (e *Entry) heldFor(t *task, err error) time.Duration {
	pause := e.retryIn(t.attempt.job.Ordinal, 0)
	var held *lease.HeldError
	if errors.As(err, &held) {
		return min(max(pause, min(held.Left, e.base)), operation.MaxDelay)
	}
	return pause
}

// ended takes in that the handler has returned. It returns false if the attempt was abandoned before: then what is known now is evidence.
func (w *Worker) ended(t *task, answer operation.Answer, retryIn time.Duration) bool {
	took := time.Since(t.began)
	k := t.kind
	w.mu.Lock()
	if t.state != running {
		k.abandoned--
		k.full = k.full && k.abandoned >= k.limit
		w.stats.Abandoned--
		completed := t.attempt.completed.Load()
		w.mu.Unlock()
		poke(w.freed)
		if !completed {
			w.late(t, answer)
		}
		return false
	}
	t.took = took
	if k.took == 0 {
		k.took = took
	}
	k.took = max(k.took+(took-k.took)/8, 1)
	k.stats.Took += took
	k.stats.Longest = max(k.stats.Longest, took)
	if t.panicked {
		w.stats.Panics++
	}
	if t.attempt.completed.Load() {
		t.state = reporting
		t.report = operation.Completion{Ref: t.attempt.job.Ref, Answer: operation.Answer{Known: operation.Effective}}
		w.forgetLocked(t)
		k.countLocked(operation.Effective)
		w.mu.Unlock()
		w.tell(t, nil)
		return true
	}
	w.reportLocked(t, answer, retryIn)
	w.mu.Unlock()
	return true
}

// reportLocked lets the attempt's report be recorded. Its claim is renewed no more: that the report is stale then is found out by it.
func (w *Worker) reportLocked(t *task, answer operation.Answer, retryIn time.Duration) {
	t.state = reporting
	t.report = operation.Completion{Ref: t.attempt.job.Ref, Answer: answer, RetryIn: retryIn}
	w.reports = append(w.reports, t)
	w.unreported++
	w.forgetLocked(t)
	poke(w.toTell)
}

// forgetLocked takes the attempt from those whose claims are renewed.
func (w *Worker) forgetLocked(t *task) {
	last := len(w.tasks) - 1
	w.tasks[t.at] = w.tasks[last]
	w.tasks[t.at].at = t.at
	w.tasks[last] = nil
	w.tasks = w.tasks[:last]
	t.at = -1
}
