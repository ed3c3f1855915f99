package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"

	lib "modernc.org/sqlite/lib"
)

// A fenced transaction is bounded, because every renewal of every process waits for it.
const (
	maxFenced = time.Second
	minFenced = 5 * time.Millisecond // a session with a tiny TTL must not stop everybody's fenced writes
)

// Tx is a fenced transaction. Every statement carries its bound, whatever context it is given besides. It
// must not be used after the function that got it has returned. Not safe for concurrent use.
type Tx struct {
	ctx       context.Context
	tx        *sql.Tx
	store     *Store
	presented []fence.Claim // which Fenced takes back
}

// ExecContext runs a statement within the transaction's bound and ctx. The refusal of a protected table is a [*RowError].
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if ctx.Done() == nil || ctx == t.ctx {
		result, err := t.tx.ExecContext(t.ctx, query, args...)
		return result, FenceError(err, t.presented...)
	}
	bounded, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	result, err := t.tx.ExecContext(bounded, query, args...)
	return result, FenceError(err, t.presented...)
}

// QueryContext runs a query within the transaction's bound; ctx is looked at only before it starts.
//
// At the bound the driver interrupts the query as long as it looks for its first row, and ends it between two rows later.
// A later row that takes long to find keeps the turn until it is found; with ORDER BY all work is done before the first.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.tx.QueryContext(t.ctx, query, args...)
}

// QueryRowContext runs a query for one row within the transaction's bound; ctx is not looked at besides.
func (t *Tx) QueryRowContext(_ context.Context, query string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(t.ctx, query, args...)
}

// Fenced runs fn in a transaction of the authority's file in which the claim holds: it is verified first, and
// no successor is recognised before the transaction has ended. It commits if fn returns nil, else rolls back.
//
// For protected tables fn calls [Present] with the claim, and with others that it needs; Fenced calls [Done].
//
// The transaction takes its turn among all writers, and every renewal of every process waits for it. So it ends, rolled
// back, after the least of a third of the holder's TTL, a quarter of the shortest live TTL in the file, and one
// second, though never before 5 ms. fn must do nothing slow, must not call this store, and uses the transaction it is given.
//
// Fenced returns fn's error; a [*fence.RefusedError], [*fence.ForeignError] or [*fence.AheadError] without calling
// fn; an error matching [lease.ErrUnavailable] if certainly nothing was applied; and one matching [lease.ErrUnknown]
// if the commit's outcome could not be learnt: look at the resource. Safe for concurrent use.
func (s *Store) Fenced(ctx context.Context, claim fence.Claim, fn func(ctx context.Context, tx *Tx) error) error {
	if err := claim.Check(); err != nil {
		return err
	}
	r := &request{op: "fenced transaction", id: claim.Acquisition, turn: make(chan struct{}), finished: make(chan struct{})}
	if err := s.writer.awaitTurn(ctx, r); err != nil {
		return err
	}
	err := s.inTurn(ctx, claim, fn, func(fatal error) {
		r.fatal = fatal
		close(r.finished)
	})
	if turnErr := <-r.done; err == nil { // the turn was given back
		err = turnErr
	}
	if errors.Is(err, fence.ErrAhead) {
		if reportErr := s.ReportAhead(ctx, claim); reportErr != nil {
			s.log.Error("could not stop grants after a token from the future", "name", claim.Name, "token", claim.Token, "error", reportErr)
		}
	}
	if errors.Is(err, fence.ErrRefused) || errors.Is(err, fence.ErrForeign) || errors.Is(err, fence.ErrAhead) {
		s.refused.Add(1)
		s.log.Warn("refused a claim", "name", claim.Name, "token", claim.Token, "error", err)
	}
	return err
}

// fencedTx ends a transaction exactly once: by its commit, by fn's failure, or by its bound while fn still runs.
// Whichever it is, the turn goes on only when the connection is idle again.
type fencedTx struct {
	mu    sync.Mutex
	tx    *sql.Tx
	ended bool
	goOn  func(fatal error)
}

func (f *fencedTx) rollback() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = true
		f.tx.Rollback() // it waits for the statement that is running, which its context interrupts
		f.goOn(nil)
	}
}

