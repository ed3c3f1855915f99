package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"

	lib "modernc.org/sqlite/lib"
)

const steal = `UPDATE orders SET state = 'stolen' WHERE id = 1`

// Whoever forgets Done gets an error from COMMIT, never a silent pass: nothing was written, and the connection is usable again.
func TestForgottenDoneIsNotCommitted(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	claim := g.p.take("orders/1")
	g.own.SetMaxOpenConns(1)
	before := g.content("orders")
	err := inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error {
		if err := Present(t.Context(), tx, claim); err != nil {
			return err
		}
		_, err := tx.ExecContext(t.Context(), `UPDATE orders SET state = 'paid' WHERE id = 1`)
		return err
	})
	if resultCode(err) != lib.SQLITE_CONSTRAINT || errors.Is(FenceError(err), fence.ErrRefused) {
		t.Errorf("COMMIT without Done: %v, want the driver's constraint error", err)
	}
	if after := g.content("orders"); after != before {
		t.Errorf("it was written all the same:\n%s", after)
	}
	if err := g.p.renew(); err != nil {
		t.Errorf("the file after it: %v", err)
	}
	if err := g.write([]fence.Claim{claim}, `UPDATE orders SET state = 'paid' WHERE id = 1`); err != nil {
		t.Errorf("the same connection after it: %v", err)
	}
	wantRefused(t, "a stranger", g.foreign(steal), "no claim was presented")
}

// In no transaction, and where foreign keys are not enforced, nothing is presented.
func TestPresentFailsClosed(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	claim := g.p.take("orders/1")
	if err := Present(t.Context(), g.own, claim); err == nil {
		t.Error("presented outside a transaction")
	}
	off := plainDB(t, g.s.path, "?_pragma=busy_timeout(5000)&_txlock=immediate")
	err := inOwnTx(t.Context(), off, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(t.Context(), `PRAGMA foreign_keys = ON`); err != nil { // without effect in a transaction
			return err
		}
		return Present(t.Context(), tx, claim)
	})
	wantKind(t, err, ErrSettings, "foreign_keys(ON)", g.s.path, "nothing was presented")
	err = inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error { // nor can they be switched off once it has begun
		if err := Present(t.Context(), tx, claim); err != nil {
			return err
		}
		_, err := tx.ExecContext(t.Context(), `PRAGMA foreign_keys = OFF`)
		return err
	})
	if resultCode(err) != lib.SQLITE_CONSTRAINT {
		t.Errorf("COMMIT after foreign keys were switched off in the transaction: %v", err)
	}
	if n := g.count(`SELECT count(*) FROM tenure_presented`); n != 0 {
		t.Errorf("%d rows of what was presented are left", n)
	}
	for what, claims := range map[string][]fence.Claim{"no claim": nil, "too many": make([]fence.Claim, maxPresent+1), "an empty one": {{}}} {
		err := inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error { return Present(t.Context(), tx, claims...) })
		wantKind(t, err, fence.ErrInvalid)
		if err == nil {
			t.Errorf("%s was presented", what)
		}
	}
}

// What does not hold is not presented, and the error is the one of Verify.
func TestPresentRefusesWhatDoesNotHold(t *testing.T) {
	t.Parallel()
	h := newHands()
	path := newPath(t)
	s := openWith(t, h.config(path, "one"))
	plainExec(t, path, ordersTable)
	if err := s.Protect(t.Context(), Protection{Table: "orders", Name: orderName}); err != nil {
		t.Fatal(err)
	}
	p, short := join(t, s, time.Hour), join(t, s, time.Minute)
	released, superseded, valid, expired := p.take("orders/1"), p.take("orders/2"), p.take("orders/3"), short.take("orders/4")
	p.drop(released)
	p.drop(superseded)
	p.take("orders/2")
	h.pass(time.Minute) // to the very instant
	ahead, foreign, madeUp := valid, valid, valid
	ahead.Token, foreign.Authority, madeUp.Acquisition = 1<<40, lease.NewID(), lease.NewID()
	for what, c := range map[string]struct {
		claim fence.Claim
		kind  error
		says  string
	}{
		"released": {released, fence.ErrRefused, "released"}, "superseded": {superseded, fence.ErrRefused, "newer token"}, "expired": {expired, fence.ErrRefused, "expired"},
		"ahead": {ahead, fence.ErrAhead, ""}, "foreign": {foreign, fence.ErrForeign, ""}, "of an acquisition that was made up": {madeUp, fence.ErrRefused, "not granted"},
	} {
		err := s.Fenced(t.Context(), valid, func(ctx context.Context, tx *Tx) error {
			if err := Present(ctx, tx, valid, c.claim); err != nil {
				return err
			}
			return errors.New("it was presented")
		})
		wantKind(t, err, c.kind, c.says)
		if n := plainValue(t, path, `SELECT count(*) FROM tenure_presented`); n != "0" {
			t.Errorf("%s: %s rows are left", what, n)
		}
	}
	err := s.Fenced(t.Context(), valid, func(ctx context.Context, tx *Tx) error {
		if err := Present(ctx, tx, valid); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid' WHERE id = 3`)
		return err
	})
	if err != nil {
		t.Errorf("the one that holds: %v", err)
	}
}

