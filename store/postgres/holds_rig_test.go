package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/internal/testdb"
)

// holdHarness is one fresh database with a store of holds on it.
type holdHarness struct{ *harness }

func newHoldHarness(t testing.TB) *holdHarness {
	t.Helper()
	return &holdHarness{newHarness(t)}
}

// newOwnHoldHarness has a server of its own, for a test that stops it.
func newOwnHoldHarness(t testing.TB) *holdHarness {
	t.Helper()
	return &holdHarness{newOwnHarness(t)}
}

// manualHoldHarness has a clock that moves by Tick alone.
type manualHoldHarness struct {
	*holdHarness
	clock manualHarness
}

func newManualHoldHarness(t testing.TB, server *testdb.Server) *manualHoldHarness {
	t.Helper()
	clock := newManualHarness(t, server)
	return &manualHoldHarness{&holdHarness{clock.harness}, clock}
}

func (h *manualHoldHarness) Tick(d time.Duration) { h.clock.Tick(d) }

// Store is the store under test.
func (h *holdHarness) Store() hold.Store { return h.store.Holds() }

// Office is its operator's side.
func (h *holdHarness) Office() hold.Office { return h.store.Holds() }

// Advance moves every stored instant back by d, in one transaction.
func (h *holdHarness) Advance(ctx context.Context, d time.Duration) error {
	return pgx.BeginFunc(ctx, h.own, func(tx pgx.Tx) error {
		for _, update := range []string{
			`UPDATE tenure.hold SET placed = placed - $1::interval, until = until - $1::interval`,
			`UPDATE tenure.hold_line SET until = until - $1::interval`,
		} {
			if _, err := tx.Exec(ctx, update, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// empty makes the database as it was when it was installed.
func (h *holdHarness) empty(ctx context.Context) error {
	_, err := h.own.Exec(ctx, `TRUNCATE tenure.item, tenure.hold, tenure.hold_line`)
	return err
}

// Check looks at the database for what must never be. Sold units of what was pruned are counted still.
func (h *holdHarness) Check(ctx context.Context) error {
	return errors.Join(h.harness.Check(ctx), h.checkHolds(ctx))
}

func (h *holdHarness) checkHolds(ctx context.Context) error {
	for what, query := range map[string]string{
		"more than there is":                  `SELECT string_agg(name, ',') FROM tenure.item WHERE sold + held > quantity`,
		"held that is not counted":            `SELECT string_agg(name, ',') FROM tenure.item i WHERE held <> (SELECT coalesce(sum(quantity), 0) FROM tenure.hold_line l WHERE l.item = i.name AND live)`,
		"sold that is not counted":            `SELECT string_agg(name, ',') FROM tenure.item i WHERE sold < (SELECT coalesce(sum(l.quantity), 0) FROM tenure.hold_line l JOIN tenure.hold h ON h.id = l.hold WHERE l.item = i.name AND h.state = 2)`,
		"a single item sold twice":            `SELECT string_agg(item, ',') FROM (SELECT l.item FROM tenure.hold_line l JOIN tenure.hold h ON h.id = l.hold JOIN tenure.item i ON i.name = l.item WHERE h.state = 2 AND i.quantity = 1 GROUP BY l.item HAVING count(*) > 1) t`,
		"a live line of what is over":         `SELECT string_agg(h.id::text, ',') FROM tenure.hold h JOIN tenure.hold_line l ON l.hold = h.id WHERE l.live AND h.state <> 1`,
		"a line with another deadline":        `SELECT string_agg(h.id::text, ',') FROM tenure.hold h JOIN tenure.hold_line l ON l.hold = h.id WHERE h.state = 1 AND l.until <> h.until`,
		"a line without its hold":             `SELECT string_agg(hold::text, ',') FROM tenure.hold_line WHERE hold NOT IN (SELECT id FROM tenure.hold)`,
		"a hold with other lines":             `SELECT string_agg(id::text, ',') FROM tenure.hold h WHERE items <> ARRAY(SELECT item FROM tenure.hold_line l WHERE l.hold = h.id ORDER BY item) OR quantities <> ARRAY(SELECT quantity FROM tenure.hold_line l WHERE l.hold = h.id ORDER BY item)`,
		"units that are not its lines'":       `SELECT string_agg(id::text, ',') FROM tenure.hold h WHERE units <> (SELECT sum(q) FROM unnest(quantities) q)`,
		"a sole line of what is not sold":     `SELECT string_agg(h.id::text, ',') FROM tenure.hold h JOIN tenure.hold_line l ON l.hold = h.id WHERE l.sole AND h.state <> 2`,
		"a line of an item that is no item's": `SELECT string_agg(item, ',') FROM tenure.hold_line WHERE item NOT IN (SELECT name FROM tenure.item)`,
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
