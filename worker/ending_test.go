package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// TestDeafHandler is O10 and O13: a handler that ignores its context keeps its slot and its claim until its timeout; what it returns later is evidence.
func TestDeafHandler(t *testing.T) {
	inBubble(t, func(w *world) {
		wake := make(chan struct{})
		h := plain(func(_ context.Context, a *worker.Attempt) error {
			if a.Key() == "deaf" {
				<-wake
			}
			return nil
		})
		h.Concurrency, h.Timeout, h.MaxAttempts = 1, 2*ttl, 1
		w.submit("deaf", operation.WithPriority(1))
		w.submit("next")
		made, stop := w.begin(w.options(), worker.Handle(h))
		pass(2*ttl - time.Second)
		if rec := w.get("next"); rec.State != operation.Pending {
			t.Errorf("next is %v while the slot is taken", rec.State)
		}
		pass(time.Second + 5*time.Second)
		if rec := w.get("deaf"); rec.State != operation.Uncertain || rec.Attempts[0].Known != operation.NoAnswer {
			t.Errorf("deaf is %v: %+v", rec.State, rec.Attempts)
		}
		if s := made.Stats(); s.Abandoned != 1 || w.get("next").State != operation.Pending {
			t.Errorf("one abandoned handler is the most here: %+v, next %v", s, w.get("next").State)
		}
		close(wake)
		if rec := w.decided("deaf"); rec.State != operation.Succeeded {
			t.Errorf("deaf is %v after its answer", rec.State)
		}
		if rec := w.decided("next"); rec.State != operation.Succeeded {
			t.Errorf("next is %v", rec.State)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if s := made.Stats(); s.Abandoned != 0 || s.EverAbandoned != 1 || s.Evidence != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// With room for more of them, an abandoned handler's slot serves another.
func TestAbandonedHandlerFreesItsSlot(t *testing.T) {
	inBubble(t, func(w *world) {
		wake := make(chan struct{})
		h := plain(func(_ context.Context, a *worker.Attempt) error {
			if a.Key() == "deaf" {
				<-wake
			}
			return nil
		})
		h.Concurrency, h.Timeout, h.MaxAttempts = 1, time.Second, 1
		w.submit("deaf", operation.WithPriority(1))
		w.submit("next")
		o := w.options()
		o.MaxAbandoned = 2
		_, stop := w.begin(o, worker.Handle(h))
		if rec := w.decided("next"); rec.State != operation.Succeeded {
			t.Errorf("next is %v", rec.State)
		}
		err := stop()
		var drain *worker.DrainError
		if !errors.As(err, &drain) || drain.Abandoned != 1 || drain.Unreported != 0 {
			t.Errorf("%v", err)
		}
		close(wake)
		synctest.Wait()
		if rec := w.get("deaf"); rec.State != operation.Succeeded {
			t.Errorf("deaf is %v after its answer, although its worker has ended", rec.State)
		}
	})
}

// drained is a worker that stops while one operation runs and others wait for its slot: all that waited is given back at once, and nothing is left for its claim to expire.
func drained(w *world) error {
	release := make(chan struct{})
	var fast atomic.Bool
	fast.Store(true)
	h := plain(func(context.Context, *worker.Attempt) error {
		if !fast.Load() {
			<-release
		}
		return nil
	})
	h.Concurrency = 1
	for i := range 3 {
		w.submit(fmt.Sprint("warm", i))
	}
	made, stop := w.begin(w.options(), worker.Handle(h))
	w.decided("warm2")
	fast.Store(false)
	for i := range 20 {
		w.submit(fmt.Sprint("a", i))
	}
	pass(200 * time.Millisecond)
	if s := made.Stats(); s.Waiting == 0 || s.Running != 1 {
		return fmt.Errorf("nothing waits for a slot: %+v", s)
	}
	go func() {
		pass(2 * time.Second)
		close(release)
	}()
	if err := stop(); err != nil {
		return fmt.Errorf("stopping: %w", err)
	}
	done := 0
	for i := range 20 {
		switch rec := w.get(fmt.Sprint("a", i)); rec.State {
		case operation.Succeeded:
			done++
		case operation.Pending:
		default:
			return fmt.Errorf("%s is %v after the drain", rec.ID, rec.State)
		}
	}
	if done != 1 {
		return fmt.Errorf("%d were done; one was running", done)
	}
	return nil
}

func TestDrain(t *testing.T) {
	inBubble(t, func(w *world) {
		if err := drained(w); err != nil {
			t.Error(err)
		}
	})
}

// A handler that outlives the drain is told to stop, and how; one that stops then is reported by what it says.
func TestDrainEndsContexts(t *testing.T) {
	inBubble(t, func(w *world) {
		causes := make(chan error, 1)
		h := plain(func(ctx context.Context, _ *worker.Attempt) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		})
		h.Timeout = time.Hour
		w.submit("a")
		o := w.options()
		o.Drain = time.Minute
		_, stop := w.begin(o, worker.Handle(h))
		pass(time.Second)
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		if err := <-causes; !errors.Is(err, worker.ErrStopped) {
			t.Errorf("%v", err)
		}
		if rec := w.get("a"); rec.State != operation.Uncertain {
			t.Errorf("%v", rec.State)
		}
	})
}

// expired is a worker whose operations wait for a slot until their claims are over, because it was stopped meanwhile: none of them is begun.
func expired(w *world) error {
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	var fast atomic.Bool
	fast.Store(true)
	var begun atomic.Int32
	h := plain(func(context.Context, *worker.Attempt) error {
		if !fast.Load() {
			begun.Add(1)
			<-hold
		}
		return nil
	})
	h.Concurrency, h.Timeout, h.MaxAttempts = 1, time.Hour, 1
	for i := range 3 {
		w.submit(fmt.Sprint("warm", i))
	}
	made, _ := w.begin(w.options(), worker.Handle(h))
	w.decided("warm2")
	fast.Store(false)
	for i := range 5 {
		w.submit(fmt.Sprint("a", i))
	}
	pass(200 * time.Millisecond)
	if s := made.Stats(); s.Waiting == 0 || s.Running != 1 {
		return fmt.Errorf("nothing waits for a slot: %+v", s)
	}
	pass(20 * ttl)
	var waiting []string
	for i := range 5 {
		rec := w.get(fmt.Sprint("a", i))
		if rec.State == operation.Attempting {
			waiting = append(waiting, rec.ID)
		}
		if len(rec.Attempts) > 3 {
			return fmt.Errorf("%s was fetched %d times, and never begun", rec.ID, len(rec.Attempts))
		}
	}
	if len(waiting) != 1 || begun.Load() != 1 {
		return fmt.Errorf("%v were kept although they could not begin in time, and %d were begun", waiting, begun.Load())
	}
	release()
	pass(time.Second)
	if begun.Load() != 5 {
		return fmt.Errorf("%d were begun in the end", begun.Load())
	}
	return nil
}

// TestQueueGivesBackWhatCannotBegin is fault 26: an attempt whose time cannot suffice any more is not begun, and nothing is sent.
func TestQueueGivesBackWhatCannotBegin(t *testing.T) {
	inBubble(t, func(w *world) {
		if err := expired(w); err != nil {
			t.Error(err)
		}
	})
}

// A claim that is on its way when the worker is stopped is waited for, and what it brings is given back.
func TestDrainGivesBackWhatIsBeingClaimed(t *testing.T) {
	inBubble(t, func(w *world) {
		var slow atomic.Bool
		claiming := make(chan struct{}, 1)
		w.wrap = func(s store) store {
			return &twin{store: s, after: func(call string) error {
				if call == "claim" && slow.Load() {
					claiming <- struct{}{}
					<-time.After(time.Second)
				}
				return nil
			}}
		}
		var begun atomic.Int32
		_, stop := w.begin(w.options(), worker.Handle(plain(func(context.Context, *worker.Attempt) error { begun.Add(1); return nil })))
		pass(time.Second)
		slow.Store(true)
		w.submit("a")
		<-claiming
		if err := stop(); err != nil {
			t.Error(err)
		}
		if rec := w.get("a"); rec.State != operation.Pending || begun.Load() != 0 {
			t.Errorf("%v after %d begins", rec.State, begun.Load())
		}
	})
}
