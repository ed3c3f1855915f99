package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// overtaken is a provider that closes the key and forgets it; while its answer is on its way the attempt turns out not to have been sent, and another begins. (spec/operation.pml, twin LAPSES.)
func overtaken(w *world) error {
	asked := make(chan struct{}, 1)
	h := asking(func(ctx context.Context, rec *operation.Record) (worker.Finding[receipt], error) {
		if rec.State == operation.Uncertain && len(rec.Attempts) == 1 {
			if _, err := w.store.Respond(ctx, operation.Response{ID: rec.ID, Number: rec.Current(), Answer: operation.Answer{Known: operation.NotSent}}); err != nil {
				return worker.Finding[receipt]{}, err
			}
			w.crash(1, operation.KindClaim{})
			asked <- struct{}{}
		}
		return worker.Finding[receipt]{What: operation.Closed, Reason: "closed"}, nil
	})
	w.submit("a")
	w.crash(1, operation.KindClaim{})
	_, stop := w.reconcile(worker.ReconcilerOptions{}, worker.Handle(h))
	<-asked
	pass(time.Second)
	if err := stop(); err != nil {
		return err
	}
	if rec := w.get("a"); rec.State != operation.Attempting {
		return fmt.Errorf("it is %v by a finding that is older than its attempt %d", rec.State, rec.Current())
	}
	return nil
}

// TestFindingsSayAsOfWhichAttempt: a closing that was found before another attempt began does not fail that one.
func TestFindingsSayAsOfWhichAttempt(t *testing.T) {
	inBubble(t, func(w *world) {
		if err := overtaken(w); err != nil {
			t.Error(err)
		}
	})
}

// timeless is a reconciler that does not say as of when.
type timeless struct{ store }

func (s timeless) Inquired(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
	inq.AsOf = 0
	return s.store.Inquired(ctx, inq)
}

// TestTimelessFindingsAreCaught: they do not pass [TestFindingsSayAsOfWhichAttempt].
func TestTimelessFindingsAreCaught(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wrap = func(s store) store { return timeless{s} }
		if err := overtaken(w); err == nil {
			t.Error("it passes")
		}
	})
}
