package drill

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

// holdsOf are the holds of a store.
func holdsOf(a authority) (holdBackend, error) {
	switch s := a.(type) {
	case *sqlite.Store:
		return s.Holds(), nil
	case *postgres.Store:
		return s.Holds(), nil
	}
	return nil, fmt.Errorf("%w: %T keeps no holds", ErrProcess, a)
}

// confirmSale is the store's own ConfirmTx, in a transaction of the table of sales beside it.
func confirmSale(ctx context.Context, a authority, tx *sql.Tx, req hold.ConfirmRequest) (hold.Hold, error) {
	switch s := a.(type) {
	case *sqlite.Store:
		return s.Holds().ConfirmTx(ctx, tx, req)
	case *postgres.Store:
		return s.Holds().ConfirmSQL(ctx, tx, req)
	}
	return hold.Hold{}, fmt.Errorf("%w: %T keeps no holds", ErrProcess, a)
}

// seatOf is the item of a round: one seat.
func seatOf(run string, round int) string { return nameOf(run, round) + "/seat" }

// saleTables makes the business's own table of sales, which has no key: what is sold twice is there twice. And, for those who keep holds by themselves, a table of seats.
func saleTables(ctx context.Context, c *conductor) error {
	c.disarm = append(c.disarm, func(ctx context.Context) error {
		return c.res.exec(ctx, `DROP TABLE IF EXISTS [sale]; DROP TABLE IF EXISTS [seat];`)
	})
	return c.res.exec(ctx, `CREATE TABLE [sale] (round INTEGER NOT NULL, hold TEXT NOT NULL, buyer TEXT NOT NULL, reference TEXT NOT NULL);
		CREATE TABLE [seat] (round INTEGER PRIMARY KEY, hold TEXT NOT NULL, buyer TEXT NOT NULL, until_ns BIGINT NOT NULL, sold BOOLEAN NOT NULL);`)
}

// judgeSales reads the table of sales and the store's holds, and judges.
func judgeSales(ctx context.Context, q question) (v model.Verdict, err error) {
	res, err := openResource(q.place, q.Run)
	if err != nil {
		return v, err
	}
	defer func() { _ = res.close() }() // it only read
	h, err := res.history(ctx)
	if err != nil {
		return v, fmt.Errorf("reading the tables: %w", err)
	}
	facts := model.SaleFacts{Answers: h.Answers, Events: h.Events}
	if facts.Sales, err = res.sales(ctx); err != nil {
		return v, fmt.Errorf("reading the sales: %w", err)
	}
	store, err := q.site().open(ctx)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, store.Shutdown(ctx)) }()
	holds, err := holdsOf(store)
	if err != nil {
		return v, err
	}
	for _, round := range q.Sales.Played {
		if err := heldIn(ctx, holds, q.Run, round.Round, &facts); err != nil {
			return v, fmt.Errorf("reading the holds: %w", err)
		}
	}
	return model.JudgeSales(facts, *q.Sales), nil
}

// sales are the rows of the business's table.
func (r *resource) sales(ctx context.Context) (all []model.SaleRow, err error) {
	tx, err := r.db.BeginTx(ctx, &r.snapshot)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // it only read
	err = r.each(ctx, tx, `SELECT round, hold, buyer, reference FROM [sale]`, func(rows *sql.Rows) error {
		var s model.SaleRow
		err := rows.Scan(&s.Round, &s.Hold, &s.Buyer, &s.Reference)
		all = append(all, s)
		return err
	})
	return all, err
}

// heldIn adds what the store tells of a round.
func heldIn(ctx context.Context, holds holdBackend, run string, round int, facts *model.SaleFacts) error {
	seat := seatOf(run, round)
	all, err := holds.List(ctx, hold.ListRequest{Item: seat, Limit: hold.MaxList})
	if err != nil {
		return err
	}
	for _, h := range all {
		facts.Holds = append(facts.Holds, model.SaleHold{Round: round, ID: h.ID.String(), Actor: h.Actor, State: h.State.String(), Reference: h.Reference})
	}
	items, err := holds.Items(ctx, seat, "", 1)
	for _, i := range items {
		facts.Items = append(facts.Items, model.SaleItem{Round: round, Sold: i.Sold})
	}
	return err
}