// A wait for the writer lock ends after others have written, and after their clock: the claims that still hold are presented all the same.
func TestPresentAfterAWait(t *testing.T) {
	t.Parallel()
	h := newManualHarness(t)
	plainExec(t, h.store.path, ordersTable)
	p := join(t, h.store, time.Minute)
	claim := p.take("orders/1")
	for what, c := range map[string]struct {
		waited time.Duration
		want   error
	}{
		"within the TTL": {time.Second, nil}, "up to the expiry": {time.Minute, fence.ErrRefused},
	} {
		start, readings := time.Duration(h.tick.Load()), 0
		clock := func() time.Duration {
			readings++
			if readings == 1 {
				return start - time.Second // before the store's last write
			}
			return start + c.waited
		}
		h.Tick(time.Millisecond)
		if err := p.renew(); err != nil {
			t.Fatal(err)
		}
		start = time.Duration(h.tick.Load())
		err := h.own.PingContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = inOwnTx(t.Context(), h.own, func(tx *sql.Tx) error {
			if err := present(t.Context(), tx, []fence.Claim{claim}, clock, "manual"); err != nil {
				return err
			}
			var n int
			if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM tenure_in_force`).Scan(&n); err != nil || n != 1 {
				return fmt.Errorf("%d in force, %w", n, err)
			}
			return Done(t.Context(), tx)
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

// Fenced takes back what was presented, counts refusals, and says what a protected table refused.
func TestFencedPresents(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	one, two := g.p.take("orders/1"), g.p.take("orders/2")
	fenced := func(statement string, present bool, more ...fence.Claim) error {
		return g.s.Fenced(t.Context(), one, func(ctx context.Context, tx *Tx) error {
			if present {
				if err := Present(ctx, tx, append(more, one)...); err != nil {
					return err
				}
			}
			_, err := tx.ExecContext(ctx, statement)
			return err
		})
	}
	if err := fenced(`UPDATE orders SET state = 'paid' WHERE id = 1`, true); err != nil {
		t.Error(err)
	}
	if err := fenced(`UPDATE orders SET state = 'paid' WHERE id IN (1, 2)`, true, two); err != nil {
		t.Error(err)
	}
	wantRefused(t, "without presenting", fenced(steal, false), "no claim was presented")
	err := fenced(`UPDATE orders SET state = 'stolen' WHERE id = 2`, true)
	wantRefused(t, "another name", err, "to other names")
	var refused *fence.RefusedError
	if !errors.As(err, &refused) || refused.Resource != "orders" || refused.Claim != one || !strings.Contains(err.Error(), "presented were token "+one.Token.String()) {
		t.Errorf("the refusal as package fence knows it: %+v", refused)
	}
	if n := g.s.Refusals(); n != 2 {
		t.Errorf("%d refusals were counted, want 2", n)
	}
	if n := g.count(`SELECT count(*) FROM orders WHERE state = 'paid'`); n != 2 {
		t.Errorf("%d orders are paid, want 2", n)
	}
	// A function that writes the table of what was presented itself is not committed, and that is certain.
	err = g.s.Fenced(t.Context(), one, func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO tenure_presented (name, acquisition, token, mark, at) SELECT ?, ?, ?, mark, mark FROM tenure_authority`,
			one.Name, one.Acquisition[:], int64(one.Token))
		return err
	})
	if err == nil || errors.Is(err, lease.ErrUnknown) {
		t.Errorf("presented by hand, and not taken back: %v", err)
	}
}

