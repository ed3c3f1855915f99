package admission

import (
	"container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// Limiter says what may run now. It has no goroutine, so it is not closed. Safe for concurrent use.
type Limiter struct {
	o     Options
	limit adaptivelimiter.AdaptiveLimiter[any]

	ended, late atomic.Int64 // since the limit was last looked at: how many ended, and how many of them after their caller's time

	mu       sync.Mutex
	queues   [priorities]list.List // of *waiter
	inFlight int
	kept     int // of those, beyond the limit
	counts   [priorities]Counts
}

// Counts are the numbers of one priority since the limiter was made, but for Queued, which is of now.
type Counts struct {
	Queued   int
	Admitted uint64
	Shed     uint64 // Full or Waited: with a hint to come again
	NoTime   uint64 // shed because the caller had no time left
	Repeats  uint64 // of all these, those that were not first attempts
}

// Numbers are for metrics.
type Numbers struct {
	Limit    int // how many may run
	InFlight int // how many do, those beyond the limit included
	Kept     int // renewals and status queries of them that run beyond the limit
	By       map[Priority]Counts
}

// grow bounds the limit to this many times of what was in flight: an idle service learns nothing of how much more it could do.
const grow = 5

// New makes a limiter. It returns an error matching [budget.ErrInvalid] for options that make no sense.
func New(o Options) (*Limiter, error) {
	o, err := o.settled()
	if err != nil {
		return nil, err
	}
	l := &Limiter{o: o}
	l.limit = adaptivelimiter.NewBuilder[any]().
		WithLimits(uint(o.Least), uint(o.Most), uint(o.First)).
		WithMaxLimitFunc(l.bound).
		Build()
	return l, nil
}

// tooMany is which part of what ran may outlive its callers: one in so many. More is a limit that is too high, whatever durations are usual by now.
const tooMany = 4

// bound is the highest limit that the last outcomes allow. The adaptive limiter asks for it whenever it looks at the limit, and moves down to it step by step. Alone it knows durations only, and takes an overload
// that goes on for long for what is usual: its limit rises again while nobody gets an answer in time.
func (l *Limiter) bound(inFlight int) float64 {
	ended, late := l.ended.Swap(0), l.late.Swap(0)
	if late*tooMany > ended {
		return float64(l.o.Least)
	}
	return float64(inFlight) * grow
}

// waiter is one who waits. Its place is nil when it does not wait any more: it has a grant then, or has left.
type waiter struct {
	ctx   context.Context
	p     Priority
	place *list.Element
	turn  chan struct{}
	grant *grant
}

// grant is the right to run.
type grant struct {
	l      *Limiter
	permit adaptivelimiter.Permit // nil: beyond the limit
	p      Priority
	over   atomic.Bool
}

// Acquire waits until something of that priority may run, at most as long as [Options] say and never longer than ctx. release gives the place back, and says how it ended; it is called when
// everything that was started has ended, and more than once does nothing more.
//
// Acquire returns a [*budget.Error] that matches [ErrShed]: Refused, with Again and RetryAfter, where there is no room, and NotSent where the caller's time ends before its turn: in both cases nothing may be
// started. An error matching [budget.ErrInvalid] is for what is no priority. The number of the attempt that ctx is of is counted and changes nothing: that of a Do in front of a call to others, else the one that
// the caller has sent ([budgethttp.CallersAttempt]).
func (l *Limiter) Acquire(ctx context.Context, p Priority) (release func(Outcome), err error) {
	n := budget.AttemptNumber(ctx)
	if n == 0 {
		n = budgethttp.CallersAttempt(ctx)
	}
	return l.acquire(ctx, p, n)
}

func (l *Limiter) acquire(ctx context.Context, p Priority, attempt int) (func(Outcome), error) {
	if p < Renewal || p > Work {
		return nil, &budget.InvalidError{Field: "priority", Problem: fmt.Sprintf("%v; want Renewal, Status or Work", p)}
	}
	l.mu.Lock()
	if attempt > 1 {
		l.of(p).Repeats++
	}
	if err := l.tooLate(ctx); err != nil {
		defer l.mu.Unlock()
		return nil, l.shedLocked(p, NoTime, 0, err)
	}
	if l.nobodyFirstLocked(p) {
		if g := l.takeLocked(p); g != nil {
			l.of(p).Admitted++
			l.mu.Unlock()
			return g.release, nil
		}
	}
	queue := l.queue(p)
	if queue.Len() >= l.o.Queue {
		defer l.mu.Unlock()
		return nil, l.shedLocked(p, Full, 0, nil)
	}
	w := &waiter{ctx: ctx, p: p, turn: make(chan struct{})}
	w.place = queue.PushBack(w)
	l.mu.Unlock()
	return l.wait(w)
}

// wait is until it is w's turn, or until w has waited enough.
func (l *Limiter) wait(w *waiter) (func(Outcome), error) {
	begun := time.Now()
	longest := l.o.Wait
	if deadline, ok := w.ctx.Deadline(); ok {
		longest = min(longest, time.Until(deadline)/share)
	}
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-w.turn:
	case <-timer.C:
	case <-w.ctx.Done():
	}
	l.mu.Lock()
	if w.place != nil {
		l.queue(w.p).Remove(w.place)
		w.place = nil
	}
	why, late := Waited, l.tooLate(w.ctx)
	switch {
	case late != nil:
		why = NoTime
	case w.grant != nil:
		l.of(w.p).Admitted++
		l.mu.Unlock()
		return w.grant.release, nil
	}
	err := l.shedLocked(w.p, why, time.Since(begun), late)
	l.mu.Unlock()
	if w.grant != nil {
		w.grant.release(Failed) // it came as the time ended: somebody else's turn
	}
	return nil, err
}

