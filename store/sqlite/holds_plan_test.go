package sqlite

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/hold"
)

// What a buyer, a seller and an operator look for is found by an index: no statement walks over what was sold or has ended, however much of that is stored.
func TestHoldsAreFoundByIndexes(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	statements := map[string]string{
		expiredOf:    "tenure_line_live",
		firstExpired: "tenure_line_live",
		nextExpiry:   "tenure_line_live",
		heldByActor:  "COVERING INDEX tenure_hold_live",
		selectHold:   "PRIMARY KEY",
		selectHolds:  "PRIMARY KEY",
		selectItem:   "PRIMARY KEY",
		hintHold:     "PRIMARY KEY",
		selectItems:  "PRIMARY KEY",
		selectOver:   "tenure_hold_at",
		endLines:     "PRIMARY KEY",
		extendLines:  "PRIMARY KEY",
		moveItem:     "PRIMARY KEY",
	}
	for _, p := range listParts() {
		live := p.stored == 1
		for _, of := range []struct {
			actor, item bool
			index       string
		}{
			{true, false, map[bool]string{true: "tenure_hold_live", false: "tenure_hold_actor"}[live]},
			{true, true, map[bool]string{true: "tenure_hold_live", false: "tenure_hold_actor"}[live]},
			{false, true, map[bool]string{true: "tenure_line_live", false: "tenure_line_item"}[live]},
			{false, false, map[bool]string{true: "tenure_hold_at", false: "PRIMARY KEY"}[live || p.state == hold.Late]},
		} {
			statements[p.text(of.actor, of.item)] = of.index
		}
	}
	for statement, index := range statements {
		for _, step := range plan(t, s, statement) {
			switch {
			case strings.HasPrefix(step, "SCAN") && !strings.Contains(step, "VIRTUAL TABLE") && !strings.Contains(step, "subquery") && step != "SCAN CONSTANT ROW":
				t.Errorf("%s\n\twalks over a table: %q", statement, step)
			case strings.HasPrefix(step, "SEARCH h ") || strings.HasPrefix(step, "SEARCH tenure_"):
				if !strings.Contains(step, index) && !strings.Contains(step, "PRIMARY KEY") {
					t.Errorf("%s\n\tis planned as %q, want %s", statement, step, index)
				}
			}
			// What has ended is found in the order of ids: only what is live, or late, is put in order.
			if strings.Contains(step, "TEMP B-TREE") && strings.Contains(statement, "ORDER BY 1") &&
				(strings.Contains(statement, "state = 2") || strings.Contains(statement, "state = 3") || strings.Contains(statement, "state = 4")) {
				t.Errorf("%s\n\tis put in order: %q", statement, step)
			}
		}
	}
}

// Very many holds of one item expire at once, and nobody notices. Whoever needs all of what they held gets it, in transactions of a bounded size between which others write; whoever needs
// one takes one.
func TestManyExpiredHoldsAreFreedInSteps(t *testing.T) {
	t.Parallel()
	const many = 5 * settleAtOnce
	h := newHands()
	path := newPath(t)
	s := openWith(t, h.config(path, "boot"))
	o := &office{t, s.Holds()}
	o.stock(many, "item")
	each(t, 16, many, func(i int) error {
		_, err := o.holds.Place(t.Context(), placement(i, time.Minute, "item"))
		return err
	})
	h.pass(time.Minute)
	o.item("item", many, 0, 0)
	o.place(many, time.Hour, "item")
	const unnoticed = `SELECT count(*) FROM tenure_line WHERE state = 1`
	if got := plainValue(t, path, unnoticed); got != "1280" {
		t.Errorf("%s lines are counted after one was needed, want all but one, and the new one", got)
	}
	req := placement(many+1, time.Hour)
	req.Lines = []hold.Line{{Item: "item", Quantity: many - 1}}
	steps := 0
	err := s.writer.do(t.Context(), &request{op: "place", do: func(b *batch) error { // one step by hand
		hb := &holdBatch{txWork: b.work(), extra: &b.extra}
		_, err := hb.place(&req, req.Lines)
		steps = b.extra
		b.wrote = hb.wrote
		return err
	}}, false)
	if err != errAgain || steps != settleAtOnce { //nolint:errorlint // it is this one, unwrapped
		t.Errorf("one transaction freed %d lines: %v", steps, err)
	}
	if _, err := o.holds.Place(t.Context(), req); err != nil {
		t.Error(err)
	}
	o.item("item", many, 0, many)
	if err := checkHolds(t.Context(), plainDB(t, path, "")); err != nil {
		t.Error(err)
	}
}

// Stock that is lowered beside expired holds, and a late payment with grace, make room in the same way.
func TestExpiredHoldsMakeRoomForLessStockAndForGrace(t *testing.T) {
	t.Parallel()
	const many = 2 * settleAtOnce
	h := newHands()
	o := &office{t, openWith(t, h.config(newPath(t), "boot")).Holds()}
	o.stock(many+1, "item")
	req := placement(many, time.Minute)
	req.Lines = []hold.Line{{Item: "item", Quantity: many}}
	if _, err := o.holds.Place(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	h.pass(time.Minute)
	each(t, 16, many, func(i int) error {
		_, err := o.holds.Place(t.Context(), placement(i, time.Minute, "item"))
		return err
	})
	h.pass(time.Minute)
	late := payment(many)
	late.Grace = 2 * time.Minute
	if got, err := o.holds.Confirm(t.Context(), late); err != nil || got.State != hold.Confirmed {
		t.Fatalf("confirmed with grace: %v, %v", got.State, err)
	}
	o.item("item", many+1, many, 0)

	o.stock(many, "other")
	each(t, 16, many, func(i int) error {
		_, err := o.holds.Place(t.Context(), placement(2*many+i, time.Minute, "other"))
		return err
	})
	h.pass(time.Minute)
	o.stock(0, "other")
	o.item("other", 0, 0, 0)
}

// Calls about holds of many lines do not crowd into one transaction either: they go on in the next ones, and all come through.
func TestHoldsOfManyLinesDoNotShareABatch(t *testing.T) {
	t.Parallel()
	const many = 6
	s := openPath(t, newPath(t))
	o := &office{t, s.Holds()}
	items := make([]string, hold.MaxLines)
	for i := range items {
		items[i] = seat(i)
	}
	o.stock(many, items...)
	for n := range many {
		o.place(n, time.Hour, items...)
	}
	g := holdWriter(t, s)
	answers := make(chan error, many)
	for n := range many {
		go func() {
			h, err := o.holds.Confirm(t.Context(), payment(n))
			if err == nil && h.State != hold.Confirmed {
				err = errAgain
			}
			answers <- err
		}()
	}
	waitQueued(t, s, many)
	handled := make(chan int, 1)
	last := &request{op: "count", done: make(chan error, 1), do: func(b *batch) error { handled <- b.extra; return nil }}
	if err := s.writer.enqueue(last, false); err != nil {
		t.Fatal(err)
	}
	g.open()
	if n := <-handled; n > settleAtOnce || n < hold.MaxLines {
		t.Errorf("one batch handled %d lines", n)
	}
	for range many {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	o.item(seat(0), many, many, 0)
}
