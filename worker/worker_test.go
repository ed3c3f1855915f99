package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// What Perform returns is what is known of the attempt.
func TestWhatPerformReturns(t *testing.T) {
	refused := &budget.Error{Class: budget.Refused, Err: errPlain}
	notSent := &budget.Error{Class: budget.NotSent, Err: errPlain}
	unknown := &budget.Error{Class: budget.Unknown, Err: errPlain}
	for name, c := range map[string]struct {
		err   error
		local bool
		known operation.Known
		state operation.State // after the first attempt
	}{
		"nil":                       {nil, false, operation.Effective, operation.Succeeded},
		"an error without a class":  {errPlain, false, operation.NoAnswer, operation.Uncertain},
		"unknown":                   {unknown, false, operation.NoAnswer, operation.Uncertain},
		"refused for now":           {refused, false, operation.Refused, operation.Pending},
		"refused for good":          {worker.Final(refused), false, operation.Refused, operation.Failed},
		"final without a class":     {fmt.Errorf("charging: %w", worker.Final(errPlain)), false, operation.Refused, operation.Failed},
		"final, but unknown":        {worker.Final(unknown), false, operation.NoAnswer, operation.Uncertain},
		"final, but waited in vain": {worker.Final(context.DeadlineExceeded), false, operation.NoAnswer, operation.Uncertain},
		"not sent":                  {notSent, false, operation.NotSent, operation.Pending},
		"not sent, for good":        {worker.Final(notSent), false, operation.Refused, operation.Failed},
		"no time":                   {fmt.Errorf("%w", budget.ErrNoTime), false, operation.NotSent, operation.Pending},
		"one of two unknown":        {errors.Join(refused, errPlain), false, operation.NoAnswer, operation.Uncertain},
		"local":                     {errPlain, true, operation.Refused, operation.Pending},
		"local, for good":           {worker.Final(errPlain), true, operation.Refused, operation.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				h := plain(func(context.Context, *worker.Attempt) error { return c.err })
				h.Local, h.Base, h.Most = c.local, time.Hour, time.Hour
				w.submit("a")
				w.begin(w.options(), worker.Handle(h))
				pass(time.Second)
				rec := w.get("a")
				if len(rec.Attempts) != 1 || rec.Attempts[0].Known != c.known || rec.State != c.state {
					t.Errorf("%v, %+v; want %v, %v", rec.State, rec.Attempts, c.state, c.known)
				}
			})
		})
	}
}

// unclassified is how a worker meets an error without a class: the effect has happened, and the response is lost (O41, O47). The operation may not be taken for failed.
func unclassified(w *world) error {
	provider := newLedger()
	h := plain(func(_ context.Context, a *worker.Attempt) error {
		provider.charge(a.Key())
		return errPlain
	})
	h.MaxAttempts = 1
	w.submit("a")
	w.begin(w.options(), worker.Handle(h))
	pass(time.Minute)
	if rec := w.get("a"); rec.State != operation.Uncertain || provider.asked() != 1 {
		return fmt.Errorf("the operation is %v after %d calls: %+v", rec.State, provider.asked(), rec.Attempts)
	}
	return nil
}

func TestUnclassifiedErrorIsUnknown(t *testing.T) {
	inBubble(t, func(w *world) {
		if err := unclassified(w); err != nil {
			t.Error(err)
		}
	})
}

