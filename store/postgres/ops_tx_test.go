package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/operation"
)

// office is a rig and the operations on it.
type office struct {
	*rig
	ops *Operations
}

func newOffice(t testing.TB) *office {
	t.Helper()
	r := &rig{t: t, harness: newHarness(t)}
	return &office{r, r.store.Operations()}
}

// submission is an operation that asks for little.
func submission(id string) operation.SubmitRequest {
	body := []byte(`{"for":"` + id + `"}`)
	return operation.SubmitRequest{ID: id, Kind: "k", Request: body, Fingerprint: operation.FingerprintOf("k", body)}
}

func (f *office) submit(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		if _, err := f.ops.Submit(f.t.Context(), submission(id)); err != nil {
			f.t.Fatal(err)
		}
	}
}

// claimOf asks for n operations. Their claims last, their provider can be asked, and they are attempted again for ever.
func claimOf(n int) operation.ClaimRequest {
	return operation.ClaimRequest{Worker: "w", TTL: time.Minute, Limit: n, Kinds: []operation.KindClaim{
		{Kind: "k", Limit: n, Timeout: time.Hour, Window: operation.Forever, MaxAttempts: 100, Asks: true, Undoes: true},
	}}
}

// begin claims the one operation that is due.
func (f *office) begin() operation.Job {
	f.t.Helper()
	jobs, err := f.ops.Claim(f.t.Context(), claimOf(1))
	if err != nil || len(jobs) != 1 {
		f.t.Fatalf("claimed %v, %v", jobs, err)
	}
	return jobs[0]
}

// done is the report of a success.
func done(j operation.Job) operation.Completion {
	return operation.Completion{Ref: j.Ref, Answer: operation.Answer{Known: operation.Effective, Result: []byte("done")}}
}

// is demands an operation's state.
func (f *office) is(id string, want operation.State) operation.Record {
	f.t.Helper()
	rec, err := f.ops.Get(f.t.Context(), id)
	if err != nil || rec.State != want {
		f.t.Fatalf("%s is %v, %v; want %v", id, rec.State, err, want)
	}
	return rec
}

// overtake lets the claims of all attempts pass by the clock, and has them ended and begun again.
func (f *office) overtake() operation.Job {
	f.t.Helper()
	ctx := f.t.Context()
	if err := (&opHarness{f.harness}).Advance(ctx, 2*time.Minute); err != nil {
		f.t.Fatal(err)
	}
	if n, err := f.ops.Expire(ctx, 10); err != nil || n != 1 {
		f.t.Fatalf("expired %d, %v", n, err)
	}
	return f.begin()
}

// worker is a way to run a transaction of one's own: it writes to the table content and completes an attempt.
type worker func(ctx context.Context, f *office, done operation.Completion) error

func workers() map[string]worker {
	return map[string]worker{
		"pgx": func(ctx context.Context, f *office, done operation.Completion) error {
			return pgx.BeginFunc(ctx, f.own, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, write); err != nil {
					return err
				}
				return f.ops.CompleteTx(ctx, tx, done)
			})
		},
		"database/sql": func(ctx context.Context, f *office, done operation.Completion) error {
			db, err := sql.Open("pgx", f.url())
			if err != nil {
				return err
			}
			defer db.Close()
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if _, err = tx.ExecContext(ctx, write); err == nil {
				err = f.ops.CompleteSQL(ctx, tx, done)
			}
			if err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		},
		"in SQL": func(ctx context.Context, f *office, done operation.Completion) error {
			return opTxError(pgx.BeginFunc(ctx, f.own, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, write); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, `SELECT tenure.op_complete($1, $2, 'effective', $3)`, done.ID, int64(done.Number), done.Result)
				return err
			}))
		},
	}
}

