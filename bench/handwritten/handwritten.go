// Package handwritten is what leases on PostgreSQL are compared with: what a good programmer writes in an afternoon, and the
// floors below it. Each operation is one statement over a pool of connections, durable by itself where it is durable at all. It keeps fewer rules than the
// store: nothing renews, a retried acquire may take a second token, the caller's clock bounds nothing.
package handwritten

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Schema makes the tables. The fill factor is the one that Tenure's tables have: it keeps updates on their page.
const Schema = `
CREATE TABLE hand_lease (name text COLLATE "C" PRIMARY KEY, owner uuid NOT NULL, token bigint NOT NULL, expires_at timestamptz NOT NULL) WITH (fillfactor = 50);
CREATE TABLE hand_upsert (name text COLLATE "C" PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 50);
`

// Fill makes a row for each of the names.
func Fill(ctx context.Context, conn *pgxpool.Pool, names []string) error {
	for _, text := range []string{
		`INSERT INTO hand_lease SELECT n, gen_random_uuid(), 1, '-infinity' FROM unnest($1::text[]) n`,
		`INSERT INTO hand_upsert SELECT n, 1 FROM unnest($1::text[]) n`,
	} {
		if _, err := conn.Exec(ctx, text, names); err != nil {
			return fmt.Errorf("handwritten: %w", err)
		}
	}
	return nil
}

// ErrHeld answers an acquire of a name that another owner holds.
var ErrHeld = errors.New("handwritten: held")

const (
	acquire = `INSERT INTO hand_lease AS l (name, owner, token, expires_at) VALUES ($1, $2, 1, clock_timestamp() + interval '15 s')
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = l.token + 1, expires_at = excluded.expires_at WHERE l.expires_at <= clock_timestamp()
		RETURNING token`
	release = `UPDATE hand_lease SET expires_at = '-infinity' WHERE name = $1 AND owner = $2 AND token = $3`
)

// Acquire takes the name for owner and returns its token, durably; [ErrHeld] if it is held.
func Acquire(ctx context.Context, pool *pgxpool.Pool, name string, owner [16]byte) (int64, error) {
	var token int64
	err := pool.QueryRow(ctx, acquire, name, owner).Scan(&token)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, ErrHeld
	}
	return token, err
}

// Release frees the name, durably. It returns an error if that acquisition did not hold it.
func Release(ctx context.Context, pool *pgxpool.Pool, name string, owner [16]byte, token int64) error {
	tag, err := pool.Exec(ctx, release, name, owner, token)
	if err == nil && tag.RowsAffected() != 1 {
		return fmt.Errorf("handwritten: %d rows moved, not one", tag.RowsAffected())
	}
	return err
}

// Upsert is the durable floor: one statement over one row.
func Upsert(ctx context.Context, pool *pgxpool.Pool, name string) error {
	_, err := pool.Exec(ctx, `INSERT INTO hand_upsert AS u (name, n) VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET n = u.n + 1`, name)
	return err
}

// Lock takes an advisory lock on a connection of the pool and returns what gives it back: no token, no expiry, nothing durable, and the
// connection is taken as long as the lock is held. [ErrHeld] if another connection has it.
func Lock(ctx context.Context, pool *pgxpool.Pool, name string) (unlock func() error, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	var got bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended($1, 0))`, name).Scan(&got); err != nil || !got {
		conn.Release()
		if err == nil {
			err = ErrHeld
		}
		return nil, err
	}
	return unlocks(ctx, conn, name), nil
}

// LockWaiting is [Lock] in the server's queue: it waits until the lock is free or ctx ends.
func LockWaiting(ctx context.Context, pool *pgxpool.Pool, name string) (unlock func() error, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, name); err != nil {
		conn.Release() // of a connection that was closed with its statement, and its lock
		return nil, err
	}
	return unlocks(context.WithoutCancel(ctx), conn, name), nil
}

func unlocks(ctx context.Context, conn *pgxpool.Conn, name string) func() error {
	return func() error {
		defer conn.Release()
		var had bool
		err := conn.QueryRow(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, name).Scan(&had)
		if err == nil && !had {
			err = errors.New("handwritten: the lock was not held")
		}
		return err
	}
}
