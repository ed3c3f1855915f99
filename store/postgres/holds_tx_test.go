package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/hold"
)

// errNoSale rolls a sale back.
var errNoSale = errors.New("no sale")

// sale is a way to sell in a transaction of one's own: it writes to the table content if the hold is confirmed, and ends with err.
type sale func(ctx context.Context, f *counter, req hold.ConfirmRequest, end error) (hold.Hold, error)

func sales() map[string]sale {
	return map[string]sale{
		"pgx": func(ctx context.Context, f *counter, req hold.ConfirmRequest, end error) (told hold.Hold, err error) {
			return told, pgx.BeginFunc(ctx, f.own, func(tx pgx.Tx) error {
				if told, err = f.holds.ConfirmTx(ctx, tx, req); err != nil {
					return err
				}
				if told.State == hold.Confirmed {
					if _, err := tx.Exec(ctx, write); err != nil {
						return err
					}
				}
				return end
			})
		},
		"database/sql": func(ctx context.Context, f *counter, req hold.ConfirmRequest, end error) (hold.Hold, error) {
			db, err := sql.Open("pgx", f.url())
			if err != nil {
				return hold.Hold{}, err
			}
			defer db.Close()
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return hold.Hold{}, err
			}
			told, err := f.holds.ConfirmSQL(ctx, tx, req)
			if err == nil && told.State == hold.Confirmed {
				_, err = tx.ExecContext(ctx, write)
			}
			if err = errors.Join(err, end); err != nil {
				return told, errors.Join(err, tx.Rollback())
			}
			return told, tx.Commit()
		},
		"in SQL": func(ctx context.Context, f *counter, req hold.ConfirmRequest, end error) (told hold.Hold, err error) {
			err = pgx.BeginFunc(ctx, f.own, func(tx pgx.Tx) error {
				var state string
				if err := tx.QueryRow(ctx, `SELECT state FROM tenure.hold_confirm($1, $2, $3)`, uuid(req.ID), req.Actor, req.Reference).Scan(&state); err != nil {
					return err
				}
				told.State = named(state, hold.Held, hold.Late)
				if told.State == hold.Confirmed {
					if _, err := tx.Exec(ctx, write); err != nil {
						return err
					}
				}
				return end
			})
			return told, holdTxError(req.ID, req.Actor, err)
		},
	}
}

