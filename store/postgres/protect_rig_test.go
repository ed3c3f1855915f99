package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
)

// shop is the tables of the tests: orders is protected, and so are its lines, which a cascade reaches, and events, which has partitions.
const shop = `
CREATE TABLE customer (id int PRIMARY KEY);
CREATE TABLE orders (order_id int PRIMARY KEY, customer int REFERENCES customer ON DELETE CASCADE ON UPDATE CASCADE, state text NOT NULL DEFAULT 'new');
CREATE TABLE source (order_id int, state text);
CREATE VIEW open_orders AS SELECT order_id, state FROM orders;
CREATE TABLE events (order_id int, day int, what text) PARTITION BY RANGE (day); -- it has no key
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (10);
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (10) TO (20);
CREATE TABLE parent (order_id int, note text);
CREATE TABLE child (more text) INHERITS (parent);
CREATE FUNCTION touch(p int) RETURNS void LANGUAGE sql AS 'UPDATE orders SET state = ''touched'' WHERE order_id = p';
INSERT INTO customer VALUES (1), (2), (9);
INSERT INTO orders VALUES (1, 1), (2, 2), (3, NULL);
INSERT INTO source VALUES (1, 'a'), (2, 'b'), (4, 'd');
INSERT INTO events VALUES (1, 1, 'made'), (2, 2, 'made'), (1, 11, 'paid');
INSERT INTO parent VALUES (1, 'p');
INSERT INTO child VALUES (1, 'c', 'm');
`

const byOrder = `'orders/' || order_id`

// shopRig is a database with the tables of the shop, protected.
type shopRig struct {
	*rig
	session fence.ID
}

func newShop(t testing.TB, edits ...edit) *shopRig {
	t.Helper()
	ctx := t.Context()
	s := &shopRig{rig: &rig{t: t, harness: newHarness(t)}}
	s.do(ctx, shop)
	for _, e := range edits { // before: the guards are made of what the schema says
		if err := s.edit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"orders", "events", "parent"} {
		if _, err := Protect(ctx, s.own, Protection{Table: table, Name: byOrder}); err != nil {
			t.Fatal(err)
		}
	}
	s.session = s.open(ctx, time.Hour)
	return s
}

func (s *shopRig) do(ctx context.Context, sql string) {
	s.t.Helper()
	if _, err := s.own.Exec(ctx, sql); err != nil {
		s.t.Fatalf("%.80s: %v", sql, err)
	}
}

// text reads one text.
func (s *shopRig) text(ctx context.Context, sql string) (text string) {
	s.t.Helper()
	if err := s.own.QueryRow(ctx, sql).Scan(&text); err != nil {
		s.t.Fatalf("%.80s: %v", sql, err)
	}
	return text
}

// claims acquires each of the names.
func (s *shopRig) claims(ctx context.Context, names ...string) []fence.Claim {
	s.t.Helper()
	all := make([]fence.Claim, len(names))
	for i, name := range names {
		all[i] = s.acquire(ctx, s.session, name)
	}
	return all
}

// content is all that the tables hold.
func (s *shopRig) content(ctx context.Context, q querier) (text string) {
	s.t.Helper()
	err := q.QueryRow(ctx, `SELECT (SELECT string_agg(o::text, ' ' ORDER BY o::text) FROM orders o) || (SELECT string_agg(e::text, ' ' ORDER BY e::text) FROM events e)
		|| (SELECT string_agg(p::text, ' ' ORDER BY p::text) FROM parent p) || (SELECT string_agg(c::text, ' ' ORDER BY c::text) FROM child c)`).Scan(&text)
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// write runs one statement in a transaction that presents the claims, and rolls it back. It returns the statement's error.
func (s *shopRig) write(ctx context.Context, level pgx.TxIsoLevel, w func(context.Context, pgx.Tx) error, claims ...fence.Claim) error {
	s.t.Helper()
	tx, err := s.own.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if len(claims) > 0 {
		if err := Present(ctx, tx, claims...); err != nil {
			return fmt.Errorf("presenting: %w", err)
		}
	}
	return FenceError(fence.Claim{}, w(ctx, tx))
}

func statement(sql string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

// rowRefused is an error if err is no refusal of a write to a row of that name.
func rowRefused(err error, name string, why fence.Reason) error {
	var refused *fence.RefusedError
	if !errors.As(err, &refused) {
		return fmt.Errorf("want a refusal, got %w", err)
	}
	if refused.Claim.Name != name || refused.Why != why {
		return fmt.Errorf("want %q refused as %v, got %w", name, why, err)
	}
	return nil
}
