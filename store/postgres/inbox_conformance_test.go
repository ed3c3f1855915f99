package postgres

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/inbox/inboxtest"
)

// inboxHarness is one fresh database with an inbox and a table of effects, used by pgx or by database/sql.
type inboxHarness struct {
	*outboxHarness
	inbox *Inbox
	db    *sql.DB // nil: by pgx
}

func newInboxHarness(t testing.TB, bySQL bool) *inboxHarness {
	t.Helper()
	h := &inboxHarness{outboxHarness: newOutboxHarness(t)}
	var err error
	if h.inbox, err = h.store.Inbox(inbox.Options{Window: inboxtest.Window}); err != nil {
		t.Fatal(err)
	}
	if bySQL {
		h.db = stdlib.OpenDBFromPool(h.own)
	}
	return h
}

func (h *inboxHarness) Store() inbox.Store { return h.inbox }
func (h *inboxHarness) Again(err error) bool {
	return errors.Is(err, ErrBeginAgain) || state(err) == stateSerialization
}

// Levels names what the server calls them.
func (h *inboxHarness) Levels() []string {
	return []string{string(pgx.ReadCommitted), string(pgx.RepeatableRead), string(pgx.Serializable)}
}

func (h *inboxHarness) Effects(ctx context.Context) ([]string, error) { return readContent(ctx, h.own) }

// Begin begins a consumer's transaction.
func (h *inboxHarness) Begin(ctx context.Context, level string) (inboxtest.Tx, error) {
	if h.db != nil {
		levels := map[string]sql.IsolationLevel{string(pgx.ReadCommitted): sql.LevelReadCommitted, string(pgx.RepeatableRead): sql.LevelRepeatableRead, string(pgx.Serializable): sql.LevelSerializable}
		tx, err := h.db.BeginTx(ctx, &sql.TxOptions{Isolation: levels[level]})
		return &inboxSQL{h, tx}, err
	}
	conn, err := pgx.Connect(ctx, h.url())
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)})
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return &inboxTx{h, conn, tx}, nil
}

const (
	writeEffect = `INSERT INTO content (value) VALUES ($1)`
	lookEffects = `SELECT count(*) FROM content`
)

type inboxTx struct {
	h    *inboxHarness
	conn *pgx.Conn
	tx   pgx.Tx
}

func (x *inboxTx) Once(ctx context.Context, consumer, messageID string, fn func(context.Context) error) (inbox.Result, error) {
	return x.h.inbox.Once(ctx, x.tx, consumer, messageID, fn)
}

func (x *inboxTx) Effect(ctx context.Context, text string) error {
	_, err := x.tx.Exec(ctx, writeEffect, text)
	return err
}

func (x *inboxTx) Look(ctx context.Context) error {
	return x.tx.QueryRow(ctx, lookEffects).Scan(nil)
}

func (x *inboxTx) Commit(ctx context.Context) error {
	return errors.Join(x.tx.Commit(ctx), x.conn.Close(ctx))
}

func (x *inboxTx) Rollback(ctx context.Context) error {
	return errors.Join(x.tx.Rollback(ctx), x.conn.Close(ctx))
}

// inboxSQL is a transaction of database/sql.
type inboxSQL struct {
	h  *inboxHarness
	tx *sql.Tx
}

func (x *inboxSQL) Once(ctx context.Context, consumer, messageID string, fn func(context.Context) error) (inbox.Result, error) {
	return x.h.inbox.OnceSQL(ctx, x.tx, consumer, messageID, fn)
}

func (x *inboxSQL) Effect(ctx context.Context, text string) error {
	_, err := x.tx.ExecContext(ctx, writeEffect, text)
	return err
}

func (x *inboxSQL) Look(ctx context.Context) error {
	var n int
	return x.tx.QueryRowContext(ctx, lookEffects).Scan(&n)
}

func (x *inboxSQL) Commit(context.Context) error   { return x.tx.Commit() }
func (x *inboxSQL) Rollback(context.Context) error { return x.tx.Rollback() }

// runInbox plays each case on a fresh database, by pgx and by database/sql.
func runInbox[H any](t *testing.T, cases []inboxtest.Case[H]) {
	t.Helper()
	for _, c := range cases {
		for name, bySQL := range map[string]bool{"pgx": false, "database-sql": true} {
			t.Run(c.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				if err := c.Run(t.Context(), any(newInboxHarness(t, bySQL)).(H)); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func TestInboxConformance(t *testing.T) { runInbox(t, inboxtest.Cases()) }

// TestInboxLevelConformance is each case at each level of isolation.
func TestInboxLevelConformance(t *testing.T) { runInbox(t, inboxtest.LevelCases()) }