// A savepoint that is rolled back takes back what was presented after it, and a Done after it.
func TestSavepoints(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	one, two := g.p.take("orders/1"), g.p.take("orders/2")
	err := inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error {
		run := func(statement string) error {
			_, err := tx.ExecContext(t.Context(), statement)
			return err
		}
		if err := Present(t.Context(), tx, one); err != nil {
			return err
		}
		if err := errors.Join(run(`SAVEPOINT s`), Present(t.Context(), tx, two), run(`UPDATE orders SET state = 'a' WHERE id IN (1, 2)`), run(`ROLLBACK TO s`)); err != nil {
			return err
		}
		wantRefused(t, "after ROLLBACK TO", run(`UPDATE orders SET state = 'b' WHERE id = 2`), "to other names")
		if err := run(`UPDATE orders SET state = 'c' WHERE id = 1`); err != nil {
			return err
		}
		if err := errors.Join(run(`SAVEPOINT s`), Done(t.Context(), tx)); err != nil {
			return err
		}
		wantRefused(t, "after Done", run(steal), "no claim was presented")
		return errors.Join(run(`ROLLBACK TO s`), run(`UPDATE orders SET state = 'd' WHERE id = 1`), run(`RELEASE s`), Done(t.Context(), tx))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := plainValue(t, g.s.path, `SELECT group_concat(state) FROM (SELECT state FROM orders ORDER BY id)`); got != "d,new,new" {
		t.Errorf("states %s", got)
	}
	// A Done that was taken back was forgotten.
	err = inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error {
		if err := Present(t.Context(), tx, one); err != nil {
			return err
		}
		if _, err := tx.ExecContext(t.Context(), `SAVEPOINT s`); err != nil {
			return err
		}
		if err := Done(t.Context(), tx); err != nil {
			return err
		}
		_, err := tx.ExecContext(t.Context(), `ROLLBACK TO s`)
		return err
	})
	if resultCode(err) != lib.SQLITE_CONSTRAINT {
		t.Errorf("COMMIT after the Done was rolled back: %v", err)
	}
}

// While a transaction has presented, a stranger waits for it or is told that the file is busy; then nothing was presented in the stranger's.
func TestPresentedIsNobodyElses(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	claim := g.p.take("orders/1")
	impatient := plainDB(t, g.s.path, "")
	stolen := make(chan error, 1)
	err := inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error {
		if err := Present(t.Context(), tx, claim); err != nil {
			return err
		}
		if _, err := impatient.ExecContext(t.Context(), steal); resultCode(err) != lib.SQLITE_BUSY {
			t.Errorf("beside a transaction that has presented: %v", err)
		}
		go func() { stolen <- g.foreign(steal) }()
		if _, err := tx.ExecContext(t.Context(), `UPDATE orders SET state = 'paid' WHERE id = 1`); err != nil {
			return err
		}
		return Done(t.Context(), tx)
	})
	if err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "a stranger that waited", <-stolen, "no claim was presented")
}

// The limit that Present states: SQLite counts violations of deferred foreign keys, so a row that had no parent before and is removed hides
// a forgotten Done. What it leaves is void once a store has written.
func TestOrphansHideAForgottenDone(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, `CREATE TABLE parent (id INTEGER PRIMARY KEY)`, `CREATE TABLE child (of INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)`, `INSERT INTO child VALUES (7)`)
	claim := g.p.take("orders/1")
	err := inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error {
		if err := Present(t.Context(), tx, claim); err != nil {
			return err
		}
		_, err := tx.ExecContext(t.Context(), `DELETE FROM child`)
		return err
	})
	if n := g.count(`SELECT count(*) FROM tenure_presented`); err != nil || n != 1 {
		t.Fatalf("%v, %d rows left: the limit is gone, and Present's comment says that there is one", err, n)
	}
	if err := g.p.renew(); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "a stranger", g.foreign(steal), "another transaction")
	if err := g.write([]fence.Claim{claim}, `UPDATE orders SET state = 'paid' WHERE id = 1`); err != nil {
		t.Errorf("the holder after it: %v", err)
	}
	if n := g.count(`SELECT count(*) FROM tenure_presented`); n != 0 {
		t.Errorf("%d rows left after the next Done", n)
	}
}

