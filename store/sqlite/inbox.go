package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/inbox"
)

// Inbox keeps in the store's file what consumers have done, beside what they have done there: see package inbox. Time is the authority's. Safe for concurrent use.
type Inbox struct {
	store                 *Store
	options               inbox.Options
	first, repeated, late atomic.Int64
}

var _ inbox.Store = (*Inbox)(nil)

// Inbox returns the notes of consumers that the store's file keeps, or an [*inbox.InvalidError]. They end with the store.
func (s *Store) Inbox(o inbox.Options) (*Inbox, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	return &Inbox{store: s, options: o}, nil
}

const (
	insertNote = `INSERT INTO tenure_inbox (consumer, message, at) VALUES (?1, ?2, ?3) ON CONFLICT (consumer, message) DO NOTHING`
	selectNote = `SELECT at FROM tenure_inbox WHERE consumer = ?1 AND message = ?2`
	// The savepoint is around the note and what is done: they stay, or go, together.
	setSavepoint     = `SAVEPOINT tenure_inbox`
	releaseSavepoint = `RELEASE tenure_inbox`
	rollbackTo       = `ROLLBACK TO tenure_inbox`
)

// Once calls fn unless the consumer has noted the message, and notes it, in a transaction of the caller's own on the store's file, or in one of [Store.Fenced]: the note is
// there if and only if the transaction commits. fn does its work in the same transaction.
//
// If fn fails, or panics, the note and what fn has written in the transaction are taken back, and the error is returned as it is: the transaction may be committed all the
// same. After any other error the caller must roll back: one matching [inbox.ErrInvalid], with nothing changed, or the driver's.
//
// It first takes the file's only writer lock: a second delivery of the message at the same time waits until the transaction of the first has ended, within the busy timeout
// of its connection. As [Outbox.AppendTx], it should be the first statement of its transaction, and in a transaction of the caller's own it may starve.
func (i *Inbox) Once(ctx context.Context, tx TX, consumer, messageID string, fn func(ctx context.Context) error) (inbox.Result, error) {
	if err := inbox.CheckOnce(consumer, messageID); err != nil {
		return inbox.Result{}, err
	}
	b, err := i.store.inTx(ctx, tx, "inbox")
	if err != nil {
		return inbox.Result{}, err
	}
	if _, err := tx.ExecContext(ctx, setSavepoint); err != nil {
		return inbox.Result{}, fmt.Errorf("inbox in a transaction: %w", err)
	}
	n, err := b.exec(insertNote, consumer, messageID, b.now)
	if err == nil && n == 0 {
		return i.again(ctx, tx, b, consumer, messageID)
	}
	if err != nil {
		return inbox.Result{}, fmt.Errorf("inbox in a transaction: %w", err)
	}
	if err := i.do(ctx, tx, fn); err != nil {
		return inbox.Result{}, err
	}
	i.first.Add(1)
	return inbox.Result{}, nil
}

// again is a delivery that was noted before.
func (i *Inbox) again(ctx context.Context, tx TX, b *txWork, consumer, messageID string) (inbox.Result, error) {
	var at int64
	err := b.conn.row(selectNote, consumer, messageID).Scan(&at)
	if err == nil {
		_, err = tx.ExecContext(ctx, releaseSavepoint)
	}
	if err != nil {
		return inbox.Result{}, fmt.Errorf("inbox in a transaction: %w", err)
	}
	told := inbox.Result{Repeated: true, Age: time.Duration(max(0, b.now-at))}
	i.repeated.Add(1)
	if told.Late = told.Age > i.options.Window; told.Late {
		i.late.Add(1)
	}
	return told, nil
}

// do runs fn within the savepoint.
func (i *Inbox) do(ctx context.Context, tx TX, fn func(ctx context.Context) error) (err error) {
	kept := false
	defer func() {
		if !kept { // also when fn panics, and when ctx has ended
			ctx := context.WithoutCancel(ctx)
			for _, text := range []string{rollbackTo, releaseSavepoint} {
				if _, backErr := tx.ExecContext(ctx, text); backErr != nil {
					err = errors.Join(err, fmt.Errorf("inbox: taking the note back: %w", backErr))
					return
				}
			}
		}
	}()
	if err := fn(ctx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, releaseSavepoint); err != nil {
		return fmt.Errorf("inbox in a transaction: %w", err)
	}
	kept = true
	return nil
}

// Stats implements [inbox.Store].
func (i *Inbox) Stats() inbox.Stats {
	return inbox.Stats{First: i.first.Load(), Repeated: i.repeated.Load(), Late: i.late.Load()}
}

// pruneNotes forgets the oldest.
const pruneNotes = `DELETE FROM tenure_inbox WHERE (consumer, message) IN (SELECT consumer, message FROM tenure_inbox INDEXED BY tenure_inbox_at WHERE at < ?1 ORDER BY at LIMIT ?2)`

// Prune implements [inbox.Store]. It forgets in transactions of a bounded size: an error says that some were not forgotten, and not that none was.
func (i *Inbox) Prune(ctx context.Context, keep time.Duration, limit int) (int, error) {
	if err := i.options.CheckPrune(keep, limit); err != nil {
		return 0, err
	}
	for total := 0; ; {
		some := min(limit-total, moveAtOnce)
		var n int64
		err := i.store.writer.do(ctx, &request{op: "prune", weight: some, do: func(b *batch) (err error) {
			w := b.work()
			if n, err = w.exec(pruneNotes, b.now-int64(keep), some); err != nil {
				return b.fail(err)
			}
			b.wrote = b.wrote || w.wrote
			return nil
		}}, false)
		if err != nil {
			return 0, asInboxError(err) // the writer may still be at work on it: n is not even read
		}
		if total += int(n); int(n) < some || total == limit {
			return total, nil
		}
	}
}
