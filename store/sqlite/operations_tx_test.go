package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// sell is a worker's own change and the record of its attempt, in one transaction.
func (w *shop) sell(tx TX, ops *Operations, job operation.Job) error {
	if err := ops.CompleteTx(w.t.Context(), tx, done(job.Ref)); err != nil {
		return err
	}
	_, err := tx.ExecContext(w.t.Context(), `UPDATE stock SET n = n + 1`)
	return err
}

// ways are the transactions in which a worker may complete.
func (w *shop) ways(ops *Operations) map[string]func(job operation.Job) error {
	own := func(job operation.Job) error {
		return inOwnTx(w.t.Context(), w.db, func(tx *sql.Tx) error { return w.sell(tx, ops, job) })
	}
	return map[string]func(operation.Job) error{
		"own": own,
		"prepared": func(job operation.Job) error {
			statements, err := Prepare(w.t.Context(), w.db)
			if err != nil {
				return err
			}
			err = inOwnTx(w.t.Context(), w.db, func(tx *sql.Tx) error { return w.sell(statements.In(tx), ops, job) })
			return errors.Join(err, statements.Close())
		},
		"fenced": func(job operation.Job) error {
			return w.s.Fenced(w.t.Context(), w.claim, func(_ context.Context, tx *Tx) error { return w.sell(tx, ops, job) })
		},
	}
}

// overtakings are what can have become of an operation while its worker was away.
func overtakings(d *desk) map[string]func(job operation.Job) {
	ctx := d.t.Context()
	expire := func() {
		d.t.Helper()
		if n, err := d.ops.Expire(ctx, 10); err != nil || n != 1 {
			d.t.Fatalf("expired %d, %v", n, err)
		}
	}
	again := func() operation.Job {
		d.t.Helper()
		jobs, err := d.ops.Claim(ctx, againClaim(time.Minute))
		if err != nil || len(jobs) != 1 || !jobs[0].Unsure {
			d.t.Fatalf("claimed %v, %v", jobs, err)
		}
		return jobs[0]
	}
	return map[string]func(operation.Job){
		"expired":          func(operation.Job) { expire() },
		"begun by another": func(operation.Job) { expire(); again() },
		"done by another": func(operation.Job) {
			expire()
			job := again()
			if errs, err := d.ops.Complete(ctx, []operation.Completion{done(job.Ref)}); err != nil || errs[0] != nil {
				d.t.Fatal(errs, err)
			}
		},
		"done by itself": func(job operation.Job) {
			if errs, err := d.ops.Complete(ctx, []operation.Completion{done(job.Ref)}); err != nil || errs[0] != nil {
				d.t.Fatal(errs, err)
			}
		},
		"resolved": func(operation.Job) {
			expire()
			if _, err := d.ops.Resolve(ctx, operation.Verdict{ID: "op", State: operation.Failed, Reason: "asked the bank"}); err != nil {
				d.t.Fatal(err)
			}
		},
	}
}

// againClaim is of one operation whose attempts may follow each other at any time.
func againClaim(ttl time.Duration) operation.ClaimRequest {
	req := claimOf(1)
	req.TTL, req.Kinds[0].Window = ttl, operation.Forever
	return req
}

// O2b: the business change of a worker that has lost its attempt rolls back, whatever has become of the operation, and the one of a worker that has not is
// committed together with the record. In a transaction of the worker's own, and in a fenced one.
func TestStaleCompletionRollsBackTheWorkersChange(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"own", "prepared", "fenced"} {
		for _, what := range []string{"", "expired", "begun by another", "done by another", "done by itself", "resolved"} {
			w := newShop(t, "deferred")
			d := &desk{t, w.s.Operations()}
			d.submit("op")
			ttl := time.Minute
			if what != "" && what != "done by itself" {
				ttl = time.Millisecond
			}
			jobs, err := d.ops.Claim(t.Context(), againClaim(ttl))
			if err != nil || len(jobs) != 1 {
				t.Fatalf("claimed %v, %v", jobs, err)
			}
			if what != "" {
				if ttl == time.Millisecond {
					<-time.After(2 * ttl)
				}
				overtakings(d)[what](jobs[0])
			}
			before := d.get("op").State
			err = w.ways(d.ops)[way](jobs[0])
			after := d.get("op").State
			if what == "" {
				if err != nil || w.stock() != "2" || after != operation.Succeeded {
					t.Errorf("%s: %v, %s in stock, %v", way, err, w.stock(), after)
				}
				continue
			}
			if !errors.Is(err, operation.ErrStale) || w.stock() != "1" || after != before {
				t.Errorf("%s, %s: %v, %s in stock, %v after %v", way, what, err, w.stock(), after, before)
			}
		}
	}
}

