package postgres

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/hold"
)

// TestConstraintsStandBehindHolds: where a function has forgotten a rule, the tables refuse what it would have done.
func TestConstraintsStandBehindHolds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newCounter(t)
	f.stock("counted", "sole")
	first := f.place("ann", time.Minute, "sole")
	if _, err := f.holds.Confirm(ctx, paid(first)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.own.Exec(ctx, `UPDATE tenure.item SET sold = 0 WHERE name = 'sole'`); err != nil { // by hand
		t.Fatal(err)
	}
	second := f.place("bob", time.Minute, "sole")
	if told, err := f.holds.Confirm(ctx, paid(second)); state(err) != "23505" || !errors.Is(err, hold.ErrUnavailable) {
		t.Errorf("a seat was sold twice: %+v, %v", told, err)
	}
	f.place("ann", time.Minute, "counted")
	for _, update := range []string{`held = held + 1`, `sold = sold + 1`, `quantity = 0`, `held = -1`} {
		if _, err := f.own.Exec(ctx, `UPDATE tenure.item SET `+update+` WHERE name = 'counted'`); state(err) != stateCheckViolation {
			t.Errorf("%s: %v", update, err)
		}
	}
}

// TestARefusedPlaceLocksAndWritesNothing: it is answered though a sale has the item locked, and its transaction has written nothing.
func TestARefusedPlaceLocksAndWritesNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newCounter(t)
	f.stock("seat", "other")
	f.place("ann", time.Minute, "seat")
	x := f.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.item FOR UPDATE`)
	limited := f.want("bob", time.Minute, "seat", "other")
	limited.MaxUnits = 2 // by itself
	for _, req := range []hold.PlaceRequest{f.want("bob", time.Minute, "other", "seat"), limited} {
		var taken *hold.TakenError
		if _, err := f.holds.Place(ctx, req); !errors.As(err, &taken) || taken.Item != "seat" || taken.Wanted != 1 || taken.Free != 0 || taken.Next <= 0 || taken.Next > time.Minute {
			t.Errorf("%v", err)
		}
	}
	y := f.begin(ctx, pgx.ReadCommitted)
	var refused int
	var wrote bool
	if err := y.QueryRow(ctx, `SELECT cardinality(refused) FROM tenure.hold_place_many(ARRAY[$1::uuid], '{bob}', '{1 minute}', '{1}', '{seat}', '{1}')`, uuid(f.ids.New())).Scan(&refused); err != nil || refused != 1 {
		t.Fatal(refused, err)
	}
	if err := y.QueryRow(ctx, `SELECT pg_current_xact_id_if_assigned() IS NOT NULL`).Scan(&wrote); err != nil || wrote {
		t.Errorf("a refusal wrote: %v, %v", wrote, err)
	}
}

// TestTwoHundredForTheLastUnit: of 200 callers one gets it, each asking twice for each of its requests (34).
func TestTwoHundredForTheLastUnit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newCounter(t)
	f.stock("last")
	stores := []*Holds{f.holds, openStore(t, f.url(), Options{}).Holds()}
	var mu sync.Mutex
	winners := map[string]bool{}
	var wg sync.WaitGroup
	for i := range 200 {
		req := f.want(fmt.Sprint("buyer ", i), time.Minute, "last")
		for _, holds := range stores { // of one id, at once
			wg.Go(func() {
				h, err := holds.Place(ctx, req)
				if err == nil {
					h, err = holds.Confirm(ctx, paid(h))
				}
				if err == nil && h.State == hold.Confirmed {
					mu.Lock()
					winners[req.Actor] = true
					mu.Unlock()
				} else if !errors.Is(err, hold.ErrTaken) {
					t.Error(h, err)
				}
			})
		}
	}
	wg.Wait()
	if len(winners) != 1 {
		t.Errorf("%v have the last unit", winners)
	}
}
