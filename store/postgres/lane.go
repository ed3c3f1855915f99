package postgres

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// call is a request of one name on its way through a lane.
type call struct {
	op          string
	id          fence.ID
	name        string
	acquire     *lease.AcquireRequest // or a release
	closedBelow fence.ID
	place       pgtype.TID    // of a release: where its row was when it was granted, if that is known
	sync        bool          // a release that must be durable before it is told
	done        chan struct{} // closed when the fields below are set
	grant       *grantRow     // the answer to an acquire, nil: ask singly
	released    bool          // false: ask singly
	err         error
}

// lane coalesces the calls of one kind and session: one statement is under way at a time, and takes whatever waits when it begins. A
// caller that finds the lane idle runs its own call. Acquires and releases have a lane each, so that two servers' processes work at once.
type lane struct {
	mu      sync.Mutex
	busy    bool
	company bool // somebody has come while the lane was busy, since it was last found idle without anybody coming
	queue   []*call
}

// do runs c: alone, with single on the caller's own goroutine, or in a batch, with many.
func (l *lane) do(ctx context.Context, s *Store, c *call, single func(context.Context, *call), many func(context.Context, []*call)) error {
	l.mu.Lock()
	if !l.busy {
		l.busy = true
		if l.company { // whoever is ready asks first, and shares the statement; who is alone would pay for that with 10 us
			l.mu.Unlock()
			runtime.Gosched()
			l.mu.Lock()
		}
		if len(l.queue) == 0 {
			l.company = false
			l.mu.Unlock()
			defer l.next(s, many)
			single(ctx, c)
			return c.err
		}
		l.enqueueLocked(c)
		l.mu.Unlock()
		l.next(s, many)
		return l.wait(ctx, c)
	}
	if len(l.queue) >= maxQueue {
		l.mu.Unlock()
		return &lease.UnavailableError{Op: c.op, Err: errQueueFull}
	}
	l.enqueueLocked(c)
	l.mu.Unlock()
	return l.wait(ctx, c)
}

func (l *lane) enqueueLocked(c *call) {
	c.done = make(chan struct{})
	l.company = true
	l.queue = append(l.queue, c)
}

// wait is for the answer of a batch, or for the end of ctx.
func (l *lane) wait(ctx context.Context, c *call) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	if l.withdraw(c) {
		return &lease.UnavailableError{Op: c.op, Err: fmt.Errorf("%w while waiting for its turn", context.Cause(ctx))}
	}
	select {
	case <-c.done: // at this very moment
		return c.err
	default:
		return &lease.UnknownError{Op: c.op, ID: c.id, Err: context.Cause(ctx)}
	}
}

// atWork reports whether a call is under way.
func (l *lane) atWork() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy
}

func (l *lane) withdraw(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, c)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	return true
}

// next passes the lane on: to a goroutine that runs batches while calls wait. Their callers' contexts end waiting, not batches.
func (l *lane) next(s *Store, many func(context.Context, []*call)) {
	batch := l.take()
	if batch == nil {
		return
	}
	s.work.Add(1) // this store is not shut down yet: the caller's own call is still counted
	go func() {
		defer s.work.Done()
		for batch != nil {
			ctx, cancel := context.WithTimeout(s.ctx, batchBound)
			many(ctx, batch)
			cancel()
			answered := batch
			if l.waiting() > len(answered) { // those who were answered would add little: the server has the next batch first
				batch = l.take()
				go answer(answered) // their calls are counted until they have it
				continue
			}
			answer(answered)
			runtime.Gosched() // those who were answered may ask again, in the next batch
			batch = l.take()
		}
	}()
}

func answer(batch []*call) {
	for _, c := range batch {
		close(c.done)
	}
}

func (l *lane) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// take returns the next batch, or nil, and the lane is idle then. A name stands in a batch once; the second request for it waits for the next.
func (l *lane) take() []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.busy = false
		return nil
	}
	n := min(len(l.queue), maxBatch)
	batch := make([]*call, 0, n)
	names := make(map[string]bool, n)
	var left []*call
	for i, c := range l.queue {
		if len(batch) == n {
			left = append(left, l.queue[i:]...)
			break
		}
		if names[c.name] {
			left = append(left, c)
			continue
		}
		names[c.name] = true
		batch = append(batch, c)
	}
	l.queue = left
	return batch
}
