package sqlite

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

const (
	maxQueue = 4096 // requests of a kind, renewals or others, that wait for the writer; one more is refused
	maxBatch = 256  // requests in one transaction
	// maxUrgent are renewals, while others wait.
	maxUrgent = maxBatch * 3 / 4
)

// request is one call that waits for the writer. What it asks for is op; everything else is the writer's.
type request struct {
	op   string
	id   fence.ID
	do   func(*batch) error // runs in the batch's transaction; its error is this request's alone
	done chan error         // of capacity 1: the writer never waits for a caller
	// result is kept until the turn was given back: a process that is stopped right after it got its answer
	// stops nobody else.
	result error
	// acquire is set for a request that may be refused by one read before any lock.
	acquire *lease.AcquireRequest
	checked bool
	// turn is set for a caller that wants the connection for itself. It is closed when it may begin, the
	// caller closes finished, and gets a nil result once the turn was given back.
	turn, finished chan struct{}
	fatal          error // why the store must stop after it, set before finished is closed
	passed         bool  // renewals went before it once, while it headed the queue
	// weight is how much of a batch it takes, where it is about many things; 0 is 1.
	weight int
}

// writer takes the waiting requests, renewals first, and commits them together: whatever is waiting, never a
// timer. One goroutine, because a blocked file lock cannot be cancelled: callers wait on a channel.
type writer struct {
	store *Store
	ended chan struct{}

	mu      sync.Mutex
	wake    chan struct{} // capacity 1
	urgent  []*request    // renewals: they keep leases alive
	queue   []*request
	stopped error // why no request is taken any more
}

func newWriter(s *Store) *writer {
	return &writer{store: s, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// do queues the request and waits for its end. A request that the writer has not taken when ctx ends is
// withdrawn: it was certainly not applied. One that it has taken may be applied.
func (w *writer) do(ctx context.Context, r *request, urgent bool) error {
	if err := ctx.Err(); err != nil {
		return &lease.UnavailableError{Op: r.op, Err: err}
	}
	r.done = make(chan error, 1)
	if err := w.enqueue(r, urgent); err != nil {
		return &lease.UnavailableError{Op: r.op, Err: err}
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
	}
	if w.withdraw(r) {
		return &lease.UnavailableError{Op: r.op, Err: fmt.Errorf("%w while waiting to write%s", context.Cause(ctx), w.store.side.heldBy())}
	}
	select {
	case err := <-r.done:
		return err
	default:
		return &lease.UnknownError{Op: r.op, ID: r.id, Err: context.Cause(ctx)}
	}
}

func (w *writer) enqueue(r *request, urgent bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped != nil {
		return w.stopped
	}
	queue := &w.queue
	if urgent {
		queue = &w.urgent
	}
	if len(*queue) >= maxQueue {
		return fmt.Errorf("%d requests wait already%s", maxQueue, w.store.side.heldBy())
	}
	*queue = append(*queue, r)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

func (w *writer) withdraw(r *request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range []*[]*request{&w.queue, &w.urgent} {
		if i := slices.Index(*q, r); i >= 0 {
			*q = slices.Delete(*q, i, i+1)
			return true
		}
	}
	return false
}

// stop makes the writer end after the write that is under way; what waits is answered with why.
func (w *writer) stop(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped == nil {
		w.stopped = why
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// why says why no request is taken any more, or nil.
func (w *writer) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped
}

func (w *writer) run() {
	defer close(w.ended)
	for range w.wake {
		for {
			more, err := w.round()
			if err != nil {
				w.stop(err)
			}
			if w.drainIfStopped() {
				return
			}
			if !more {
				break
			}
		}
	}
}

// drainIfStopped answers everything that waits, once the writer is to end.
func (w *writer) drainIfStopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped == nil {
		return false
	}
	for _, r := range slices.Concat(w.urgent, w.queue) {
		r.done <- &lease.UnavailableError{Op: r.op, Err: w.stopped}
	}
	w.urgent, w.queue = nil, nil
	return true
}

// round refuses what can be refused by reading, waits for this process's turn, and runs one batch in it.
func (w *writer) round() (more bool, fatal error) {
	if w.idle() {
		return false, nil
	}
	w.refuseByReading()
	if w.idle() {
		return false, nil
	}
	if err := w.store.side.enter(); err != nil {
		return false, err
	}
	taken := w.take()
	if len(taken) > 0 {
		fatal = w.store.checkIdentity()
		switch {
		case fatal != nil:
			for _, r := range taken {
				r.result = &lease.UnavailableError{Op: r.op, Err: fatal}
			}
		case taken[0].turn != nil:
			close(taken[0].turn)
			<-taken[0].finished
			fatal = taken[0].fatal
		default:
			fatal = w.store.commit(taken)
		}
	}
	err := w.store.side.leave()
	for _, r := range taken {
		r.done <- r.result
	}
	if err != nil {
		return false, err
	}
	return true, fatal
}

func (w *writer) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.urgent)+len(w.queue) == 0
}

// take removes at most maxBatch requests: renewals first, and a caller that wants the connection for itself
// alone and only when it heads the queue. Renewals go before it once, and leave room for others: they starve nobody.
func (w *writer) take() []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	room := maxBatch
	if len(w.queue) > 0 {
		room = maxUrgent
		if head := w.queue[0]; head.turn != nil && (len(w.urgent) == 0 || head.passed) {
			w.queue = slices.Delete(w.queue, 0, 1)
			return []*request{head}
		}
	}
	n, left := fitting(w.urgent, room)
	taken := make([]*request, 0, min(maxBatch, n+len(w.queue)))
	taken = append(taken, w.urgent[:n]...)
	w.urgent = slices.Delete(w.urgent, 0, n)
	n, _ = fitting(w.queue, left+maxBatch-room)
	taken = append(taken, w.queue[:n]...)
	w.queue = slices.Delete(w.queue, 0, n)
	if n == 0 && len(w.queue) > 0 {
		w.queue[0].passed = true
	}
	return taken
}

// fitting is how many of the first requests fit into the room of a batch, and how much room they leave. One that is larger than any batch goes with what is
// before it, because it would never go otherwise; one that wants the connection for itself is not among them.
func fitting(requests []*request, room int) (n, left int) {
	for n < len(requests) && requests[n].turn == nil {
		weight := max(requests[n].weight, 1)
		if room <= 0 || n > 0 && weight > room {
			break
		}
		room -= weight
		n++
	}
	return n, max(room, 0)
}

// refuseByReading answers the waiting acquires whose names are validly held, without any lock.
func (w *writer) refuseByReading() {
	w.mu.Lock()
	var waiting []*request
	for _, r := range w.queue {
		if r.acquire != nil && !r.checked && len(waiting) < maxBatch {
			r.checked = true
			waiting = append(waiting, r)
		}
	}
	w.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	for r, held := range w.store.findHeld(waiting) {
		if w.withdraw(r) {
			r.done <- held
		}
	}
}

// checkIdentity stops a store whose path leads to another file by now: it would write into the old one.
func (s *Store) checkIdentity() error {
	now, err := identify(s.path)
	if err == nil && now == s.file {
		return nil
	}
	return &FileError{Path: s.path, Kind: ErrReplaced, Err: err,
		Detail: "this process still has the file that was there before; restart it"}
}
