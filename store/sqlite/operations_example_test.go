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

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/sqlite"
)

// A worker's change and the record of its attempt share one commit. A worker that has lost its attempt changes nothing.
func ExampleOperations_CompleteTx() {
	if err := shipOnce(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// the first worker was away too long: stale true
	// the second: <nil>
	// shipped 1, succeeded after 2 attempts
}

func shipOnce(ctx context.Context) error {
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
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, shipped INTEGER); INSERT INTO orders VALUES (7, 0)`); err != nil {
		return err
	}

	ops := store.Operations()
	request := []byte(`{"order":7}`)
	if _, err := ops.Submit(ctx, operation.SubmitRequest{ID: "ship/7", Kind: "ship", Request: request, Fingerprint: operation.FingerprintOf("ship", request)}); err != nil {
		return err
	}
	first, err := begin(ctx, ops, time.Millisecond)
	if err != nil {
		return err
	}
	for n := 0; n == 0; { // until the reconciler finds that its claim has expired
		if n, err = ops.Expire(ctx, 10); err != nil {
			return err
		}
	}
	second, err := begin(ctx, ops, time.Minute)
	if err != nil {
		return err
	}
	fmt.Println("the first worker was away too long: stale", errors.Is(finish(ctx, db, ops, first), operation.ErrStale))
	fmt.Println("the second:", finish(ctx, db, ops, second))
	var shipped int
	if err := db.QueryRowContext(ctx, `SELECT shipped FROM orders`).Scan(&shipped); err != nil {
		return err
	}
	record, err := ops.Get(ctx, "ship/7")
	fmt.Printf("shipped %d, %v after %d attempts\n", shipped, record.State, len(record.Attempts))
	return err
}

// begin claims what is due. Its attempts may follow each other at any time, because all that they change is in the file itself.
func begin(ctx context.Context, ops *sqlite.Operations, ttl time.Duration) (operation.Ref, error) {
	jobs, err := ops.Claim(ctx, operation.ClaimRequest{TTL: ttl, Limit: 1, Kinds: []operation.KindClaim{{Kind: "ship", Limit: 1, Timeout: time.Minute, Window: operation.Forever, MaxAttempts: 5}}})
	if err != nil || len(jobs) == 0 {
		return operation.Ref{}, errors.Join(err, errors.New("nothing was claimed"))
	}
	return jobs[0].Ref, nil
}

// finish is the worker's own transaction: the completion first, because it takes the file's writer lock.
func finish(ctx context.Context, db *sql.DB, ops *sqlite.Operations, ref operation.Ref) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := ops.CompleteTx(ctx, tx, operation.Completion{Ref: ref, Answer: operation.Answer{Known: operation.Effective}}); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE orders SET shipped = shipped + 1 WHERE id = 7`); err != nil {
		return err
	}
	return tx.Commit()
}
