package budgetsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/tenure-go/tenure/budget"
)

// hasty is a driver that says "bad connection" of a statement that it has sent, which it is not to do.
type hasty struct{ done int }

func (h *hasty) Connect(context.Context) (driver.Conn, error) { return &hastyConn{h}, nil }
func (h *hasty) Driver() driver.Driver                        { return nil }

type hastyConn struct{ of *hasty }

func (c *hastyConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	c.of.done++
	return nil, driver.ErrBadConn
}
func (c *hastyConn) Prepare(string) (driver.Stmt, error) { return hastyStmt{c}, nil }
func (c *hastyConn) Begin() (driver.Tx, error)           { return hastyTx{}, nil }
func (c *hastyConn) Close() error                        { return nil }

type hastyTx struct{}

func (hastyTx) Commit() error   { return nil }
func (hastyTx) Rollback() error { return nil }

type hastyStmt struct{ of *hastyConn }

func (s hastyStmt) Exec([]driver.Value) (driver.Result, error) {
	return s.of.ExecContext(context.Background(), "", nil)
}
func (hastyStmt) Query([]driver.Value) (driver.Rows, error) { return nil, errOwn }
func (hastyStmt) NumInput() int                             { return 0 }
func (hastyStmt) Close() error                              { return nil }

// prepared prepares a statement on the pool or on a connection, and executes it.
func prepared(ctx context.Context, on interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}) error {
	stmt, err := on.PrepareContext(ctx, "x")
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }()
	_, err = stmt.ExecContext(ctx)
	return err
}

// TestWhatDatabaseSQLRepeats: the comment of [Call] says which methods repeat what a driver calls a bad connection. It is called not sent, however often it was done.
func TestWhatDatabaseSQLRepeats(t *testing.T) {
	for name, c := range map[string]struct {
		use   func(ctx context.Context, db *sql.DB, conn *sql.Conn) error
		done  int
		is    error
		class budget.Class
	}{
		"the connection": {func(ctx context.Context, _ *sql.DB, conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, "x")
			return err
		}, 1, driver.ErrBadConn, budget.NotSent},
		"a transaction": {func(ctx context.Context, _ *sql.DB, conn *sql.Conn) error {
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			_, err = tx.ExecContext(ctx, "x")
			return err
		}, 1, driver.ErrBadConn, budget.NotSent},
		"the pool beside it": {func(ctx context.Context, db *sql.DB, _ *sql.Conn) error {
			_, err := db.ExecContext(ctx, "x")
			return err
		}, 3, driver.ErrBadConn, budget.NotSent},
		"a statement of the pool": {func(ctx context.Context, db *sql.DB, _ *sql.Conn) error {
			return prepared(ctx, db)
		}, 3, driver.ErrBadConn, budget.NotSent},
		"a statement of the connection": {func(ctx context.Context, _ *sql.DB, conn *sql.Conn) error {
			return prepared(ctx, conn)
		}, 1, sql.ErrConnDone, budget.Unknown},
	} {
		h := &hasty{}
		db := sql.OpenDB(h)
		err := Call(t.Context(), db.Conn, func(ctx context.Context, conn *sql.Conn) error {
			defer func() { _ = conn.Close() }()
			return c.use(ctx, db, conn)
		})
		if h.done != c.done || !errors.Is(err, c.is) || budget.ClassOf(err) != c.class {
			t.Errorf("%s: done %d times, %v", name, h.done, err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
