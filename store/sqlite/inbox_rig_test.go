package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/inbox/inboxtest"
)

// inboxHarness is one fresh file with an inbox on it, and a table of effects.
type inboxHarness struct {
	*harness
	in       *Inbox
	prepared bool                                                                                                                    // the statements of Once are prepared
	once     func(ctx context.Context, i *inboxTx, consumer, messageID string, fn func(context.Context) error) (inbox.Result, error) // a twin's, or nil
}

func newInboxHarness(t testing.TB) *inboxHarness {
	t.Helper()
	h := &inboxHarness{harness: newHarness(t)}
	var err error
	if h.in, err = h.store.Inbox(inbox.Options{Window: inboxtest.Window}); err != nil {
		t.Fatal(err)
	}
	plainExec(t, h.store.Path(), `CREATE TABLE effects (text TEXT) STRICT`)
	return h
}

// Store is the store under test.
func (h *inboxHarness) Store() inbox.Store { return h.in }

// Begin takes the file's only writer lock with the first statement that writes.
func (h *inboxHarness) Begin(ctx context.Context, _ string) (inboxtest.Tx, error) {
	db, err := sql.Open("sqlite", "file:"+h.store.Path()+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	i := &inboxTx{h: h, db: db}
	if i.tx, err = db.BeginTx(ctx, nil); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	i.in = i.tx
	if h.prepared {
		if i.statements, err = Prepare(ctx, db); err != nil {
			return nil, errors.Join(err, i.Rollback(ctx))
		}
		i.in = i.statements.In(i.tx)
	}
	return i, nil
}

// Again is what a caller begins again after.
func (h *inboxHarness) Again(err error) bool { return resultCode(err) == 5 }

// Effects are the committed ones.
func (h *inboxHarness) Effects(ctx context.Context) (all []string, err error) {
	rows, err := h.own.QueryContext(ctx, `SELECT text FROM effects`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

// Advance moves every stored instant back by d.
func (h *inboxHarness) Advance(ctx context.Context, d time.Duration) error {
	if err := h.harness.Advance(ctx, d); err != nil {
		return err
	}
	_, err := h.own.ExecContext(ctx, `UPDATE tenure_inbox SET at = at - ?`, int64(d))
	return err
}

// Check looks at the file for what must never be.
func (h *inboxHarness) Check(ctx context.Context) error {
	if err := h.harness.Check(ctx); err != nil {
		return err
	}
	var n int
	err := h.own.QueryRowContext(ctx, `SELECT count(*) FROM tenure_inbox WHERE consumer = '' OR message = '' OR at > (SELECT anchor FROM tenure_authority) + ?`, int64(h.store.kernel())).Scan(&n)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d notes of nothing, or of the future", n)
	}
	return err
}

type inboxTx struct {
	h          *inboxHarness
	db         *sql.DB
	tx         *sql.Tx
	in         TX
	statements *Prepared
	noted      [][2]string // what a twin notes when the transaction has ended
}

func (i *inboxTx) Once(ctx context.Context, consumer, messageID string, fn func(context.Context) error) (inbox.Result, error) {
	if i.h.once != nil {
		return i.h.once(ctx, i, consumer, messageID, fn)
	}
	return i.h.in.Once(ctx, i.in, consumer, messageID, fn)
}

func (i *inboxTx) Effect(ctx context.Context, text string) error {
	_, err := i.tx.ExecContext(ctx, `INSERT INTO effects VALUES (?)`, text)
	return err
}

func (i *inboxTx) Look(ctx context.Context) error {
	var n int
	return i.tx.QueryRowContext(ctx, `SELECT count(*) FROM effects`).Scan(&n)
}

func (i *inboxTx) end(err error) error {
	if i.statements != nil {
		err = errors.Join(err, i.statements.Close())
	}
	for _, note := range i.noted {
		_, noteErr := i.db.Exec(`INSERT OR IGNORE INTO tenure_inbox SELECT ?, ?, mark FROM tenure_authority`, note[0], note[1])
		err = errors.Join(err, noteErr)
	}
	return errors.Join(err, i.db.Close())
}

func (i *inboxTx) Commit(context.Context) error   { return i.end(i.tx.Commit()) }
func (i *inboxTx) Rollback(context.Context) error { return i.end(i.tx.Rollback()) }
