package handwritten

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// SeatSchema makes a table of seats with an expiry, as many shops have one.
const SeatSchema = `CREATE TABLE hand_seat (name text COLLATE "C" PRIMARY KEY, holder uuid, until timestamptz, reference text, sold boolean NOT NULL DEFAULT false) WITH (fillfactor = 70)`

// FillSeats replaces the seats by so many that are free.
func FillSeats(ctx context.Context, conn *pgxpool.Pool, prefix string, n int) error {
	if _, err := conn.Exec(ctx, `TRUNCATE hand_seat`); err != nil {
		return fmt.Errorf("handwritten: %w", err)
	}
	_, err := conn.Exec(ctx, `INSERT INTO hand_seat (name) SELECT $1::text || i FROM generate_series(0, $2::int - 1) i`, prefix, n)
	return err
}

// PlaceSeat holds a seat for a minute, durably; [ErrHeld] if somebody else has it.
func PlaceSeat(ctx context.Context, pool *pgxpool.Pool, name string, holder [16]byte) error {
	tag, err := pool.Exec(ctx, `UPDATE hand_seat SET holder = $2, until = clock_timestamp() + interval '1 minute' WHERE name = $1 AND NOT sold AND (until IS NULL OR until <= clock_timestamp())`, name, holder)
	if err == nil && tag.RowsAffected() != 1 {
		err = ErrHeld
	}
	return err
}

// SellSeat sells a seat that is held, durably; [ErrHeld] if the holder has it no more.
func SellSeat(ctx context.Context, pool *pgxpool.Pool, name string, holder [16]byte, reference string) error {
	tag, err := pool.Exec(ctx, `UPDATE hand_seat SET sold = true, reference = $3 WHERE name = $1 AND holder = $2 AND NOT sold AND until > clock_timestamp()`, name, holder, reference)
	if err == nil && tag.RowsAffected() != 1 {
		err = ErrHeld
	}
	return err
}
