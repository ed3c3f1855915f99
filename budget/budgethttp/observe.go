package budgethttp

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// Observation is what a [Transport] knows of the requests made under one context. It is for protocols above HTTP whose clients give their caller an answer of their own
// when a context ends, and keep the transport's to themselves. Safe for concurrent use.
type Observation struct {
	mu    sync.Mutex
	begun bool
	over  chan struct{} // closed when no request is under way
	under int
	last  *budget.Error // how the last one failed; nil: it was answered
}

type observationKey struct{}

// Observe returns a context whose requests are observed.
func Observe(ctx context.Context) (context.Context, *Observation) {
	o := &Observation{}
	return context.WithValue(ctx, observationKey{}, o), o
}

// observe notes that a request begins; the function that it returns notes how it ended.
func observe(ctx context.Context) func(*budget.Error) {
	o, ok := ctx.Value(observationKey{}).(*Observation)
	if !ok {
		return func(*budget.Error) {}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.under == 0 {
		o.over = make(chan struct{})
	}
	o.begun = true
	o.under++
	return func(err *budget.Error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last = err
		if o.under--; o.under == 0 {
			close(o.over)
		}
	}
}

// maxTrailing is how long a request may take to notice that its context has ended.
const maxTrailing = time.Second

// Known is what is known of the requests when their context has ended. It waits, for a second at most, until none is under way: one that is may still be
// sent. What was not observed at all, or has not come to its end by then, is [budget.Unknown].
func (o *Observation) Known() (budget.Class, budget.Phase) {
	o.mu.Lock()
	begun, over := o.begun, o.over
	o.mu.Unlock()
	if !begun {
		return budget.Unknown, "" // there may be no Transport
	}
	timer := time.NewTimer(maxTrailing)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
		return budget.Unknown, ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.under > 0:
		return budget.Unknown, ""
	case o.last == nil:
		return budget.Unknown, budget.PhaseReading
	}
	return o.last.Class, o.last.Phase
}
