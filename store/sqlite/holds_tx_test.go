package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/hold"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// errLate rolls a sale back whose payment was late, so that a test sees what a rollback leaves.
var errLate = errors.New("late")

// sellHeld is a sale and the confirmation of its hold, in one transaction. Where the hold is late, the sale is not written, and strict rolls back.
func (w *shop) sellHeld(tx TX, holds *Holds, n int, strict bool) (hold.State, error) {
	h, err := holds.ConfirmTx(w.t.Context(), tx, payment(n))
	if err != nil {
		return 0, err
	}
	if h.State != hold.Confirmed {
		if strict {
			return h.State, errLate
		}
		return h.State, nil
	}
	_, err = tx.ExecContext(w.t.Context(), `UPDATE stock SET n = n + 1`)
	return h.State, err
}

// saleWays are the transactions in which a hold may be confirmed.
func (w *shop) saleWays(holds *Holds) map[string]func(n int, strict bool) (hold.State, error) {
	ctx := w.t.Context()
	return map[string]func(int, bool) (hold.State, error){
		"own": func(n int, strict bool) (state hold.State, err error) {
			err = inOwnTx(ctx, w.db, func(tx *sql.Tx) error { state, err = w.sellHeld(tx, holds, n, strict); return err })
			return state, err
		},
		"prepared": func(n int, strict bool) (state hold.State, err error) {
			statements, err := Prepare(ctx, w.db)
			if err != nil {
				return 0, err
			}
			err = inOwnTx(ctx, w.db, func(tx *sql.Tx) error { state, err = w.sellHeld(statements.In(tx), holds, n, strict); return err })
			return state, errors.Join(err, statements.Close())
		},
		"fenced": func(n int, strict bool) (state hold.State, err error) {
			err = w.s.Fenced(ctx, w.claim, func(_ context.Context, tx *Tx) error { state, err = w.sellHeld(tx, holds, n, strict); return err })
			return state, err
		},
	}
}

// A sale and the confirmation of its hold share one commit, in a transaction of the seller's own, prepared or not, and in a fenced one. Where the hold is another's, was released, or is not known, the sale rolls
// back; where the payment came late, nothing is sold, and it is recorded if the transaction commits.
func TestConfirmTx(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"own", "prepared", "fenced"} {
		w := newShop(t, "deferred")
		o := &office{t, w.s.Holds()}
		sell := w.saleWays(o.holds)[way]
		o.stock(1, "sold", "late", "released")
		o.place(1, time.Hour, "sold")
		o.place(2, time.Millisecond, "late")
		o.place(3, time.Hour, "released")
		if _, err := o.holds.Release(t.Context(), holdID(3), "ann"); err != nil {
			t.Fatal(err)
		}
		wait(t, func() bool { return o.get(2).State == hold.Expired })

		if state, err := sell(1, true); err != nil || state != hold.Confirmed || w.stock() != "2" {
			t.Errorf("%s: %v, %v, %s in stock", way, state, err, w.stock())
		}
		if state, err := sell(1, true); err != nil || state != hold.Confirmed { // who sells twice must look into their own sales
			t.Errorf("%s, again: %v, %v", way, state, err)
		}
		before := w.stock()
		if _, err := sell(2, true); !errors.Is(err, errLate) || o.get(2).State != hold.Expired {
			t.Errorf("%s, late and rolled back: %v, %v", way, err, o.get(2).State)
		}
		if state, err := sell(2, false); err != nil || state != hold.Late || o.get(2).State != hold.Late || o.get(2).Reference != "pays 2" {
			t.Errorf("%s, late: %v, %v, %+v", way, state, err, o.get(2))
		}
		_, err := sell(3, true)
		wantKind(t, err, hold.ErrOver)
		_, err = sell(4, true)
		wantKind(t, err, hold.ErrNotFound)
		if w.stock() != before {
			t.Errorf("%s: %s in stock after what was refused, %s before", way, w.stock(), before)
		}
		o.item("sold", 1, 1, 0)
		o.item("late", 1, 0, 0)
		if err := checkHolds(t.Context(), w.db); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
}

