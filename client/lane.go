package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/budget"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
)

const (
	exchangeCalls = 64 // as many as a server takes in one Exchange
	exchangesMost = 2  // under way at a time; what comes meanwhile goes together in the next one
	queueMost     = 10_000
	patience      = 50 * time.Millisecond // of a call in the queue: then what is under way takes long, and it goes alone
	overtakeMost  = 64                    // of those at a time
	exchangeBound = 30 * time.Second      // of an Exchange whose callers have no sooner deadline
)

// lane brings the acquires and releases of a client together: whatever waits goes in one Exchange, and never waits for more to come. Who finds fewer than exchangesMost under way sends its call alone, and so does who has waited for them for longer than patience. Calls that travel together share nothing but
// the way: each has its own answer, and a caller that goes away cancels no other's call.
type lane struct {
	client *Client

	mu        sync.Mutex
	busy      int
	overtakes int
	queue     []*waiting
}

// waiting is a call in the queue.
type waiting struct {
	ctx  context.Context
	call *v1.ExchangeRequest_Call
	done chan struct{}
	// set before done is closed
	answer *v1.ExchangeResponse_Answer
	err    error
}

// send waits for the answer to one call, or until ctx ends. alone sends it by itself.
func (l *lane) send(ctx context.Context, call *v1.ExchangeRequest_Call, alone func() error) (*v1.ExchangeResponse_Answer, error) {
	l.mu.Lock()
	if l.busy < exchangesMost && len(l.queue) == 0 {
		l.busy++
		l.mu.Unlock()
		defer l.next()
		return nil, alone()
	}
	if len(l.queue) >= queueMost {
		l.mu.Unlock()
		return nil, unsent(fmt.Errorf("%d calls wait already", queueMost))
	}
	w := &waiting{ctx: ctx, call: call, done: make(chan struct{})}
	l.queue = append(l.queue, w)
	l.mu.Unlock()
	if l.await(w) {
		defer l.overtaken()
		return nil, alone()
	}
	select {
	case <-w.done:
		return w.answer, w.err
	default: // ctx has ended
	}
	if l.withdraw(w) {
		return nil, unsent(context.Cause(ctx))
	}
	select {
	case <-w.done: // as it left: what came of it is better than not to know
		return w.answer, w.err
	default:
		return nil, &budget.Error{Class: budget.Unknown, Err: context.Cause(ctx)}
	}
}

// unsent is a call that has certainly not left.
func unsent(err error) error { return &budget.Error{Class: budget.NotSent, Err: err} }

// await waits until the call is answered, or its context has ended, or it may go alone; it reports whether it may.
func (l *lane) await(w *waiting) bool {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case <-w.done:
			return false
		case <-w.ctx.Done():
			return false
		case <-late.C:
			if l.overtake(w) {
				return true
			}
			late.Reset(patience)
		}
	}
}

// overtake reports whether the call had not left, and may go alone: a call that takes long, or a server that does not answer, holds up what came after it no longer than that.
func (l *lane) overtake(w *waiting) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.overtakes >= overtakeMost || !l.withdrawLocked(w) {
		return false
	}
	l.overtakes++
	return true
}

func (l *lane) overtaken() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.overtakes--
}

// withdraw reports whether the call had not left.
func (l *lane) withdraw(w *waiting) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.withdrawLocked(w)
}

func (l *lane) withdrawLocked(w *waiting) bool {
	i := slices.Index(l.queue, w)
	if i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	return i >= 0
}

// next sends what waits, in the place of an exchange that has ended.
func (l *lane) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.queue), exchangeCalls)
	if n == 0 {
		l.busy--
		return
	}
	batch := slices.Clone(l.queue[:n])
	l.queue = slices.Delete(l.queue, 0, n)
	go func() {
		defer l.next()
		l.exchange(batch)
	}()
}

// exchange sends a batch and hands out its answers.
func (l *lane) exchange(batch []*waiting) {
	ctx, cancel := l.bound(batch)
	defer cancel()
	req := &v1.ExchangeRequest{Calls: make([]*v1.ExchangeRequest_Call, len(batch))}
	for i, w := range batch {
		req.Calls[i] = w.call
	}
	m, err := ask(ctx, l.client, func(ctx context.Context, e *endpoint) (*v1.ExchangeResponse, error) {
		return e.leases.Exchange(ctx, req)
	})
	if err == nil && len(m.GetAnswers()) != len(batch) {
		err = &budget.Error{Class: budget.Unknown, Err: fmt.Errorf("%d answers to %d calls", len(m.GetAnswers()), len(batch))}
	}
	for i, w := range batch {
		if w.err = err; err == nil {
			w.answer = m.GetAnswers()[i]
		}
		close(w.done)
	}
}

// bound is a context that ends when the last of the callers' deadlines has passed.
func (l *lane) bound(batch []*waiting) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, w := range batch {
		deadline, ok := w.ctx.Deadline()
		if !ok || time.Until(deadline) > exchangeBound {
			return context.WithTimeout(context.Background(), exchangeBound)
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(context.Background(), last)
}
