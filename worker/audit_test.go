package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// moody is a provider that keeps keys, and can close them; and a network before it that loses requests and answers, and delays both.
type moody struct {
	mu      sync.Mutex
	random  *rand.Rand
	effects map[string]int
	closed  map[string]bool
	faults  map[string]int
}

func newMoody(seed uint64) *moody {
	return &moody{random: rand.New(rand.NewPCG(seed, 1)), effects: map[string]int{}, closed: map[string]bool{}, faults: map[string]int{}}
}

// land lets a request arrive.
func (m *moody) land(key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed[key] {
		return worker.Final(&budget.Error{Class: budget.Refused, Err: errors.New("the key is closed")})
	}
	m.effects[key] = 1
	return nil
}

// mood is which fault comes next; a third of the time there is none.
func (m *moody) mood() string {
	all := []string{"refused", "refused for good", "response lost", "request lost", "lands late", "not sent", "panic", "deaf"}
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.random.IntN(len(all) * 3 / 2)
	if i >= len(all) {
		return ""
	}
	m.faults[all[i]]++
	return all[i]
}

func (m *moody) perform(ctx context.Context, a *worker.Attempt, _ charge) (receipt, error) {
	key := a.Key()
	r := receipt{"r-" + key}
	switch m.mood() {
	case "refused":
		return r, &budget.Error{Class: budget.Refused, Err: errPlain}
	case "refused for good":
		if a.Ordinal() == 1 {
			return r, worker.Final(&budget.Error{Class: budget.Refused, Err: errPlain})
		}
	case "response lost":
		_ = m.land(key)
		return r, errPlain
	case "request lost":
		return r, errPlain
	case "lands late":
		time.AfterFunc(7*time.Second, func() { _ = m.land(key) })
		<-ctx.Done()
		return r, ctx.Err()
	case "not sent":
		return r, &budget.Error{Class: budget.NotSent, Err: errPlain}
	case "panic":
		_ = m.land(key)
		panic("after the effect")
	case "deaf":
		<-time.After(6 * time.Second)
	}
	return r, m.land(key)
}

// inquire closes the key where there was no effect, in the same step.
func (m *moody) inquire(_ context.Context, rec *operation.Record, _ charge) (worker.Finding[receipt], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.random.IntN(5) == 0 {
		return worker.Finding[receipt]{}, errPlain
	}
	if m.effects[rec.ID] > 0 {
		return worker.Finding[receipt]{What: operation.Found, Result: receipt{"r-" + rec.ID}}, nil
	}
	m.closed[rec.ID] = true
	return worker.Finding[receipt]{What: operation.Closed, Reason: "closed"}, nil
}

// audit compares every record with what really happened.
func (m *moody) audit(all []operation.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range all {
		rec := &all[i]
		switch done := m.effects[rec.ID] > 0; {
		case !rec.State.Decided():
			return fmt.Errorf("%s is %v at the end: %+v", rec.ID, rec.State, rec.Attempts)
		case done != (rec.State == operation.Succeeded):
			return fmt.Errorf("%s is %v, effect %v: %+v", rec.ID, rec.State, done, rec.Attempts)
		case rec.ConflictCount > 0:
			return fmt.Errorf("%s has conflicts: %+v", rec.ID, rec.Conflicts)
		}
	}
	return nil
}

// TestAudit mixes all faults, kills workers, and lets two reconcilers work: at the end everything is decided, as it really happened.
func TestAudit(t *testing.T) {
	for _, window := range []time.Duration{0, operation.Forever} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint("window=", window > 0, " seed=", seed), func(t *testing.T) {
				inBubble(t, func(w *world) { audited(w, window, seed) })
			})
		}
	}
}

func audited(w *world, window time.Duration, seed uint64) {
	const n = 200
	m := newMoody(seed)
	h := worker.Handle(worker.Handler[charge, receipt]{
		Kind: "charge", Perform: m.perform, Inquire: m.inquire, Window: window, Timeout: 2 * time.Second, Concurrency: 5, MaxAttempts: 6, Base: 100 * time.Millisecond, AskMost: 10 * time.Second,
	})
	for i := range n {
		w.submit(fmt.Sprint("a", i))
	}
	o := w.options()
	o.MaxAbandoned, o.Drain, o.Prefetch = 100, time.Second, 5
	w.begin(o, h)
	for range 2 {
		w.reconcile(worker.ReconcilerOptions{}, h)
	}
	plain := w.wrap
	for round := range 5 { // others work for a while, and are not heard of again, although their handlers go on
		var dead atomic.Bool
		w.wrap = func(s store) store {
			return &twin{store: plain(s), before: func(call string) error {
				if dead.Load() {
					return &operation.UnavailableError{Op: call, Err: errPlain}
				}
				return nil
			}}
		}
		_, stop := w.begin(o, h)
		pass(time.Duration(round+1) * 700 * time.Millisecond)
		dead.Store(true)
		_ = stop() // its error says that it could not report
	}
	w.wrap = plain
	pass(20 * time.Minute)
	all, err := w.store.List(context.Background(), operation.ListRequest{Limit: 1000, Bodies: true})
	if err != nil || len(all) != n {
		w.t.Fatal(len(all), err)
	}
	if err := m.audit(all); err != nil {
		w.t.Error(err)
	}
	if len(m.faults) != 8 {
		w.t.Errorf("not every fault came: %v", m.faults)
	}
	pass(10 * time.Minute) // what is dead gives up telling
}
