package payments_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/tenure-go/tenure/examples/payments"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
	"github.com/tenure-go/tenure/worker"
)

// checkout is what a shop's page does.
func checkout(ctx context.Context, ops operation.Store, id string, order payments.Order) (payments.Notice, error) {
	if _, err := payments.Charges().Submit(ctx, ops, id, order); err != nil {
		return payments.Notice{}, err // not recorded, or not known to be: the same call again, with the same id, settles it
	}
	wait, cancel := context.WithTimeout(ctx, 5*time.Second) // how long the page waits; the charge goes on
	defer cancel()
	out, err := payments.Charges().Wait(wait, ops, id)
	if err != nil && !errors.Is(err, operation.ErrUndecided) {
		return payments.Notice{}, err
	}
	return payments.Tell(&out.Record), nil
}

// The provider takes the money and loses its answer. It keeps keys, so the same key is sent again, and is given the stored answer.
func Example() {
	lost, _ := flakypay.Named("lost")
	provider, err := flakypay.New(flakypay.Config{Script: func(c flakypay.Call) flakypay.Fault {
		if c.Nth == 1 {
			return lost
		}
		return flakypay.Fault{}
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { _ = provider.Serve(ctx, listener) }()

	store := memory.NewOperations(memory.Options{}) // a shop has one that lasts
	client := payments.NewClient("http://"+listener.Addr().String(), nil)
	done := make(chan error, 1)
	go func() {
		done <- payments.Run(ctx, store, nil, client, payments.Terms{Keeps: operation.Forever}, worker.Options{})
	}()

	notice, err := checkout(ctx, store, "order-17", payments.Order{Cents: 4200, Card: "tok_visa"})
	fmt.Println(notice.Text, err)
	fmt.Println("effects:", provider.Ledger().Tally(flakypay.Charge, "order-17").Effects)
	stop()
	fmt.Println(<-done)
	// Output:
	// Thank you. Your payment went through. <nil>
	// effects: 1
	// <nil>
}
