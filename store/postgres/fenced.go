package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
)

const (
	fencedOp    = "fenced transaction"
	commitBound = 10 * time.Second // how long the answer to COMMIT is waited for
	fencedUndo  = 5 * time.Second  // how long a rollback is waited for, before the connection is closed
	reportBound = 5 * time.Second
)

// Fenced runs fn in a transaction of the authority's database, at READ COMMITTED, in which the claim holds: it is verified
// first, and no successor is recognised before the transaction has ended. It commits if fn returns nil, else rolls back.
//
// The transaction may take as long as the lease had left when it was verified; renewals meanwhile do not lengthen it. Then fn's
// context ends, with it the statement that runs, and nothing is committed. Should this process be stopped meanwhile, the server ends the
// transaction by itself: after that time when it is idle, and a statement that was sent before runs for at most that time. A lower
// statement_timeout or idle_in_transaction_session_timeout of the role stays. fn uses the transaction it is given, from one
// goroutine at a time and not after it has returned, and does not end it. Other calls of this store from within fn take other
// connections of the pool, and dead-lock when all of them are inside such functions.
//
// Fenced returns fn's error; a [*fence.RefusedError], [*fence.ForeignError] or [*fence.AheadError] without calling fn; the
// server's error if it refused the commit, as for a deferred constraint; an error matching [lease.ErrUnavailable] if certainly nothing was
// applied; and one matching [lease.ErrUnknown] if the commit's outcome could not be learnt: look at the resource. A
// panic of fn rolls back and goes on. Safe for concurrent use.
func (s *Store) Fenced(ctx context.Context, claim fence.Claim, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if err := claim.Check(); err != nil {
		return err
	}
	if err := s.enter(fencedOp); err != nil {
		return err
	}
	defer s.leave()
	err := s.fenced(ctx, claim, fn) // its connection is back in the pool
	if errors.Is(err, fence.ErrAhead) {
		s.stopGrants(ctx, claim)
	}
	if refusal(err) {
		s.refused.Add(1)
		s.log.Warn("refused a claim", "name", claim.Name, "token", claim.Token, "error", err)
	}
	return err
}

// stopGrants reports a token from the future, also for a caller that has gone.
func (s *Store) stopGrants(ctx context.Context, claim fence.Claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportBound)
	defer cancel()
	if err := s.ReportAhead(ctx, claim); err != nil {
		s.log.Error("could not stop grants after a token from the future", "name", claim.Name, "token", claim.Token, "error", err)
	}
}

func refusal(err error) bool {
	return errors.Is(err, fence.ErrRefused) || errors.Is(err, fence.ErrForeign) || errors.Is(err, fence.ErrAhead)
}

// Refusals is how many claims [Store.Fenced] has refused since the store was made.
func (s *Store) Refusals() int64 { return s.refused.Load() }

func (s *Store) fenced(ctx context.Context, claim fence.Claim, fn func(ctx context.Context, tx pgx.Tx) error) error {
	c, err := s.conn(ctx, fencedOp)
	if err != nil {
		return err
	}
	defer c.Release() // closes a connection that is still in a transaction
	now := clock.Boot()
	sent := now()
	tx, left, err := beginVerified(ctx, c.Conn(), claim)
	if tx != nil {
		defer rollback(ctx, tx)
	}
	if err = FenceError(claim, err); refusal(err) || errors.Is(err, fence.ErrInvalid) {
		return err
	} else if err != nil {
		return s.failed(fencedOp, claim.Acquisition, false, err)
	}
	bounded, cancel := context.WithTimeoutCause(ctx, sent+left-now(), errLeaseOver)
	defer cancel()
	bounded, shut := context.WithCancelCause(bounded)
	defer shut(nil)
	defer context.AfterFunc(s.ctx, func() { shut(errShutDown) })()

	own := &fencedTx{Tx: tx}
	err = fn(bounded, own)
	open := c.Conn().PgConn().TxStatus() != 'I'
	switch {
	case !open && !own.rolledBack && !c.Conn().IsClosed():
		return &lease.UnknownError{Op: fencedOp, ID: claim.Acquisition, Err: errFnEnded, Settle: settleFenced}
	case bounded.Err() != nil:
		return ended(context.Cause(bounded), err)
	case now() >= sent+left: // the machine slept: the context has not noticed yet
		return ended(errLeaseOver, err)
	case err == nil && own.rolledBack:
		return &lease.UnavailableError{Op: fencedOp, Err: errRolledBack}
	case err != nil:
		return err
	}
	return s.commit(ctx, c.Conn(), claim, tx)
}

const settleFenced = "look at the resource"

// ended is for a transaction that ran out of its bound, with what fn made of that.
func ended(cause, err error) error {
	if err != nil && !errors.Is(err, cause) {
		cause = fmt.Errorf("%w (%v)", cause, err) //nolint:errorlint // what fn says of it is no kind of this error
	}
	return &lease.UnavailableError{Op: fencedOp, Err: cause}
}

// beginVerified begins and verifies in one round trip. tx is nil only if nothing was begun.
func beginVerified(ctx context.Context, conn *pgx.Conn, claim fence.Claim) (tx pgx.Tx, left time.Duration, err error) {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	b.Queue(boundedText, verifyArgs(claim)...)
	results := conn.SendBatch(ctx, b)
	if _, err = results.Exec(); err == nil {
		err = results.QueryRow().Scan(&left)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return results.Tx(), left, err
}

// commit is not cancelled by the caller's context: then nobody would know what became of it.
func (s *Store) commit(ctx context.Context, conn *pgx.Conn, claim fence.Claim, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), commitBound, errors.New("no answer to COMMIT"))
	defer cancel()
	delete(conn.PgConn().CustomData(), unreplicated) // a warning that fn raised has the same code
	err := tx.Commit(ctx)
	switch {
	case err == nil:
		err = replicated(conn)
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return &lease.UnavailableError{Op: fencedOp, Err: fmt.Errorf("a statement of it had failed, though fn returned no error: %w", err)}
	case refusedByServer(err):
		return fmt.Errorf("postgres: a %s was refused at its commit and rolled back: %w", fencedOp, err)
	}
	err = s.failed(fencedOp, claim.Acquisition, true, err)
	if unknown := new(lease.UnknownError); errors.As(err, &unknown) {
		unknown.Settle = settleFenced
	}
	return err
}

// rollback leaves the connection clean, or closed.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fencedUndo)
	defer cancel()
	_ = tx.Rollback(ctx) // after a commit there is nothing to roll back; a failure closes the connection
}

// fencedTx is what fn gets.
type fencedTx struct {
	pgx.Tx
	rolledBack bool
}

// Commit fails: the store commits.
func (t *fencedTx) Commit(context.Context) error { return errFnCommits }

// Rollback gives the transaction up.
func (t *fencedTx) Rollback(ctx context.Context) error {
	t.rolledBack = true
	return t.Tx.Rollback(ctx)
}
