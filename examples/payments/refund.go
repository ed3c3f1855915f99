package payments

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// Refund is what a refund is asked for.
type Refund struct {
	Charge string `json:"charge"` // the provider's id of what is given back, in whole
}

// Refunded is what is known of a refund that happened.
type Refunded struct {
	Refund string `json:"refund"` // the provider's id
	Cents  int64  `json:"amount"`
}

// Refunds are the operations that give money back.
func Refunds() operation.Kind[Refund, Refunded] {
	return operation.Kind[Refund, Refunded]{Name: "refund"}
}

// RefundID is the id of the refund of a charge: whoever asks for it, and however often, means the same one.
func RefundID(charge string) string { return charge + "/refund" }

func refunded(got answer) Refunded { return Refunded{Refund: got.ID, Cents: got.Amount} }

// RefundHandler is [ChargeHandler] for refunds.
func RefundHandler(c *Client, terms Terms) (worker.Handler[Refund, Refunded], error) {
	t, err := terms.complete()
	return worker.Handler[Refund, Refunded]{
		Kind: Refunds().Name, Timeout: t.Timeout, Window: t.window(), NotAfter: t.NotAfter, Provider: "payments",
		Perform: func(ctx context.Context, a *worker.Attempt, r Refund) (Refunded, error) {
			got, err := c.send(ctx, "/refunds", a, r)
			if err != nil {
				return Refunded{}, err
			}
			return refunded(got), nil
		},
		Inquire: func(ctx context.Context, rec *operation.Record, _ Refund) (worker.Finding[Refunded], error) {
			got, what, err := c.inquire(ctx, t, "/refunds", rec)
			return worker.Finding[Refunded]{What: what, Result: refunded(got), Reason: got.Reason}, err
		},
	}, err
}

// RefundOf asks for the refund of a charge. Twice is one refund. While it is not known whether the charge has happened, there is nothing to give back yet, and the error matches
// [operation.ErrUndecided], whatever timeout, lease or deadline has passed: see [Withdraw]. Where it did not happen, the error matches [operation.ErrDecided]; and [ErrNoCharge] where nobody noted
// the provider's id. Other errors are those of the store.
func RefundOf(ctx context.Context, ops operation.Store, charge string) (operation.Outcome[Refunded], error) {
	var none operation.Outcome[Refunded]
	out, err := Charges().Get(ctx, ops, charge)
	if err != nil {
		return none, err
	}
	if err := out.MayCompensate(); err != nil {
		return none, err
	}
	if out.Value.Charge == "" {
		return none, &NoChargeError{ID: charge}
	}
	return Refunds().Submit(ctx, ops, RefundID(charge), Refund{Charge: out.Value.Charge}, operation.Compensating(charge))
}

// Withdraw gives an order up, whatever is known of its charge. One that cannot have happened is cancelled; one that may have is a wish, which the reconciler honours by a refund as soon as it is known that it did; and one that
// has succeeded is refunded now. It returns the charge as it stands. A charge that failed has nothing to withdraw, and is no error.
func Withdraw(ctx context.Context, ops operation.Store, charge, reason string) (operation.Record, error) {
	rec, err := ops.Cancel(ctx, charge, reason)
	if errors.Is(err, operation.ErrDecided) {
		rec, err = ops.Get(ctx, charge)
	}
	if err != nil || rec.State != operation.Succeeded {
		return rec, err
	}
	_, err = RefundOf(ctx, ops, charge)
	return rec, err
}