// A slow sale began when its hold was valid. By the time it confirms, the hold has expired, and another has placed one on the seat: it learns that it is late, and the seat is sold once.
func TestSlowSaleAgainstANewPlace(t *testing.T) {
	t.Parallel()
	h := newHands()
	path := newPath(t)
	o := &office{t, openWith(t, h.config(path, "boot")).Holds()}
	o.stock(1, "seat")
	o.place(1, time.Minute, "seat")
	db := plainDB(t, path, "?_pragma=busy_timeout(5000)&_txlock=deferred")
	slow, err := db.BeginTx(t.Context(), nil) // it has read nothing yet
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Rollback() }()
	h.pass(time.Minute)
	o.place(2, time.Minute, "seat")
	late, err := o.holds.ConfirmTx(t.Context(), slow, payment(1))
	if err != nil || late.State != hold.Late {
		t.Errorf("the slow sale: %v, %v", late.State, err)
	}
	if err := slow.Commit(); err != nil {
		t.Fatal(err)
	}
	o.confirm(2, hold.Confirmed)
	o.item("seat", 1, 1, 0)
}

// While a transaction has confirmed a hold and is open, nobody places one on what it sells, however long it takes; when it is rolled back, the hold stands as before.
func TestConfirmationInAnOpenTransaction(t *testing.T) {
	t.Parallel()
	h := newHands()
	path := newPath(t)
	o := &office{t, openWith(t, h.config(path, "boot")).Holds()}
	o.stock(1, "seat")
	o.place(1, time.Hour, "seat")
	db := plainDB(t, path, "?_pragma=busy_timeout(5000)&_txlock=immediate")
	for _, commit := range []bool{false, true} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := o.holds.ConfirmTx(t.Context(), tx, payment(1)); err != nil || got.State != hold.Confirmed {
			t.Fatal(got, err)
		}
		if commit {
			h.pass(time.Hour) // its hold would have expired by now
		}
		placed := make(chan error, 1)
		go func() {
			_, err := o.holds.Place(t.Context(), placement(2, time.Minute, "seat"))
			placed <- err
		}()
		if !commit {
			wantKind(t, <-placed, hold.ErrTaken) // by reading: it is held
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if got := o.get(1); got.State != hold.Held {
				t.Errorf("after the rollback: %v", got.State)
			}
			continue
		}
		select {
		case err := <-placed:
			t.Errorf("placed beside an open confirmation: %v", err)
		default:
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		wantKind(t, <-placed, hold.ErrTaken)
	}
	o.item("seat", 1, 1, 0)
}

// A hold in a transaction is there when it commits, and never was when it does not.
func TestPlaceTx(t *testing.T) {
	t.Parallel()
	w := newShop(t, "immediate")
	o := &office{t, w.s.Holds()}
	o.stock(1, "seat")
	statements, err := Prepare(t.Context(), w.db)
	if err != nil {
		t.Fatal(err)
	}
	defer statements.Close()
	for _, commit := range []bool{false, true} {
		tx := w.begin()
		if got, err := o.holds.PlaceTx(t.Context(), tx, placement(1, time.Hour, "seat")); err != nil || got.State != hold.Held || got.Left != time.Hour {
			t.Fatalf("%+v, %v", got, err)
		}
		if got, err := o.holds.PlaceTx(t.Context(), statements.In(tx), placement(1, time.Hour, "seat")); err != nil || got.State != hold.Held {
			t.Errorf("again: %+v, %v", got, err)
		}
		_, err = o.holds.PlaceTx(t.Context(), statements.In(tx), placement(2, time.Hour, "seat"))
		wantKind(t, err, hold.ErrTaken)
		_, err = o.holds.PlaceTx(t.Context(), tx, placement(3, time.Hour, "no seat"))
		wantKind(t, err, hold.ErrNotFound)
		if _, err := o.holds.Get(t.Context(), holdID(1)); !errors.Is(err, hold.ErrNotFound) {
			t.Errorf("seen before the commit: %v", err)
		}
		if commit {
			w.commit(tx)
		} else if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		o.item("seat", 1, 0, map[bool]int64{true: 1}[commit])
	}
	_, err = o.holds.PlaceTx(t.Context(), w.begin(), hold.PlaceRequest{})
	wantKind(t, err, hold.ErrInvalid)
}

