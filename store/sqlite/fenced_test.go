package sqlite

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// bench is a store by manual clocks with a table of the user's, a holder, and its claim to "a".
type bench struct {
	t     *testing.T
	h     *hands
	s     *Store
	p     *party
	claim fence.Claim
}

func newBench(t *testing.T, ttl time.Duration) *bench {
	t.Helper()
	h := newHands()
	path := newPath(t)
	s := openWith(t, h.config(path, "one"))
	plainExec(t, path, `CREATE TABLE ledger (token INTEGER, what TEXT)`)
	b := &bench{t: t, h: h, s: s, p: join(t, s, ttl)}
	b.claim = b.p.take("a")
	return b
}

func insert(ctx context.Context, tx DBTX, c fence.Claim, what string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO ledger (token, what) VALUES (?, ?)`, int64(c.Token), what)
	return err
}

// rows counts what is committed in the ledger.
func (b *bench) rows() int {
	b.t.Helper()
	n, err := strconv.Atoi(plainValue(b.t, b.s.path, `SELECT count(*) FROM ledger`))
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// goesOn fails the test unless the writer serves others.
func (b *bench) goesOn() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	if _, err := b.s.Renew(ctx, lease.RenewRequest{Session: b.p.session}); err != nil {
		b.t.Errorf("the writer does not go on: %v", err)
	}
}

// The bound is the least of a third of the holder's TTL, a quarter of the shortest live TTL, and a second;
// never below 5 ms, so that a tiny TTL of a stranger stops nobody.
func TestFencedBound(t *testing.T) {
	t.Parallel()
	cases := []struct {
		own    time.Duration
		others []time.Duration
		want   time.Duration
	}{
		{time.Hour, nil, time.Second},
		{3 * time.Second, nil, 750 * time.Millisecond}, // its own is the shortest: a quarter, not a third
		{900 * time.Millisecond, []time.Duration{time.Minute}, 225 * time.Millisecond},
		{time.Minute, []time.Duration{2 * time.Second, time.Hour}, 500 * time.Millisecond},
		{time.Minute, []time.Duration{time.Millisecond}, 5 * time.Millisecond},
	}
	for _, c := range cases {
		b := newBench(t, c.own)
		for _, ttl := range c.others {
			join(t, b.s, ttl)
		}
		if got, err := b.s.fencedBound(b.claim); err != nil || got != c.want {
			t.Errorf("own %v beside %v: %v, want %v (%v)", c.own, c.others, got, c.want, err)
		}
	}
	b := newBench(t, time.Hour)
	over := join(t, b.s, 2*time.Second)
	closed := join(t, b.s, time.Second)
	if err := b.s.Close(t.Context(), closed.session); err != nil {
		t.Fatal(err)
	}
	if got, err := b.s.fencedBound(b.claim); err != nil || got != 500*time.Millisecond {
		t.Errorf("a closed session counts: %v (%v)", got, err)
	}
	b.h.pass(2 * time.Second)
	if got, err := b.s.fencedBound(b.claim); err != nil || got != time.Second {
		t.Errorf("a session counts whose TTL has passed, though nobody wrote so yet: %v (%v)", got, err)
	}
	if over.renew() == nil {
		t.Error("it had not passed")
	}
}

// A function that hangs, without any statement, is rolled back at the bound; all others go on while it
// still hangs; what it does later is refused.
func TestFencedHangIsRolledBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, 400*time.Millisecond)
	wake := make(chan struct{})
	inside := make(chan struct{})
	var late error
	ended := make(chan error, 1)
	go func() {
		ended <- b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error {
			err := insert(ctx, tx, b.claim, "early")
			close(inside)
			<-wake // it does not look at its context
			late = insert(context.Background(), tx, b.claim, "late")
			return err
		})
	}()
	<-inside
	b.goesOn()
	other := b.p.take("b")
	b.p.drop(other)
	select {
	case err := <-ended:
		t.Fatalf("it ended while the function hangs: %v", err)
	default:
	}
	close(wake)
	wantKind(t, <-ended, lease.ErrUnavailable, "100ms", "rolled back")
	if late == nil {
		t.Error("a statement after the bound was accepted")
	}
	if n := b.rows(); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// endless is a statement that ends only when it is interrupted.
const endless = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n`

// A statement that is running at the bound is interrupted, whatever context the function gave it.
func TestFencedLongStatementIsInterrupted(t *testing.T) {
	t.Parallel()
	statements := map[string]func(tx *Tx) error{
		"exec": func(tx *Tx) error { _, err := tx.ExecContext(context.Background(), endless); return err },
		"exec, with a context of its own": func(tx *Tx) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			_, err := tx.ExecContext(ctx, endless)
			return err
		},
		"query a row": func(tx *Tx) error {
			var n int
			return tx.QueryRowContext(context.Background(), endless).Scan(&n)
		},
		"query": func(tx *Tx) error {
			rows, err := tx.QueryContext(context.Background(), endless)
			if err != nil {
				return err
			}
			defer rows.Close()
			return rows.Err()
		},
		"insert": func(tx *Tx) error {
			_, err := tx.ExecContext(context.Background(), `INSERT INTO ledger WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, 'x' FROM n`)
			return err
		},
	}
	for name, statement := range statements {
		b := newBench(t, 400*time.Millisecond)
		err := b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error {
			if err := insert(ctx, tx, b.claim, "early"); err != nil {
				return err
			}
			if err := statement(tx); err == nil {
				t.Errorf("%s: not interrupted", name)
			}
			return nil // whatever the function makes of the interruption, nothing is committed
		})
		wantKind(t, err, lease.ErrUnavailable)
		b.goesOn()
		if n := b.rows(); n != 0 {
			t.Errorf("%s: %d rows were written", name, n)
		}
	}
}

