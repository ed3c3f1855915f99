package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// shop is a store by the real clock, and a user's own handle on the same file.
type shop struct {
	t     *testing.T
	s     *Store
	p     *party
	claim fence.Claim
	db    *sql.DB
}

// newShop opens the user's handle with _txlock=mode.
func newShop(t *testing.T, mode string) *shop {
	t.Helper()
	path := newPath(t)
	s := openPath(t, path)
	plainExec(t, path, `CREATE TABLE stock (item TEXT, n INTEGER)`, `INSERT INTO stock VALUES ('x', 1)`)
	w := &shop{t: t, s: s, p: join(t, s, time.Hour), db: plainDB(t, path, "?_pragma=busy_timeout(5000)&_txlock="+mode)}
	w.claim = w.p.take("a")
	return w
}

func (w *shop) begin() *sql.Tx {
	w.t.Helper()
	tx, err := w.db.BeginTx(w.t.Context(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { tx.Rollback() })
	return tx
}

func (w *shop) commit(tx *sql.Tx) {
	w.t.Helper()
	if err := tx.Commit(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *shop) stock() string {
	w.t.Helper()
	return plainValue(w.t, w.s.path, `SELECT n FROM stock WHERE item = 'x'`)
}

// checks are the three, as the first statement of a caller's transaction.
func checks() map[string]func(ctx context.Context, tx DBTX, claim fence.Claim) error {
	return map[string]func(ctx context.Context, tx DBTX, claim fence.Claim) error{
		"verify": Verify,
		"enter":  func(ctx context.Context, tx DBTX, c fence.Claim) error { return Enter(ctx, tx, "x", c) },
		"admit":  func(ctx context.Context, tx DBTX, c fence.Claim) error { return Admit(ctx, tx, "x", c) },
	}
}

// In a caller's own transaction, begun either way, each check is the first statement, and takes the file's
// only writer lock: until it ends, nobody else's check comes through, and no grant.
func TestOwnTransaction(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"immediate", "deferred"} {
		for name, check := range checks() {
			w := newShop(t, mode)
			for range 2 { // equal is accepted, and written all the same
				tx := w.begin()
				if err := check(t.Context(), tx, w.claim); err != nil {
					t.Fatalf("%s, %s: %v", mode, name, err)
				}
				var n int
				if err := tx.QueryRowContext(t.Context(), `SELECT n FROM stock WHERE item = 'x'`).Scan(&n); err != nil {
					t.Fatal(err)
				}
				impatient := plainDB(t, w.s.path, "?_txlock=immediate")
				if _, err := impatient.BeginTx(t.Context(), nil); resultCode(err) != lib.SQLITE_BUSY {
					t.Errorf("%s, %s: another may write beside it: %v", mode, name, err)
				}
				granted := make(chan error, 1)
				go func() { granted <- w.p.renew() }()
				if _, err := tx.ExecContext(t.Context(), `UPDATE stock SET n = ? WHERE item = 'x'`, n+1); err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-granted:
					t.Errorf("%s, %s: the authority wrote beside it: %v", mode, name, err)
				default:
				}
				w.commit(tx)
				if err := <-granted; err != nil {
					t.Error(err)
				}
			}
			if got := w.stock(); got != "3" {
				t.Errorf("%s, %s: %s in stock", mode, name, got)
			}
		}
	}
}

// A transaction that has read before the check, while somebody wrote since, is refused by SQLite. It is
// rolled back and begun again.
func TestCheckAfterReadIsBeginAgain(t *testing.T) {
	t.Parallel()
	for name, check := range checks() {
		w := newShop(t, "deferred")
		attempt := func(between func()) error {
			tx := w.begin()
			defer tx.Rollback()
			var n int
			if err := tx.QueryRowContext(t.Context(), `SELECT n FROM stock`).Scan(&n); err != nil {
				return err
			}
			between()
			if err := check(t.Context(), tx, w.claim); err != nil {
				return err
			}
			if _, err := tx.ExecContext(t.Context(), `UPDATE stock SET n = ?`, n+1); err != nil {
				return err
			}
			return tx.Commit()
		}
		err := attempt(func() {
			if err := w.p.renew(); err != nil { // anybody's write to the file
				t.Fatal(err)
			}
		})
		sqliteErr, ok := errors.AsType[*driver.Error](err)
		if !ok || sqliteErr.Code() != lib.SQLITE_BUSY_SNAPSHOT {
			t.Errorf("%s after a read: %v, want SQLITE_BUSY_SNAPSHOT", name, err)
		}
		if got := w.stock(); got != "1" {
			t.Errorf("%s: %s in stock", name, got)
		}
		if err := attempt(func() {}); err != nil {
			t.Errorf("%s, begun again: %v", name, err)
		}
		if got := w.stock(); got != "2" {
			t.Errorf("%s: %s in stock", name, got)
		}
	}
}