// As with claims' checks: after a read beside somebody's write SQLite refuses, and the caller begins again.
func TestHoldsAfterAReadAreBeginAgain(t *testing.T) {
	t.Parallel()
	w := newShop(t, "deferred")
	o := &office{t, w.s.Holds()}
	o.stock(2, "seat")
	o.place(1, time.Hour, "seat")
	for name, call := range map[string]func(tx *sql.Tx) error{
		"place": func(tx *sql.Tx) error {
			_, err := o.holds.PlaceTx(t.Context(), tx, placement(2, time.Hour, "seat"))
			return err
		},
		"confirm": func(tx *sql.Tx) error { _, err := o.holds.ConfirmTx(t.Context(), tx, payment(1)); return err },
	} {
		attempt := func(between func()) error {
			return inOwnTx(t.Context(), w.db, func(tx *sql.Tx) error {
				var n int
				if err := tx.QueryRowContext(t.Context(), `SELECT n FROM stock`).Scan(&n); err != nil {
					return err
				}
				between()
				return call(tx)
			})
		}
		err := attempt(func() {
			if err := w.p.renew(); err != nil { // anybody's write to the file
				t.Fatal(err)
			}
		})
		if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code() != lib.SQLITE_BUSY_SNAPSHOT {
			t.Errorf("%s after a read: %v, want SQLITE_BUSY_SNAPSHOT", name, err)
		}
		if err := attempt(func() {}); err != nil {
			t.Errorf("%s, begun again: %v", name, err)
		}
	}
}

// A transaction on another file is refused, and changes nothing there.
func TestHoldsOfAnotherFile(t *testing.T) {
	t.Parallel()
	w, other := newShop(t, "immediate"), openPath(t, newPath(t)).Holds()
	tx := w.begin()
	if _, err := other.PlaceTx(t.Context(), tx, placement(1, time.Hour, "seat")); !errors.Is(err, errOtherAuthority) {
		t.Errorf("placed in another file: %v", err)
	}
	if _, err := other.ConfirmTx(t.Context(), tx, payment(1)); !errors.Is(err, errOtherAuthority) {
		t.Errorf("confirmed in another file: %v", err)
	}
	_, err := other.ConfirmTx(t.Context(), tx, hold.ConfirmRequest{})
	wantKind(t, err, hold.ErrInvalid)
}

// What stands behind the code: statements that sell what is held or sold, by whomever they are written, are refused by the file.
func TestTheFileRefusesToSellTwice(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	o := &office{t, openPath(t, path).Holds()}
	o.stock(1, "sold", "held")
	o.place(1, time.Hour, "sold")
	o.confirm(1, hold.Confirmed)
	o.place(2, time.Hour, "held")
	db := plainDB(t, path, "?_pragma=busy_timeout(5000)")
	for _, statement := range []string{
		`UPDATE tenure_item SET sold = sold + 1 WHERE name = 'sold'`,
		`UPDATE tenure_item SET held = held + 1 WHERE name = 'sold'`,
		`UPDATE tenure_item SET sold = sold + 1 WHERE name = 'held'`,
		`UPDATE tenure_item SET quantity = 0 WHERE name = 'held'`,
		`INSERT INTO tenure_line (hold, item, quantity, until, state, sole) SELECT x'01', item, quantity, until, state, sole FROM tenure_line WHERE item = 'sold'`,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		if resultCode(err) != lib.SQLITE_CONSTRAINT {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if got := plainValue(t, path, `SELECT sole FROM tenure_line WHERE item = 'sold'`); got != "1" {
		t.Errorf("what there is one of is not marked as such: %s", got)
	}
}