// A query is interrupted only until its first row. A later one that is slow to come keeps the turn until it is
// there, as Tx.QueryContext says; then the transaction is rolled back all the same.
func TestFencedSlowLaterRow(t *testing.T) {
	t.Parallel()
	b := newBench(t, 20*time.Millisecond) // a bound of 5 ms
	err := b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error {
		if err := insert(ctx, tx, b.claim, "early"); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT 1 UNION ALL SELECT max(i) FROM (
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200000) SELECT i FROM n)`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() { // the bound passes in the midst of the second
		}
		return rows.Err()
	})
	wantKind(t, err, lease.ErrUnavailable, "rolled back")
	b.goesOn()
	if n := b.rows(); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// A statement can also be ended by the context that the function gave it; the transaction goes on.
func TestFencedStatementEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Hour)
	err := b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if _, err := tx.ExecContext(short, endless); err == nil {
			t.Error("not interrupted")
		}
		rows, err := tx.QueryContext(short, `SELECT 1`)
		if err == nil {
			defer rows.Close()
			err = rows.Err()
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a query with a context that has ended: %v", err)
		}
		return insert(ctx, tx, b.claim, "after")
	})
	if err != nil || b.rows() != 1 {
		t.Errorf("%d rows, %v", b.rows(), err)
	}
}

// A function that ends after the bound is not committed, though it returned nil.
func TestFencedCommitAfterBoundIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, 400*time.Millisecond)
	err := b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error {
		err := insert(ctx, tx, b.claim, "early")
		<-ctx.Done()
		return err
	})
	wantKind(t, err, lease.ErrUnavailable, "100ms")
	ctx, cancel := context.WithCancelCause(t.Context())
	err = b.s.Fenced(ctx, b.claim, func(ctx context.Context, tx *Tx) error {
		err := insert(ctx, tx, b.claim, "cancelled")
		cancel(errors.New("changed my mind"))
		return err
	})
	wantKind(t, err, lease.ErrUnavailable, "changed my mind")
	if n := b.rows(); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	b.goesOn()
}

// Commit and bound meet at every distance: a row is there exactly if the caller was told so.
func TestFencedCommitRacesBound(t *testing.T) {
	t.Parallel()
	b := newBench(t, 20*time.Millisecond) // a bound of 5 ms
	committed, refused := 0, 0
	for i := range 200 {
		err := b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error {
			if err := insert(ctx, tx, b.claim, "x"); err != nil {
				return err
			}
			deadline, _ := ctx.Deadline()
			for left := time.Duration(i-100) * 10 * time.Microsecond; time.Until(deadline) > left; { // 1 ms before to 1 ms after
				runtime.Gosched()
			}
			return nil
		})
		if err == nil {
			committed++
		} else {
			refused++
		}
	}
	if n := b.rows(); n != committed {
		t.Errorf("%d rows, %d acknowledged", n, committed)
	}
	t.Logf("%d committed, %d refused", committed, refused)
	b.goesOn()
}

// A panic in the function rolls back, frees the turn, and goes on as the same panic; so does runtime.Goexit.
func TestFencedPanic(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Hour)
	func() {
		defer func() {
			if got := recover(); got != "the function's own" {
				t.Errorf("recovered %v", got)
			}
		}()
		b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error { //nolint:errcheck // it does not return
			if err := insert(ctx, tx, b.claim, "x"); err != nil {
				return err
			}
			panic("the function's own")
		})
	}()
	b.goesOn()
	var gone sync.WaitGroup
	gone.Go(func() {
		b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error { //nolint:errcheck // it does not return
			if err := insert(ctx, tx, b.claim, "x"); err != nil {
				return err
			}
			runtime.Goexit()
			return nil
		})
	})
	gone.Wait()
	b.goesOn()
	if n := b.rows(); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// What the function leaves behind does not trouble those that come after: open rows, an error, a transaction
// that it ended by itself.
func TestFencedLeavesAClearConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Hour)
	own := errors.New("the function's own")
	var kept *Tx
	fns := map[string]struct {
		fn   func(ctx context.Context, tx *Tx) error
		want error
	}{
		"an error": {func(ctx context.Context, tx *Tx) error {
			kept = tx
			return errors.Join(insert(ctx, tx, b.claim, "x"), own)
		}, own},
		"open rows": {func(ctx context.Context, tx *Tx) error {
			_, err := tx.QueryContext(ctx, `SELECT name FROM sqlite_schema`) //nolint:gocritic,rowserrcheck,sqlclosecheck // it is what a careless function leaves
			return errors.Join(err, own)
		}, own},
		"a wrong statement": {func(ctx context.Context, tx *Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO nowhere VALUES (1)`); err == nil {
				t.Error("a wrong statement was accepted")
			}
			return own
		}, own},
		"its own ROLLBACK": {func(ctx context.Context, tx *Tx) error {
			_, err := tx.ExecContext(ctx, `ROLLBACK`)
			return err
		}, lease.ErrUnknown},
	}
	for name, c := range fns {
		if err := b.s.Fenced(t.Context(), b.claim, c.fn); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		b.goesOn()
	}
	if _, err := kept.ExecContext(t.Context(), `INSERT INTO ledger VALUES (1, 'kept')`); err == nil {
		t.Error("a transaction that has ended accepts statements")
	}
	if n := b.rows(); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	err := b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error {
		_, err := tx.QueryContext(ctx, `SELECT name FROM sqlite_schema`) //nolint:gocritic,rowserrcheck,sqlclosecheck // as above
		return errors.Join(err, insert(ctx, tx, b.claim, "y"))
	})
	if err != nil || b.rows() != 1 {
		t.Errorf("open rows at the commit: %v, %d rows", err, b.rows())
	}
}

