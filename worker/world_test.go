package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
	"github.com/tenure-go/tenure/worker"
)

const ttl = 3 * time.Second

type charge struct {
	Cents int `json:"cents"`
}

type receipt struct {
	Number string `json:"number"`
}

var errPlain = errors.New("something went wrong") // that nobody has classified

func charges() operation.Kind[charge, receipt] {
	return operation.Kind[charge, receipt]{Name: "charge"}
}

// world is a store and its workers, in a bubble of virtual time.
type world struct {
	t     *testing.T
	store *memory.Operations
	// wrap is between a worker or a reconciler and the store: a twin replaces it.
	wrap  func(store) store
	clock func() time.Duration
}

// store is what a twin stands in for.
type store interface {
	worker.Source
	operation.Desk
	Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error)
}

// inBubble runs a test in virtual time, with a store on its clock.
func inBubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(&world{t: t, store: memory.NewOperations(memory.Options{Clock: clock.Monotonic()}), wrap: func(s store) store { return s }, clock: clock.Monotonic()})
	})
}

func (w *world) options() worker.Options {
	return worker.Options{Label: "w", TTL: ttl, Clock: w.clock, Poll: 50 * time.Millisecond}
}

// begin runs a worker. stop ends it and returns what Run did; the test's end stops it too.
func (w *world) begin(o worker.Options, handlers ...*worker.Entry) (made *worker.Worker, stop func() error) {
	w.t.Helper()
	made, err := worker.New(w.wrap(w.store), o, handlers...)
	if err != nil {
		w.t.Fatal(err)
	}
	return made, w.run(made.Run)
}

func (w *world) run(f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() {
		err = f(ctx)
		close(done)
	}()
	stop = func() error {
		cancel()
		<-done
		return err
	}
	w.t.Cleanup(func() { _ = stop() })
	return stop
}

func (w *world) submit(id string, options ...operation.SubmitOption) {
	w.t.Helper()
	if _, err := charges().Submit(w.t.Context(), w.store, id, charge{Cents: 5}, options...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(id string) operation.Record {
	w.t.Helper()
	rec, err := w.store.Get(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// decided waits until the operation is.
func (w *world) decided(id string) operation.Record {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	rec, err := operation.Wait(ctx, w.store, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// pass lets virtual time go by, and everybody come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// plain is a handler that does what perform says.
func plain(perform func(ctx context.Context, a *worker.Attempt) error) worker.Handler[charge, receipt] {
	return worker.Handler[charge, receipt]{Kind: "charge", Base: 10 * time.Millisecond, Most: 20 * time.Millisecond, Perform: func(ctx context.Context, a *worker.Attempt, _ charge) (receipt, error) {
		return receipt{Number: fmt.Sprint("r-", a.Ordinal())}, perform(ctx, a)
	}}
}

// twin wraps a store and changes what is asked of it; a nil function changes nothing.
type twin struct {
	store
	claim    func([]operation.Job) []operation.Job
	complete func([]operation.Completion) []operation.Completion
	respond  func(operation.Response) (skip bool)
	inquired func(operation.Inquiry) operation.Inquiry
	before   func(call string) error // an error is what the call returns, instead of being made
	after    func(call string) error // an error is what the call returns, although it was made
}

func (s *twin) around(call string, f func() error) error {
	if s.before != nil {
		if err := s.before(call); err != nil {
			return err
		}
	}
	err := f()
	if s.after != nil {
		err = errors.Join(err, s.after(call))
	}
	return err
}

func (s *twin) Claim(ctx context.Context, req operation.ClaimRequest) (jobs []operation.Job, err error) {
	err = s.around("claim", func() error {
		jobs, err = s.store.Claim(ctx, req)
		return err
	})
	if s.claim != nil {
		jobs = s.claim(jobs)
	}
	return jobs, err
}

func (s *twin) Renew(ctx context.Context, req operation.RenewRequest) (lost []operation.Ref, err error) {
	err = s.around("renew", func() error {
		lost, err = s.store.Renew(ctx, req)
		return err
	})
	return lost, err
}

func (s *twin) Complete(ctx context.Context, all []operation.Completion) (errs []error, err error) {
	if s.complete != nil {
		kept := s.complete(all)
		if len(kept) < len(all) { // a twin that forgets: it takes them for recorded
			_, err = s.store.Complete(ctx, kept)
			return make([]error, len(all)), err
		}
		all = kept
	}
	err = s.around("complete", func() error {
		errs, err = s.store.Complete(ctx, all)
		return err
	})
	return errs, err
}

func (s *twin) Respond(ctx context.Context, resp operation.Response) (rec operation.Record, err error) {
	if s.respond != nil && s.respond(resp) {
		return operation.Record{}, nil
	}
	err = s.around("respond", func() error {
		rec, err = s.store.Respond(ctx, resp)
		return err
	})
	return rec, err
}

func (s *twin) Inquired(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
	if s.inquired != nil {
		inq = s.inquired(inq)
	}
	return s.store.Inquired(ctx, inq)
}

// ledger is a provider that keeps keys, and counts what it was asked.
type ledger struct {
	mu      sync.Mutex
	effects map[string]int
	calls   int
}

func newLedger() *ledger { return &ledger{effects: map[string]int{}} }

// charge has the effect of a key once.
func (l *ledger) charge(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	l.effects[key] = 1
}

func (l *ledger) find(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.effects[key] > 0
}

func (l *ledger) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}