func (f *fencedTx) commit() (bounded bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return true, nil
	}
	f.ended = true
	var fatal error
	if err = f.tx.Commit(); err != nil {
		f.tx.Rollback()
		if resultCode(err) == lib.SQLITE_IOERR { // other errors are of fn's making: it may have ended the transaction itself
			fatal = afterLostCommit(err)
		}
	}
	f.goOn(fatal)
	return false, err
}

// inTurn calls goOn exactly once, when the connection may be used by others again.
func (s *Store) inTurn(ctx context.Context, claim fence.Claim, fn func(ctx context.Context, tx *Tx) error, goOn func(fatal error)) error {
	const op = "fenced transaction"
	bound, err := s.fencedBound(claim)
	if err != nil {
		goOn(nil)
		return s.failed(op, claim.Acquisition, false, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("it may take %v here, and was rolled back", bound))
	defer cancel()
	tx, err := s.beginTx(ctx)
	if err != nil {
		goOn(nil)
		return s.failed(op, claim.Acquisition, false, err)
	}
	f := &fencedTx{tx: tx, goOn: goOn}
	defer f.rollback()
	defer context.AfterFunc(ctx, f.rollback)()
	if err = verify(ctx, tx, claim, s.kernel, s.bootID); err == nil {
		own := &Tx{ctx: ctx, tx: tx, store: s}
		if err = fn(ctx, own); err == nil && own.presented != nil {
			err = Done(ctx, own)
		}
	} else if resultCode(err) != 0 {
		err = s.failed(op, claim.Acquisition, false, err)
	}
	if ctx.Err() != nil {
		return &lease.UnavailableError{Op: op, Err: context.Cause(ctx)}
	}
	if err != nil {
		return err
	}
	bounded, err := f.commit()
	switch {
	case bounded:
		return &lease.UnavailableError{Op: op, Err: context.Cause(ctx)}
	case resultCode(err) == lib.SQLITE_CONSTRAINT: // of fn's making, such as a deferred foreign key; rolled back, and certainly so
		return fmt.Errorf("%s was not committed: %w", op, err)
	case err != nil:
		err = s.failed(op, claim.Acquisition, true, err)
		if unknown := new(lease.UnknownError); errors.As(err, &unknown) {
			unknown.Settle = "look at the resource, after the store was opened again"
		}
		return err
	}
	return nil
}

// fencedBound is how long a transaction under the claim may keep every renewal waiting.
func (s *Store) fencedBound(claim fence.Claim) (time.Duration, error) {
	var own, shortest int64
	if err := s.stmts.fencedBound.QueryRow(claim.Name, claim.Acquisition[:], int64(s.kernel())).Scan(&own, &shortest); err != nil {
		return 0, err
	}
	bound := maxFenced
	if own > 0 {
		bound = min(bound, time.Duration(own)/3)
	}
	if shortest > 0 {
		bound = min(bound, time.Duration(shortest)/4)
	}
	return max(bound, minFenced), nil
}

// beginTx begins with the writer lock, again and again beside a program that does not take turns. The
// transaction does not end by itself when ctx does: fencedTx ends it, and knows when.
func (s *Store) beginTx(ctx context.Context) (*sql.Tx, error) {
	for {
		tx, err := s.conn.BeginTx(context.WithoutCancel(ctx), nil)
		if code := resultCode(err); err == nil || code != lib.SQLITE_BUSY && code != lib.SQLITE_LOCKED {
			return tx, err
		}
		if ctx.Err() != nil {
			return nil, err
		}
		pauseBeforeRetry()
	}
}

// awaitTurn waits until the writer hands its connection over. After a nil error the caller must close r.finished.
func (w *writer) awaitTurn(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return &lease.UnavailableError{Op: r.op, Err: err}
	}
	r.done = make(chan error, 1)
	if err := w.enqueue(r, false); err != nil {
		return &lease.UnavailableError{Op: r.op, Err: err}
	}
	select {
	case <-r.turn:
		return nil
	case err := <-r.done:
		return err
	case <-ctx.Done():
	}
	if w.withdraw(r) {
		return &lease.UnavailableError{Op: r.op, Err: fmt.Errorf("%w while waiting to write%s", context.Cause(ctx), w.store.side.heldBy())}
	}
	select { // it was taken at this very moment
	case <-r.turn:
		return nil
	case err := <-r.done:
		return err
	}
}