// While a fenced transaction is open nobody succeeds its holder, though the lease is over by the clock: not in
// this process, not in another store. The successor comes right after.
func TestNoSuccessorWhileFencedIsOpen(t *testing.T) {
	t.Parallel()
	for _, sameStore := range []bool{true, false} {
		b := newBench(t, time.Minute)
		s := b.s
		if !sameStore {
			s = openWith(t, b.h.config(b.s.path, "one"))
		}
		successor := join(t, s, time.Hour)
		granted := make(chan fence.Claim, 1)
		err := b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error {
			b.h.pass(time.Minute) // the holder's lease is over now
			go func() {
				grant, err := successor.ask("a")
				if err != nil {
					t.Error(err)
				}
				granted <- grant.Claim
			}()
			waitQueued(t, s, 1)
			select {
			case c := <-granted:
				t.Errorf("granted inside the holder's transaction: %v", c)
			case <-time.After(20 * time.Millisecond):
			}
			return insert(ctx, tx, b.claim, "last")
		})
		if err != nil {
			t.Errorf("same store %v: %v", sameStore, err)
		}
		if c := <-granted; c.Token <= b.claim.Token {
			t.Errorf("same store %v: token %d after %d", sameStore, c.Token, b.claim.Token)
		}
		if n := b.rows(); n != 1 {
			t.Errorf("same store %v: %d rows", sameStore, n)
		}
	}
}

// A function that calls the store that runs it waits for itself. Nothing hangs for ever: the inner call waits until
// the bound, and is withdrawn, or served by the writer that goes on at this very moment; the outer one is over.
func TestNestedCallEndsAtTheBound(t *testing.T) {
	t.Parallel()
	b := newBench(t, 400*time.Millisecond)
	err := b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error {
		_, err := b.s.Renew(ctx, lease.RenewRequest{Session: b.p.session})
		if ctx.Err() == nil {
			t.Errorf("the inner call ended before the bound: %v", err)
		}
		wantKind(t, b.s.Fenced(ctx, b.claim, func(context.Context, *Tx) error { return nil }), lease.ErrUnavailable)
		return insert(context.Background(), tx, b.claim, "x")
	})
	wantKind(t, err, lease.ErrUnavailable)
	if n := b.rows(); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	b.goesOn()
}

// SQLite's errors do not reach the caller as they are, also when the check itself meets them.
func TestFencedOnFullDiskIsTyped(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Hour)
	limitPages(t, b.s, "(SELECT page_count FROM pragma_page_count)")
	err := b.s.Fenced(t.Context(), b.claim, func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO ledger (token, what) VALUES (1, hex(randomblob(100000)))`)
		return err
	})
	if resultCode(err) == 0 {
		t.Errorf("the function's own error: %v", err)
	}
	limitPages(t, b.s, "1000000")
	b.goesOn()
	if n := b.rows(); n != 0 {
		t.Errorf("%d rows", n)
	}
}
