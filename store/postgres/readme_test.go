package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

// verifyInOwnTx is what README shows of this store, word by word: a test of the repository's root compares.
func verifyInOwnTx(ctx context.Context, pool *pgxpool.Pool, tx pgx.Tx, claim fence.Claim) (*postgres.Store, error) {
	// README begins.
	store, err := postgres.New(ctx, pool, postgres.Options{}) // your own pgxpool; in the rest nothing changes
	if err != nil {
		return nil, err
	}
	// The strict check in a transaction of yours, in the same round trips as the write:
	err = postgres.Verify(ctx, tx, claim) // pgx.Tx; VerifySQL for *sql.Tx
	// README ends.
	return store, err
}

// TestReadme runs the code of README under a claim that holds, and under one whose lease was released.
func TestReadme(t *testing.T) {
	s := testdb.Shared(t)
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, s.URL(s.Database(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := postgres.Migrate(ctx, c.Conn(), postgres.MigrateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	holder, err := postgres.New(ctx, pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := lease.Start(ctx, holder, lease.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := session.Acquire(ctx, lease.Want{Names: []string{"nightly-report"}})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := l.Claim()
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyOnce(ctx, pool, claim); err != nil {
		t.Errorf("held: %v", err)
	}
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := verifyOnce(ctx, pool, claim); !errors.Is(err, fence.ErrRefused) {
		t.Errorf("released: %v, want a refusal", err)
	}
	if err := errors.Join(session.Close(ctx), holder.Shutdown(ctx)); err != nil {
		t.Error(err)
	}
}

// verifyOnce gives verifyInOwnTx a transaction, and ends it.
func verifyOnce(ctx context.Context, pool *pgxpool.Pool, claim fence.Claim) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	store, err := verifyInOwnTx(ctx, pool, tx, claim)
	err = errors.Join(err, tx.Rollback(ctx))
	if store != nil {
		err = errors.Join(err, store.Shutdown(ctx))
	}
	return err
}