func (l *Limiter) queue(p Priority) *list.List { return &l.queues[p-Renewal] }

func (l *Limiter) of(p Priority) *Counts { return &l.counts[p-Renewal] }

// tooLate says why somebody's time is too short to start anything, or nil.
func (l *Limiter) tooLate(ctx context.Context) error {
	wire, _ := budget.Outgoing(ctx) // what is left by its budget, which counts what the machine slept, and ends ctx for that
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ok := ctx.Deadline(); ok && wire.Remaining < l.o.Minimum {
		return &budget.NoTimeError{What: "what waited to be let in", Needs: l.o.Minimum, Left: wire.Remaining}
	}
	return nil
}

// nobodyFirstLocked reports whether nobody waits who comes before a newcomer of p. A place that is being given back is free for a moment before they get it.
func (l *Limiter) nobodyFirstLocked(p Priority) bool {
	for before := Renewal; before <= p; before++ {
		if l.queue(before).Len() > 0 {
			return false
		}
	}
	return true
}

// takeLocked is a place for p, or nil.
func (l *Limiter) takeLocked(p Priority) *grant {
	g := &grant{l: l, p: p}
	if permit, ok := l.limit.TryAcquirePermit(); ok {
		g.permit = permit
	} else if p == Work || l.kept >= l.o.Kept {
		return nil
	} else {
		l.kept++
	}
	l.inFlight++
	return g
}

// pumpLocked gives the places that are free to those who wait, in their order. Who has no time left by then gives its place back.
func (l *Limiter) pumpLocked() {
	for p := Renewal; p <= Work; p++ {
		for queue := l.queue(p); queue.Len() > 0; {
			w := queue.Front().Value.(*waiter) // nothing else is in it
			if w.grant = l.takeLocked(p); w.grant == nil {
				return
			}
			queue.Remove(w.place)
			w.place = nil
			close(w.turn)
		}
	}
}

// shedLocked counts and tells.
func (l *Limiter) shedLocked(p Priority, why Why, waited time.Duration, cause error) error {
	shed := &ShedError{Priority: p, Why: why, Waited: waited, Limit: l.limit.Limit(), InFlight: l.inFlight, Queued: l.queue(p).Len(), Cause: cause}
	if why == NoTime {
		l.of(p).NoTime++
		return &budget.Error{Class: budget.NotSent, Err: shed}
	}
	l.of(p).Shed++
	return &budget.Error{Class: budget.Refused, Again: true, RetryAfter: l.o.RetryAfter + rand.N(2*l.o.RetryAfter+1), Err: shed}
}

func (g *grant) release(o Outcome) {
	if g.over.Swap(true) {
		return
	}
	l := g.l
	if g.permit != nil {
		if g.p == Work && (o == Succeeded || o == TimedOut) {
			l.ended.Add(1)
			if o == TimedOut {
				l.late.Add(1)
			}
			g.permit.Record()
		} else {
			g.permit.Drop() // renewals and queries are another kind of work: a change of the mixture is no change of how busy it is
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight--; g.permit == nil {
		l.kept--
	}
	l.pumpLocked()
}

// Numbers are those of now.
func (l *Limiter) Numbers() Numbers {
	n := Numbers{Limit: l.limit.Limit(), By: make(map[Priority]Counts, priorities)}
	l.mu.Lock()
	defer l.mu.Unlock()
	n.InFlight, n.Kept = l.inFlight, l.kept
	for p := Renewal; p <= Work; p++ {
		c := *l.of(p)
		c.Queued = l.queue(p).Len()
		n.By[p] = c
	}
	return n
}
