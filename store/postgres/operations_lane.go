package postgres

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// opGroup is what one caller asks for: items with different keys.
type opGroup[T any] struct {
	items []T
	keys  []string
	bytes int           // of the items
	done  chan struct{} // closed when the fields below are set
	left  []int         // which were not handled with the others: to be asked for singly
	err   error         // of the whole call
}

// opLane coalesces the calls of one kind, as [lane] does for the calls of a session: one statement is under way at a time and takes whatever waits when it begins, at most
// [operation.MaxBatch] items and, but for a single group, laneBytes of bodies. A caller that finds the lane idle runs its own call.
type opLane[T any] struct {
	store *Store
	op    string
	key   func(T) string
	size  func(T) int                                                    // bytes of the body
	own   func(T) T                                                      // a copy that outlives the caller's call
	many  func(ctx context.Context, items []T) (left []int32, err error) // left counts from 1

	mu    sync.Mutex
	busy  bool
	queue []*opGroup[T]
	items int // in queue
}

// laneBytes bounds the bodies of one statement: the server takes none of a gigabyte, and whoever has a small one waits for the large ones that share it.
const laneBytes = 16 << 20

func (l *opLane[T]) group(items []T) *opGroup[T] {
	g := &opGroup[T]{items: items, keys: make([]string, len(items)), done: make(chan struct{})}
	for i, item := range items {
		g.keys[i] = l.key(item)
		g.bytes += l.size(item)
	}
	return g
}

// fit is how many of the items, the first of them at least, make a group within laneBytes.
func (l *opLane[T]) fit(items []T) int {
	bytes := 0
	for i, item := range items {
		if bytes += l.size(item); bytes > laneBytes && i > 0 {
			return i
		}
	}
	return len(items)
}

// do runs g, alone or with others. The error is the lease package's, or the driver's.
func (l *opLane[T]) do(ctx context.Context, g *opGroup[T]) error {
	l.mu.Lock()
	if !l.busy {
		l.busy = true
		l.mu.Unlock()
		runtime.Gosched() // whoever is ready asks first, and shares the statement
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.mu.Unlock()
			defer l.next()
			l.run(ctx, []*opGroup[T]{g})
			return g.err
		}
		l.enqueueLocked(g)
		l.mu.Unlock()
		l.next()
		return l.wait(ctx, g)
	}
	if l.items >= maxQueue {
		l.mu.Unlock()
		return &lease.UnavailableError{Op: l.op, Err: errQueueFull}
	}
	l.enqueueLocked(g)
	l.mu.Unlock()
	return l.wait(ctx, g)
}

// enqueueLocked lets g wait. Its caller may be gone when it is run.
func (l *opLane[T]) enqueueLocked(g *opGroup[T]) {
	for i, item := range g.items {
		g.items[i] = l.own(item)
	}
	l.queue = append(l.queue, g)
	l.items += len(g.items)
}

// run handles groups in one call and deals out what it answers.
func (l *opLane[T]) run(ctx context.Context, groups []*opGroup[T]) {
	items := groups[0].items
	if len(groups) > 1 {
		items = slices.Clone(items)
		for _, g := range groups[1:] {
			items = append(items, g.items...)
		}
	}
	left, err := l.many(ctx, items)
	switch state(err) {
	case stateSerialization, stateDeadlock, stateLockTimeout: // nothing was applied: each asks for itself
		err, left = nil, make([]int32, len(items))
		for i := range left {
			left[i] = int32(i) + 1 //nolint:gosec // at most MaxBatch
		}
	}
	from := 0
	for _, g := range groups {
		g.err = err
		for len(left) > 0 && int(left[0]) <= from+len(g.items) {
			g.left = append(g.left, int(left[0])-from-1)
			left = left[1:]
		}
		from += len(g.items)
	}
}

// wait is for the answer of a batch, or for the end of ctx.
func (l *opLane[T]) wait(ctx context.Context, g *opGroup[T]) error {
	select {
	case <-g.done:
		return g.err
	case <-ctx.Done():
	}
	if l.withdraw(g) {
		return &lease.UnavailableError{Op: l.op, Err: fmt.Errorf("%w while waiting for its turn", context.Cause(ctx))}
	}
	select {
	case <-g.done: // at this very moment
		return g.err
	default:
		return &lease.UnknownError{Op: l.op, Err: context.Cause(ctx)}
	}
}

func (l *opLane[T]) withdraw(g *opGroup[T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, g)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	l.items -= len(g.items)
	return true
}

// next passes the lane on: to a goroutine that runs batches while calls wait. Their callers' contexts end waiting, not batches.
func (l *opLane[T]) next() {
	batch := l.take()
	if batch == nil {
		return
	}
	l.store.work.Add(1) // this store is not shut down yet: the caller's own call is still counted
	go func() {
		defer l.store.work.Done()
		for ; batch != nil; batch = l.take() {
			ctx, cancel := context.WithTimeout(l.store.ctx, batchBound)
			l.run(ctx, batch)
			cancel()
			for _, g := range batch {
				close(g.done)
			}
			runtime.Gosched() // those who were answered may ask again, in the next batch
		}
	}()
}

// take returns the next batch, or nil, and the lane is idle then. A key stands in a batch once.
func (l *opLane[T]) take() []*opGroup[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.busy = false
		return nil
	}
	var batch, left []*opGroup[T]
	n, bytes, keys := 0, 0, map[string]bool{}
	for i, g := range l.queue {
		if n+len(g.items) > operation.MaxBatch || n > 0 && bytes+g.bytes > laneBytes {
			left = append(left, l.queue[i:]...)
			break
		}
		if slices.ContainsFunc(g.keys, func(k string) bool { return keys[k] }) {
			left = append(left, g)
			continue
		}
		for _, k := range g.keys {
			keys[k] = true
		}
		n += len(g.items)
		bytes += g.bytes
		batch = append(batch, g)
	}
	l.queue = left
	l.items -= n
	return batch
}
