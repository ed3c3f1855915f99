package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/sqlite"
)

// A table whose rows nobody writes without the lease of the row, not even a program that has never heard of leases.
func ExampleProtect() {
	if err := protectOrders(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// a plain UPDATE: tenure: refused a row of "orders", written under the lease "'orders/' || id": no claim was presented in this transaction; nothing was written; acquire that lease and present its claim (tenure: Present) in the transaction, before the write
	// in Fenced: <nil>
	// in a transaction of its own: <nil>
	// state: shipped
}

func protectOrders(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "tenure")
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
	// foreign_keys: a transaction that presents, and forgets Done, must not be committed.
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=foreign_keys(ON)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT); INSERT INTO orders VALUES (7, 'new')`); err != nil {
		return err
	}
	if err := store.Protect(ctx, sqlite.Protection{Table: "orders", Name: `'orders/' || id`}); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `UPDATE orders SET state = 'shipped' WHERE id = 7`)
	fmt.Println("a plain UPDATE:", sqlite.FenceError(err))
	if !errors.Is(sqlite.FenceError(err), fence.ErrRefused) {
		return err
	}

	session := lease.NewID()
	if _, err := store.Open(ctx, lease.OpenRequest{ID: session, TTL: time.Minute}); err != nil {
		return err
	}
	grants, err := store.Acquire(ctx, lease.AcquireRequest{Session: session, ID: lease.NewID(), Names: []string{"orders/7"}})
	if err != nil {
		return err
	}
	claim := grants[0].Claim
	fmt.Println("in Fenced:", store.Fenced(ctx, claim, func(ctx context.Context, tx *sqlite.Tx) error {
		if err := sqlite.Present(ctx, tx, claim); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'packed' WHERE id = 7`)
		return err
	}))
	fmt.Println("in a transaction of its own:", ship(ctx, db, claim))
	var state string
	err = db.QueryRowContext(ctx, `SELECT state FROM orders`).Scan(&state)
	fmt.Println("state:", state)
	return err
}

// ship writes in a transaction of the caller's own: Present first, Done last.
func ship(ctx context.Context, db *sql.DB, claim fence.Claim) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := sqlite.Present(ctx, tx, claim); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'shipped' WHERE id = 7`); err != nil {
		return sqlite.FenceError(err)
	}
	if err := sqlite.Done(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}
