package worker_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// lostRequest is a request that is on its way when its worker is gone, and lands after the provider was asked, which closes the key, or says so and does not.
func lostRequest(w *world, closes bool) error {
	provider := newMoody(1)
	h := asking(func(_ context.Context, rec *operation.Record) (worker.Finding[receipt], error) {
		provider.mu.Lock()
		defer provider.mu.Unlock()
		if provider.effects[rec.ID] > 0 {
			return worker.Finding[receipt]{What: operation.Found}, nil
		}
		provider.closed[rec.ID] = closes
		return worker.Finding[receipt]{What: operation.Closed, Reason: "no such charge"}, nil
	})
	w.submit("a")
	w.crash(1, operation.KindClaim{})
	w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
	if rec := w.decided("a"); rec.State != operation.Failed {
		return fmt.Errorf("it is %v; want failed", rec.State)
	}
	if err := provider.land("a"); err == nil {
		return fmt.Errorf("it has failed, and then it happened: %v", provider.effects)
	}
	if rec := w.get("a"); rec.State != operation.Failed || rec.ConflictCount != 0 {
		return fmt.Errorf("after the request has landed it is %v, with %d conflicts", rec.State, rec.ConflictCount)
	}
	return nil
}

// TestFault20And21LostRequestCannotLandLater: what was lost before its effect has failed only because its key was closed in the same step, so that the request is refused when it lands after all.
func TestFault20And21LostRequestCannotLandLater(t *testing.T) {
	inBubble(t, func(w *world) {
		if err := lostRequest(w, true); err != nil {
			t.Error(err)
		}
	})
}

// TestFault21LookUpAloneIsCaught is the twin: a look-up that is taken for a closing.
func TestFault21LookUpAloneIsCaught(t *testing.T) {
	inBubble(t, func(w *world) {
		if err := lostRequest(w, false); err == nil {
			t.Error("the twin was not caught")
		}
	})
}
