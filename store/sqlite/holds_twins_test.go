package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/hold"
)

// boxOffice is a store of holds by clocks that a test turns, of which a twin may break something.
type boxOffice struct {
	*office
	hands   *hands
	path    string
	db      *sql.DB
	boot    func() *Store
	confirm func(n int, between func()) (hold.State, error) // between is called where another may come between look and write, if anywhere
	place   func(req hold.PlaceRequest, between func()) error
	prune   func() (int, error)
}

func newBoxOffice(t testing.TB) *boxOffice {
	t.Helper()
	o := &boxOffice{hands: newHands(), path: newPath(t)}
	o.office = &office{t, openWith(t, o.hands.config(o.path, "boot")).Holds()}
	o.db = plainDB(t, o.path, "?_txlock=immediate&_pragma=busy_timeout(5000)")
	o.confirm = func(n int, between func()) (hold.State, error) {
		between()
		h, err := o.holds.Confirm(t.Context(), payment(n))
		return h.State, err
	}
	o.place = func(req hold.PlaceRequest, between func()) error {
		between()
		_, err := o.holds.Place(t.Context(), req)
		return err
	}
	o.prune = func() (int, error) { return o.holds.Prune(t.Context(), hold.MinPruneAge, 100) }
	return o
}

// holdGuarantees hold for a store, and each catches the twin that breaks it.
func holdGuarantees() map[string]func(o *boxOffice) error {
	return map[string]func(o *boxOffice) error{
		"a slow sale does not sell what another holds by then": slowSaleIsLate,
		"what is free is looked at under the writer's lock":    placedUnderLock,
		"time is the authority's":                              timeIsTheAuthoritys,
		"what expired unnoticed is given back when forgotten":  forgottenGivesBack,
	}
}

func slowSaleIsLate(o *boxOffice) error {
	o.stock(1, "seat")
	o.office.place(1, time.Minute, "seat")
	state, err := o.confirm(1, func() {
		o.hands.pass(time.Minute)
		o.office.place(2, time.Minute, "seat")
		o.office.confirm(2, hold.Confirmed)
	})
	if err != nil {
		return err
	}
	if state != hold.Late || o.get(1).State != hold.Late {
		return fmt.Errorf("the slow sale is told to be %v, and is %v", state, o.get(1).State)
	}
	return checkHolds(o.t.Context(), o.db)
}

func placedUnderLock(o *boxOffice) error {
	o.stock(1, "seat")
	err := o.place(placement(1, time.Minute, "seat"), func() { o.office.place(2, time.Minute, "seat") })
	if err == nil {
		return errors.New("two hold one seat")
	}
	if !errors.Is(err, hold.ErrTaken) {
		return fmt.Errorf("the second of two: %w", err)
	}
	return checkHolds(o.t.Context(), o.db)
}

// timeIsTheAuthoritys sets the wall clock, which is the clients' as well, a day ahead and two back.
func timeIsTheAuthoritys(o *boxOffice) error {
	if o.boot != nil {
		o.holds = o.boot().Holds()
	}
	o.stock(1, "seat")
	for n, step := range []time.Duration{24 * time.Hour, -48 * time.Hour} {
		o.office.place(n, time.Minute, "seat")
		o.hands.wall.Add(int64(step))
		o.hands.pass(30 * time.Second)
		if h := o.get(n); h.State != hold.Held || h.Left != 30*time.Second {
			return fmt.Errorf("after a step of %v: %v, %v left", step, h.State, h.Left)
		}
		o.hands.pass(30 * time.Second)
		if h := o.get(n); h.State != hold.Expired {
			return fmt.Errorf("after a step of %v and all of its time: %v, %v left", step, h.State, h.Left)
		}
	}
	return nil
}

func forgottenGivesBack(o *boxOffice) error {
	o.stock(1, "seat")
	o.office.place(1, time.Minute, "seat")
	o.hands.pass(time.Minute + hold.MinPruneAge)
	if n, err := o.prune(); err != nil || n != 1 {
		return fmt.Errorf("forgot %d, %w", n, err)
	}
	if err := o.place(placement(2, time.Minute, "seat"), func() {}); err != nil {
		return err
	}
	return checkHolds(o.t.Context(), o.db)
}

func TestHoldGuarantees(t *testing.T) {
	t.Parallel()
	for name, holds := range holdGuarantees() {
		if err := holds(newBoxOffice(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBrokenHolds demands that each naive form is caught by the guarantee that it breaks.
func TestBrokenHolds(t *testing.T) {
	t.Parallel()
	for guarantee, twin := range map[string]func(o *boxOffice){
		"a slow sale does not sell what another holds by then": func(o *boxOffice) { // it looks, and then writes by what it has seen
			o.confirm = func(n int, between func()) (hold.State, error) {
				state := o.get(n).State
				between()
				id := holdID(n)
				return hold.Confirmed, inOwnTx(o.t.Context(), o.db, func(tx *sql.Tx) error {
					return affected(tx.ExecContext(o.t.Context(), `UPDATE tenure_hold SET state = 2, reference = ? WHERE id = ? AND ?`, payment(n).Reference, id[:], state == hold.Held))
				})
			}
		},
		"what is free is looked at under the writer's lock": func(o *boxOffice) {
			o.place = func(req hold.PlaceRequest, between func()) error {
				err := o.holds.read(o.t.Context(), "place", func(b *holdBatch) error {
					_, err := b.decide(&req, req.Lines)
					return err
				})
				if err != nil {
					return err
				}
				between()
				plainExec(o.t, o.path, `PRAGMA ignore_check_constraints = ON; UPDATE tenure_item SET held = held + 1; INSERT INTO tenure_hold SELECT x'01', actor, ttl, placed, at, 1, units, '' FROM tenure_hold`)
				return nil
			}
		},
		"time is the authority's": func(o *boxOffice) { // as a clock that is set can be
			o.boot = func() *Store {
				cfg := o.hands.config(newPath(o.t), "boot")
				cfg.kernelClock = func() time.Duration { return time.Duration(o.hands.wall.Load()) }
				return openWith(o.t, cfg)
			}
		},
		"what expired unnoticed is given back when forgotten": func(o *boxOffice) {
			o.prune = func() (int, error) {
				plainExec(o.t, o.path, `DELETE FROM tenure_line; DELETE FROM tenure_hold`)
				return 1, nil
			}
		},
	} {
		o := newBoxOffice(t)
		twin(o)
		if err := holdGuarantees()[guarantee](o); err == nil {
			t.Errorf("the broken twin is not caught: %s", guarantee)
		} else {
			t.Logf("caught: %v", err)
		}
	}
}
