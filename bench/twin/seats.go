package twin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Seats is what holds are compared with: a table of seats with an expiry, one statement and one commit for each place and each sale, on one prepared connection (WAL, synchronous FULL) behind a mutex. Safe for concurrent use.
type Seats struct {
	mu          sync.Mutex
	db          *sql.DB
	place, sell *sql.Stmt
}

// ErrTaken answers who wants a seat that somebody else has, or sells one that it holds no more.
var ErrTaken = errors.New("twin: the seat is taken")

// OpenSeats makes a new file at path with so many free seats. Close it with [Seats.Close].
func OpenSeats(ctx context.Context, path, prefix string, n int) (*Seats, error) {
	db, err := sql.Open("sqlite", DSN(path))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	s := &Seats{db: db}
	if err := s.prepare(ctx, prefix, n); err != nil {
		return nil, errors.Join(fmt.Errorf("twin: %w", err), db.Close())
	}
	return s, nil
}

func (s *Seats) prepare(ctx context.Context, prefix string, n int) (err error) {
	if _, err = s.db.ExecContext(ctx, `CREATE TABLE seat (name TEXT PRIMARY KEY, holder BLOB, until INTEGER NOT NULL, reference TEXT, sold INTEGER NOT NULL) STRICT, WITHOUT ROWID`); err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, `WITH RECURSIVE i (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM i WHERE i < ?2 - 1) INSERT INTO seat (name, until, sold) SELECT ?1 || i, 0, 0 FROM i`, prefix, n)
	if err == nil {
		s.place, err = s.db.PrepareContext(ctx, `UPDATE seat SET holder = ?2, until = ?3 + 60000000000 WHERE name = ?1 AND sold = 0 AND until <= ?3`)
	}
	if err == nil {
		s.sell, err = s.db.PrepareContext(ctx, `UPDATE seat SET sold = 1, reference = ?3 WHERE name = ?1 AND holder = ?2 AND sold = 0 AND until > ?4`)
	}
	return err
}

// Close closes the file.
func (s *Seats) Close(context.Context) error { return s.db.Close() }

// Place holds a seat for a minute, durably.
func (s *Seats) Place(ctx context.Context, name string, holder []byte) error {
	return s.one(ctx, s.place, name, holder, time.Now().UnixNano())
}

// Sell sells a seat that is held, durably.
func (s *Seats) Sell(ctx context.Context, name string, holder []byte, reference string) error {
	return s.one(ctx, s.sell, name, holder, reference, time.Now().UnixNano())
}

func (s *Seats) one(ctx context.Context, stmt *sql.Stmt, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	result, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return ErrTaken
}
