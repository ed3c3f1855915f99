package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
	"github.com/tenure-go/tenure/worker"
)

// A name that is held elsewhere: nothing is sent, and the operation comes again; while Perform runs, the name is owned.
func TestLeaseHeldElsewhere(t *testing.T) {
	inBubble(t, func(w *world) {
		authority := memory.New(memory.Options{Clock: clock.Monotonic()})
		other, err := lease.Start(w.t.Context(), authority, lease.Options{Owner: "other", Clock: clock.Monotonic()})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close(context.Background())
		held, err := other.Acquire(w.t.Context(), lease.Want{Names: []string{"till/5"}, Try: true})
		if err != nil {
			t.Fatal(err)
		}
		h := plain(func(_ context.Context, a *worker.Attempt) error {
			claim, err := a.Claim()
			if info, e := authority.Get(context.Background(), "till/5"); err != nil || e != nil || claim.Name != "till/5" || claim.Token != info.Token || !info.Held {
				t.Errorf("%+v, %v; %+v, %v", claim, err, info, e)
			}
			return nil
		})
		h.Lease = func(c charge) string { return fmt.Sprint("till/", c.Cents) }
		o := w.options()
		o.Leases, o.Session = authority, lease.Options{Clock: clock.Monotonic()}
		w.submit("a")
		_, stop := w.begin(o, worker.Handle(h))
		pass(100 * time.Millisecond)
		rec := w.get("a")
		if len(rec.Attempts) == 0 || rec.Attempts[0].Known != operation.NotSent || !strings.Contains(rec.Attempts[0].Reason, "held") {
			t.Errorf("%v, %+v", rec.State, rec.Attempts)
		}
		if err := held.Release(w.t.Context()); err != nil {
			t.Error(err)
		}
		if rec := w.decided("a"); rec.State != operation.Succeeded {
			t.Errorf("%v", rec.State)
		}
		pass(time.Second)
		if info, err := authority.Get(w.t.Context(), "till/5"); err != nil || info.Held {
			t.Errorf("it is still held: %+v, %v", info, err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A lease that is lost ends the attempt's context, with how it was lost.
func TestLeaseLost(t *testing.T) {
	inBubble(t, func(w *world) {
		authority := memory.New(memory.Options{Clock: clock.Monotonic()})
		causes := make(chan error, 1)
		h := plain(func(ctx context.Context, a *worker.Attempt) error {
			claim, err := a.Claim()
			if err != nil {
				t.Error(err)
			}
			if _, err := authority.Revoke(context.Background(), lease.RevokeRequest{Name: "till", Token: claim.Token, Reason: "maintenance"}); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		})
		h.Lease = func(charge) string { return "till" }
		h.Timeout, h.MaxAttempts = time.Hour, 1
		o := w.options()
		o.Leases, o.Session = authority, lease.Options{Clock: clock.Monotonic()}
		w.submit("a")
		w.begin(o, worker.Handle(h))
		if err := <-causes; !errors.Is(err, lease.ErrLost) {
			t.Errorf("%v", err)
		}
		pass(time.Second)
		if rec := w.get("a"); rec.State != operation.Uncertain {
			t.Errorf("%v", rec.State)
		}
	})
}

// A handler that completes in its own transaction leaves the worker nothing to report. One that was stale there rolls back, and what its provider has answered is evidence; of a local one there is none.
func TestCompletedByTheHandler(t *testing.T) {
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprint("local=", local), func(t *testing.T) {
			inBubble(t, func(w *world) {
				h := plain(nil)
				h.Local = local
				h.Perform = func(ctx context.Context, a *worker.Attempt, _ charge) (receipt, error) {
					if a.Key() == "stale" && a.Ordinal() == 1 { // nobody hears of this worker for a while
						if _, err := w.store.Complete(ctx, []operation.Completion{{Ref: a.Ref(), Answer: operation.Answer{Known: operation.NoAnswer}, RetryIn: time.Hour}}); err != nil {
							t.Error(err)
						}
					}
					errs, err := w.store.Complete(ctx, []operation.Completion{a.Completion(receipt{"mine"})})
					if err := errors.Join(append(errs, err)...); err != nil {
						return receipt{}, fmt.Errorf("completing: %w", err)
					}
					a.Completed()
					return receipt{"ignored"}, nil
				}
				w.submit("good")
				w.submit("stale")
				made, stop := w.begin(w.options(), worker.Handle(h))
				if rec := w.decided("good"); string(rec.Result) != `{"number":"mine"}` {
					t.Errorf("%s", rec.Result)
				}
				pass(time.Second)
				rec := w.get("stale")
				known, effective := operation.Effective, uint64(1) // the provider's answer is evidence
				if local {
					known, effective = operation.Refused, 2 // it was rolled back, and attempted again
				}
				if rec.State != operation.Succeeded || rec.Attempts[0].Known != known {
					t.Errorf("stale is %v: %+v", rec.State, rec.Attempts)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if s := made.Stats(); s.Kinds[0].Effective != effective || s.Kinds[0].Stale != 1 || s.Conflicts != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestTimeoutBelowLatency is O46: the attempt's timeout is shorter than the provider takes. The effect is had once, because the provider is asked, or because attempts carry the key, never because of a refusal.
func TestTimeoutBelowLatency(t *testing.T) {
	inBubble(t, func(w *world) {
		provider := newLedger()
		h := asking(func(_ context.Context, rec *operation.Record) (worker.Finding[receipt], error) {
			if provider.find(rec.ID) {
				return worker.Finding[receipt]{What: operation.Found}, nil
			}
			return worker.Finding[receipt]{What: operation.NotObserved}, nil
		})
		h.Timeout = time.Second
		h.Perform = func(ctx context.Context, a *worker.Attempt, _ charge) (receipt, error) {
			time.AfterFunc(5*time.Second, func() { provider.charge(a.Key()) })
			<-ctx.Done()
			return receipt{}, ctx.Err()
		}
		w.submit("a")
		w.begin(w.options(), worker.Handle(h))
		w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		if rec := w.decided("a"); rec.State != operation.Succeeded || provider.asked() != 1 || len(rec.Attempts) != 1 {
			t.Errorf("%v after %d charges and %d attempts", rec.State, provider.asked(), len(rec.Attempts))
		}
	})
}

// The machine sleeps while a handler runs: when it wakes the claim may be another's, and the handler is told.
func TestSuspend(t *testing.T) {
	inBubble(t, func(w *world) {
		var skew atomic.Int64
		running := clock.Monotonic()
		w.clock = func() time.Duration { return running() + time.Duration(skew.Load()) }
		causes := make(chan error, 1)
		h := plain(func(ctx context.Context, _ *worker.Attempt) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		})
		h.Timeout, h.MaxAttempts = time.Hour, 1
		w.submit("a")
		made, _ := w.begin(w.options(), worker.Handle(h))
		pass(time.Second)
		skew.Store(int64(ttl))
		began := time.Now()
		if err := <-causes; !errors.Is(err, worker.ErrClaimLost) {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("it was told after %v", took)
		}
		pass(time.Second)
		if s := made.Stats(); s.LostClaims != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A handler that ends its goroutine takes nobody along.
func TestGoexit(t *testing.T) {
	inBubble(t, func(w *world) {
		h := plain(func(_ context.Context, a *worker.Attempt) error {
			if a.Key() == "bad" {
				runtime.Goexit()
			}
			return nil
		})
		h.Concurrency, h.MaxAttempts = 1, 1
		w.submit("bad", operation.WithPriority(1))
		w.submit("good")
		_, stop := w.begin(w.options(), worker.Handle(h))
		if rec := w.decided("good"); rec.State != operation.Succeeded {
			t.Errorf("%v", rec.State)
		}
		if rec := w.get("bad"); rec.State != operation.Uncertain {
			t.Errorf("%v", rec.State)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What Perform knows: the key, the ordinal, the instant, the budget.
func TestAttempt(t *testing.T) {
	inBubble(t, func(w *world) {
		h := plain(func(ctx context.Context, a *worker.Attempt) error {
			b := budget.From(ctx)
			if b == nil || b != a.Budget() || b.Total() != 10*time.Second || b.Reserved() != time.Second {
				t.Errorf("the budget is %+v", b)
			}
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != 10*time.Second {
				t.Errorf("the deadline is %v", deadline)
			}
			if a.Key() != "a" || a.Ref().ID != "a" || a.Ref().Number != 1 || a.Ordinal() != 1 || a.Unsure() || !a.NotAfter().Equal(time.Now().Add(time.Minute)) {
				t.Errorf("%+v", a)
			}
			if _, err := a.Claim(); !errors.Is(err, worker.ErrInvalid) {
				t.Errorf("%v", err)
			}
			return nil
		})
		h.Timeout, h.NotAfter = 10*time.Second, time.Minute
		h.Redact = func(receipt) receipt { return receipt{"***"} }
		w.submit("a")
		var ended []worker.Ended
		o := w.options()
		o.OnAttempt = func(e worker.Ended) { ended = append(ended, e) }
		_, stop := w.begin(o, worker.Handle(h))
		if rec := w.decided("a"); string(rec.Result) != `{"number":"***"}` {
			t.Errorf("%s", rec.Result)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(ended) != 1 || ended[0].Known != operation.Effective || ended[0].ID != "a" || ended[0].Err != nil {
			t.Errorf("%+v", ended)
		}
	})
}

// Reasons are redacted, and results that cannot be stored leave the success.
func TestWhatIsStored(t *testing.T) {
	inBubble(t, func(w *world) {
		h := plain(nil)
		h.Perform = func(_ context.Context, a *worker.Attempt, _ charge) (receipt, error) {
			if a.Key() == "large" {
				return receipt{strings.Repeat("x", operation.MaxBody)}, nil
			}
			return receipt{}, worker.Final(errors.New("card 4111 refused"))
		}
		h.RedactReason = func(s string) string { return strings.ReplaceAll(s, "4111", "****") }
		w.submit("large")
		w.submit("refused")
		w.begin(w.options(), worker.Handle(h))
		if rec := w.decided("large"); rec.State != operation.Succeeded || len(rec.Result) != 0 || !strings.Contains(rec.Attempts[0].Reason, "not stored") {
			t.Errorf("%v %d %+v", rec.State, len(rec.Result), rec.Attempts)
		}
		if rec := w.decided("refused"); rec.State != operation.Failed || rec.Reason != "card **** refused" {
			t.Errorf("%v %q", rec.State, rec.Reason)
		}
	})
}

type explosive struct{}

func (*explosive) UnmarshalJSON([]byte) error { panic("boom") }

// Panics in what a handler brings along besides Perform are contained too, and nothing is taken for refused that was sent.
func TestPanicsBesidePerform(t *testing.T) {
	inBubble(t, func(w *world) {
		decoding := worker.Handle(worker.Handler[explosive, receipt]{Kind: "decoding", Perform: func(context.Context, *worker.Attempt, explosive) (receipt, error) { return receipt{}, nil }})
		redacting := plain(func(_ context.Context, a *worker.Attempt) error {
			if a.Key() == "reason" {
				return errPlain
			}
			return nil
		})
		redacting.MaxAttempts = 1
		redacting.Redact = func(receipt) receipt { panic("boom") }
		redacting.RedactReason = func(string) string { panic("boom") }
		if _, err := (operation.Kind[charge, receipt]{Name: "decoding"}).Submit(w.t.Context(), w.store, "decoding", charge{}); err != nil {
			t.Fatal(err)
		}
		w.submit("result")
		w.submit("reason")
		_, stop := w.begin(w.options(), decoding, worker.Handle(redacting))
		pass(time.Second)
		for id, want := range map[string]operation.State{"decoding": operation.Failed, "result": operation.Succeeded, "reason": operation.Uncertain} {
			if rec := w.get(id); rec.State != want || strings.Contains(rec.Attempts[0].Reason, "boom") != (id == "decoding") {
				t.Errorf("%s is %v: %+v", id, rec.State, rec.Attempts)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Delays saturate, are never negative, and never nothing (T61, T62): an operation that is refused 300 times in a row is tried at the longest pause.
func TestDelaysSaturate(t *testing.T) {
	inBubble(t, func(w *world) {
		var last time.Time
		var longest time.Duration
		h := plain(func(context.Context, *worker.Attempt) error {
			if !last.IsZero() {
				longest = max(longest, time.Since(last))
			}
			last = time.Now()
			return &budget.Error{Class: budget.Refused, Err: errPlain}
		})
		h.Base, h.Most, h.MaxAttempts = time.Second, 10*time.Second, 310
		w.submit("a")
		began := time.Now()
		w.begin(w.options(), worker.Handle(h))
		w.decided("a")
		synctest.Wait()
		if took := time.Since(began); longest > 11*time.Second || took < 310*2*time.Second {
			t.Errorf("the longest pause was %v, and all took %v", longest, took)
		}
	})
}
