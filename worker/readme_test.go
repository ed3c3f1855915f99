package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
	"github.com/tenure-go/tenure/worker"
)

type readmeCharge struct{ Cents int }
type readmeReceipt struct{ Number string }

// provider is what README calls pay: it charges, and loses its answers.
type readmeProvider struct{ charged map[string]int }

func (p *readmeProvider) Charge(_ context.Context, key string, req readmeCharge) (readmeReceipt, error) {
	p.charged[key] += req.Cents
	return readmeReceipt{}, errors.New("connection reset")
}

func (p *readmeProvider) Find(_ context.Context, key string) (worker.Finding[readmeReceipt], error) {
	if p.charged[key] == 0 {
		return worker.Finding[readmeReceipt]{What: operation.NotObserved}, nil
	}
	return worker.Finding[readmeReceipt]{What: operation.Found, Result: readmeReceipt{Number: "ch-" + key}}, nil
}

// TestReadme runs README's handler: its answers are lost, and the operation succeeds all the same, with one charge.
func TestReadme(t *testing.T) {
	type (
		Charge  = readmeCharge
		Receipt = readmeReceipt
	)
	synctest.Test(t, func(t *testing.T) {
		pay := &readmeProvider{charged: map[string]int{}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// README begins.
		charge := worker.Handle(worker.Handler[Charge, Receipt]{
			Kind: "charge", Timeout: 5 * time.Second, // protects the wait
			Perform: func(ctx context.Context, a *worker.Attempt, req Charge) (Receipt, error) {
				return pay.Charge(ctx, a.Key(), req) // the key protects the effect
			},
			Inquire: func(ctx context.Context, rec *operation.Record, _ Charge) (worker.Finding[Receipt], error) {
				return pay.Find(ctx, rec.ID)
			},
		})
		// README ends.
		store := memory.NewOperations(memory.Options{})
		w, err := worker.New(store, worker.Options{}, charge)
		if err != nil {
			t.Fatal(err)
		}
		r, err := worker.NewReconciler(store, worker.ReconcilerOptions{}, charge)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		go func() { ended <- w.Run(ctx) }()
		go func() { ended <- r.Run(ctx) }()
		kind := operation.Kind[Charge, Receipt]{Name: "charge"}
		if _, err := kind.Submit(ctx, store, "order-7", Charge{Cents: 500}); err != nil {
			t.Fatal(err)
		}
		rec, err := operation.Wait(ctx, store, "order-7")
		if err != nil || rec.State != operation.Succeeded || pay.charged["order-7"] != 500 {
			t.Errorf("%v, %v; charged %v", rec.State, err, pay.charged)
		}
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
}