// TestSaleAndHoldShareACommit: a sale that rolls back has confirmed nothing; one that commits has; one after the hold's time writes no sale, and records what was paid (H73).
func TestSaleAndHoldShareACommit(t *testing.T) {
	for name, sell := range sales() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			f := newCounter(t)
			f.stock("a", "b")
			inTime, tooLate := f.place("ann", time.Minute, "a"), f.place("bob", time.Minute, "b")
			if _, err := sell(ctx, f, paid(inTime), errNoSale); !errors.Is(err, errNoSale) {
				t.Fatal(err)
			}
			f.is(inTime.ID, hold.Held)
			stranger := paid(inTime)
			stranger.Actor = "eve"
			if _, err := sell(ctx, f, stranger, nil); !errors.Is(err, hold.ErrActor) {
				t.Fatal(err)
			}
			if told, err := sell(ctx, f, paid(inTime), nil); err != nil || told.State != hold.Confirmed {
				t.Fatal(told, err)
			}
			if err := (&holdHarness{f.harness}).Advance(ctx, time.Hour); err != nil {
				t.Fatal(err)
			}
			if told, err := sell(ctx, f, paid(tooLate), nil); err != nil || told.State != hold.Late {
				t.Fatal(told, err)
			}
			if content, err := readContent(ctx, f.own); err != nil || len(content) != 1 {
				t.Fatalf("%q, %v; want one sale", content, err)
			}
			f.is(inTime.ID, hold.Confirmed)
			if h := f.is(tooLate.ID, hold.Late); h.Reference != paid(tooLate).Reference {
				t.Errorf("what was paid late is not known: %+v", h)
			}
			f.place("cid", time.Minute, "b")
			if err := (&holdHarness{f.harness}).Check(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPlaceTxIsOfTheTransaction: what is placed is there if the transaction commits; others that want the item wait, and are told.
func TestPlaceTxIsOfTheTransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newCounter(t)
	f.stock("a", "b")
	x := f.begin(ctx, pgx.ReadCommitted)
	req := f.want("ann", time.Minute, "a")
	if told, err := f.holds.PlaceTx(ctx, x, req); err != nil || told.State != hold.Held || told.Left != time.Minute {
		t.Fatal(told, err)
	}
	if _, err := f.holds.Get(ctx, req.ID); !errors.Is(err, hold.ErrNotFound) {
		t.Fatalf("seen before the commit: %v", err)
	}
	waits := start(func() error { _, err := f.holds.Place(ctx, f.want("bob", time.Minute, "a")); return err })
	if !f.blocked(ctx, 1, waits) {
		t.Errorf("another place of the item did not wait: %v", <-waits)
	}
	x.rollback(ctx)
	if err := <-waits; err != nil {
		t.Errorf("after the rollback: %v", err)
	}
	db, err := sql.Open("pgx", f.url())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	req = f.want("ann", time.Minute, "b")
	if told, err := f.holds.PlaceSQL(ctx, tx, req); err != nil || told.ID != req.ID || len(told.Lines) != 1 || told.Lines[0].Item != "b" {
		t.Fatal(told, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	f.is(req.ID, hold.Held)
}

// TestHoldsInTransactionsOfEachLevel: what changed since the snapshot is seen at READ COMMITTED, and begins again above it, where nothing is placed.
func TestHoldsInTransactionsOfEachLevel(t *testing.T) {
	for _, l := range []struct {
		level   pgx.TxIsoLevel
		changed error
		place   string // the SQLSTATE
	}{{pgx.ReadCommitted, hold.ErrOver, ""}, {pgx.RepeatableRead, ErrBeginAgain, stateIsolation}, {pgx.Serializable, ErrBeginAgain, stateIsolation}} {
		t.Run(string(l.level), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			f := newCounter(t)
			f.stock("released", "extended", "same", "new", "taken over")
			old := func() *hand { // a transaction with a snapshot
				x := f.begin(ctx, l.level)
				x.do(ctx, `SELECT count(*) FROM content`)
				return x
			}
			h := f.place("ann", time.Minute, "released")
			x := old()
			if _, err := f.holds.Release(ctx, h.ID, h.Actor); err != nil {
				t.Fatal(err)
			}
			f.place("bob", time.Minute, "released")
			if told, err := f.holds.ConfirmTx(ctx, x, paid(h)); !errors.Is(err, l.changed) {
				t.Errorf("confirming what was released, and placed by another, since the snapshot: %+v, %v; want %v", told, err, l.changed)
			}
			h = f.place("ann", time.Minute, "extended")
			x = old()
			if _, err := f.holds.Extend(ctx, h.ID, h.Actor, time.Hour); err != nil {
				t.Fatal(err)
			}
			if told, err := f.holds.ConfirmTx(ctx, x, paid(h)); l.place == "" && (err != nil || told.State != hold.Confirmed) || l.place != "" && !errors.Is(err, ErrBeginAgain) {
				t.Errorf("confirming what was extended since the snapshot: %+v, %v", told, err)
			}
			h = f.place("ann", time.Second, "taken over")
			x = old()
			f.passed(ctx, h.ID)
			f.place("bob", time.Minute, "taken over")
			if told, err := f.holds.ConfirmTx(ctx, x, paid(h)); l.place == "" && (err != nil || told.State != hold.Late) || l.place != "" && !errors.Is(err, ErrBeginAgain) {
				t.Errorf("confirming what expired, and was placed by another, since the snapshot: %+v, %v", told, err)
			}
			h = f.place("ann", time.Minute, "same")
			x = old()
			if told, err := f.holds.ConfirmTx(ctx, x, paid(h)); err != nil || told.State != hold.Confirmed {
				t.Errorf("confirming what is unchanged: %+v, %v", told, err)
			}
			x.commit(ctx)
			if _, err := f.holds.PlaceTx(ctx, old(), f.want("cid", time.Minute, "new")); state(err) != l.place {
				t.Errorf("placing: %v; want %q", err, l.place)
			}
		})
	}
}

// TestAPaymentHoldsNoLock: between place and confirm nothing is locked and no transaction is open, so other buyers go on, and the same one can extend (H77).
func TestAPaymentHoldsNoLock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newCounter(t)
	const others = 100
	if err := f.holds.Stock(ctx, []hold.Item{{Name: "stock", Quantity: others + 1}}); err != nil {
		t.Fatal(err)
	}
	paying := f.place("ann", time.Minute, "stock")
	var open, locks int
	err := f.own.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()),
		(SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = current_database() AND l.pid <> pg_backend_pid())`).Scan(&open, &locks)
	if err != nil || open != 0 || locks != 0 {
		t.Fatalf("while ann pays there are %d open transactions and %d locks, %v", open, locks, err)
	}
	if err := (&holdHarness{f.harness}).Advance(ctx, 30*time.Second); err != nil { // it takes half a minute
		t.Fatal(err)
	}
	for i := range others {
		h := f.place(fmt.Sprint("buyer ", i), time.Minute, "stock")
		if told, err := f.holds.Confirm(ctx, paid(h)); err != nil || told.State != hold.Confirmed {
			t.Fatal(told, err)
		}
	}
	if told, err := f.holds.Confirm(ctx, paid(paying)); err != nil || told.State != hold.Confirmed {
		t.Fatal(told, err)
	}
}
