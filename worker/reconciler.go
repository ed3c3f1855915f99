package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

const (
	defaultName  = "tenure/reconciler"
	defaultEvery = 250 * time.Millisecond
	mostEvery    = 500 * time.Millisecond
)

// Records is what a reconciler needs of a store of operations.
type Records interface {
	operation.Desk
	Submitter
}

// Pace bounds what a provider is asked. While it answers, as many inquiries run at once as it has answered in a row, up to Concurrency. Where it does not answer, half as many do; after three failures in a row it counts as
// down, and is asked one question at a time, after a pause that doubles from 1 s to 1 min, until it answers.
type Pace struct {
	Concurrency int     // inquiries at once; default (0) 8, most 1000
	Rate        float64 // inquiries a second; default (0) 50
}

// Outage is a provider that does not answer, or that does again.
type Outage struct {
	Provider string
	Err      error         // how the last inquiry failed
	Over     bool          // it answers again
	Took     time.Duration // since the first of the failures
}

// ReconcilerOptions set up a reconciler. The zero value is ready, for a single one.
type ReconcilerOptions struct {
	// Leases is the authority of the name that one reconciler of several owns; the others wait for it, and end expired claims meanwhile. Its session is the reconciler's own, set up by Session. nil: it works without a name. Two at once do no
	// harm, and ask no question twice, because what one has taken up is put off for the other.
	Leases  lease.Store
	Session lease.Options
	Name    string // default "tenure/reconciler"
	// Every is the pause between two looks for what is due, and for claims that have expired. Default (0) 250 ms, most 500 ms.
	Every time.Duration
	// Pace is every provider's, but for those in Paces.
	Pace  Pace
	Paces map[string]Pace
	// Logger receives outages, conflicts, and first failures and recoveries of the store. Default (nil) nowhere.
	Logger *slog.Logger
	// OnOutage is told once when a provider goes down, and once when it answers again; OnConflict of each operation whose inquiry contradicts its decision, at least once for each new conflict. Both are called on the
	// goroutines that inquire. May be nil.
	OnOutage   func(Outage)
	OnConflict func(operation.Record)
}

// Reconciler finds out what became of operations that no worker is at work on: it ends claims that have expired, of whatever kind; asks providers about uncertain operations; and compensates what succeeded although its
// cancelling was wished for. It goes by what the store says is due, and keeps nothing of its own, so that another takes over where it stopped. Safe for concurrent use.
type Reconciler struct {
	records   Records
	o         ReconcilerOptions
	providers []*provider
	byKind    map[string]*Entry
	sessions  *sessions

	mu    sync.Mutex
	stats ReconcilerStats
	down  map[string]bool // calls to the store that failed when they were last made
}

