package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// guarded is a file with protected tables, its store, a holder, and two programs beside it: one that knows how to present, and one that has
// never heard of leases and opens the file with the driver's defaults.
type guarded struct {
	t        testing.TB
	s        *Store
	p        *party
	own      *sql.DB
	stranger *sql.DB
}

// ordersTable has all that a row can be met by: its number, a unique column with a default, and a pair under another collation.
const ordersTable = `CREATE TABLE orders (id INTEGER PRIMARY KEY, code TEXT NOT NULL DEFAULT 'none' UNIQUE, shop TEXT, place TEXT, state TEXT);
	CREATE UNIQUE INDEX orders_place ON orders (shop COLLATE NOCASE, place);
	INSERT INTO orders VALUES (1, 'one', 's', 'p1', 'new'), (2, 'two', 's', 'p2', 'new'), (3, 'none', 's', 'p3', 'new')`

const orderName = `'orders/' || id`

// newGuarded has the table orders, protected by each row's id, and what else is asked for.
func newGuarded(t testing.TB, more ...string) *guarded {
	t.Helper()
	g := newUnguarded(t, append([]string{ordersTable}, more...)...)
	g.protect("orders", orderName)
	return g
}

func newUnguarded(t testing.TB, statements ...string) *guarded {
	t.Helper()
	path := newPath(t)
	s := openPath(t, path)
	plainExec(t, path, statements...)
	return &guarded{
		t: t, s: s, p: join(t, s, time.Hour),
		own:      plainDB(t, path, "?_pragma=busy_timeout(5000)&_pragma=foreign_keys(ON)&_txlock=immediate"),
		stranger: plainDB(t, path, "?_pragma=busy_timeout(5000)"),
	}
}

func (g *guarded) protect(table, name string) {
	g.t.Helper()
	if err := g.s.Protect(g.t.Context(), Protection{Table: table, Name: name}); err != nil {
		g.t.Fatal(err)
	}
}

// write runs statements in one transaction under the claims, which is committed if all goes well.
func (g *guarded) write(claims []fence.Claim, statements ...string) error {
	ctx := g.t.Context()
	tx, err := g.own.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if len(claims) > 0 {
		if err := Present(ctx, tx, claims...); err != nil {
			return err
		}
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return FenceError(err)
		}
	}
	if err := Done(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// foreign runs a statement as the program that has never heard of leases.
func (g *guarded) foreign(statement string) error {
	_, err := g.stranger.ExecContext(g.t.Context(), statement)
	return err
}

// content is every row of the table, as one text.
func (g *guarded) content(table string) string {
	g.t.Helper()
	rows, err := g.stranger.QueryContext(g.t.Context(), `SELECT * FROM `+quote(table)+` ORDER BY 1`)
	if err != nil {
		g.t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		g.t.Fatal(err)
	}
	var all strings.Builder
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			g.t.Fatal(err)
		}
		fmt.Fprintln(&all, values...)
	}
	if err := rows.Err(); err != nil {
		g.t.Fatal(err)
	}
	return all.String()
}

func (g *guarded) count(query string) (n int) {
	g.t.Helper()
	if err := g.stranger.QueryRowContext(g.t.Context(), query).Scan(&n); err != nil {
		g.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// wantRefused demands a refusal by a trigger of ours.
func wantRefused(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	err = FenceError(err)
	var row *RowError
	var refused *fence.RefusedError
	if !errors.As(err, &row) || !errors.As(err, &refused) || !errors.Is(err, fence.ErrRefused) {
		t.Errorf("%s: %v, want the refusal of a protected table", what, err)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: the error should say %q: %v", what, word, err)
		}
	}
}

func inOwnTx(ctx context.Context, db *sql.DB, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}
