package seats

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/postgres"
)

// Schema is the shop's own table, in the store's database.
const Schema = `CREATE TABLE ticket (seat text PRIMARY KEY, buyer text NOT NULL, hold uuid NOT NULL, charge text NOT NULL)`

// Shop sells seats. Its methods may be repeated, and are safe for concurrent use.
type Shop struct {
	Pool  *pgxpool.Pool // of the store's database
	Store *postgres.Store
	PayIn time.Duration // how long a buyer has for paying
	// Grace is for how long after that a payment still buys, where all of the seats are still free. 0: it does not.
	Grace time.Duration
}

// mostSeats is how many seats one buyer may hold at a time.
const mostSeats = 8

// Choose holds seats for a buyer: all of them, or none. id is made before the call, and lives as long as the page does: choosing again under it is the same hold.
// The buyer is who has signed in, and not what a form says. An error that matches [hold.ErrTaken] names the seat.
func (s *Shop) Choose(ctx context.Context, id fence.ID, buyer string, seats ...string) (hold.Hold, error) {
	lines := make([]hold.Line, len(seats))
	for i, seat := range seats {
		lines[i] = hold.Line{Item: seat, Quantity: 1}
	}
	return s.Store.Holds().Place(ctx, hold.PlaceRequest{ID: id, Actor: buyer, Lines: lines, TTL: s.PayIn, MaxUnits: mostSeats})
}

// Pay charges for what a buyer has chosen, and sells it. While the buyer's bank takes its time nothing is locked, and no transaction is open. An error that matches
// [operation.ErrUndecided] says that the wait is over and the charge goes on: ask again under the same id.
func (s *Shop) Pay(ctx context.Context, id fence.ID, buyer string, cents int64) (hold.Hold, error) {
	ops := s.Store.Operations()
	if _, err := Charges().Submit(ctx, ops, chargeOf(id), Charge{Buyer: buyer, Cents: cents}); err != nil {
		return hold.Hold{}, err // not recorded, or not known to be: the same call again settles it
	}
	out, err := Charges().Wait(ctx, ops, chargeOf(id))
	if err != nil {
		return hold.Hold{}, err
	}
	if out.State != operation.Succeeded {
		return hold.Hold{}, fmt.Errorf("nothing was charged: the charge is %v: %s", out.State, out.Reason)
	}
	return s.Sell(ctx, id, buyer)
}

// Sell sells what is held and has been paid for. It is called by Pay; and again by whoever finds a charge without its sale, because the process that waited for it has gone. Look at the state of
// what it returns: [hold.Confirmed], or [hold.Late], and then the money goes back.
func (s *Shop) Sell(ctx context.Context, id fence.ID, buyer string) (told hold.Hold, err error) {
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		told, err = s.Store.Holds().ConfirmTx(ctx, tx, hold.ConfirmRequest{ID: id, Actor: buyer, Reference: chargeOf(id), Grace: s.Grace})
		if err != nil {
			return err
		}
		if told.State == hold.Late {
			return s.refund(ctx, tx, id)
		}
		return writeTickets(ctx, tx, told)
	})
	return told, err
}

// writeTickets writes the tickets of a hold that is confirmed. Where they are there already, the sale is being repeated: nobody else can have them.
func writeTickets(ctx context.Context, tx pgx.Tx, sold hold.Hold) error {
	for _, l := range sold.Lines {
		if _, err := tx.Exec(ctx, `INSERT INTO ticket (seat, buyer, hold, charge) VALUES ($1, $2, $3::uuid, $4) ON CONFLICT (seat) DO NOTHING`,
			l.Item, sold.Actor, sold.ID.String(), sold.Reference); err != nil {
			return err
		}
	}
	return nil
}

// refund asks for the refund of a payment that came late, in the transaction that records it: there is no late payment whose refund was forgotten.
func (s *Shop) refund(ctx context.Context, tx pgx.Tx, id fence.ID) error {
	req, err := Refunds().Request("refund/"+id.String(), Refund{Of: chargeOf(id)}, operation.Compensating(chargeOf(id)))
	if err != nil {
		return err
	}
	_, err = s.Store.Operations().SubmitTx(ctx, tx, req)
	return err
}

// chargeOf is the id of the charge for a hold: one, however often its button is pressed.
func chargeOf(id fence.ID) string { return "charge/" + id.String() }
