package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
	"github.com/tenure-go/tenure/worker"
)

// A result that cannot be made into what is stored is left out: that the effect happened is recorded all the same, from the attempt as from an inquiry.
func TestResultThatCannotBeMade(t *testing.T) {
	inBubble(t, func(w *world) {
		w.submit("found")
		w.crash(1, operation.KindClaim{})
		w.submit("performed")
		h := asking(func(context.Context, *operation.Record) (worker.Finding[receipt], error) {
			return worker.Finding[receipt]{What: operation.Found, Result: receipt{"r"}}, nil
		})
		h.Redact = func(receipt) receipt { panic("a secret") }
		w.begin(w.options(), worker.Handle(h))
		w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		pass(time.Minute)
		for _, id := range []string{"found", "performed"} {
			if rec := w.get(id); rec.State != operation.Succeeded || len(rec.Result) != 0 || strings.Contains(fmt.Sprint(rec), "a secret") {
				t.Errorf("%s: %v %s %+v", id, rec.State, rec.Result, rec.Attempts)
			}
		}
		if rec := w.get("performed"); !strings.Contains(rec.Attempts[0].Reason, "not stored") {
			t.Errorf("%+v", rec.Attempts)
		}
	})
}

// A handler that carries no instant sends nothing for an operation whose earlier attempts carried one: its request could land after it was found that none can any more.
func TestAnotherVersionCarriesNoInstant(t *testing.T) {
	inBubble(t, func(w *world) {
		w.submit("a")
		jobs := w.crash(1, operation.KindClaim{NotAfter: 5 * time.Minute, Window: operation.Forever})
		if errs, err := w.store.Complete(w.t.Context(), []operation.Completion{{Ref: jobs[0].Ref, Answer: operation.Answer{Known: operation.NotSent}}}); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
		var sent atomic.Int32
		h := plain(func(context.Context, *worker.Attempt) error { sent.Add(1); return nil })
		h.Window, h.Base, h.Most = operation.Forever, time.Second, time.Minute
		_, stop := w.begin(w.options(), worker.Handle(h))
		pass(time.Minute)
		rec := w.get("a")
		if sent.Load() != 0 || rec.State != operation.Pending || len(rec.Attempts) < 2 || rec.Attempts[1].Known != operation.NotSent {
			t.Errorf("sent %d times: %v %+v", sent.Load(), rec.State, rec.Attempts)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		h.NotAfter = 5 * time.Minute
		w.begin(w.options(), worker.Handle(h))
		if rec := w.decided("a"); rec.State != operation.Succeeded || sent.Load() != 1 {
			t.Errorf("the version that carries it: %v, sent %d times", rec.State, sent.Load())
		}
	})
}

// A wall clock that was far ahead for a while silences no schedule when it is right again, and what it submitted early is not submitted twice.
func TestScheduleAfterAClockAhead(t *testing.T) {
	inBubble(t, func(w *world) {
		var step atomic.Int64
		s, err := worker.NewScheduler(w.store, worker.SchedulerOptions{Now: func() time.Time { return time.Now().Add(time.Duration(step.Load())) }}, every("n", "@hourly"))
		if err != nil {
			t.Fatal(err)
		}
		w.run(s.Run)
		pass(30 * time.Minute)
		step.Store(int64(365 * 24 * time.Hour))
		pass(10 * time.Minute)
		step.Store(0)
		pass(2 * time.Hour)
		got := w.ids()
		for _, want := range []string{"n@2000-01-01T01:00Z", "n@2000-01-01T02:00Z"} {
			if !slices.Contains(got, want) {
				t.Errorf("%v; want %v too", got, want)
			}
		}
		if len(got) != 4 { // midnight, and the one of the year after
			t.Errorf("%v", got)
		}
	})
}

// An inquiry that does not return holds up neither the others of its provider, nor the reconciler's end; and as many of them as may run at once are left behind, not more.
func TestDeafInquiry(t *testing.T) {
	inBubble(t, func(w *world) {
		w.submit("deaf")
		w.crash(1, operation.KindClaim{})
		pass(time.Second)
		for i := range 5 {
			w.submit(fmt.Sprint("o-", i))
		}
		w.crash(5, operation.KindClaim{})
		release := make(chan struct{})
		var deaf atomic.Int32
		h := asking(func(_ context.Context, rec *operation.Record) (worker.Finding[receipt], error) {
			if rec.ID == "deaf" {
				deaf.Add(1)
				<-release
			}
			return worker.Finding[receipt]{What: operation.Found, Result: receipt{"r"}}, nil
		})
		h.Timeout = time.Second
		made, stop := w.reconcile(worker.ReconcilerOptions{Pace: worker.Pace{Concurrency: 3}}, worker.Handle(h))
		pass(10 * time.Minute)
		for i := range 5 {
			if rec := w.get(fmt.Sprint("o-", i)); rec.State != operation.Succeeded {
				t.Errorf("%s: %v", rec.ID, rec.State)
			}
		}
		pass(2 * time.Hour)
		if n := deaf.Load(); n != 3 {
			t.Errorf("%d of them were left behind; want 3", n)
		}
		if rec := w.get("deaf"); rec.State != operation.Uncertain {
			t.Errorf("%v", rec.State)
		}
		close(release)
		if rec := w.decided("deaf"); rec.State != operation.Succeeded {
			t.Errorf("when it returns again: %v", rec.State)
		}
		if s := made.Stats(); s.Providers[0].Abandoned != 0 {
			t.Errorf("%+v", s)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A reconciler ends although an inquiry does not.
func TestReconcilerEndsBesideADeafInquiry(t *testing.T) {
	inBubble(t, func(w *world) {
		w.submit("deaf")
		w.crash(1, operation.KindClaim{})
		inside, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		h := asking(func(context.Context, *operation.Record) (worker.Finding[receipt], error) {
			once.Do(func() { close(inside) })
			<-release
			return worker.Finding[receipt]{}, nil
		})
		_, stop := w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		<-inside
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(release)
	})
}

// Claims that have expired are ended also while nobody owns the reconciler's name any more, because its owner died with its host, and nobody does yet.
func TestCrashedOwnerAndWorker(t *testing.T) {
	inBubble(t, func(w *world) {
		authority := memory.New(memory.Options{Clock: clock.Monotonic()})
		o := lease.Options{TTL: time.Minute, Clock: clock.Monotonic()}
		dead, err := lease.Start(w.t.Context(), authority, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dead.Acquire(w.t.Context(), lease.Want{Names: []string{"tenure/reconciler"}}); err != nil {
			t.Fatal(err)
		}
		waiting, stop := w.reconcile(worker.ReconcilerOptions{Leases: authority, Session: o})
		w.submit("a")
		w.crash(1, operation.KindClaim{})
		pass(ttl + time.Second)
		if rec := w.get("a"); rec.State != operation.Uncertain || waiting.Stats().Owner || waiting.Stats().Expired != 1 {
			t.Errorf("%v; %+v", rec.State, waiting.Stats())
		}
		if err := errors.Join(stop(), dead.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
}

// What the other side asks for is honoured, but a mistake of its puts nothing off for longer than a day.
func TestPushBackIsBounded(t *testing.T) {
	inBubble(t, func(w *world) {
		w.submit("a")
		w.submit("b")
		w.begin(w.options(), worker.Handle(plain(func(_ context.Context, a *worker.Attempt) error {
			after := 1000 * 24 * time.Hour
			if a.Key() == "b" {
				after = 2 * time.Hour
			}
			return &budget.Error{Class: budget.Refused, RetryAfter: after, Err: errPlain}
		})))
		pass(time.Second)
		for id, most := range map[string]time.Duration{"a": 24 * time.Hour, "b": 2 * time.Hour} {
			if rec := w.get(id); rec.State != operation.Pending || rec.StepIn < most-time.Minute || rec.StepIn > most+time.Minute {
				t.Errorf("%s is %v, next in %v; want %v", id, rec.State, rec.StepIn, most)
			}
		}
	})
}

// narrow is a store that can record no more than a few reports within the time of a call.
type narrow struct{ store }

func (s narrow) Complete(ctx context.Context, all []operation.Completion) ([]error, error) {
	if len(all) > 3 {
		return nil, &operation.UnknownError{Op: "complete", Err: errors.New("it took too long")}
	}
	return s.store.Complete(ctx, all)
}

// Reports that are too many for one call are recorded in several.
func TestSlowStoreTakesFewerReports(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wrap = func(s store) store { return narrow{s} }
		const n = 20
		var all sync.WaitGroup // they end together
		all.Add(n)
		for i := range n {
			w.submit(fmt.Sprint("o-", i))
		}
		h := plain(func(context.Context, *worker.Attempt) error {
			all.Done()
			all.Wait()
			return nil
		})
		h.Concurrency = n
		_, stop := w.begin(w.options(), worker.Handle(h))
		pass(30 * time.Second)
		for i := range n {
			if rec := w.get(fmt.Sprint("o-", i)); rec.State != operation.Succeeded {
				t.Errorf("%s: %v", rec.ID, rec.State)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
