// Package twin is what group commit is compared with: leases with rising tokens, one transaction per
// operation, as fast as that can be written. One prepared connection (WAL, synchronous FULL) behind a mutex; no
// session, no clock, no retries. It keeps fewer rules than the store, so a ratio to it flatters nobody.
package twin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"sync"

	_ "modernc.org/sqlite" // the driver, under the name "sqlite"
)

// Twin commits each acquire and each release by itself. Safe for concurrent use.
type Twin struct {
	mu      sync.Mutex
	db      *sql.DB
	conn    *sql.Conn
	begin   *sql.Stmt
	commit  *sql.Stmt
	cancel  *sql.Stmt
	counter *sql.Stmt
	acquire *sql.Stmt
	release *sql.Stmt
	upsert  *sql.Stmt
}

const schema = `
CREATE TABLE counter (one INTEGER PRIMARY KEY CHECK (one = 1), issued INTEGER NOT NULL) STRICT;
INSERT INTO counter VALUES (1, 0);
CREATE TABLE lease (name TEXT PRIMARY KEY, token INTEGER NOT NULL, acquisition BLOB NOT NULL, session BLOB NOT NULL, released INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE bare (name TEXT PRIMARY KEY, n INTEGER NOT NULL) STRICT, WITHOUT ROWID;
`

// DSN is a connection to path with the settings that the embedded authority uses, and a BEGIN that is IMMEDIATE. A lock that is in
// the way is waited for up to 5 s: the twin never meets one, a caller's transaction beside a store may.
func DSN(path string) string {
	q := url.Values{"_txlock": {"immediate"}}
	for _, pragma := range []string{"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)"} {
		q.Add("_pragma", pragma)
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	return u.String()
}

// Open makes a new file at path. Close it with [Twin.Close].
func Open(ctx context.Context, path string) (*Twin, error) {
	db, err := sql.Open("sqlite", DSN(path))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	t := &Twin{db: db}
	if t.conn, err = db.Conn(ctx); err == nil {
		err = t.prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("twin: %s: %w", path, err), t.Close())
	}
	return t, nil
}

func (t *Twin) prepare(ctx context.Context) error {
	if _, err := t.conn.ExecContext(ctx, schema); err != nil {
		return err
	}
	for target, text := range map[**sql.Stmt]string{
		&t.begin:   `BEGIN IMMEDIATE`,
		&t.commit:  `COMMIT`,
		&t.cancel:  `ROLLBACK`,
		&t.counter: `UPDATE counter SET issued = issued + 1 RETURNING issued`,
		&t.acquire: `INSERT INTO lease (name, token, acquisition, session, released) VALUES (?1, ?2, ?3, ?4, 0)
			ON CONFLICT (name) DO UPDATE SET token = ?2, acquisition = ?3, session = ?4, released = 0 WHERE released <> 0 AND token < ?2`,
		&t.release: `UPDATE lease SET released = 1 WHERE name = ? AND acquisition = ? AND released = 0`,
		&t.upsert:  `INSERT INTO bare (name, n) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET n = n + 1`,
	} {
		prepared, err := t.conn.PrepareContext(ctx, text) //nolint:sqlclosecheck // Close closes all of them
		if err != nil {
			return err
		}
		*target = prepared
	}
	return nil
}

// Acquire grants name to the acquisition and returns its token, durably. It returns an error if the name is held.
func (t *Twin) Acquire(name string, acquisition, session []byte) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var token int64
	err := t.transact(func() (sql.Result, error) {
		if err := t.counter.QueryRow().Scan(&token); err != nil {
			return nil, err
		}
		return t.acquire.Exec(name, token, acquisition, session)
	})
	return token, err
}

// Release frees name, durably. It returns an error if the acquisition does not hold it.
func (t *Twin) Release(name string, acquisition []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.transact(func() (sql.Result, error) { return t.release.Exec(name, acquisition) })
}

// transact commits what work wrote, if it moved one row. No context goes along: a statement that could be
// interrupted costs a goroutine, which neither side of the comparison is to pay for.
func (t *Twin) transact(work func() (sql.Result, error)) error {
	if _, err := t.begin.Exec(); err != nil {
		return err
	}
	err := one(work())
	if err == nil {
		_, err = t.commit.Exec()
	}
	if err != nil {
		_, back := t.cancel.Exec()
		return errors.Join(err, back)
	}
	return nil
}

// Upsert is the floor: one durable statement, committed by itself, over one row.
func (t *Twin) Upsert(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return one(t.upsert.Exec(name))
}

func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n != 1 {
		return fmt.Errorf("twin: %d rows moved, not one", n)
	}
	return err
}

// SQLiteVersion says which SQLite library runs.
func (t *Twin) SQLiteVersion(ctx context.Context) (string, error) {
	var version string
	err := t.conn.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&version)
	return version, err
}

// Close closes the file. Nothing may be under way.
func (t *Twin) Close() error {
	var err error
	for _, s := range []*sql.Stmt{t.begin, t.commit, t.cancel, t.counter, t.acquire, t.release, t.upsert} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if t.conn != nil {
		err = errors.Join(err, t.conn.Close())
	}
	return errors.Join(err, t.db.Close())
}
