package seats

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// Charge is money to be taken.
type Charge struct {
	Buyer string `json:"buyer"`
	Cents int64  `json:"cents"`
}

// Paid is what came of a charge.
type Paid struct {
	Number string `json:"number"` // the provider's
}

// Refund is money to be given back.
type Refund struct {
	Of string `json:"of"` // the id of the operation that charged
}

// Refunded is what came of a refund.
type Refunded struct {
	Number string `json:"number"`
}

// Charges are the operations that take money.
func Charges() operation.Kind[Charge, Paid] { return operation.Kind[Charge, Paid]{Name: "seat-charge"} }

// Refunds are the operations that give it back.
func Refunds() operation.Kind[Refund, Refunded] {
	return operation.Kind[Refund, Refunded]{Name: "seat-refund"}
}

// Provider takes money and gives it back. It knows each effect by its key, for ever: asked again, it answers as it did. docs/payments.md is about those that promise less.
type Provider interface {
	Charge(ctx context.Context, key string, c Charge) (Paid, error)
	Refund(ctx context.Context, key, of string) (Refunded, error)
}

// Handlers are what a worker and a reconciler run.
func Handlers(p Provider) []*worker.Entry {
	return []*worker.Entry{
		worker.Handle(worker.Handler[Charge, Paid]{
			Kind: Charges().Name, Timeout: 30 * time.Second, Window: operation.Forever, Base: 100 * time.Millisecond,
			Perform: func(ctx context.Context, a *worker.Attempt, c Charge) (Paid, error) { return p.Charge(ctx, a.Key(), c) },
		}),
		worker.Handle(worker.Handler[Refund, Refunded]{
			Kind: Refunds().Name, Timeout: 30 * time.Second, Window: operation.Forever, Base: 100 * time.Millisecond,
			Perform: func(ctx context.Context, a *worker.Attempt, r Refund) (Refunded, error) {
				return p.Refund(ctx, a.Key(), r.Of)
			},
		}),
	}
}