// While a transaction has completed an operation and is open, nobody ends the attempt: the file has one writer. When it is rolled back, the attempt is open as before.
func TestCompletionInAnOpenTransaction(t *testing.T) {
	t.Parallel()
	w := newShop(t, "deferred")
	d := &desk{t, w.s.Operations()}
	d.submit("op")
	job := d.claim()
	for _, commit := range []bool{false, true} {
		tx := w.begin()
		if err := w.sell(tx, d.ops, job); err != nil {
			t.Fatal(err)
		}
		cancelled := make(chan error, 1)
		go func() {
			_, err := d.ops.Cancel(t.Context(), "op", "no more")
			cancelled <- err
		}()
		if got := d.get("op").State; got != operation.Attempting {
			t.Errorf("%v before the commit", got)
		}
		select {
		case err := <-cancelled:
			t.Errorf("cancelled beside an open completion: %v", err)
		default:
		}
		if commit {
			w.commit(tx)
			wantKind(t, <-cancelled, operation.ErrDecided)
			continue
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := <-cancelled; err != nil {
			t.Error(err)
		}
	}
	if got := d.get("op"); got.State != operation.Succeeded || !got.CancelWished || w.stock() != "2" {
		t.Errorf("%v, %s in stock", got.State, w.stock())
	}
}

// A submission in a transaction is there when it commits, and never was when it does not.
func TestSubmitTx(t *testing.T) {
	t.Parallel()
	w := newShop(t, "immediate")
	d := &desk{t, w.s.Operations()}
	statements, err := Prepare(t.Context(), w.db)
	if err != nil {
		t.Fatal(err)
	}
	defer statements.Close()
	for _, id := range []string{"rolled back", "committed"} {
		tx := w.begin()
		got, err := d.ops.SubmitTx(t.Context(), tx, submission(id))
		if err != nil || got.Known || got.State != operation.Pending {
			t.Fatalf("%+v, %v", got, err)
		}
		if again, err := d.ops.SubmitTx(t.Context(), statements.In(tx), submission(id)); err != nil || !again.Known {
			t.Errorf("again: %+v, %v", again, err)
		}
		other := submission(id)
		other.Kind = "other"
		_, err = d.ops.SubmitTx(t.Context(), tx, other)
		wantKind(t, err, operation.ErrMismatch)
		if _, err := d.ops.Get(t.Context(), id); !errors.Is(err, operation.ErrNotFound) {
			t.Errorf("seen before the commit: %v", err)
		}
		if jobs, err := d.ops.Claim(t.Context(), claimOf(1)); err != nil || len(jobs) > 0 {
			t.Errorf("claimed before the commit: %v, %v", jobs, err)
		}
		if id == "committed" {
			w.commit(tx)
		} else if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	if job := d.claim(); job.ID != "committed" || string(job.Request) != string(submission("committed").Request) {
		t.Errorf("%+v", job)
	}
	if _, err := d.ops.Get(t.Context(), "rolled back"); !errors.Is(err, operation.ErrNotFound) {
		t.Errorf("after the rollback: %v", err)
	}
}

// As with claims' checks: after a read beside somebody's write SQLite refuses, and the caller begins again.
func TestOperationsAfterAReadAreBeginAgain(t *testing.T) {
	t.Parallel()
	w := newShop(t, "deferred")
	d := &desk{t, w.s.Operations()}
	d.submit("op")
	job := d.claim()
	for name, call := range map[string]func(tx *sql.Tx) error{
		"submit":   func(tx *sql.Tx) error { _, err := d.ops.SubmitTx(t.Context(), tx, submission("new")); return err },
		"complete": func(tx *sql.Tx) error { return d.ops.CompleteTx(t.Context(), tx, done(job.Ref)) },
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
func TestOperationsOfAnotherFile(t *testing.T) {
	t.Parallel()
	w, other := newShop(t, "immediate"), openPath(t, newPath(t)).Operations()
	tx := w.begin()
	if _, err := other.SubmitTx(t.Context(), tx, submission("op")); !errors.Is(err, errOtherAuthority) {
		t.Errorf("submitted to another file: %v", err)
	}
	err := other.CompleteTx(t.Context(), tx, done(operation.Ref{ID: "op", Number: 1}))
	if !errors.Is(err, errOtherAuthority) {
		t.Errorf("completed in another file: %v", err)
	}
	err = w.s.Operations().CompleteTx(t.Context(), tx, done(operation.Ref{ID: "op", Number: 1}))
	wantKind(t, err, operation.ErrNotFound)
	err = w.s.Operations().CompleteTx(t.Context(), tx, operation.Completion{})
	wantKind(t, err, operation.ErrInvalid)
}

// A worker presents its claim to protected tables, writes there, and completes its attempt, in one transaction.
func TestCompletionBesideProtectedTables(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	d := &desk{t, g.s.Operations()}
	for _, first := range []string{"present", "complete"} {
		d.submit(first)
		job, claim := d.claim(), g.p.take("orders/1")
		present := func(tx *sql.Tx) error { return Present(t.Context(), tx, claim) }
		complete := func(tx *sql.Tx) error { return d.ops.CompleteTx(t.Context(), tx, done(job.Ref)) }
		steps := []func(*sql.Tx) error{present, complete}
		if first == "complete" {
			steps = []func(*sql.Tx) error{complete, present}
		}
		err := inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error {
			for _, step := range steps {
				if err := step(tx); err != nil {
					return err
				}
			}
			if _, err := tx.ExecContext(t.Context(), `UPDATE orders SET state = 'sold' WHERE id = 1`); err != nil {
				return err
			}
			return Done(t.Context(), tx)
		})
		if err != nil || d.get(first).State != operation.Succeeded {
			t.Errorf("%s first: %v, %v", first, err, d.get(first).State)
		}
		g.p.drop(claim)
	}
}

// A wish to cancel, an order and a compensation are seen to in a caller's transaction as anywhere.
func TestCompleteTxFollowsTheRules(t *testing.T) {
	t.Parallel()
	w := newShop(t, "immediate")
	d := &desk{t, w.s.Operations()}
	for _, id := range []string{"first", "second"} {
		req := submission(id)
		req.Order = "o"
		if _, err := d.ops.Submit(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err := d.ops.Claim(t.Context(), claimOf(10))
	if err != nil || len(jobs) != 1 || jobs[0].ID != "first" {
		t.Fatalf("claimed %v, %v", jobs, err)
	}
	if _, err := d.ops.Cancel(t.Context(), "first", "no more"); err != nil {
		t.Fatal(err)
	}
	tx := w.begin()
	if err := d.ops.CompleteTx(t.Context(), tx, done(jobs[0].Ref)); err != nil {
		t.Fatal(err)
	}
	undo := submission("undo")
	undo.Compensates = "first"
	if _, err := d.ops.SubmitTx(t.Context(), tx, undo); err != nil {
		t.Errorf("a compensation beside what it undoes: %v", err)
	}
	w.commit(tx)
	if got := d.get("first"); got.State != operation.Succeeded || !got.CancelWished {
		t.Errorf("%+v", got)
	}
	if d.get("second").Blocked {
		t.Error("the next of the order is blocked though the first is decided")
	}
	if err := checkOperations(t.Context(), w.db); err != nil {
		t.Error(err)
	}
}
