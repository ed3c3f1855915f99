package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/hold"
)

// selling changes what a seller does, and no other process.
func selling(m manner) func(*worker) {
	return func(w *worker) {
		if w.Sell != nil {
			w.Sell.Manner = m
		}
	}
}

// saleOptions are the options of a drill on each kind of store.
func saleOptions(t *testing.T, scenario, twin string, rounds int) []Options {
	t.Helper()
	return []Options{options(t, scenario, twin, rounds), onPostgres(t, scenario, twin, rounds)}
}

// nothingHeld looks for what a drill about holds left.
func nothingHeld(o Options) (err error) {
	ctx := context.Background()
	store, err := o.place().site().open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Shutdown(ctx)) }()
	holds, err := holdsOf(store)
	if err != nil {
		return err
	}
	left, err := holds.List(ctx, hold.ListRequest{States: []hold.State{hold.Held}, Limit: hold.MaxList})
	if len(left) > 0 {
		err = fmt.Errorf("left: %+v", left)
	}
	if o.URL != "" {
		return errors.Join(err, nothingLeft(o))
	}
	return errors.Join(err, noTables(o.Path))
}

// TestSales: each drill about holds, damage in a table of the application's own, none with holds, on both kinds of store, and nothing is left.
func TestSales(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	for _, sc := range holdScenarios() {
		for _, unfenced := range []bool{false, true} {
			for _, o := range saleOptions(t, sc.Name, "sound", 2) {
				o.Unfenced = unfenced
				cases = append(cases, func(*testing.T) error { return soundSales(o) })
			}
		}
	}
	together(t, cases)
}

func soundSales(o Options) error {
	r, err := Run(context.Background(), o)
	variants := saleVariants(o.Scenario, o)
	bad := func() error {
		return fmt.Errorf("%s, unfenced %v, on %s: %+v, sales %+v, %w", o.Scenario, o.Unfenced, o.Store, r, r.Sales, err)
	}
	if err != nil || !r.OK || r.Sales == nil || len(r.Sales.Variants) != len(variants) {
		return bad()
	}
	rounds := o.Rounds * len(variants)
	for i, v := range variants {
		if got := r.Sales.Variants[i]; got.Name != v.want.Name || !got.OK || got.Rounds != o.Rounds || got.Shows == "" || (got.Damaged == got.Rounds) != o.Unfenced {
			return bad()
		}
	}
	if s := r.Sales; s.LateSent != rounds || !o.Unfenced && s.Sales != rounds || o.Unfenced && (s.Sales != 2*rounds || s.LateSold != rounds || s.DamagedRounds != rounds) {
		return bad()
	}
	return nothingHeld(o)
}

// TestSalesBroken: each drill about holds fails with sellers that are broken, and the judging process sees why.
func TestSalesBroken(t *testing.T) {
	t.Parallel()
	hurt := func(kinds ...model.Damage) func(Report) bool {
		return func(r Report) bool {
			return !slices.ContainsFunc(kinds, func(k model.Damage) bool { return r.Sales.Damage[k] == 0 })
		}
	}
	invalid := func(r Report) bool { return len(r.InvalidRounds) > 0 }
	var cases []func(t *testing.T) error
	for _, c := range []struct {
		scenario, twin string
		shows          func(r Report) bool
	}{
		{"expired-hold", "ignores-late", hurt(model.SoldTwice, model.SoldUnheld)},
		{"expired-hold", "silent-sale", invalid},
		{"double-confirm", "two-rows", hurt(model.SaleTwice)},
		{"double-confirm", "silent-sale", invalid},
		{"lost-confirm-reply", "two-rows", hurt(model.SaleTwice)},
		{"lost-confirm-reply", "ignores-late", hurt(model.SoldTwice)},
		{"lost-confirm-reply", "silent-sale", invalid},
	} {
		for _, o := range saleOptions(t, c.scenario, c.twin, 1) {
			cases = append(cases, func(*testing.T) error {
				r, err := Run(context.Background(), o)
				if err != nil || r.OK || r.Sales == nil || !c.shows(r) {
					return fmt.Errorf("%s with %s is ok, or not for another reason: %+v, sales %+v, %w", c.scenario, c.twin, r, r.Sales, err)
				}
				return nothingHeld(o)
			})
		}
	}
	together(t, cases)
}

// TestSalesInterrupted: a drill that is ended leaves neither tables nor live holds.
func TestSalesInterrupted(t *testing.T) {
	t.Parallel()
	o := options(t, "double-confirm", "sound", 200)
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = writerFunc(func() { cancel() }) // a round is over, and others are being played
	r, err := Run(ctx, o)
	if !errors.Is(err, ErrInterrupted) || r.OK {
		t.Errorf("%+v, %v", r, err)
	}
	if err := nothingHeld(o); err != nil {
		t.Error(err)
	}
}