// What each check says of claims that are stale, by a clock turned by hand.
func TestVerifyInOwnTransaction(t *testing.T) {
	t.Parallel()
	h := newHands()
	path := newPath(t)
	s := openWith(t, h.config(path, "one"))
	p := join(t, s, time.Minute)
	claim := p.take("a")
	db := plainDB(t, path, "?_pragma=busy_timeout(5000)&_txlock=deferred")
	check := func(boot string) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		return verify(t.Context(), tx, claim, s.kernel, boot)
	}
	if err := check("one"); err != nil {
		t.Error(err)
	}
	wantKind(t, check("two"), lease.ErrUnavailable, "open it once")
	h.pass(time.Minute - 1)
	if err := check("one"); err != nil {
		t.Errorf("one nanosecond before the expiry: %v", err)
	}
	h.pass(1)
	err := check("one")
	if refused, ok := errors.AsType[*fence.RefusedError](err); !ok || refused.Why != fence.Expired {
		t.Errorf("at the expiry: %v", err)
	}
	h.kernel.Add(-int64(2 * time.Hour))
	wantKind(t, check("one"), lease.ErrUnavailable) // below the mark: not this clock
}

// The package's own Verify reads the same clock as the stores.
func TestVerifyByTheKernelsClock(t *testing.T) {
	t.Parallel()
	w := newShop(t, "deferred")
	w.p.drop(w.claim)
	grants, err := w.s.Acquire(t.Context(), lease.AcquireRequest{Session: w.p.session, ID: w.p.ids.New(), Names: []string{"a"}, MaxHold: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	valid := false
	wait(t, func() bool {
		tx := w.begin()
		defer tx.Rollback()
		err := Verify(t.Context(), tx, grants[0].Claim)
		if err == nil {
			valid = true
			return false
		}
		refused, ok := errors.AsType[*fence.RefusedError](err)
		if !ok || refused.Why != fence.Expired {
			t.Fatalf("%v, want refused as expired", err)
		}
		return true
	})
	if !valid {
		t.Log("the machine was too busy to see it valid")
	}
}

// The high-water mark: it rises, accepts equal, refuses lower by name, binds the resource to its name and
// authority, and moves with the transaction.
func TestMark(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"enter", "admit"} {
		check := checks()[name]
		w := newShop(t, "immediate")
		inTx := func(c fence.Claim, commit bool) error {
			tx := w.begin()
			defer tx.Rollback()
			err := check(t.Context(), tx, c)
			if err == nil {
				_, err = tx.ExecContext(t.Context(), `UPDATE stock SET n = n + 1`)
			}
			if commit {
				err = errors.Join(err, tx.Commit()) // also after a refusal: it must not matter
			}
			return err
		}
		old := w.claim
		w.p.drop(old)
		newer := w.p.take("a")
		if err := inTx(old, true); err != nil {
			t.Errorf("%s: a released claim, before any successor has entered: %v", name, err) // what the mark cannot see
		}
		if err := inTx(newer, false); err != nil {
			t.Error(err)
		}
		if err := inTx(old, true); err != nil {
			t.Errorf("%s: the mark of a transaction that was rolled back counts: %v", name, err)
		}
		if err := inTx(newer, true); err != nil {
			t.Error(err)
		}
		err := inTx(old, true)
		refused, ok := errors.AsType[*fence.RefusedError](err)
		if !ok || refused.Why != fence.Superseded || refused.Newer != newer.Token || refused.Resource != "x" {
			t.Errorf("%s: a stale claim: %v", name, err)
		}
		if err := inTx(newer, true); err != nil {
			t.Errorf("%s: equal: %v", name, err)
		}

		otherName := w.p.take("b")
		wantKind(t, inTx(otherName, true), fence.ErrForeign, "guarded by lease")
		otherAuthority := newer
		otherAuthority.Authority = lease.NewID()
		wantKind(t, inTx(otherAuthority, true), fence.ErrForeign, "belongs to authority")
		future := newer
		future.Token = 1 << 50
		wantKind(t, inTx(future, true), fence.ErrAhead)
		if err := inTx(newer, true); err != nil {
			t.Errorf("%s: a refused claim moved the mark: %v", name, err)
		}
		wantKind(t, inTx(fence.Claim{}, true), fence.ErrInvalid)
		if got := w.stock(); got != "6" {
			t.Errorf("%s: %s in stock, want 1 and 5 accepted writes", name, got)
		}
	}
}

// A claim from the future that comes first to a resource leaves no mark either, though the caller commits.
func TestAheadClaimLeavesNoMark(t *testing.T) {
	t.Parallel()
	w := newShop(t, "immediate")
	future := w.claim
	future.Token = 1 << 50
	tx := w.begin()
	wantKind(t, Enter(t.Context(), tx, "x", future), fence.ErrAhead, "epoch raise")
	w.commit(tx)
	if n := plainValue(t, w.s.path, `SELECT count(*) FROM tenure_mark`); n != "0" {
		t.Errorf("%s marks", n)
	}
	if err := w.s.ReportAhead(t.Context(), future); err != nil {
		t.Fatal(err)
	}
	_, err := join(t, w.s, time.Hour).ask("a")
	wantKind(t, err, fence.ErrAhead)
	foreign := future
	foreign.Authority, foreign.Name = lease.NewID(), "b" // another authority's tokens say nothing about ours
	if err := w.s.ReportAhead(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	w.p.take("b")
}

// The mark outlives the resource: its rows are deleted and made anew, its table even, and a stale claim is
// refused as before.
func TestMarkSurvivesRecreation(t *testing.T) {
	t.Parallel()
	w := newShop(t, "immediate")
	old := w.claim
	w.p.drop(old)
	newer := w.p.take("a")
	tx := w.begin()
	if err := Enter(t.Context(), tx, "x", newer); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{`DELETE FROM stock`, `DROP TABLE stock`, `CREATE TABLE stock (item TEXT, n INTEGER)`, `INSERT INTO stock VALUES ('x', 1)`} {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	w.commit(tx)
	w.p.drop(newer)
	if n, err := w.s.Prune(t.Context(), lease.MinPruneAge, lease.MaxPrune); err != nil || n != 0 {
		t.Errorf("%d rows pruned, %v", n, err)
	}
	tx = w.begin()
	wantKind(t, Enter(t.Context(), tx, "x", old), fence.ErrRefused, "newer token "+newer.Token.String())
}

// Allow admits a further name for a resource; each has its own mark.
func TestAllow(t *testing.T) {
	t.Parallel()
	w := newShop(t, "immediate")
	second, third := w.p.take("b"), w.p.take("c")
	w.p.drop(second)
	newer := w.p.take("b")
	tx := w.begin()
	if err := Enter(t.Context(), tx, "x", w.claim); err != nil {
		t.Fatal(err)
	}
	wantKind(t, Enter(t.Context(), tx, "x", second), fence.ErrForeign)
	for range 2 { // again changes nothing
		if err := Allow(t.Context(), tx, "x", second.Authority, second.Name); err != nil {
			t.Fatal(err)
		}
		if err := Enter(t.Context(), tx, "x", second); err != nil {
			t.Errorf("an admitted name: %v", err)
		}
	}
	wantKind(t, Admit(t.Context(), tx, "x", third), fence.ErrForeign)
	if err := Admit(t.Context(), tx, "x", w.claim); err != nil {
		t.Errorf("the first name: %v", err)
	}
	if err := Enter(t.Context(), tx, "x", newer); err != nil {
		t.Error(err)
	}
	wantKind(t, Enter(t.Context(), tx, "x", second), fence.ErrRefused)
	for resource, want := range map[string]error{"": fence.ErrInvalid, string(make([]byte, fence.MaxName+1)): fence.ErrInvalid, "y": nil} {
		if err := Allow(t.Context(), tx, resource, second.Authority, "b"); !errors.Is(err, want) {
			t.Errorf("resource %.10q: %v", resource, err)
		}
	}
	wantKind(t, Allow(t.Context(), tx, "x", fence.ID{}, "b"), fence.ErrInvalid)
	wantKind(t, Allow(t.Context(), tx, "x", second.Authority, "b#1"), fence.ErrInvalid)
}

// Random claims in random order: the statements decide as the pure rule does.
func TestMarkDecidesAsThePureRule(t *testing.T) {
	t.Parallel()
	w := newShop(t, "immediate")
	for range 20 { // so that tokens up to 21 have been issued
		w.p.drop(w.p.take("n"))
	}
	const seed = 20261130
	random := rand.New(rand.NewPCG(seed, 0))
	foreign := lease.NewID()
	tx := w.begin()
	marks := map[string]fence.Mark{}
	for step := range 800 {
		c := fence.Claim{Authority: w.s.Authority(), Name: []string{"a", "b"}[random.IntN(2)], Acquisition: lease.NewID(), Token: fence.Token(1 + random.IntN(20))}
		if random.IntN(4) == 0 {
			c.Authority = foreign
		}
		resource := "r" + string(rune('0'+random.IntN(200)))
		var err error
		if random.IntN(2) == 0 {
			err = Enter(t.Context(), tx, resource, c)
		} else {
			err = Admit(t.Context(), tx, resource, c)
		}
		mark, ok := marks[resource]
		if !ok {
			mark.Resource = resource
		}
		moved, want := fence.Admit(mark, c)
		marks[resource] = moved
		if (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
			t.Fatalf("seed %d, step %d, %+v, %+v: %v, want %v", seed, step, mark, c, err, want)
		}
	}
}

// A check that waited for the lock past the expiry reads the clock again under the lock: what was in force before the wait
// proves nothing. The clock here is past the expiry at its second reading.
func TestVerifyReadsTheClockAgainAfterAWait(t *testing.T) {
	t.Parallel()
	h := newManualHarness(t)
	p := join(t, h.store, time.Minute)
	claim := p.take("a")
	for name, c := range map[string]struct {
		waited time.Duration
		want   error
	}{
		"no wait":                 {0, nil},
		"a wait within the TTL":   {time.Second, nil},
		"a wait up to the expiry": {time.Minute, fence.ErrRefused},
	} {
		tx, err := h.own.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		start, readings := time.Duration(h.tick.Load()), 0
		clock := func() time.Duration {
			readings++
			if readings == 1 {
				return start
			}
			return start + c.waited
		}
		if err := verify(t.Context(), tx, claim, clock, "manual"); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}
