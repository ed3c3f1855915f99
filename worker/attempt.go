package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// Attempt is what Perform knows of the attempt that it makes. It is Perform's alone, until that returns.
type Attempt struct {
	job       operation.Job
	entry     *Entry
	budget    *budget.Budget
	lease     *lease.Lease
	prepared  *operation.Completion // what CompleteTx was called with
	completed atomic.Bool
}

// Ref names the attempt: its number is greater than that of every attempt before it, of whatever operation, and can be checked at a resource as a fencing token is.
func (a *Attempt) Ref() operation.Ref { return a.job.Ref }

// Key is the idempotency key: the operation's id, the same in each attempt. Whatever is sent to the provider carries it.
func (a *Attempt) Key() string { return a.job.ID }

// Ordinal is 1 for the operation's first attempt.
func (a *Attempt) Ordinal() int { return a.job.Ordinal }

// Unsure reports whether an earlier attempt may have had the effect.
func (a *Attempt) Unsure() bool { return a.job.Unsure }

// NotAfter is the instant after which the provider is to refuse the effect, by its own clock; zero where the handler has none.
func (a *Attempt) NotAfter() time.Time { return a.job.NotAfter }

// Budget is the time that the attempt has: the handler's Timeout with its Reserve. ctx carries it.
func (a *Attempt) Budget() *budget.Budget { return a.budget }

// Claim is the claim to the name of [Handler.Lease], to be sent with every write. It reads the clock, and returns what [lease.Lease.Claim] does; where the handler names no lease, an error matching [ErrInvalid].
func (a *Attempt) Claim() (fence.Claim, error) {
	if a.lease == nil {
		return fence.Claim{}, &InvalidError{a.job.Kind, "claim", "the handler names no lease for this request"}
	}
	return a.lease.Claim()
}

// Completion is the report that the attempt was effective with res, for a store's CompleteTx in the transaction of what the handler changes beside. That returns an error matching [operation.ErrStale] if the attempt is not the current one: roll back, and
// return the error; what the provider has answered is recorded as evidence all the same (of a [Handler.Local] there is none). After the commit call [Attempt.Completed]. A commit whose outcome is unknown is an error to be returned:
// the worker's own report finds out.
func (a *Attempt) Completion(res any) operation.Completion {
	raw, problem := a.entry.encode(res)
	c := operation.Completion{Ref: a.job.Ref, Answer: operation.Answer{Known: operation.Effective, Result: raw, Reason: operation.Cut(problem)}}
	a.prepared = &c
	return c
}

// Completed says that the transaction with [Attempt.Completion] is committed, so that the worker has nothing to report.
func (a *Attempt) Completed() { a.completed.Store(true) }

// outcome is what the return of Perform tells.
func (a *Attempt) outcome(res any, err error) (answer operation.Answer, retryIn time.Duration) {
	e := a.entry
	if err == nil {
		raw, problem := e.encode(res)
		return operation.Answer{Known: operation.Effective, Result: raw, Reason: operation.Cut(problem)}, 0
	}
	if a.prepared != nil && !e.local && errors.Is(err, operation.ErrStale) {
		return a.prepared.Answer, 0 // its report is stale as well, and so it becomes evidence
	}
	answer.Known, answer.Final = known(err, e.local)
	answer.Reason = e.reason(err.Error())
	return answer, e.retryIn(a.job.Ordinal, pushBack(err))
}

// retryIn is the pause after an attempt that did not decide.
func (e *Entry) retryIn(ordinal int, asked time.Duration) time.Duration {
	return min(backoff(ordinal, e.base, e.most)+max(asked, 0), operation.MaxDelay)
}

// task is an attempt on its way through the worker. All but the attempt is guarded by the worker's lock.
type task struct {
	attempt  Attempt
	kind     *kindState
	at       int // in Worker.tasks, or -1
	state    taskState
	renewed  time.Duration // when the claim was last asked for, or renewed
	deadline time.Duration // up to which the claim is believed in
	until    time.Duration // when the claim ends whatever is renewed
	queued   time.Duration // when it was claimed
	stop     time.Duration // when its timeout passes
	cut      time.Duration // when its context was ended, or 0
	began    time.Time
	waited   time.Duration // for its slot
	took     time.Duration // from there to its end
	cancel   context.CancelCauseFunc
	lost     bool // the claim was
	given    bool // its handler was abandoned, and its slot given to another
	panicked bool

	report operation.Completion // once it has ended
	again  bool                 // the report may have been recorded
	bare   bool                 // it was refused as invalid once, and goes without its body
}

type taskState int

const (
	waiting   taskState = iota + 1 // for a slot
	running                        // its handler is at work
	reporting                      // its report is on its way; the handler has returned, or was abandoned
)
