package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/lease"
)

// TX is a transaction that is open: a *sql.Tx of the caller's own, or the [*Tx] of [Store.Fenced].
type TX interface {
	DBTX
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// opConn runs the statements of operations and holds, wherever they are to run.
type opConn interface {
	exec(text string, args ...any) (sql.Result, error)
	query(text string, args ...any) (*sql.Rows, error)
	row(text string, args ...any) *sql.Row
}

// writerConn is the writer's connection. Its statements are prepared when they are first needed, so that a process without operations and holds pays for none. Used
// by the writer's goroutine alone.
type writerConn struct{ s *Store }

func (c writerConn) prepared(text string) (*sql.Stmt, error) {
	if known := c.s.opStmts[text]; known != nil {
		return known, nil
	}
	made, err := c.s.conn.PrepareContext(context.Background(), text)
	if err == nil {
		if c.s.opStmts == nil {
			c.s.opStmts = map[string]*sql.Stmt{}
		}
		c.s.opStmts[text] = made
	}
	return made, err
}

func (c writerConn) exec(text string, args ...any) (sql.Result, error) {
	stmt, err := c.prepared(text) //nolint:sqlclosecheck // it is kept; closeStatements closes it
	if err != nil {
		return nil, err
	}
	return stmt.Exec(args...)
}

func (c writerConn) query(text string, args ...any) (*sql.Rows, error) {
	stmt, err := c.prepared(text) //nolint:sqlclosecheck // it is kept; closeStatements closes it
	if err != nil {
		return nil, err
	}
	return stmt.Query(args...)
}

func (c writerConn) row(text string, args ...any) *sql.Row {
	stmt, err := c.prepared(text) //nolint:sqlclosecheck // it is kept; closeStatements closes it
	if err != nil {               // it says the same again, to whoever scans the row
		return c.s.conn.QueryRowContext(context.Background(), text, args...)
	}
	return stmt.QueryRow(args...)
}

// closeStatements closes what was prepared for operations and holds.
func (s *Store) closeStatements() (err error) {
	s.ofReaders.Lock()
	defer s.ofReaders.Unlock()
	for _, readers := range []*Prepared{s.holdStmts, s.mailStmts} {
		if readers != nil {
			err = errors.Join(err, readers.Close())
		}
	}
	for _, stmt := range s.opStmts {
		err = errors.Join(err, stmt.Close())
	}
	return err
}

// txConn is a transaction of somebody else's.
type txConn struct {
	ctx context.Context
	tx  TX
}

func (c txConn) exec(text string, args ...any) (sql.Result, error) {
	return c.tx.ExecContext(c.ctx, text, args...)
}

func (c txConn) query(text string, args ...any) (*sql.Rows, error) {
	return c.tx.QueryContext(c.ctx, text, args...)
}

func (c txConn) row(text string, args ...any) *sql.Row {
	return c.tx.QueryRowContext(c.ctx, text, args...)
}

// How a transaction that is not the writer's learns the authority's time.
const (
	readClock = `SELECT id, boot_id, anchor, mark FROM tenure_authority`
	// lockClock changes nothing and takes the file's only writer lock, so that what is read after it stays true. Not even the mark moves: what the transaction
	// has presented would be void.
	lockClock = `UPDATE tenure_authority SET mark = mark RETURNING id, boot_id, anchor, mark`
)

// workIn is for statements in a transaction that is not the writer's. The clock is read after the lock was won, if lock takes one. The
// error is the driver's, or says that this is not the store's file, or that its clock cannot be told.
func (s *Store) workIn(ctx context.Context, tx TX, lock string) (*txWork, error) {
	var id []byte
	var boot string
	var anchor, mark int64
	if err := tx.QueryRowContext(ctx, lock).Scan(&id, &boot, &anchor, &mark); err != nil {
		return nil, err
	}
	if asID(id) != s.id {
		return nil, errOtherAuthority
	}
	if boot != s.bootID {
		return nil, s.otherBoot()
	}
	return &txWork{conn: txConn{ctx, tx}, now: max(mark, anchor+int64(s.kernel()))}, nil
}

// inTx is workIn for a call in a caller's transaction, with the errors that it tells.
func (s *Store) inTx(ctx context.Context, tx TX, op string) (*txWork, error) {
	w, err := s.workIn(ctx, tx, lockClock)
	if err != nil {
		return nil, fmt.Errorf("%s in a transaction: %w", op, err)
	}
	return w, nil
}

// readWork runs f on one state of the file, without any lock, with the statements that were prepared for it, or nil. Where SQL fails, the error is a [*lease.UnavailableError]; else it is f's.
func (s *Store) readWork(ctx context.Context, op string, prepared *Prepared, f func(*txWork) error) error {
	err := s.checkIdentity()
	if err == nil {
		err = s.writer.why()
	}
	if err != nil {
		return &lease.UnavailableError{Op: op, Err: err}
	}
	tx, err := s.readDB.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return &lease.UnavailableError{Op: op, Err: s.describe(err)}
	}
	defer tx.Rollback()
	var in TX = tx
	if prepared != nil {
		in = prepared.In(tx)
	}
	w, err := s.workIn(ctx, in, readClock)
	if err == nil {
		err = f(w)
		if w.err == nil {
			return err
		}
		err = w.err
	}
	return &lease.UnavailableError{Op: op, Err: s.describe(err)}
}

// work is for statements in the writer's transaction.
func (b *batch) work() *txWork { return &txWork{conn: writerConn{b.store}, now: b.now} }
