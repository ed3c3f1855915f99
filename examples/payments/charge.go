package payments

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/worker"
)

// Order is what a charge is asked for. What it holds is sent to the provider as it is stored.
type Order struct {
	Cents int64  `json:"amount"`
	Card  string `json:"card"` // the provider's token of it, never its number
}

// Paid is what is known of a charge that happened, by whatever way it became known.
type Paid struct {
	Charge string `json:"charge"` // the provider's id
	Cents  int64  `json:"amount"`
}

// Charges are the operations that take money. The id is the order's: one order is paid once.
func Charges() operation.Kind[Order, Paid] { return operation.Kind[Order, Paid]{Name: "charge"} }

// paid makes of an answer what is stored. The worker, the inquiry and the webhook all come here, because results are compared byte by byte.
func paid(got answer) Paid { return Paid{Charge: got.ID, Cents: got.Amount} }

// ChargeHandler is how a charge is done under a provider's terms. Its fields are the caller's to change before [worker.Handle]. It returns an error matching [ErrTerms].
func ChargeHandler(c *Client, terms Terms) (worker.Handler[Order, Paid], error) {
	t, err := terms.complete()
	return worker.Handler[Order, Paid]{
		Kind:     Charges().Name,
		Timeout:  t.Timeout,  // protects the wait
		Window:   t.window(), // while the key protects the effect
		NotAfter: t.NotAfter,
		Provider: "payments",

		Perform: func(ctx context.Context, a *worker.Attempt, o Order) (Paid, error) {
			got, err := c.send(ctx, "/charges", a, o)
			if err != nil {
				return Paid{}, err
			}
			return paid(got), nil
		},

		Inquire: func(ctx context.Context, rec *operation.Record, _ Order) (worker.Finding[Paid], error) {
			got, what, err := c.inquire(ctx, t, "/charges", rec)
			return worker.Finding[Paid]{What: what, Result: paid(got), Reason: got.Reason}, err
		},

		Compensate: func(id string, _ Order, p Paid) (operation.SubmitRequest, error) {
			if p.Charge == "" {
				return operation.SubmitRequest{}, &NoChargeError{ID: id}
			}
			return Refunds().Request(RefundID(id), Refund{Charge: p.Charge})
		},
	}, err
}

// inquire asks what became of an operation, and says what may be concluded under the provider's terms.
func (c *Client) inquire(ctx context.Context, t Terms, path string, rec *operation.Record) (answer, operation.Finding, error) {
	method := http.MethodGet
	if t.Closes {
		method, path = http.MethodPost, path+"/close"
	}
	got, err := c.ask(ctx, method, path, rec.ID)
	if err != nil {
		return got, 0, err
	}
	switch {
	case got.Finding == "found" && got.ID != "":
		return got, operation.Found, nil
	case got.Finding == "closed": // by this inquiry or another, or by a refusal for good that the provider keeps
		return got, operation.Closed, nil
	case got.Finding != "not observed":
		return got, 0, fmt.Errorf("%w: a finding of %q", errAnswer, got.Finding)
	case t.NotAfter > 0 && passed(got.now, rec.NotAfter):
		got.Reason = "not observed after the instant from which the provider refuses it"
		return got, operation.PastInstant, nil
	}
	return got, operation.NotObserved, nil // it may be on its way, or be forgotten
}

// passed reports whether an instant has passed by the provider's clock, read in the step of its look. This machine's own clock is not asked.
func passed(now, notAfter time.Time) bool {
	return !now.IsZero() && !notAfter.IsZero() && now.UnixMilli() >= notAfter.UnixMilli()
}
