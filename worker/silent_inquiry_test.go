package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// TestSilentInquiriesAreNoOutage: of a thousand inquiries every tenth is never answered. Those come to their end last of all that were begun together, and so in a row; but the provider has
// answered others meanwhile, and is not down. It was asked once a minute.
func TestSilentInquiriesAreNoOutage(t *testing.T) {
	inBubble(t, func(w *world) {
		const n = 1000
		var calls atomic.Int32
		h := asking(func(ctx context.Context, _ *operation.Record) (worker.Finding[receipt], error) {
			answer := time.After(10 * time.Millisecond)
			if calls.Add(1)%10 == 0 {
				answer = nil
			}
			select {
			case <-answer:
				return worker.Finding[receipt]{What: operation.Found}, nil
			case <-ctx.Done():
				return worker.Finding[receipt]{}, ctx.Err()
			}
		})
		h.Timeout, h.AskMost = time.Second, 10*time.Second
		for i := range n {
			w.submit(fmt.Sprint("a", i))
		}
		w.crash(n, operation.KindClaim{})
		made, _ := w.reconcile(worker.ReconcilerOptions{Pace: worker.Pace{Concurrency: 32, Rate: 1000}}, worker.Handle(h))
		pass(2 * time.Minute)
		s := made.Stats()
		if s.Decided != n || s.Providers[0].Outages > 0 {
			t.Errorf("after two minutes: %+v", s)
		}
	})
}
