package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxtest"
)

// mailHarness is one fresh file with a store of messages on it.
type mailHarness struct{ *harness }

func newMailHarness(t testing.TB) *mailHarness {
	t.Helper()
	return &mailHarness{newHarness(t)}
}

// newManualMailHarness has a kernel clock that moves by Tick alone.
func newManualMailHarness(t testing.TB) *mailHarness {
	t.Helper()
	return &mailHarness{newManualHarness(t)}
}

// Store is the store under test.
func (h *mailHarness) Store() outbox.Store { return h.store.Outbox() }

// Office is the same store's.
func (h *mailHarness) Office() outbox.Office { return h.store.Outbox() }

// Waker is the same store's.
func (h *mailHarness) Waker() outbox.Waker { return h.store.Outbox() }

// Advance moves every stored instant back by d.
func (h *mailHarness) Advance(ctx context.Context, d time.Duration) error {
	if err := h.harness.Advance(ctx, d); err != nil {
		return err
	}
	return inOwnTx(ctx, h.own, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE tenure_message SET appended = appended - ?1, at = at - ?1`, int64(d))
		if err == nil {
			_, err = tx.ExecContext(ctx, `UPDATE tenure_message_error SET at = at - ?1`, int64(d))
		}
		return err
	})
}

// Check looks at the file for what must never be.
func (h *mailHarness) Check(ctx context.Context) error {
	return errors.Join(h.harness.Check(ctx), checkMail(ctx, h.own))
}

// Begin is a transaction on the harness's own connection.
func (h *mailHarness) Begin(ctx context.Context) (outboxtest.Tx, error) {
	db, err := sql.Open("sqlite", dsn(h.store.Path(), openBusy, false))
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &mailTx{h.store.Outbox(), db, tx}, nil
}

type mailTx struct {
	mail *Outbox
	db   *sql.DB
	tx   *sql.Tx
}

func (m *mailTx) Append(ctx context.Context, messages []outbox.Message) ([]fence.ID, error) {
	return m.mail.AppendTx(ctx, m.tx, messages...)
}
func (m *mailTx) Commit(context.Context) error   { return errors.Join(m.tx.Commit(), m.db.Close()) }
func (m *mailTx) Rollback(context.Context) error { return errors.Join(m.tx.Rollback(), m.db.Close()) }

// checkMail looks at all messages of a file.
func checkMail(ctx context.Context, db *sql.DB) error {
	const first = `(SELECT min(f.position) FROM tenure_message f WHERE f.ordered = 1 AND f.state = 1 AND f.topic = m.topic AND f.key = m.key)`
	for what, query := range map[string]string{
		"pending and not to be found":  `SELECT group_concat(position) FROM tenure_message m WHERE state = 1 AND lead <> CASE WHEN ordered = 0 THEN 1 WHEN position = ` + first + ` THEN 2 ELSE 0 END`,
		"found, and not pending":       `SELECT group_concat(position) FROM tenure_message WHERE state > 1 AND (lead > 0 OR open = 1)`,
		"open without a claim":         `SELECT group_concat(position) FROM tenure_message WHERE open = 1 AND (length(claim) <> 16 OR attempts < 1)`,
		"ordered without a key":        `SELECT group_concat(position) FROM tenure_message WHERE ordered = 1 AND key = ''`,
		"attempts below none":          `SELECT group_concat(position) FROM tenure_message WHERE attempts < 0 OR lost < 0 OR lost > attempts`,
		"a key under two live claims":  `SELECT group_concat(key) FROM (SELECT topic, key FROM tenure_message, tenure_authority WHERE ordered = 1 AND open = 1 AND at > mark GROUP BY topic, key HAVING count(DISTINCT claim) > 1)`,
		"a body of another size":       `SELECT group_concat(m.position) FROM tenure_message m LEFT JOIN tenure_message_body d ON d.position = m.position WHERE m.size <> coalesce(length(d.payload), 0)`,
		"a body or error of nothing":   `SELECT group_concat(position) FROM (SELECT position FROM tenure_message_body UNION SELECT position FROM tenure_message_error) WHERE position NOT IN (SELECT position FROM tenure_message)`,
		"more errors than are kept":    `SELECT group_concat(position) FROM (SELECT position FROM tenure_message_error GROUP BY position HAVING count(*) > 8)`,
		"a floor above what was given": `SELECT floor FROM tenure_outbox WHERE floor < 0`,
	} {
		var found sql.NullString
		if err := db.QueryRowContext(ctx, query).Scan(&found); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%s: %w", what, err)
		}
		if found.Valid {
			return fmt.Errorf("%s: %s", what, found.String)
		}
	}
	return nil
}

// mailID is an id by number.
func mailID(n int) (id fence.ID) {
	id[6] = 0x70
	binary.BigEndian.PutUint64(id[8:], uint64(n)|1<<63)
	return id
}

// post is messages that a test works on.
type post struct {
	t      testing.TB
	mail   *Outbox
	in     *Inbox        // or nil
	places map[int]int64 // positions by number, where a test keeps them
}

// letterTo is an ordered message if it has a key.
func letterTo(n int, key string) outbox.Message {
	return outbox.Message{ID: mailID(n), Topic: "tickets", Key: key, Ordered: key != "", Payload: fmt.Append(nil, "letter ", n)}
}

func (p *post) append(messages ...outbox.Message) {
	p.t.Helper()
	if _, err := p.mail.Append(p.t.Context(), messages); err != nil {
		p.t.Fatal(err)
	}
}

func mailClaim(claim, limit int) outbox.ClaimRequest {
	return outbox.ClaimRequest{Claim: mailID(1_000_000 + claim), Relay: "relay", Limit: limit, Bytes: outbox.MaxBatchBytes, TTL: time.Minute, MaxAttempts: 10}
}

func (p *post) claim(claim, limit int) outbox.Batch {
	p.t.Helper()
	got, err := p.mail.Claim(p.t.Context(), mailClaim(claim, limit))
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// published settles what a claim has got.
func published(got outbox.Batch) outbox.SettleRequest {
	req := outbox.SettleRequest{Claim: got.Claim, Relay: "relay"}
	for _, d := range got.Deliveries {
		req.Verdicts = append(req.Verdicts, outbox.Verdict{Position: d.Position, Outcome: outbox.Published})
	}
	return req
}

func (p *post) settle(req outbox.SettleRequest) outbox.Settled {
	p.t.Helper()
	done, err := p.mail.Settle(p.t.Context(), req)
	if err != nil {
		p.t.Fatal(err)
	}
	return done
}

func (p *post) get(n int) outbox.Info {
	p.t.Helper()
	i, err := p.mail.Get(p.t.Context(), mailID(n))
	if err != nil {
		p.t.Fatal(err)
	}
	return i
}
