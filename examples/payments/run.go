package payments

import (
	"context"
	"errors"
	"sync"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// Run charges and refunds until ctx ends: a worker, and a reconciler, of which one works at a time however many processes run. leases is where they agree on that. It returns an error matching [ErrTerms] or
// [worker.ErrInvalid] at once, and else what their own Run returned.
func Run(ctx context.Context, ops operation.Backend, leases lease.Store, c *Client, terms Terms, o worker.Options) error {
	charge, err := ChargeHandler(c, terms)
	if err != nil {
		return err
	}
	refund, err := RefundHandler(c, terms)
	if err != nil {
		return err
	}
	handlers := []*worker.Entry{worker.Handle(charge), worker.Handle(refund)}
	w, err := worker.New(ops, o, handlers...)
	if err != nil {
		return err
	}
	r, err := worker.NewReconciler(ops, worker.ReconcilerOptions{Leases: leases, Name: "payments/reconciler", Logger: o.Logger}, handlers...)
	if err != nil {
		return err
	}
	var both sync.WaitGroup
	var worked, reconciled error
	both.Go(func() { worked = w.Run(ctx) })
	both.Go(func() { reconciled = r.Run(ctx) })
	both.Wait()
	return errors.Join(worked, reconciled)
}
