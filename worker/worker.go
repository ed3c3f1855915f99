package worker

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// Source is what a worker needs of a store of operations.
type Source interface {
	operation.Queue
	// Respond is that of [operation.Store].
	Respond(ctx context.Context, resp operation.Response) (operation.Record, error)
}

// Worker claims operations of the kinds that it has handlers for, and runs them. Other kinds it leaves alone. Safe for concurrent use; see [Worker.Run].
//
// Beside the handlers it runs five goroutines, however much there is to do, and holds at most the concurrency and Options.Prefetch of operations of each kind. Each handler runs on one of the kind's slots, as many goroutines as the kind's concurrency at most.
type Worker struct {
	source  Source
	o       Options
	kinds   []*kindState
	byName  map[string]*kindState
	leases  *sessions
	hard    context.Context // ends when attempts are to stop
	cutOff  context.CancelCauseFunc
	changed chan struct{} // something has ended, while the worker drains
	hint    chan struct{} // see Wake
	freed   chan struct{} // a slot or room for a report is free again
	toTell  chan struct{} // reports wait
	toProve chan struct{} // evidence waits

	mu         sync.Mutex
	started    bool
	stopping   bool // nothing is begun any more
	tasks      []*task
	reports    []*task
	evidence   []*task
	unreported int // reports and evidence, those on their way included
	running    int
	stats      Stats
	down       bool // the last claim failed
}

// maxUnreported bounds what waits to be recorded: with more, nothing is claimed.
const maxUnreported = 4 * operation.MaxBatch

// kindState is what a worker knows of one of its kinds, under the worker's lock.
type kindState struct {
	e         *Entry
	limit     int // of abandoned handlers
	queue     []*task
	running   int
	abandoned int
	dry       bool          // the last look found less than there was room for
	took      time.Duration // of late, from the start of an attempt to its end
	low       int           // with so many waiting, more are fetched
	full      bool          // of abandoned handlers, and this was logged
	stats     KindStats
}

// New makes a worker, which does nothing before [Worker.Run]. It returns an error matching [ErrInvalid] for handlers and options that make no sense.
func New(source Source, o Options, handlers ...*Entry) (*Worker, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	if len(handlers) < 1 || len(handlers) > operation.MaxKinds {
		return nil, &InvalidError{"a worker", "handlers", "want 1 to 64 of them"}
	}
	w := &Worker{
		source: source, o: o, byName: map[string]*kindState{}, changed: make(chan struct{}, 1), hint: make(chan struct{}, 1), freed: make(chan struct{}, 1),
		toTell: make(chan struct{}, 1), toProve: make(chan struct{}, 1), leases: newSessions(o.Leases, o.Session),
	}
	for _, e := range handlers {
		if err := o.fits(e); err != nil {
			return nil, err
		}
		if w.byName[e.name] != nil {
			return nil, &InvalidError{"a worker", "handlers", "two of kind " + e.name}
		}
		k := &kindState{e: e, limit: o.MaxAbandoned, stats: KindStats{Kind: e.name}}
		if k.limit == 0 {
			k.limit = e.concurrency
		}
		w.kinds = append(w.kinds, k)
		w.byName[e.name] = k
	}
	return w, nil
}

// Wake tells the worker that there may be work, so that it looks before its pause is over. It never blocks.
func (w *Worker) Wake() { poke(w.hint) }

// poke leaves a mark in a channel of one place, if there is none.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, and then drains: nothing more is claimed; what waited for a slot is given back as not sent; what runs may run on for Options.Drain, then its context ends, and after
// Options.Grace it is reported as without an answer. Everything that is known is recorded, as far as the store answers within a TTL.
//
// Run returns nil if all of that was done; a [*DrainError] if handlers had not returned, or reports were not acknowledged; and an error matching [ErrInvalid] if it was called before. When it returns, no goroutine of the worker is left but those of
// abandoned handlers.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return &InvalidError{"a worker", "run", "it was called before; make another worker"}
	}
	w.started = true
	w.hard, w.cutOff = context.WithCancelCause(context.WithoutCancel(ctx))
	w.mu.Unlock()
	defer w.cutOff(ErrStopped)

	service, end := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){w.watch, w.renew, w.report, w.prove} {
		loops.Go(func() { loop(service) })
	}
	unhook := context.AfterFunc(ctx, func() { // also while a claim is on its way: what it brings is given back
		w.mu.Lock()
		w.stopping = true
		w.mu.Unlock()
	})
	defer unhook()
	w.claim(ctx)
	err := w.drain()
	end()
	loops.Wait()
	w.leases.close(context.WithoutCancel(ctx))
	return err
}

// drain ends what is going on.
func (w *Worker) drain() error {
	w.mu.Lock()
	w.stopping = true
	for _, k := range w.kinds {
		for _, t := range k.queue {
			w.giveBackLocked(t, "the worker stops")
		}
		k.queue = nil
	}
	w.mu.Unlock()
	var e DrainError
	idle := func() bool { return w.running == 0 }
	if !w.until(w.o.Drain, idle) {
		w.cutOff(ErrStopped)
		if !w.until(w.o.Grace, idle) {
			w.abandonAll()
		}
	}
	w.until(w.o.TTL, func() bool { return w.unreported == 0 })
	w.mu.Lock()
	defer w.mu.Unlock()
	e.Unreported = w.unreported
	for _, k := range w.kinds {
		e.Abandoned += k.abandoned
	}
	if e == (DrainError{}) {
		return nil
	}
	w.o.Logger.Error("worker: stopped before everything was recorded", "abandoned", e.Abandoned, "unreported", e.Unreported)
	return &e
}

// until waits for what holds under the lock, at most for d, and reports whether it does.
func (w *Worker) until(d time.Duration, holds func() bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		w.mu.Lock()
		ok := holds()
		w.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-w.changed:
		case <-timer.C:
			return false
		}
	}
}

// sessions keeps one session of leases alive, and starts another where it is over.
type sessions struct {
	store lease.Store
	o     lease.Options

	mu  sync.Mutex
	now *lease.Session
}

func newSessions(store lease.Store, o lease.Options) *sessions { return &sessions{store: store, o: o} }

// get returns a session that lives. ctx bounds the opening of one.
func (s *sessions) get(ctx context.Context) (*lease.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil && s.now.Context().Err() == nil {
		return s.now, nil
	}
	if s.now != nil {
		_ = s.now.Close(ctx) // it is over, and only its goroutines are left
		s.now = nil
	}
	session, err := lease.Start(ctx, s.store, s.o)
	if err != nil {
		return nil, err
	}
	s.now = session
	return session, nil
}

func (s *sessions) close(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		_ = s.now.Close(ctx) // what is not closed expires by itself
		s.now = nil
	}
}
