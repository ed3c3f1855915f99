package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/sqlite"
)

func nightly(ctx context.Context, path string) (err error) {
	// README begins.
	store, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Shutdown(ctx)) }()

	session, err := lease.Start(ctx, store, lease.Options{Owner: "worker-1"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close(ctx)) }()

	return lease.Do(ctx, session, "nightly-report", func(ctx context.Context, l *lease.Lease) error {
		claim, err := l.Claim()
		if err != nil {
			return err
		}
		// The work. ctx ends, with a cause, before the lease can be taken by another.
		// The write is refused if it was taken all the same: *fence.RefusedError, nothing written.
		return store.Fenced(ctx, claim, func(ctx context.Context, tx *sqlite.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO report (made_by) VALUES (?)", claim.Token.String())
			return err
		})
	})
	// README ends.
}

// Example runs README's code twice on one file, then presents the first run's claim again.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "tenure-example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "tenure.db")

	stale, err := prepare(ctx, path)
	if err != nil {
		fmt.Println("prepare:", err)
		return
	}
	fmt.Println("first run:", nightly(ctx, path))
	fmt.Println("second run:", nightly(ctx, path))

	reports, refused, err := lateWrite(ctx, path, stale)
	fmt.Println("reports:", reports, "late write refused:", refused, "error:", err)
	// Output:
	// first run: <nil>
	// second run: <nil>
	// reports: 2 late write refused: true error: <nil>
}

// prepare makes the table under a lease, and returns the claim, which is stale once it has returned.
func prepare(ctx context.Context, path string) (claim fence.Claim, err error) {
	store, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return claim, err
	}
	defer func() { err = errors.Join(err, store.Shutdown(ctx)) }()
	session, err := lease.Start(ctx, store, lease.Options{Owner: "setup"})
	if err != nil {
		return claim, err
	}
	defer func() { err = errors.Join(err, session.Close(ctx)) }()
	err = lease.Do(ctx, session, "nightly-report", func(ctx context.Context, l *lease.Lease) error {
		if claim, err = l.Claim(); err != nil {
			return err
		}
		return store.Fenced(ctx, claim, func(ctx context.Context, tx *sqlite.Tx) error {
			_, err := tx.ExecContext(ctx, "CREATE TABLE report (made_by TEXT NOT NULL)")
			return err
		})
	})
	return claim, err
}

// lateWrite tries to write under a stale claim, and counts what the table holds afterwards.
func lateWrite(ctx context.Context, path string, stale fence.Claim) (reports int, refused bool, err error) {
	store, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, store.Shutdown(ctx)) }()
	late := store.Fenced(ctx, stale, func(ctx context.Context, tx *sqlite.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO report (made_by) VALUES ('late')")
		return err
	})
	session, err := lease.Start(ctx, store, lease.Options{Owner: "reader"})
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, session.Close(ctx)) }()
	err = lease.Do(ctx, session, "nightly-report", func(ctx context.Context, l *lease.Lease) error {
		claim, err := l.Claim()
		if err != nil {
			return err
		}
		return store.Fenced(ctx, claim, func(ctx context.Context, tx *sqlite.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT count(*) FROM report").Scan(&reports)
		})
	})
	return reports, errors.Is(late, fence.ErrRefused), err
}
