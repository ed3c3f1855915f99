package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// TestO15NothingClaimedNothingRun: a claim that brought nothing means stop. What somebody else has claimed is not run, whether it is still at work or gone, and nor is anything of a reply that never came.
func TestO15NothingClaimedNothingRun(t *testing.T) {
	inBubble(t, func(w *world) {
		var runs atomic.Int32
		w.submit("theirs")
		w.crash(1, operation.KindClaim{})
		w.submit("lost")
		var lost atomic.Bool
		w.wrap = func(s store) store {
			return &twin{store: s, after: func(call string) error {
				if call == "claim" && lost.CompareAndSwap(false, true) {
					return &operation.UnknownError{Op: "claim", Err: errPlain}
				}
				return nil
			}}
		}
		h := plain(func(context.Context, *worker.Attempt) error { runs.Add(1); return nil })
		w.begin(w.options(), worker.Handle(h))
		w.reconcile(worker.ReconcilerOptions{})
		pass(time.Minute)
		for _, id := range []string{"theirs", "lost"} {
			if rec := w.get(id); rec.State != operation.Uncertain || len(rec.Attempts) != 1 || rec.Attempts[0].Known != operation.NoAnswer {
				t.Errorf("%s: %v %+v", id, rec.State, rec.Attempts)
			}
		}
		if !lost.Load() || runs.Load() != 0 {
			t.Errorf("%d runs; the reply was lost: %v", runs.Load(), lost.Load())
		}
	})
}

// TestO22CancelArrivesWithoutNotification: a cancel reaches whoever looks next, and nobody needs to be told of it: nothing here depends on a connection that notifies.
func TestO22CancelArrivesWithoutNotification(t *testing.T) {
	inBubble(t, func(w *world) {
		inside, release := make(chan struct{}), make(chan struct{})
		h := plain(func(_ context.Context, a *worker.Attempt) error {
			if a.Key() == "later" {
				t.Error("an operation that was cancelled before it was due was run")
				return nil
			}
			if a.Key() == "running" {
				close(inside)
				<-release
			}
			return nil
		})
		h.Compensate = func(id string, _ charge, _ receipt) (operation.SubmitRequest, error) {
			return charges().Request(id+"/undo", charge{})
		}
		w.begin(w.options(), worker.Handle(h))
		w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		w.submit("later", operation.RunIn(10*time.Second))
		w.submit("running")
		<-inside
		for id, want := range map[string]operation.State{"later": operation.Cancelled, "running": operation.Attempting} {
			if rec, err := w.store.Cancel(context.Background(), id, "not wanted"); err != nil || rec.State != want {
				t.Errorf("%s: %v, %v", id, rec.State, err)
			}
		}
		close(release)
		pass(time.Minute)
		if rec := w.get("running"); rec.State != operation.Succeeded || rec.UndoneBy != "running/undo" || w.get("running/undo").State != operation.Succeeded {
			t.Errorf("the wish: %v, undone by %q", rec.State, rec.UndoneBy)
		}
	})
}

// TestO43NoKeysNoRetry: at a provider without idempotency keys nothing is sent again because nobody knows, or because it was not observed. Only an inquiry that proves it absent, past the provider's horizon, ends it: as failed, so
// that who wants it still submits it anew.
func TestO43NoKeysNoRetry(t *testing.T) {
	inBubble(t, func(w *world) {
		var sent atomic.Int32
		began := time.Now()
		h := plain(func(context.Context, *worker.Attempt) error { sent.Add(1); return errPlain })
		h.AskMost = time.Minute
		h.Inquire = func(context.Context, *operation.Record, charge) (worker.Finding[receipt], error) {
			if time.Since(began) < time.Hour {
				return worker.Finding[receipt]{What: operation.NotObserved}, nil
			}
			return worker.Finding[receipt]{What: operation.Closed, Reason: "its day's books are closed"}, nil
		}
		w.begin(w.options(), worker.Handle(h))
		w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
		w.submit("a")
		pass(50 * time.Minute)
		if rec := w.get("a"); rec.State != operation.Uncertain || sent.Load() != 1 {
			t.Errorf("within the horizon: %v, sent %d times", rec.State, sent.Load())
		}
		pass(20 * time.Minute)
		if rec := w.get("a"); rec.State != operation.Failed || sent.Load() != 1 || !strings.Contains(rec.Reason, "closed") {
			t.Errorf("past it: %v %q, sent %d times", rec.State, rec.Reason, sent.Load())
		}
		w.submit("b")
		pass(time.Second)
		if sent.Load() != 2 {
			t.Errorf("anew: sent %d times", sent.Load())
		}
	})
}

// TestT55ClockAheadStealsNoClaim: the clock of a node that is ten minutes ahead, or behind, takes no claim from another, and gives none of its own away: the store's clock decides.
func TestT55ClockAheadStealsNoClaim(t *testing.T) {
	for _, skew := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		inBubble(t, func(w *world) {
			var runs atomic.Int32
			h := plain(func(context.Context, *worker.Attempt) error { runs.Add(1); <-time.After(3 * ttl); return nil })
			h.Window = operation.Forever // whoever found its claim expired would run it again
			skewed := w.options()
			skewed.Clock = func() time.Duration { return w.clock() + skew }
			w.submit("a")
			one, _ := w.begin(w.options(), worker.Handle(h))
			pass(100 * time.Millisecond)
			other, _ := w.begin(skewed, worker.Handle(h))
			w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
			w.submit("b")
			w.submit("c")
			pass(time.Minute)
			for _, id := range []string{"a", "b", "c"} {
				if rec := w.get(id); rec.State != operation.Succeeded || len(rec.Attempts) != 1 {
					t.Errorf("%v: %s is %v after %+v", skew, id, rec.State, rec.Attempts)
				}
			}
			if lost := one.Stats().LostClaims + other.Stats().LostClaims; runs.Load() != 3 || lost != 0 || one.Stats().Started+other.Stats().Started != 3 {
				t.Errorf("%v: %d runs, %d claims lost", skew, runs.Load(), lost)
			}
		})
	}
}
