package worker_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
	"github.com/tenure-go/tenure/worker"
)

func (w *world) reconcile(o worker.ReconcilerOptions, handlers ...*worker.Entry) (made *worker.Reconciler, stop func() error) {
	w.t.Helper()
	made, err := worker.NewReconciler(w.wrap(w.store), o, handlers...)
	if err != nil {
		w.t.Fatal(err)
	}
	return made, w.run(made.Run)
}

// crash lets a worker that nobody hears of again claim the operations: with a handler that can be asked about them.
func (w *world) crash(n int, k operation.KindClaim) []operation.Job {
	w.t.Helper()
	k.Kind, k.Limit, k.Timeout, k.MaxAttempts, k.Asks = "charge", n, time.Hour, 1, true
	jobs, err := w.store.Claim(context.Background(), operation.ClaimRequest{TTL: ttl, Limit: n, Kinds: []operation.KindClaim{k}})
	if err != nil || len(jobs) != n {
		w.t.Fatal(len(jobs), err)
	}
	return jobs
}

type asked = func(ctx context.Context, rec *operation.Record) (worker.Finding[receipt], error)

// asking is a handler whose inquiry is the given one.
func asking(ask asked) worker.Handler[charge, receipt] {
	h := plain(func(context.Context, *worker.Attempt) error { return nil })
	h.Inquire = func(ctx context.Context, rec *operation.Record, _ charge) (worker.Finding[receipt], error) {
		return ask(ctx, rec)
	}
	return h
}

// TestCrashBetweenEffectAndRecord is O41 and O47, and faults 19 and 25: the effect has happened, the worker is gone. The operation is uncertain, the provider is asked, and there is one charge.
func TestCrashBetweenEffectAndRecord(t *testing.T) {
	inBubble(t, func(w *world) {
		provider := newLedger()
		w.submit("a")
		w.crash(1, operation.KindClaim{})
		provider.charge("a")
		h := asking(func(_ context.Context, rec *operation.Record) (worker.Finding[receipt], error) {
			if provider.find(rec.ID) {
				return worker.Finding[receipt]{What: operation.Found, Result: receipt{"r-9"}}, nil
			}
			return worker.Finding[receipt]{What: operation.NotObserved}, nil
		})
		w.begin(w.options(), worker.Handle(h))
		made, _ := w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		rec := w.decided("a")
		if rec.State != operation.Succeeded || string(rec.Result) != `{"number":"r-9"}` || provider.asked() != 1 {
			t.Errorf("%v %s after %d charges", rec.State, rec.Result, provider.asked())
		}
		if s := made.Stats(); s.Expired != 1 || s.Found != 1 || s.Decided != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestCrashedWorkerMovesOn is O3: what a killed worker held moves again within its claims' deadline and a second. TestNoKinds is O4.
func TestCrashedWorkerMovesOn(t *testing.T) {
	inBubble(t, func(w *world) {
		const n = 500
		for i := range n {
			w.submit(fmt.Sprint("a", i))
		}
		w.crash(n, operation.KindClaim{Window: operation.Forever})
		began := time.Now()
		w.reconcile(worker.ReconcilerOptions{})
		pass(ttl + time.Second)
		uncertain := 0
		for i := range n {
			if rec := w.get(fmt.Sprint("a", i)); rec.State == operation.Uncertain {
				uncertain++
			}
		}
		if uncertain != n {
			t.Errorf("%d of %d moved within %v", uncertain, n, time.Since(began))
		}
	})
}

// TestNoKinds is O4: a reconciler that knows none of the kinds ends claims, and decides nothing.
func TestNoKinds(t *testing.T) {
	inBubble(t, func(w *world) {
		w.submit("a")
		w.crash(1, operation.KindClaim{})
		w.reconcile(worker.ReconcilerOptions{})
		pass(24 * time.Minute)
		if rec := w.get("a"); rec.State != operation.Uncertain || rec.Step != operation.Ask || rec.Inquiries != 0 {
			t.Errorf("%v %v", rec.State, rec.Step)
		}
	})
}

// inFlight is a request that lands after the provider was asked: not observed decides nothing.
func inFlight(w *world) error {
	provider := newLedger()
	h := asking(func(_ context.Context, rec *operation.Record) (worker.Finding[receipt], error) {
		if provider.find(rec.ID) {
			return worker.Finding[receipt]{What: operation.Found}, nil
		}
		return worker.Finding[receipt]{What: operation.NotObserved, Reason: "no such charge"}, nil
	})
	w.submit("a")
	w.crash(1, operation.KindClaim{})
	w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
	pass(time.Minute)
	if rec := w.get("a"); rec.State != operation.Uncertain || rec.Inquiries < 3 {
		return fmt.Errorf("it is %v after %d inquiries that observed nothing", rec.State, rec.Inquiries)
	}
	provider.charge("a")
	if rec := w.decided("a"); rec.State != operation.Succeeded {
		return fmt.Errorf("it is %v, and it happened", rec.State)
	}
	return nil
}

func TestNotObservedDecidesNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		if err := inFlight(w); err != nil {
			t.Error(err)
		}
	})
}

