package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
)

// Inbox keeps in the store's database what consumers have done, beside what they have done there: see package inbox. Safe for concurrent use.
type Inbox struct {
	store                 *Store
	options               inbox.Options
	first, repeated, late atomic.Int64
}

var _ inbox.Store = (*Inbox)(nil)

// Inbox returns the notes of consumers that the store's database keeps, or an [*inbox.InvalidError]. They end with the store.
func (s *Store) Inbox(o inbox.Options) (*Inbox, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	return &Inbox{store: s, options: o}, nil
}

const (
	takeText = `SELECT tenure.inbox_take($1::text, $2::text)`
	// The savepoint is around the note and what is done: they stay, or go, together.
	savepoint        = `SAVEPOINT tenure_inbox`
	releaseSavepoint = `RELEASE SAVEPOINT tenure_inbox`
	rollbackTo       = `ROLLBACK TO SAVEPOINT tenure_inbox`
)

// Once calls fn unless the consumer has noted the message, and notes it, in a transaction of the caller's own on the store's database: the note is there if and only if the transaction commits. fn does its work in the same transaction, by the
// same tx.
//
// If fn fails, or panics, the note and what fn has written in the transaction are taken back, and the error is returned as it is: the transaction may be committed all the same. After any other error the caller must roll back: one
// matching [inbox.ErrInvalid], with nothing changed; [ErrBeginAgain]; or the driver's.
//
// A second delivery at the same time waits until the transaction of the first has ended. At READ COMMITTED it is then told that it is repeated, or does it; above, it is [ErrBeginAgain] (SQLSTATE 40001) when the first has committed, and
// the next transaction is told. tx is used as by any other statement: not by two goroutines at once.
func (i *Inbox) Once(ctx context.Context, tx pgx.Tx, consumer, messageID string, fn func(ctx context.Context) error) (inbox.Result, error) {
	return i.once(ctx, consumer, messageID, fn, noteTx{
		exec: func(ctx context.Context, text string) error { _, err := tx.Exec(ctx, text); return err },
		take: func(ctx context.Context, age *pgtype.Interval) error {
			return tx.QueryRow(ctx, takeText, consumer, messageID).Scan(age)
		},
	})
}

// OnceSQL is [Inbox.Once] for a transaction of database/sql, with the driver pgx/v5/stdlib.
func (i *Inbox) OnceSQL(ctx context.Context, tx *sql.Tx, consumer, messageID string, fn func(ctx context.Context) error) (inbox.Result, error) {
	return i.once(ctx, consumer, messageID, fn, noteTx{
		exec: func(ctx context.Context, text string) error { _, err := tx.ExecContext(ctx, text); return err },
		take: func(ctx context.Context, age *pgtype.Interval) error {
			return tx.QueryRowContext(ctx, takeText, consumer, messageID).Scan(age)
		},
	})
}

// noteTx is what Once needs of a transaction.
type noteTx struct {
	exec func(ctx context.Context, text string) error
	take func(ctx context.Context, age *pgtype.Interval) error
}

func (i *Inbox) once(ctx context.Context, consumer, messageID string, fn func(ctx context.Context) error, tx noteTx) (inbox.Result, error) {
	if err := inbox.CheckOnce(consumer, messageID); err != nil {
		return inbox.Result{}, err
	}
	var age pgtype.Interval
	err := tx.exec(ctx, savepoint)
	if err == nil {
		err = tx.take(ctx, &age)
	}
	if err != nil {
		return inbox.Result{}, inboxTxError(err)
	}
	if !age.Valid {
		if err := do(ctx, fn, tx.exec); err != nil {
			return inbox.Result{}, err
		}
		i.first.Add(1)
		return inbox.Result{}, nil
	}
	if err := tx.exec(ctx, releaseSavepoint); err != nil {
		return inbox.Result{}, inboxTxError(err)
	}
	told := inbox.Result{Repeated: true, Age: duration(age)}
	i.repeated.Add(1)
	if told.Late = told.Age > i.options.Window; told.Late {
		i.late.Add(1)
	}
	return told, nil
}

// do runs fn within the savepoint.
func do(ctx context.Context, fn func(ctx context.Context) error, exec func(ctx context.Context, text string) error) (err error) {
	kept := false
	defer func() {
		if kept {
			return
		}
		ctx := context.WithoutCancel(ctx) // also when fn panics, and when ctx has ended
		for _, text := range []string{rollbackTo, releaseSavepoint} {
			if undone := exec(ctx, text); undone != nil {
				err = errors.Join(err, fmt.Errorf("inbox: taking the note back: %w", undone))
				return
			}
		}
	}()
	if err := fn(ctx); err != nil {
		return err
	}
	if err := exec(ctx, releaseSavepoint); err != nil {
		return inboxTxError(err)
	}
	kept = true
	return nil
}

// Prune is part of [inbox.Store]. It takes a member of tenure_operator.
func (i *Inbox) Prune(ctx context.Context, keep time.Duration, limit int) (n int, err error) {
	if err := i.options.CheckPrune(keep, limit); err != nil {
		return 0, err
	}
	err = i.store.outbox.one(ctx, opPrune, fence.ID{}, []any{&n}, `SELECT tenure.inbox_prune($1::interval, $2::int)`, exact(keep), limit)
	return n, inboxError(err)
}

// Stats is part of [inbox.Store].
func (i *Inbox) Stats() inbox.Stats {
	return inbox.Stats{First: i.first.Load(), Repeated: i.repeated.Load(), Late: i.late.Load()}
}

// inboxError says in package inbox's words what was said in package outbox's.
func inboxError(err error) error {
	var invalid *outbox.InvalidError
	var unknown *outbox.UnknownError
	var unavailable *outbox.UnavailableError
	switch {
	case errors.As(err, &invalid):
		return &inbox.InvalidError{Field: invalid.Field, Problem: invalid.Problem}
	case errors.As(err, &unknown):
		return &inbox.UnknownError{Op: unknown.Op, Err: unknown.Err}
	case errors.As(err, &unavailable):
		return &inbox.UnavailableError{Op: unavailable.Op, Err: unavailable.Err}
	}
	return err
}

// inboxTxError translates an error in a transaction of the caller's own.
func inboxTxError(err error) error {
	if invalid := invalidBy(err); invalid != nil {
		var bad *lease.InvalidError
		if errors.As(invalid, &bad) {
			return &inbox.InvalidError{Field: bad.Field, Problem: bad.Problem}
		}
	}
	return beginAgain(err)
}