// TestO2bAStaleAttemptsBusinessChangeRollsBack: a worker that was overtaken completes in the transaction of what it has changed: neither stays. The attempt that is current commits both.
func TestO2bAStaleAttemptsBusinessChangeRollsBack(t *testing.T) {
	for name, work := range workers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := o2b(t, newOffice(t), work); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func o2b(t *testing.T, f *office, work worker) error {
	t.Helper()
	ctx := t.Context()
	f.submit("o")
	stale := f.begin()
	current := f.overtake()
	err := work(ctx, f, done(stale))
	var newer *operation.StaleError
	content, readErr := readContent(ctx, f.own)
	switch {
	case readErr != nil:
		return readErr
	case len(content) != 0:
		return broken("the change of a worker that was overtaken stays: %q, %v", content, err)
	case !errors.As(err, &newer) || newer.Attempt != stale.Number || newer.Newer != current.Number || newer.State != operation.Attempting:
		return fmt.Errorf("the stale completion: %w", err)
	}
	f.is("o", operation.Attempting)
	if err := work(ctx, f, done(current)); err != nil {
		return err
	}
	if content, err := readContent(ctx, f.own); err != nil || len(content) != 1 {
		return fmt.Errorf("the current attempt's change: %q, %w", content, err)
	}
	f.is("o", operation.Succeeded)
	if err := work(ctx, f, done(current)); !errors.Is(err, operation.ErrStale) {
		return fmt.Errorf("completed twice: %w", err)
	}
	return nil
}

// TestO2bIsFoundWithoutTheCondition: a completion that does not ask whether its attempt is the open current one, or raises nothing, commits the stale change.
func TestO2bIsFoundWithoutTheCondition(t *testing.T) {
	for name, twin := range map[string][]edit{
		"any attempt completes":    {{"op_complete_open", "WHERE o.number = u.number AND o.known = 3 AND o.state = 2 AND (", "WHERE ("}},
		"zero rows are no error":   {{"op_complete", "IF p_number IS DISTINCT FROM h.number OR h.known <> 3 OR h.state >= 4 THEN", "IF p_number IS DISTINCT FROM h.number OR h.known <> 3 OR h.state >= 4 THEN RETURN;"}},
		"the row, not the attempt": {{"op_complete_open", "WHERE o.number = u.number AND o.known = 3", "WHERE o.known = 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newOffice(t)
			for _, e := range twin {
				if err := f.edit(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			var lost *ruleError
			if err := o2b(t, f, workers()["pgx"]); !errors.As(err, &lost) {
				t.Fatalf("the naive form was not caught: %v", err)
			}
		})
	}
}

// TestSubmitTxIsOfTheTransaction: what is submitted is there if the transaction commits, and no worker sees it before.
func TestSubmitTxIsOfTheTransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newOffice(t)
	x := f.rig.begin(ctx, pgx.ReadCommitted)
	sub, err := f.ops.SubmitTx(ctx, x, submission("rolled back"))
	if err != nil || sub.Known || sub.State != operation.Pending || string(sub.Request) != `{"for":"rolled back"}` {
		t.Fatalf("%+v, %v", sub, err)
	}
	if jobs, err := f.ops.Claim(ctx, claimOf(10)); err != nil || len(jobs) != 0 {
		t.Fatalf("claimed before the commit: %v, %v", jobs, err)
	}
	x.rollback(ctx)
	if _, err := f.ops.Get(ctx, "rolled back"); !errors.Is(err, operation.ErrNotFound) {
		t.Fatal(err)
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
	if sub, err = f.ops.SubmitSQL(ctx, tx, submission("o")); err != nil || sub.Known || sub.ID != "o" {
		t.Fatalf("%+v, %v", sub, err)
	}
	waits := start(func() error { // another submission of the id waits, and finds it
		sub, err := f.ops.Submit(ctx, submission("o"))
		if err == nil && !sub.Known {
			err = broken("one id was recorded twice")
		}
		return err
	})
	if !f.blocked(ctx, 1, waits) {
		t.Errorf("the second submission did not wait: %v", <-waits)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Error(err)
	}
	f.is("o", operation.Pending)
	x = f.rig.begin(ctx, pgx.ReadCommitted)
	other := submission("o")
	other.Kind, other.Fingerprint = "x", operation.FingerprintOf("x", other.Request)
	if _, err := f.ops.SubmitTx(ctx, x, other); !errors.Is(err, operation.ErrMismatch) {
		t.Error(err)
	}
}

// levelOf says what happens in a transaction of the caller's own whose snapshot is older than what another one has committed.
type levelOf struct {
	level            pgx.TxIsoLevel
	complete, submit error  // nil: it is done
	ordered          string // the SQLSTATE
}

func levels() []levelOf {
	return []levelOf{
		{level: pgx.ReadCommitted, complete: operation.ErrStale},
		{level: pgx.RepeatableRead, complete: ErrBeginAgain, submit: ErrBeginAgain, ordered: stateIsolation},
		{level: pgx.Serializable, complete: ErrBeginAgain, submit: ErrBeginAgain, ordered: stateIsolation},
	}
}

// TestOperationsInTransactionsOfEachLevel: what changed since the snapshot is seen at READ COMMITTED, and begins again above it; what did not is done at every level, but for orders.
func TestOperationsInTransactionsOfEachLevel(t *testing.T) {
	for _, l := range levels() {
		t.Run(string(l.level), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			f := newOffice(t)
			old := func() *hand { // a transaction with a snapshot
				x := f.rig.begin(ctx, l.level)
				x.do(ctx, `SELECT count(*) FROM content`)
				return x
			}
			f.submit("changed")
			job := f.begin()
			x := old()
			if errs, err := f.ops.Complete(ctx, []operation.Completion{done(job)}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
			if err := f.ops.CompleteTx(ctx, x, done(job)); !errors.Is(err, l.complete) {
				t.Errorf("completing what was completed since the snapshot: %v; want %v", err, l.complete)
			}
			x = old()
			f.submit("submitted")
			sub, err := f.ops.SubmitTx(ctx, x, submission("submitted"))
			if !errors.Is(err, l.submit) || err == nil && !sub.Known {
				t.Errorf("submitting what was submitted since the snapshot: %+v, %v; want %v", sub, err, l.submit)
			}
			job = f.begin()
			x = old()
			if _, err := f.ops.SubmitTx(ctx, x, submission("new")); err != nil {
				t.Errorf("a new one: %v", err)
			}
			if err := f.ops.CompleteTx(ctx, x, done(job)); err != nil {
				t.Errorf("completing what is unchanged: %v", err)
			}
			x.commit(ctx)
			f.is("submitted", operation.Succeeded)
			f.is("new", operation.Pending)
			ordered := submission("ordered")
			ordered.Order = "k"
			if _, err := f.ops.SubmitTx(ctx, old(), ordered); state(err) != l.ordered {
				t.Errorf("submitting with an order: %v; want %q", err, l.ordered)
			}
		})
	}
}