// NewReconciler makes a reconciler, which does nothing before [Reconciler.Run]. Of the handlers those matter that can inquire or compensate; without any it ends expired claims. It returns an error matching [ErrInvalid].
func NewReconciler(records Records, o ReconcilerOptions, handlers ...*Entry) (*Reconciler, error) {
	set(&o.Every, defaultEvery)
	if o.Name == "" {
		o.Name = defaultName
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Every < leastPause || o.Every > mostEvery {
		return nil, &InvalidError{"a reconciler", "every", fmt.Sprintf("%v; want 0 for %v, or %v to %v", o.Every, defaultEvery, leastPause, mostEvery)}
	}
	r := &Reconciler{records: records, o: o, byKind: map[string]*Entry{}, sessions: newSessions(o.Leases, o.Session), down: map[string]bool{}}
	for _, e := range handlers {
		if e.err != nil {
			return nil, e.err
		}
		if r.byKind[e.name] != nil {
			return nil, &InvalidError{"a reconciler", "handlers", "two of kind " + e.name}
		}
		r.byKind[e.name] = e
		if e.inquire == nil && e.compensate == nil {
			continue
		}
		if err := r.join(e); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// join puts a kind to its provider.
func (r *Reconciler) join(e *Entry) error {
	i := slices.IndexFunc(r.providers, func(p *provider) bool { return p.name == e.provider })
	if i < 0 {
		pace, ok := r.o.Paces[e.provider]
		if !ok {
			pace = r.o.Pace
		}
		p, err := newProvider(e.provider, pace)
		if err != nil {
			return err
		}
		r.providers, i = append(r.providers, p), len(r.providers)
	}
	p := r.providers[i]
	if len(p.kinds) == operation.MaxKinds {
		return &InvalidError{"a reconciler", "handlers", fmt.Sprintf("more than %d of the provider %q", operation.MaxKinds, e.provider)}
	}
	p.kinds = append(p.kinds, e.name)
	p.hold = max(p.hold, min(e.timeout+2*callMost, operation.MaxDelay))
	return nil
}

// Run works until ctx ends, and returns nil. It asks and compensates while it owns the name, where it was given an authority; claims that have expired are ended by whoever runs, because an owner that has died with the
// workers of its host is followed only when its own lease is over. Whoever loses the name stops, and waits for it again. It returns an error matching [lease.ErrInvalid] if the session's settings make no sense. It returns when the inquiries
// that it has begun have returned, whose contexts end. One that ignores its own is left behind a second later; with as many of a provider as may run at once, nothing more is asked of it until one returns.
func (r *Reconciler) Run(ctx context.Context) error {
	defer r.sessions.close(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all.Go(func() { r.expire(ctx) })
	for ctx.Err() == nil {
		err := r.term(ctx)
		if errors.Is(err, lease.ErrInvalid) {
			return err
		}
		r.failed(ctx, "own", err)
		sleep(ctx, around(time.Second))
	}
	return nil
}

// term is from getting the name to losing it, or to the end of ctx.
func (r *Reconciler) term(ctx context.Context) error {
	if r.o.Leases == nil {
		r.work(ctx)
		return nil
	}
	call, cancel := context.WithTimeout(ctx, callMost)
	session, err := r.sessions.get(call)
	cancel()
	if err != nil {
		return err
	}
	lost := lease.Do(ctx, session, r.o.Name, func(ctx context.Context, _ *lease.Lease) error {
		r.failed(ctx, "own", nil)
		r.o.Logger.InfoContext(ctx, "worker: reconciling", "name", r.o.Name)
		r.work(ctx)
		r.o.Logger.InfoContext(ctx, "worker: reconciling no more", "name", r.o.Name, "cause", context.Cause(ctx))
		return nil
	})
	if ctx.Err() == nil {
		return lost
	}
	return nil
}

// work reconciles until ctx ends, and waits for what it has begun.
func (r *Reconciler) work(ctx context.Context) {
	r.mu.Lock()
	r.stats.Owner = true
	r.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range r.providers {
		all.Go(func() { r.attend(ctx, p) })
	}
	<-ctx.Done()
	all.Wait()
	r.mu.Lock()
	r.stats.Owner = false
	r.mu.Unlock()
}

// expire ends claims that have expired, so that their operations move again.
func (r *Reconciler) expire(ctx context.Context) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, callMost)
		n, err := r.records.Expire(call, operation.MaxBatch)
		cancel()
		r.failed(ctx, "expire", err)
		r.mu.Lock()
		r.stats.Expired += uint64(max(n, 0))
		r.mu.Unlock()
		if n < operation.MaxBatch {
			sleep(ctx, around(r.o.Every))
		}
	}
}

// attend asks one provider about what is due, at its pace.
func (r *Reconciler) attend(ctx context.Context, p *provider) {
	var all sync.WaitGroup
	defer all.Wait()
	for ctx.Err() == nil {
		n, pause := p.room()
		if n == 0 {
			p.rest(ctx, min(pause, time.Minute))
			continue
		}
		call, cancel := context.WithTimeout(ctx, callMost)
		due, err := r.records.Due(call, operation.DueRequest{Kinds: p.kinds, Limit: n, Hold: p.hold})
		cancel()
		r.failed(ctx, "due", err)
		p.take(len(due))
		for i := range due {
			all.Go(func() { r.handle(ctx, p, &due[i]) })
		}
		if len(due) < n {
			sleep(ctx, around(r.o.Every))
		}
	}
}

// failed logs the first failure of a kind of call, and the recovery.
func (r *Reconciler) failed(ctx context.Context, call string, err error) {
	r.mu.Lock()
	was := r.down[call]
	if ctx.Err() == nil {
		r.down[call] = err != nil
	}
	r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil && !was:
		r.o.Logger.WarnContext(ctx, "worker: the reconciler's call failed; asking again", "call", call, "err", err)
	case err == nil && was:
		r.o.Logger.InfoContext(ctx, "worker: the reconciler's calls succeed again", "call", call)
	}
}

// ReconcilerStats are for metrics. Counts are since the reconciler was made; what all operations of a store are at is told by [operation.Office.Stats].
type ReconcilerStats struct {
	Owner                                   bool   // it reconciles now
	Expired                                 uint64 // claims that it has ended
	Found, Closed, PastInstant, NotObserved uint64 // findings
	Decided                                 uint64 // operations that these decided
	Failed                                  uint64 // inquiries
	Undone                                  uint64
	Conflicts                               uint64
	Oldest                                  time.Duration // age of the oldest operation among the latest that it has asked about
	Providers                               []ProviderStats
}

// ProviderStats are of one provider.
type ProviderStats struct {
	Provider      string
	Down          bool
	Outages       uint64
	Asked, Failed uint64
	Asking        int // now
	Abandoned     int // inquiries that have not returned after their time, now
	Took, Longest time.Duration
}

// Stats returns the figures as they are now.
func (r *Reconciler) Stats() ReconcilerStats {
	r.mu.Lock()
	s := r.stats
	r.mu.Unlock()
	s.Providers = nil
	for _, p := range r.providers {
		s.Providers = append(s.Providers, p.figures())
	}
	return s
}
