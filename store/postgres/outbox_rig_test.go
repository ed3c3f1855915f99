package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxtest"
)

// outboxHarness is one fresh database with an outbox in it.
type outboxHarness struct{ *harness }

func newOutboxHarness(t testing.TB) *outboxHarness {
	t.Helper()
	return &outboxHarness{newHarness(t)}
}

// newOwnOutboxHarness has a server of its own, for a test that stops it.
func newOwnOutboxHarness(t testing.TB) *outboxHarness {
	t.Helper()
	return &outboxHarness{newOwnHarness(t)}
}

// manualOutboxHarness has a clock that moves by Tick alone.
type manualOutboxHarness struct {
	*outboxHarness
	clock manualHarness
}

func newManualOutboxHarness(t testing.TB, server *testdb.Server) *manualOutboxHarness {
	t.Helper()
	clock := newManualHarness(t, server)
	return &manualOutboxHarness{&outboxHarness{clock.harness}, clock}
}

// Tick moves the clock.
func (h *manualOutboxHarness) Tick(d time.Duration) { h.clock.Tick(d) }

// Tolerance is none: the clock stands still.
func (h *manualOutboxHarness) Tolerance() time.Duration { return 0 }

// Store is the store under test.
func (h *outboxHarness) Store() outbox.Store { return h.store.Outbox() }

// Office is its operator's side.
func (h *outboxHarness) Office() outbox.Office { return h.store.Outbox() }

// Waker is the same store.
func (h *outboxHarness) Waker() outbox.Waker { return h.store.Outbox() }