// A panic is contained, with what was waiting behind it, and nothing is known of it.
func TestPanicIsNoAnswer(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "nil": func() { panic(nil) }} { //nolint:govet // that is the case
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				h := plain(func(_ context.Context, a *worker.Attempt) error {
					if a.Key() == "bad" {
						end()
					}
					return nil
				})
				h.Concurrency, h.MaxAttempts = 1, 2
				w.submit("bad", operation.WithPriority(3))
				w.submit("good")
				made, stop := w.begin(w.options(), worker.Handle(h))
				if rec := w.decided("good"); rec.State != operation.Succeeded {
					t.Errorf("good: %v", rec.State)
				}
				if rec := w.get("bad"); rec.State != operation.Uncertain || rec.Attempts[0].Known != operation.NoAnswer {
					t.Errorf("bad: %v %+v", rec.State, rec.Attempts)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if s := made.Stats(); s.Panics != 1 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestUndecodableRequest is O23: one of 50 cannot be decoded; it is refused for good without being sent, and 49 run.
func TestUndecodableRequest(t *testing.T) {
	inBubble(t, func(w *world) {
		provider := newLedger()
		for i := range 49 {
			w.submit(fmt.Sprint("a", i))
		}
		raw := []byte(`{"cents":"many"}`)
		if _, err := w.store.Submit(w.t.Context(), operation.SubmitRequest{ID: "bad", Kind: "charge", Request: raw, Fingerprint: operation.FingerprintOf("charge", raw)}); err != nil {
			t.Fatal(err)
		}
		w.begin(w.options(), worker.Handle(plain(func(_ context.Context, a *worker.Attempt) error {
			provider.charge(a.Key())
			return nil
		})))
		for i := range 49 {
			if rec := w.decided(fmt.Sprint("a", i)); rec.State != operation.Succeeded {
				t.Errorf("%v", rec.State)
			}
		}
		if rec := w.decided("bad"); rec.State != operation.Failed || len(rec.Attempts) != 1 || provider.find("bad") {
			t.Errorf("%v %+v", rec.State, rec.Attempts)
		}
	})
}

// TestThreeTimesTheClaim is O5: a handler that takes three times as long as its claim lasts is run once, because the claim is renewed.
func TestThreeTimesTheClaim(t *testing.T) {
	inBubble(t, func(w *world) {
		var runs atomic.Int32
		h := plain(func(ctx context.Context, _ *worker.Attempt) error {
			runs.Add(1)
			select {
			case <-time.After(3 * ttl):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		w.submit("a")
		for range 2 {
			w.begin(w.options(), worker.Handle(h))
		}
		w.run(w.expire)
		if rec := w.decided("a"); rec.State != operation.Succeeded || runs.Load() != 1 || len(rec.Attempts) != 1 {
			t.Errorf("%v after %d runs: %+v", rec.State, runs.Load(), rec.Attempts)
		}
	})
}

// expire ends claims, as a reconciler does.
func (w *world) expire(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
			_, _ = w.store.Expire(ctx, 100)
		}
	}
}

// late is O14: the store cannot be reached for four renewals, the claim expires, and another attempt fails; then the first one's success comes. It decides the operation, as evidence: its own report is stale.
func late(w *world) error {
	var cut atomic.Bool
	reach := w.wrap
	w.wrap = func(s store) store {
		return reach(&twin{store: s, before: func(call string) error {
			if cut.Load() && call != "claim" {
				return &operation.UnavailableError{Op: call, Err: errPlain}
			}
			return nil
		}})
	}
	lost := make(chan error, 1)
	h := plain(func(ctx context.Context, a *worker.Attempt) error {
		<-ctx.Done()
		lost <- context.Cause(ctx)
		return nil // the provider's answer came all the same
	})
	h.Window, h.MaxAttempts = 0, 1
	w.submit("a")
	o := w.options()
	o.Grace = time.Minute
	made, _ := w.begin(o, worker.Handle(h))
	w.run(w.expire)
	cut.Store(true)
	if err := <-lost; !errors.Is(err, worker.ErrClaimLost) {
		return fmt.Errorf("the cause was %w", err)
	}
	pass(ttl)
	if rec := w.get("a"); rec.State != operation.Uncertain {
		return fmt.Errorf("it is %v while nobody knows", rec.State)
	}
	cut.Store(false)
	pass(ttl)
	rec := w.get("a")
	if rec.State != operation.Succeeded || string(rec.Result) != `{"number":"r-1"}` {
		return fmt.Errorf("it is %v although the worker knows that it happened: %+v", rec.State, rec.Attempts)
	}
	if s := made.Stats(); s.LostClaims != 1 || s.Kinds[0].Stale != 1 || s.Evidence != 1 {
		return fmt.Errorf("%+v", s)
	}
	return nil
}

func TestLateAnswerIsEvidence(t *testing.T) {
	inBubble(t, func(w *world) {
		if err := late(w); err != nil {
			t.Error(err)
		}
	})
}

// TestStaleAttempt is O2b: attempt 1 succeeds late while attempt 2 runs and is refused. Both are recorded, and the success decides.
func TestStaleAttempt(t *testing.T) {
	inBubble(t, func(w *world) {
		w.submit("a")
		jobs, err := w.store.Claim(w.t.Context(), operation.ClaimRequest{TTL: time.Second, Limit: 1, Kinds: []operation.KindClaim{{Kind: "charge", Limit: 1, Timeout: time.Minute, Window: operation.Forever, MaxAttempts: 3}}})
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		pass(2 * time.Second)
		if n, err := w.store.Expire(w.t.Context(), 10); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		h := plain(func(ctx context.Context, a *worker.Attempt) error {
			if !a.Unsure() || a.Ordinal() != 2 {
				t.Errorf("unsure %v, attempt %d", a.Unsure(), a.Ordinal())
			}
			_, err := w.store.Respond(ctx, operation.Response{ID: "a", Number: jobs[0].Number, Answer: operation.Answer{Known: operation.Effective, Result: []byte(`1`)}})
			if err != nil {
				t.Error(err)
			}
			return &budget.Error{Class: budget.Refused, Err: errPlain}
		})
		h.Window = operation.Forever
		_, stop := w.begin(w.options(), worker.Handle(h))
		w.decided("a")
		pass(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		rec := w.get("a")
		if rec.State != operation.Succeeded || string(rec.Result) != "1" || rec.Attempts[1].Known != operation.Refused {
			t.Errorf("%v %s %+v", rec.State, rec.Result, rec.Attempts)
		}
	})
}

// A reply to Complete that is lost is asked for again, and what was recorded is counted once.
func TestUnknownOutcomeOfComplete(t *testing.T) {
	inBubble(t, func(w *world) {
		var lost atomic.Int32
		w.wrap = func(s store) store {
			return &twin{store: s, after: func(call string) error {
				if call == "complete" && lost.Add(1) <= 3 {
					return &operation.UnknownError{Op: call, Err: errPlain}
				}
				return nil
			}}
		}
		w.submit("a")
		w.submit("b")
		refusals := 0
		made, stop := w.begin(w.options(), worker.Handle(plain(func(_ context.Context, a *worker.Attempt) error {
			if a.Key() == "b" && refusals == 0 {
				refusals++
				return &budget.Error{Class: budget.Refused, Err: errPlain}
			}
			return nil
		})))
		w.decided("a")
		w.decided("b")
		pass(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		rec := w.get("b")
		if s := made.Stats(); s.Kinds[0].Effective != 2 || s.Kinds[0].Stale != 0 || s.Conflicts != 0 || rec.ConflictCount != 0 || len(rec.Attempts) != 2 {
			t.Errorf("%+v, %+v", s, rec)
		}
	})
}

// Kinds that a worker has no handler for are left alone.
func TestUnknownKind(t *testing.T) {
	inBubble(t, func(w *world) {
		if _, err := (operation.Kind[charge, receipt]{Name: "other"}).Submit(w.t.Context(), w.store, "o", charge{}); err != nil {
			t.Fatal(err)
		}
		w.submit("a")
		w.begin(w.options(), worker.Handle(plain(func(context.Context, *worker.Attempt) error { return nil })))
		w.decided("a")
		pass(time.Minute)
		if rec := w.get("o"); rec.State != operation.Pending || len(rec.Attempts) != 0 {
			t.Errorf("%v %+v", rec.State, rec.Attempts)
		}
	})
}

// What is refused again and again has an end.
func TestPoisonIsBounded(t *testing.T) {
	inBubble(t, func(w *world) {
		h := plain(func(context.Context, *worker.Attempt) error {
			return &budget.Error{Class: budget.Refused, Err: errPlain}
		})
		h.MaxAttempts = 7
		w.submit("a")
		w.begin(w.options(), worker.Handle(h))
		if rec := w.decided("a"); rec.State != operation.Failed || len(rec.Attempts) != 7 {
			t.Errorf("%v after %d attempts", rec.State, len(rec.Attempts))
		}
	})
}

// Wake makes an idle worker look at once.
func TestWake(t *testing.T) {
	inBubble(t, func(w *world) {
		o := w.options()
		o.Poll = time.Hour
		made, _ := w.begin(o, worker.Handle(plain(func(context.Context, *worker.Attempt) error { return nil })))
		pass(10 * time.Minute)
		w.submit("a")
		made.Wake()
		synctest.Wait()
		if rec := w.get("a"); rec.State != operation.Succeeded {
			t.Errorf("%v", rec.State)
		}
	})
}

// The store is away for a while: nothing is lost, and it is not asked without a pause.
func TestStoreAway(t *testing.T) {
	inBubble(t, func(w *world) {
		var away atomic.Bool
		var calls atomic.Int32
		w.wrap = func(s store) store {
			return &twin{store: s, before: func(call string) error {
				if away.Load() {
					calls.Add(1)
					return &operation.UnavailableError{Op: call, Err: errPlain}
				}
				return nil
			}}
		}
		w.submit("a")
		_, stop := w.begin(w.options(), worker.Handle(plain(func(ctx context.Context, _ *worker.Attempt) error {
			away.Store(true)
			return nil
		})))
		pass(10 * time.Minute)
		if n := calls.Load(); n > 1000 {
			t.Errorf("%d calls in ten minutes", n)
		}
		away.Store(false)
		if rec := w.decided("a"); rec.State != operation.Succeeded {
			t.Errorf("%v", rec.State)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestBrokenWorkers: each mistake is found by a test above.
func TestBrokenWorkers(t *testing.T) {
	type wrapper func(store) store
	for name, c := range map[string]struct {
		test func(*world) error
		wrap wrapper
	}{
		"an unclassified error is a refusal": {unclassified, func(s store) store {
			return &twin{store: s, complete: func(all []operation.Completion) []operation.Completion {
				all = slices.Clone(all)
				for i := range all {
					if all[i].Known == operation.NoAnswer {
						all[i].Known, all[i].Final = operation.Refused, true
					}
				}
				return all
			}}
		}},
		"what a stale attempt knows is not told": {late, func(s store) store {
			return &twin{store: s, respond: func(operation.Response) bool { return true }}
		}},
		"what waited too long is begun": {func(w *world) error {
			w.clock = func() time.Duration { return time.Hour } // it does not see time pass
			return expired(w)
		}, func(s store) store { return s }},
		"a drain forgets what waited": {drained, func(s store) store {
			return &twin{store: s, complete: func(all []operation.Completion) []operation.Completion {
				return slices.DeleteFunc(slices.Clone(all), func(c operation.Completion) bool { return c.Known == operation.NotSent })
			}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.wrap = c.wrap
				err := c.test(w)
				if err == nil {
					t.Error("the twin was not caught")
				}
				t.Log(err)
			})
		})
	}
}
