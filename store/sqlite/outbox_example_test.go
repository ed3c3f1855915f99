package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/store/sqlite"
)

// An order and the message about it share one commit. A relay publishes the message, and then again, as one does that was stopped before it could say so; the consumer does
// its work once.
func ExampleOutbox_AppendTx() {
	if err := printTicket(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order 1001, repeated: false
	// order 1001, repeated: true
	// settled: 1, tickets: 1
}

func printTicket(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "outbox")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "shop.db")
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
	if _, err := db.ExecContext(ctx, `CREATE TABLE orders (n INTEGER PRIMARY KEY); CREATE TABLE tickets (n INTEGER)`); err != nil {
		return err
	}
	messages := store.Outbox()
	if err := inTx(ctx, db, func(tx *sql.Tx) error {
		if _, err := messages.AppendTx(ctx, tx, outbox.Message{Topic: "orders", Key: "1001", Ordered: true, Payload: []byte("1001")}); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (1001)`)
		return err
	}); err != nil {
		return err
	}

	// Package relay does this, and all that can go wrong.
	batch, err := messages.Claim(ctx, outbox.ClaimRequest{Claim: lease.NewID(), Limit: 100, Bytes: 1 << 20, TTL: time.Minute, MaxAttempts: 10})
	if err != nil {
		return err
	}
	notes, err := store.Inbox(inbox.Options{})
	if err != nil {
		return err
	}
	for range 2 {
		for _, d := range batch.Deliveries {
			if err := printOnce(ctx, db, notes, d); err != nil {
				return err
			}
		}
	}
	done, err := messages.Settle(ctx, outbox.SettleRequest{Claim: batch.Claim, Verdicts: []outbox.Verdict{{Position: batch.Deliveries[0].Position, Outcome: outbox.Published}}})
	if err != nil {
		return err
	}
	var tickets int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM tickets`).Scan(&tickets); err != nil {
		return err
	}
	fmt.Printf("settled: %d, tickets: %d\n", done.Applied, tickets)
	return nil
}

func printOnce(ctx context.Context, db *sql.DB, notes *sqlite.Inbox, d outbox.Delivery) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		told, err := notes.Once(ctx, tx, "ticket printer", d.ID.String(), func(ctx context.Context) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO tickets VALUES (?)`, string(d.Payload))
			return err
		})
		fmt.Printf("order %s, repeated: %v\n", d.Payload, told.Repeated)
		return err
	})
}

func inTx(ctx context.Context, db *sql.DB, do func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}