// Begin begins a caller's transaction on a connection of its own.
func (h *outboxHarness) Begin(ctx context.Context) (outboxtest.Tx, error) {
	conn, err := pgx.Connect(ctx, h.url())
	if err != nil {
		return nil, err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return &outboxTx{h, conn, tx}, nil
}

type outboxTx struct {
	h    *outboxHarness
	conn *pgx.Conn
	tx   pgx.Tx
}

func (x *outboxTx) Append(ctx context.Context, messages []outbox.Message) ([]fence.ID, error) {
	return x.h.store.Outbox().AppendTx(ctx, x.tx, messages...)
}

func (x *outboxTx) Commit(ctx context.Context) error {
	return errors.Join(x.tx.Commit(ctx), x.conn.Close(ctx))
}

func (x *outboxTx) Rollback(ctx context.Context) error {
	return errors.Join(x.tx.Rollback(ctx), x.conn.Close(ctx))
}

// Advance moves every stored instant back by d, in one transaction.
func (h *outboxHarness) Advance(ctx context.Context, d time.Duration) error {
	return pgx.BeginFunc(ctx, h.own, func(tx pgx.Tx) error {
		for _, update := range []string{
			`UPDATE tenure.outbox_message SET appended = appended - $1::interval, due = due - $1::interval, until = until - $1::interval, ended = ended - $1::interval,
				errors = CASE WHEN errors IS NOT NULL THEN ARRAY(SELECT ROW(e.attempt, e.relay, e.problem, e.at - $1::interval)::tenure.outbox_failure FROM unnest(errors) WITH ORDINALITY e (attempt, relay, problem, at, o) ORDER BY e.o) END`,
			`UPDATE tenure.outbox_later SET due = due - $1::interval`,
			`UPDATE tenure.outbox_claim SET until = until - $1::interval`,
			`UPDATE tenure.outbox_ended SET ended = ended - $1::interval`,
			`UPDATE tenure.inbox_note SET noted = noted - $1::interval`,
		} {
			if _, err := tx.Exec(ctx, update, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// empty makes the database as it was when it was installed.
func (h *outboxHarness) empty(ctx context.Context) error {
	_, err := h.own.Exec(ctx, `TRUNCATE tenure.outbox_message, tenure.outbox_queue, tenure.outbox_line, tenure.outbox_lane, tenure.outbox_later, tenure.outbox_claim, tenure.outbox_ended, tenure.outbox_dead,
		tenure.outbox_topic, tenure.outbox_pause`)
	h.store.Outbox().hints.reset()
	return err
}

// Check looks at the database for what must never be.
func (h *outboxHarness) Check(ctx context.Context) error {
	return errors.Join(h.harness.Check(ctx), h.checkOutbox(ctx))
}

func (h *outboxHarness) checkOutbox(ctx context.Context) error {
	for what, query := range map[string]string{
		"a pending message that nobody will find": `SELECT string_agg(m.position::text, ',') FROM tenure.outbox_message m WHERE m.state = 1 AND NOT m.ordered
			AND NOT EXISTS (SELECT 1 FROM tenure.outbox_queue q WHERE q.position = m.position) AND NOT EXISTS (SELECT 1 FROM tenure.outbox_later q WHERE q.position = m.position)
			AND NOT (m.claim IS NOT NULL AND NOT m.settled AND EXISTS (SELECT 1 FROM tenure.outbox_claim c WHERE c.claim = m.claim AND m.position = ANY (c.positions)))`,
		"an ordered message that is not in line": `SELECT string_agg(m.position::text, ',') FROM tenure.outbox_message m WHERE m.ordered
			AND (m.state = 1) <> EXISTS (SELECT 1 FROM tenure.outbox_line l WHERE l.topic = m.topic AND l.key = m.key AND l.position = m.position)`,
		"a line without a message": `SELECT string_agg(l.position::text, ',') FROM tenure.outbox_line l WHERE NOT EXISTS (SELECT 1 FROM tenure.outbox_message m WHERE m.position = l.position)`,
		"a key that nobody will find": `SELECT string_agg(DISTINCT l.key, ',') FROM tenure.outbox_line l WHERE NOT EXISTS (SELECT 1 FROM tenure.outbox_queue q WHERE q.topic = l.topic AND q.key = l.key)
			AND NOT EXISTS (SELECT 1 FROM tenure.outbox_lane k WHERE k.topic = l.topic AND k.key = l.key AND (
				EXISTS (SELECT 1 FROM tenure.outbox_claim c WHERE c.claim = k.claim AND l.key = ANY (c.keys)) OR k.claim IS NULL AND EXISTS (SELECT 1 FROM tenure.outbox_later r WHERE r.topic = k.topic AND r.key = k.key)))`,
		"a key with another count than its claim": `SELECT string_agg(k.key, ',') FROM tenure.outbox_lane k WHERE k.claim IS NOT NULL
			AND k.open <> (SELECT count(*) FROM tenure.outbox_message m WHERE m.ordered AND m.topic = k.topic AND m.key = k.key AND m.claim = k.claim AND NOT m.settled)`,
		"a claim with another count": `SELECT string_agg(c.claim::text, ',') FROM tenure.outbox_claim c WHERE c.open <> (SELECT count(*) FROM tenure.outbox_message m WHERE m.claim = c.claim AND NOT m.settled)`,
		"a key under two claims": `SELECT string_agg(key, ',') FROM (SELECT m.key FROM tenure.outbox_message m WHERE m.ordered AND m.state = 1 AND NOT m.settled AND m.claim IS NOT NULL AND m.until > clock_timestamp()
			GROUP BY m.topic, m.key HAVING count(DISTINCT m.claim) > 1) x`,
		"dead letters that are not":      `SELECT string_agg(m.position::text, ',') FROM tenure.outbox_message m FULL JOIN tenure.outbox_dead d USING (position) WHERE (m.state = 3) IS DISTINCT FROM (d.position IS NOT NULL)`,
		"an end that will not be pruned": `SELECT string_agg(m.position::text, ',') FROM tenure.outbox_message m WHERE m.state > 1 AND NOT EXISTS (SELECT 1 FROM tenure.outbox_ended e WHERE e.state = m.state AND e.ended = m.ended AND m.position = ANY (e.positions))`,
		"an end without an instant":      `SELECT string_agg(m.position::text, ',') FROM tenure.outbox_message m WHERE (m.state = 1) <> (m.ended IS NULL)`,
		"more errors than are kept":      `SELECT string_agg(m.position::text, ',') FROM tenure.outbox_message m WHERE cardinality(m.errors) > 8`,
		"a topic that is not known":      `SELECT string_agg(DISTINCT m.topic, ',') FROM tenure.outbox_message m WHERE NOT EXISTS (SELECT 1 FROM tenure.outbox_topic t WHERE t.topic = m.topic)`,
	} {
		var found *string
		if err := h.own.QueryRow(ctx, query).Scan(&found); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if found != nil {
			return fmt.Errorf("%s: %s", what, *found)
		}
	}
	return nil
}