// Many claims, to names that JSON and SQL write in their own way; one that does not hold among them, and none is presented.
func TestPresentManyAndOddNames(t *testing.T) {
	t.Parallel()
	g := newUnguarded(t, `CREATE TABLE t (name TEXT PRIMARY KEY)`)
	g.protect("t", `name`)
	odd := []string{`a"b`, `a\b`, `<&>`, `it's`, "é", "💺", "\u2028", "{}", "[1]", "null", "1", "%", " a ", strings.Repeat("x", fence.MaxName)}
	for _, many := range []int{0, 3 * maxAtOnce} {
		names := slices.Clone(odd)
		for i := range many {
			names = append(names, fmt.Sprintf("n/%d", i))
		}
		var claims []fence.Claim
		for _, name := range names {
			claims = append(claims, g.p.take(name))
		}
		stale := g.p.take("stale")
		g.p.drop(stale)
		insert := func(tx *sql.Tx) error {
			for _, name := range names {
				if _, err := tx.ExecContext(t.Context(), `INSERT INTO t VALUES (?)`, name); err != nil {
					return FenceError(err, claims...)
				}
			}
			return nil
		}
		err := inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error {
			wantKind(t, Present(t.Context(), tx, append(slices.Clone(claims), stale)...), fence.ErrRefused, "released")
			err := insert(tx) // though the caller should have rolled back
			wantRefused(t, "after a refused claim", err, "no claim was presented", "and "+strconv.Itoa(len(names)-3)+" more")
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		err = inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error {
			return errors.Join(Present(t.Context(), tx, claims...), Present(t.Context(), tx, claims[1], claims[1]), insert(tx), Done(t.Context(), tx))
		})
		if err != nil {
			t.Error(err)
		}
		if n := g.count(`SELECT count(*) FROM t`); n != len(names) {
			t.Errorf("%d rows, want %d", n, len(names))
		}
		err = inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error {
			if err := Present(t.Context(), tx, claims...); err != nil {
				return err
			}
			_, err := tx.ExecContext(t.Context(), `DELETE FROM t`)
			return errors.Join(err, Done(t.Context(), tx))
		})
		if err != nil {
			t.Error(err)
		}
		for _, c := range claims {
			g.p.drop(c)
		}
	}
}

// In a transaction that begins without the writer lock, Present takes it; after a read that others have overtaken, it is begin again.
func TestPresentInADeferredTransaction(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	claim := g.p.take("orders/1")
	deferred := plainDB(t, g.s.path, "?_pragma=busy_timeout(5000)&_pragma=foreign_keys(ON)&_txlock=deferred")
	err := inOwnTx(t.Context(), deferred, func(tx *sql.Tx) error {
		if err := Present(t.Context(), tx, claim); err != nil {
			return err
		}
		if err := g.foreignAtOnce(steal); resultCode(err) != lib.SQLITE_BUSY {
			t.Errorf("another may write beside it: %v", err)
		}
		_, err := tx.ExecContext(t.Context(), `UPDATE orders SET state = 'paid' WHERE id = 1`)
		return errors.Join(err, Done(t.Context(), tx))
	})
	if err != nil {
		t.Error(err)
	}
	err = inOwnTx(t.Context(), deferred, func(tx *sql.Tx) error {
		var n int
		if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&n); err != nil {
			return err
		}
		if err := g.p.renew(); err != nil {
			return err
		}
		return Present(t.Context(), tx, claim)
	})
	if resultCode(err) != lib.SQLITE_BUSY {
		t.Errorf("after a read that was overtaken: %v, want begin again", err)
	}
}

// foreignAtOnce is foreign, without patience.
func (g *guarded) foreignAtOnce(statement string) error {
	_, err := plainDB(g.t, g.s.path, "").ExecContext(g.t.Context(), statement)
	return err
}
