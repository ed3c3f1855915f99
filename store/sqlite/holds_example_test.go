package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/sqlite"
)

// A seat is held while its buyer pays. The ticket and the confirmation share one commit; a payment that came late buys no ticket, and is recorded.
func ExampleHolds_ConfirmTx() {
	if err := sellTickets(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// ann, who paid in time: confirmed
	// bob, who did not: late, and charge-2 is to be given back
	// 1 ticket
}

func sellTickets(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "tenure")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "tickets.db")
	store, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	defer func() { _ = store.Shutdown(ctx) }()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE tickets (seat TEXT PRIMARY KEY, buyer TEXT)`); err != nil {
		return err
	}

	holds := store.Holds()
	if err := holds.Stock(ctx, []hold.Item{{Name: "row-1/seat-1", Quantity: 1}, {Name: "row-1/seat-2", Quantity: 1}}); err != nil {
		return err
	}
	ann, bob := lease.NewID(), lease.NewID()
	if _, err := holds.Place(ctx, hold.PlaceRequest{ID: ann, Actor: "ann", TTL: 10 * time.Minute, Lines: []hold.Line{{Item: "row-1/seat-1", Quantity: 1}}}); err != nil {
		return err
	}
	late, err := holds.Place(ctx, hold.PlaceRequest{ID: bob, Actor: "bob", TTL: time.Millisecond, Lines: []hold.Line{{Item: "row-1/seat-2", Quantity: 1}}})
	for ; err == nil && late.State == hold.Held; late, err = holds.Get(ctx, bob) { // bob takes too long
	}
	if err != nil {
		return err
	}
	paid, err := sellTicket(ctx, db, holds, ann, "ann", "charge-1")
	if err != nil {
		return err
	}
	fmt.Println("ann, who paid in time:", paid.State)
	if paid, err = sellTicket(ctx, db, holds, bob, "bob", "charge-2"); err != nil {
		return err
	}
	fmt.Printf("bob, who did not: %v, and %s is to be given back\n", paid.State, paid.Reference)
	var tickets int
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM tickets`).Scan(&tickets)
	fmt.Println(tickets, "ticket")
	return err
}

// sellTicket confirms first, because that takes the file's writer lock, and writes the ticket only if it was in time. It commits in either case: a late payment is recorded.
func sellTicket(ctx context.Context, db *sql.DB, holds *sqlite.Holds, id fence.ID, buyer, charge string) (hold.Hold, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return hold.Hold{}, err
	}
	defer func() { _ = tx.Rollback() }()
	paid, err := holds.ConfirmTx(ctx, tx, hold.ConfirmRequest{ID: id, Actor: buyer, Reference: charge})
	if err != nil {
		return hold.Hold{}, err
	}
	if paid.State == hold.Confirmed {
		for _, l := range paid.Lines {
			if _, err := tx.ExecContext(ctx, `INSERT INTO tickets (seat, buyer) VALUES (?, ?)`, l.Item, buyer); err != nil {
				return hold.Hold{}, err
			}
		}
	}
	return paid, tx.Commit()
}
