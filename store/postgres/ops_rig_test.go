package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/operation"
)

// opHarness is one fresh database with a store of operations on it.
type opHarness struct{ *harness }

func newOpHarness(t testing.TB) *opHarness {
	t.Helper()
	return &opHarness{newHarness(t)}
}

// newOwnOpHarness has a server of its own, for a test that stops it.
func newOwnOpHarness(t testing.TB) *opHarness {
	t.Helper()
	return &opHarness{newOwnHarness(t)}
}

// manualOpHarness has a clock that moves by Tick alone.
type manualOpHarness struct {
	*opHarness
	clock manualHarness
}

func newManualOpHarness(t testing.TB, server *testdb.Server) *manualOpHarness {
	t.Helper()
	clock := newManualHarness(t, server)
	return &manualOpHarness{&opHarness{clock.harness}, clock}
}

func (h *manualOpHarness) Tick(d time.Duration) { h.clock.Tick(d) }

// Store is the store under test.
func (h *opHarness) Store() operation.Backend { return h.store.Operations() }

// Advance moves every stored instant back by d, in one transaction.
func (h *opHarness) Advance(ctx context.Context, d time.Duration) error {
	h.store.operations.looks.forget() // what it has learned is no instant of now any more
	if err := h.harness.Advance(ctx, d); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, h.own, func(tx pgx.Tx) error {
		for _, update := range []string{
			`LOCK TABLE tenure.operation IN ACCESS EXCLUSIVE MODE`, // rows would be locked as they come, and close circles with those that lock them in order
			`UPDATE tenure.operation SET created = created - $1::interval, due = due - $1::interval, began = began - $1::interval, ended = ended - $1::interval, until = until - $1::interval,
				first = first - $1::interval, again_until = again_until - $1::interval, not_after = not_after - $1::interval, decided = decided - $1::interval`,
			`UPDATE tenure.attempt SET began = began - $1::interval, ended = ended - $1::interval`,
		} {
			args := []any{d}
			if !strings.Contains(update, "$1") {
				args = nil
			}
			if _, err := tx.Exec(ctx, update, args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// Check looks at the database for what must never be.
func (h *opHarness) Check(ctx context.Context) error {
	return errors.Join(h.harness.Check(ctx), h.checkOperations(ctx))
}

func (h *opHarness) checkOperations(ctx context.Context) error {
	for what, query := range map[string]string{
		"a step that does not fit the state": `SELECT string_agg(id, ',') FROM tenure.operation o WHERE step <> CASE state WHEN 1 THEN 2 WHEN 2 THEN 3
			WHEN 3 THEN CASE WHEN (due <= again_until) IS TRUE AND NOT (wished AND asks) THEN 2 WHEN asks THEN 4 ELSE 1 END WHEN 4 THEN CASE WHEN wished AND undoes AND undone_by IS NULL THEN 5 ELSE 1 END ELSE 1 END`,
		"a decision without its time":         `SELECT string_agg(id, ',') FROM tenure.operation WHERE (state >= 4) <> (decided IS NOT NULL)`,
		"an open attempt in another state":    `SELECT string_agg(id, ',') FROM tenure.operation WHERE state IN (1, 3) AND known = 3 OR state = 2 AND known IS DISTINCT FROM 3`,
		"attempts that are not counted":       `SELECT string_agg(id, ',') FROM tenure.operation o WHERE attempts <> (number IS NOT NULL)::int + (SELECT count(*) FROM tenure.attempt a WHERE a.id = o.id)`,
		"a number that does not rise":         `SELECT string_agg(o.id, ',') FROM tenure.operation o JOIN tenure.attempt a ON a.id = o.id WHERE a.number >= o.number`,
		"a number that came twice":            `SELECT string_agg(number::text, ',') FROM (SELECT number FROM tenure.attempts GROUP BY number HAVING count(*) > 1) t`,
		"a number above the sequence":         `SELECT string_agg(number::text, ',') FROM tenure.attempts WHERE number > (SELECT last_value FROM tenure.token)`,
		"a number that a lease has":           `SELECT string_agg(number::text, ',') FROM tenure.attempts WHERE number IN (SELECT token FROM tenure.lease)`,
		"an older attempt that is open":       `SELECT string_agg(id, ',') FROM tenure.attempt WHERE known = 3`,
		"doubt that is not noted":             `SELECT string_agg(id, ',') FROM tenure.operation o WHERE unsure <> EXISTS (SELECT 1 FROM tenure.attempt a WHERE a.id = o.id AND a.known > 2) AND state < 4`,
		"an effect that decided nothing":      `SELECT string_agg(o.id, ',') FROM tenure.operation o JOIN tenure.attempts a ON a.id = o.id WHERE a.known = 5 AND o.state < 4`,
		"the first of its order blocked":      `SELECT string_agg(id, ',') FROM (SELECT id, blocked, row_number() OVER (PARTITION BY ord ORDER BY submission) AS place FROM tenure.operation WHERE ord IS NOT NULL AND state < 4) t WHERE blocked <> (place > 1)`,
		"blocked though decided":              `SELECT string_agg(id, ',') FROM tenure.operation WHERE blocked AND (state >= 4 OR ord IS NULL)`,
		"attempting though blocked":           `SELECT string_agg(id, ',') FROM tenure.operation WHERE blocked AND attempts > 0`,
		"a body that was forgotten":           `SELECT string_agg(id, ',') FROM tenure.operation WHERE kept > 1 AND (request IS NOT NULL OR result IS NOT NULL)`,
		"a row without its operation":         `SELECT string_agg(id, ',') FROM (SELECT id FROM tenure.attempt UNION SELECT id FROM tenure.conflict) t WHERE id NOT IN (SELECT id FROM tenure.operation)`,
		"conflicts that are not counted":      `SELECT string_agg(id, ',') FROM tenure.operation o WHERE conflicts < (SELECT count(*) FROM tenure.conflict c WHERE c.id = o.id)`,
		"a compensation of what is undecided": `SELECT string_agg(o.id, ',') FROM tenure.operation o JOIN tenure.operation t ON t.id = o.compensates WHERE t.state <> 4`,
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