// The provider enforces the instant that the attempt carried: before it a finding is refused by the store, after it the operation has failed.
func TestPastInstant(t *testing.T) {
	inBubble(t, func(w *world) {
		h := asking(func(context.Context, *operation.Record) (worker.Finding[receipt], error) {
			return worker.Finding[receipt]{What: operation.PastInstant, Reason: "unknown, and too late"}, nil
		})
		w.submit("a")
		w.crash(1, operation.KindClaim{NotAfter: 5 * time.Minute})
		began := time.Now()
		w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		if rec := w.decided("a"); rec.State != operation.Failed || time.Since(began) < 5*time.Minute || rec.Inquiries < 2 {
			t.Errorf("%v after %v and %d inquiries", rec.State, time.Since(began), rec.Inquiries)
		}
	})
}

// provider is one that may be down, and measures how it is asked.
type downProvider struct {
	mu       sync.Mutex
	up       bool
	calls    int
	now      int
	most     int // at once
	second   int
	inSecond int
	busiest  int // calls of a second
}

func (p *downProvider) ask(ctx context.Context) error {
	p.mu.Lock()
	p.calls++
	p.now++
	p.most = max(p.most, p.now)
	if s := int(time.Now().Unix()); s != p.second {
		p.second, p.inSecond = s, 0
	}
	p.inSecond++
	p.busiest = max(p.busiest, p.inSecond)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.now--
		p.mu.Unlock()
	}()
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.up {
		return errPlain
	}
	return nil
}

