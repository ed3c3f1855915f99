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
	"github.com/tenure-go/tenure/hold"
)

// holdHarness is one fresh file with a store of holds on it.
type holdHarness struct{ *harness }

func newHoldHarness(t testing.TB) *holdHarness {
	t.Helper()
	return &holdHarness{newHarness(t)}
}

// newManualHoldHarness has a kernel clock that moves by Tick alone.
func newManualHoldHarness(t testing.TB) *holdHarness {
	t.Helper()
	return &holdHarness{newManualHarness(t)}
}

// Store is the store under test.
func (h *holdHarness) Store() hold.Store { return h.store.Holds() }

// Office is the same store's.
func (h *holdHarness) Office() hold.Office { return h.store.Holds() }

// Advance moves every stored instant back by d.
func (h *holdHarness) Advance(ctx context.Context, d time.Duration) error {
	if err := h.harness.Advance(ctx, d); err != nil {
		return err
	}
	return inOwnTx(ctx, h.own, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE tenure_hold SET placed = placed - ?1, at = at - ?1`, int64(d))
		if err == nil {
			_, err = tx.ExecContext(ctx, `UPDATE tenure_line SET until = until - ?1`, int64(d))
		}
		return err
	})
}

// Check looks at the file for what must never be.
func (h *holdHarness) Check(ctx context.Context) error {
	return errors.Join(h.harness.Check(ctx), checkHolds(ctx, h.own))
}

// checkHolds looks at all items and holds of a file.
func checkHolds(ctx context.Context, db *sql.DB) error {
	for what, query := range map[string]string{
		"more sold and held than there is": `SELECT group_concat(name) FROM tenure_item WHERE sold < 0 OR held < 0 OR sold + held > quantity`,
		"held by no hold":                  `SELECT group_concat(name) FROM tenure_item i WHERE held <> (SELECT coalesce(sum(quantity), 0) FROM tenure_line WHERE item = i.name AND state = 1)`,
		"sold to more than are counted":    `SELECT group_concat(name) FROM tenure_item i WHERE sold < (SELECT coalesce(sum(quantity), 0) FROM tenure_line WHERE item = i.name AND state = 2)`,
		"a line that is not its hold's":    `SELECT group_concat(hex(l.hold)) FROM tenure_line l LEFT JOIN tenure_hold h ON h.id = l.hold WHERE h.id IS NULL OR l.state <> h.state OR h.state = 1 AND l.until <> h.at`,
		"a line of nothing":                `SELECT group_concat(item) FROM tenure_line WHERE quantity < 1 OR item NOT IN (SELECT name FROM tenure_item)`,
		"units that are not its lines'":    `SELECT group_concat(hex(id)) FROM tenure_hold h WHERE units <> (SELECT coalesce(sum(quantity), 0) FROM tenure_line WHERE hold = h.id)`,
		"a reference too many, or none":    `SELECT group_concat(hex(id)) FROM tenure_hold WHERE (reference <> '') <> (state IN (2, 5)) OR state NOT BETWEEN 1 AND 5`,
		"an end before its beginning":      `SELECT group_concat(hex(id)) FROM tenure_hold WHERE at < placed`,
		"what there is one of, twice":      `SELECT group_concat(item) FROM (SELECT item FROM tenure_line WHERE state = 2 AND sole = 1 GROUP BY item HAVING count(*) > 1)`,
	} {
		var found sql.NullString
		if err := db.QueryRowContext(ctx, query).Scan(&found); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if found.Valid {
			return fmt.Errorf("%s: %s", what, found.String)
		}
	}
	return nil
}

// holdID is an id by number.
func holdID(n int) (id fence.ID) {
	id[6] = 0x70
	binary.BigEndian.PutUint64(id[8:], uint64(n)|1<<63)
	return id
}

// placement asks for one of each item for ann.
func placement(n int, ttl time.Duration, items ...string) hold.PlaceRequest {
	req := hold.PlaceRequest{ID: holdID(n), Actor: "ann", TTL: ttl}
	for _, item := range items {
		req.Lines = append(req.Lines, hold.Line{Item: item, Quantity: 1})
	}
	return req
}

// payment confirms such a hold.
func payment(n int) hold.ConfirmRequest {
	return hold.ConfirmRequest{ID: holdID(n), Actor: "ann", Reference: fmt.Sprint("pays ", n)}
}

// office is items and holds that a test works on.
type office struct {
	t     testing.TB
	holds *Holds
}

func (o *office) stock(quantity int64, items ...string) {
	o.t.Helper()
	var all []hold.Item
	for _, item := range items {
		all = append(all, hold.Item{Name: item, Quantity: quantity})
	}
	if err := o.holds.Stock(o.t.Context(), all); err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) place(n int, ttl time.Duration, items ...string) hold.Hold {
	o.t.Helper()
	h, err := o.holds.Place(o.t.Context(), placement(n, ttl, items...))
	if err != nil {
		o.t.Fatal(err)
	}
	return h
}

func (o *office) confirm(n int, want hold.State) {
	o.t.Helper()
	h, err := o.holds.Confirm(o.t.Context(), payment(n))
	if err != nil || h.State != want {
		o.t.Fatalf("confirmed %v, %v; want %v", h.State, err, want)
	}
}

func (o *office) get(n int) hold.Hold {
	o.t.Helper()
	h, err := o.holds.Get(o.t.Context(), holdID(n))
	if err != nil {
		o.t.Fatal(err)
	}
	return h
}

// item demands what is known of an item.
func (o *office) item(name string, quantity, sold, held int64) {
	o.t.Helper()
	all, err := o.holds.Items(o.t.Context(), name, "", 1)
	want := hold.ItemInfo{Item: hold.Item{Name: name, Quantity: quantity}, Sold: sold, Held: held}
	if err != nil || len(all) != 1 || all[0] != want {
		o.t.Errorf("%q: %+v, %v; want %+v", name, all, err, want)
	}
}