// outage is O45: a thousand uncertain operations, and a provider that is down for an hour. It is asked seldom, there is one alarm, nothing is decided by age, and when it is up again everything is found out, without a rush.
func outage(w *world, pace worker.Pace, swallow bool) error {
	const n = 1000
	p := &downProvider{}
	h := asking(func(ctx context.Context, _ *operation.Record) (worker.Finding[receipt], error) {
		if err := p.ask(ctx); err != nil {
			if swallow {
				return worker.Finding[receipt]{What: operation.NotObserved}, nil
			}
			return worker.Finding[receipt]{}, err
		}
		return worker.Finding[receipt]{What: operation.Found}, nil
	})
	for i := range n {
		w.submit(fmt.Sprint("a", i))
	}
	w.crash(n, operation.KindClaim{})
	var alarms, over atomic.Int32
	w.reconcile(worker.ReconcilerOptions{Pace: pace, OnOutage: func(o worker.Outage) {
		if o.Over {
			over.Add(1)
		} else {
			alarms.Add(1)
		}
	}}, worker.Handle(h))
	pass(time.Hour)
	stats, err := w.store.Stats(context.Background())
	if err != nil || len(stats) != 1 || stats[0].State != operation.Uncertain || stats[0].Count != n || stats[0].Stuck != 0 {
		return fmt.Errorf("after an hour: %+v, %w", stats, err)
	}
	p.mu.Lock()
	calls := p.calls
	p.up = true
	p.mu.Unlock()
	if calls > 100 || alarms.Load() != 1 || over.Load() != 0 {
		return fmt.Errorf("%d calls and %d alarms in an hour", calls, alarms.Load())
	}
	pass(5 * time.Minute)
	if stats, err = w.store.Stats(context.Background()); err != nil || len(stats) != 0 {
		return fmt.Errorf("five minutes after the outage: %+v, %w", stats, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most > 8 || p.busiest > 60 || over.Load() != 1 || alarms.Load() != 1 {
		return fmt.Errorf("%d calls at once, %d in a second, %d alarms, %d all-clears", p.most, p.busiest, alarms.Load(), over.Load())
	}
	return nil
}

func TestOutageIsPaced(t *testing.T) {
	inBubble(t, func(w *world) {
		if err := outage(w, worker.Pace{}, false); err != nil {
			t.Error(err)
		}
	})
}

// A cancel that came while the effect was on its way is a wish, and the reconciler honours it by an operation of its own, once.
func TestCancelWishIsHonoured(t *testing.T) {
	inBubble(t, func(w *world) {
		refunds := operation.Kind[receipt, struct{}]{Name: "refund"}
		h := asking(func(context.Context, *operation.Record) (worker.Finding[receipt], error) {
			return worker.Finding[receipt]{What: operation.Found, Result: receipt{"r-1"}}, nil
		})
		h.Compensate = func(id string, _ charge, res receipt) (operation.SubmitRequest, error) {
			return refunds.Request("refund of "+id, res)
		}
		w.submit("a")
		w.crash(1, operation.KindClaim{Undoes: true})
		if rec, err := w.store.Cancel(w.t.Context(), "a", "changed their mind"); err != nil || !rec.CancelWished {
			t.Fatalf("%+v, %v", rec, err)
		}
		made, _ := w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		pass(time.Minute)
		rec, refund := w.get("a"), w.get("refund of a")
		if rec.State != operation.Succeeded || rec.UndoneBy != "refund of a" || refund.Compensates != "a" || string(refund.Request) != `{"number":"r-1"}` || rec.Step != operation.Idle {
			t.Errorf("%+v, %+v", rec, refund)
		}
		if s := made.Stats(); s.Undone > 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestTwoReconcilers is fault 24: two at once, as when one has lost the name and does not know it, ask nothing twice at a time and end each claim once.
func TestTwoReconcilers(t *testing.T) {
	inBubble(t, func(w *world) {
		const n = 200
		var mu sync.Mutex
		at, twice := map[string]bool{}, 0
		h := asking(func(_ context.Context, rec *operation.Record) (worker.Finding[receipt], error) {
			mu.Lock()
			if at[rec.ID] {
				twice++
			}
			at[rec.ID] = true
			mu.Unlock()
			<-time.After(time.Second)
			mu.Lock()
			delete(at, rec.ID)
			mu.Unlock()
			if rec.Inquiries < 2 {
				return worker.Finding[receipt]{What: operation.NotObserved}, nil
			}
			return worker.Finding[receipt]{What: operation.Closed, Reason: "closed"}, nil
		})
		for i := range n {
			w.submit(fmt.Sprint("a", i))
		}
		w.crash(n, operation.KindClaim{})
		one, _ := w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		two, _ := w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		pass(10 * time.Minute)
		a, b := one.Stats(), two.Stats()
		if twice != 0 || a.Expired+b.Expired != n || a.Decided+b.Decided != n || a.Providers[0].Asked+b.Providers[0].Asked != 2*n || a.Decided == 0 || b.Decided == 0 {
			t.Errorf("%d asked twice at a time; %+v; %+v", twice, a, b)
		}
	})
}

// cuttable is an authority that can be cut off from one of its clients.
type cuttable struct {
	lease.Store
	cut atomic.Bool
}

func (c *cuttable) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	if c.cut.Load() {
		return lease.Renewal{}, &lease.UnavailableError{Op: "renew", Err: errPlain}
	}
	return c.Store.Renew(ctx, req)
}

func (c *cuttable) Open(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
	if c.cut.Load() {
		return 0, &lease.UnavailableError{Op: "open", Err: errPlain}
	}
	return c.Store.Open(ctx, req)
}

func (c *cuttable) Close(ctx context.Context, id fence.ID) error {
	if c.cut.Load() {
		return &lease.UnavailableError{Op: "close", Err: errPlain}
	}
	return c.Store.Close(ctx, id)
}

// One reconciler owns the name. Cut off, it stops, and another takes over; when it is back, it waits.
func TestOneOwner(t *testing.T) {
	inBubble(t, func(w *world) {
		authority := memory.New(memory.Options{Clock: clock.Monotonic()})
		link := &cuttable{Store: authority}
		session := lease.Options{TTL: ttl, Clock: clock.Monotonic()}
		first, _ := w.reconcile(worker.ReconcilerOptions{Leases: link, Session: session})
		pass(time.Second)
		second, stop := w.reconcile(worker.ReconcilerOptions{Leases: authority, Session: session})
		owners := func(a, b bool) {
			t.Helper()
			if first.Stats().Owner != a || second.Stats().Owner != b {
				t.Errorf("owners: %v, %v; want %v, %v", first.Stats().Owner, second.Stats().Owner, a, b)
			}
		}
		pass(time.Minute)
		owners(true, false)
		link.cut.Store(true)
		pass(ttl + time.Second)
		owners(false, true)
		link.cut.Store(false)
		pass(time.Minute)
		owners(false, true)
		w.submit("a")
		w.crash(1, operation.KindClaim{})
		pass(ttl + time.Second)
		if rec := w.get("a"); rec.State != operation.Uncertain {
			t.Errorf("%v", rec.State)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		pass(3 * time.Second)
		owners(true, false)
	})
}

// TestInquiryConflict is fault 22: a finding against a decision is kept and told, and the decision stays.
func TestInquiryConflict(t *testing.T) {
	inBubble(t, func(w *world) {
		conflicts := make(chan operation.Record, 10)
		h := asking(func(ctx context.Context, rec *operation.Record) (worker.Finding[receipt], error) {
			if _, err := w.store.Resolve(ctx, operation.Verdict{ID: rec.ID, State: operation.Failed, Reason: "an operator was faster"}); err != nil {
				t.Error(err)
			}
			return worker.Finding[receipt]{What: operation.Found, Result: receipt{"r-1"}}, nil
		})
		w.submit("a")
		w.crash(1, operation.KindClaim{})
		made, _ := w.reconcile(worker.ReconcilerOptions{OnConflict: func(rec operation.Record) { conflicts <- rec }}, worker.Handle(h))
		rec := <-conflicts
		pass(time.Minute)
		if rec.State != operation.Failed || rec.ConflictCount != 1 || made.Stats().Conflicts != 1 || len(conflicts) != 0 {
			t.Errorf("%+v, %+v", rec, made.Stats())
		}
	})
}

// What an inquiry cannot decode, a panic, and a finding that is none decide nothing, and are no outage.
func TestFaultyInquiries(t *testing.T) {
	inBubble(t, func(w *world) {
		raw := []byte(`"x"`)
		if _, err := w.store.Submit(w.t.Context(), operation.SubmitRequest{ID: "undecodable", Kind: "charge", Request: raw, Fingerprint: operation.FingerprintOf("charge", raw)}); err != nil {
			t.Fatal(err)
		}
		w.submit("panic")
		w.submit("nothing")
		w.crash(3, operation.KindClaim{})
		h := asking(func(_ context.Context, rec *operation.Record) (worker.Finding[receipt], error) {
			if rec.ID == "panic" {
				panic("boom")
			}
			return worker.Finding[receipt]{}, nil
		})
		made, _ := w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		pass(time.Hour)
		for _, id := range []string{"undecodable", "panic", "nothing"} {
			if rec := w.get(id); rec.State != operation.Uncertain || rec.Inquiries < 5 || rec.Inquiries > 60 {
				t.Errorf("%s: %v after %d inquiries", id, rec.State, rec.Inquiries)
			}
		}
		if s := made.Stats(); s.Providers[0].Outages != 0 || s.Failed < 15 {
			t.Errorf("%+v", s)
		}
	})
}

// TestBrokenReconcilers: each mistake is found by a test above.
func TestBrokenReconcilers(t *testing.T) {
	for name, test := range map[string]func(*world) error{
		"not observed is failed": func(w *world) error {
			w.wrap = func(s store) store {
				return &twin{store: s, inquired: func(inq operation.Inquiry) operation.Inquiry {
					if inq.Finding == operation.NotObserved {
						inq.Finding = operation.Closed
					}
					return inq
				}}
			}
			return inFlight(w)
		},
		"no pace":                   func(w *world) error { return outage(w, worker.Pace{Concurrency: 1000, Rate: 1e6}, false) },
		"an outage is not noticed":  func(w *world) error { return outage(w, worker.Pace{}, true) },
		"old operations are failed": func(w *world) error { return outage(withVerdicts(w), worker.Pace{}, false) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				err := test(w)
				if err == nil {
					t.Error("the twin was not caught")
				}
				t.Log(err)
			})
		})
	}
}

// withVerdicts takes whatever could not be asked about for failed.
func withVerdicts(w *world) *world {
	w.wrap = func(s store) store {
		return &twin{store: s, inquired: func(inq operation.Inquiry) operation.Inquiry {
			if inq.Finding == operation.NotObserved {
				inq.Finding = operation.Closed
			}
			return inq
		}}
	}
	return w
}
