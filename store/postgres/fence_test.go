package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of database/sql

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// Each end of a lease has its reason at the strict check, also in a batch and through database/sql, where the write does not happen.
func TestVerifySaysWhy(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	db, err := sql.Open("pgx", r.url())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for why, end := range map[fence.Reason]func(session fence.ID, c *fence.Claim) error{
		fence.Released: func(s fence.ID, c *fence.Claim) error { r.release(ctx, s, *c); return nil },
		fence.Expired:  func(s fence.ID, _ *fence.Claim) error { r.lapse(ctx, s); return nil },
		fence.Revoked: func(_ fence.ID, c *fence.Claim) error {
			_, err := r.store.Revoke(ctx, lease.RevokeRequest{Name: c.Name, Token: c.Token, Reason: "test"})
			return err
		},
		fence.Superseded: func(s fence.ID, c *fence.Claim) error { r.lapse(ctx, s); r.successor(ctx, c.Name); return nil },
		fence.NotGranted: func(_ fence.ID, c *fence.Claim) error { c.Acquisition = lease.NewID(); return nil },
	} {
		session := r.open(ctx, time.Hour)
		claim := r.acquire(ctx, session, why.String())
		const write = `INSERT INTO content (value) VALUES ('late')`
		checks := map[string]func() error{
			"in a transaction": func() error {
				return pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error { return Verify(ctx, tx, claim) })
			},
			"in a batch of its own": func() error {
				b := &pgx.Batch{}
				if err := QueueVerify(b, claim); err != nil {
					return err
				}
				b.Queue(write)
				return FenceError(claim, r.own.SendBatch(ctx, b).Close())
			},
			"through database/sql": func() error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback() }()
				return VerifySQL(ctx, tx, claim)
			},
		}
		for how, check := range checks {
			if err := check(); err != nil {
				t.Errorf("%v, %s: the holder was refused: %v", why, how, err)
			}
		}
		if err := end(session, &claim); err != nil {
			t.Fatal(err)
		}
		for how, check := range checks {
			var refused *fence.RefusedError
			if err := check(); !errors.As(err, &refused) || refused.Why != why || refused.Claim != claim || (refused.Newer > 0) != (why == fence.Superseded) {
				t.Errorf("%v, %s: %v", why, how, err)
			}
		}
	}
	if content, err := readContent(ctx, r.own); err != nil || len(content) != 5 {
		t.Errorf("%d rows, %v; want one of each holder", len(content), err)
	}
}

func TestChecksThroughDatabaseSQL(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.open(ctx, time.Hour)
	low := r.acquire(ctx, session, "n")
	r.release(ctx, session, low)
	high, other := r.acquire(ctx, session, "n"), r.acquire(ctx, session, "m")
	db, err := sql.Open("pgx", r.url())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	in := func(check func(tx *sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := check(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	for i, step := range []struct {
		check func(tx *sql.Tx) error
		want  error
	}{
		{func(tx *sql.Tx) error { return EnterSQL(ctx, tx, "r", high) }, nil},
		{func(tx *sql.Tx) error { return EnterSQL(ctx, tx, "r", low) }, fence.ErrRefused},
		{func(tx *sql.Tx) error { return AdmitSQL(ctx, tx, "r", low) }, fence.ErrRefused},
		{func(tx *sql.Tx) error { return AdmitSQL(ctx, tx, "r", high) }, nil},
		{func(tx *sql.Tx) error { return AdmitSQL(ctx, tx, "r", other) }, fence.ErrForeign},
		{func(tx *sql.Tx) error { return AllowSQL(ctx, tx, "r", other.Authority, other.Name) }, nil},
		{func(tx *sql.Tx) error { return AdmitSQL(ctx, tx, "r", other) }, nil},
		{func(tx *sql.Tx) error { return AllowSQL(ctx, tx, "r", fence.ID{}, "x") }, fence.ErrInvalid},
		{func(tx *sql.Tx) error { return EnterSQL(ctx, tx, "", high) }, fence.ErrInvalid},
		{func(tx *sql.Tx) error { return VerifySQL(ctx, tx, fence.Claim{}) }, fence.ErrInvalid},
	} {
		if err := in(step.check); !errors.Is(err, step.want) {
			t.Errorf("step %d: %v; want %v", i, err, step.want)
		}
	}
}

// A blind write that carries its own check is refused with it, also where it finds no row, and meets a successor's in turn.
func TestAdmitWithinTheWrite(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.open(ctx, time.Hour)
	low := r.acquire(ctx, session, "n")
	r.release(ctx, session, low)
	high := r.acquire(ctx, session, "n")
	if _, err := r.own.Exec(ctx, `INSERT INTO content (value) VALUES ('first')`); err != nil {
		t.Fatal(err)
	}
	write := func(claim fence.Claim, key, to string) error {
		_, err := r.own.Exec(ctx, `UPDATE content SET value = $6 WHERE value = $7 AND (`+admitText+`) IS NOT NULL`, append(raiseArgs("r", claim), to, key)...)
		return FenceError(claim, err)
	}
	if err := write(low, "first", "low"); err != nil {
		t.Fatal(err)
	}
	tx := r.begin(ctx, pgx.ReadCommitted)
	if err := Admit(ctx, tx, "r", high); err != nil {
		t.Fatal(err)
	}
	late := start(func() error { return write(low, "low", "late") })
	if !r.blocked(ctx, 1, late) {
		t.Fatal("the late write did not wait: ", <-late)
	}
	tx.commit(ctx)
	if err := <-late; !errors.Is(err, fence.ErrRefused) {
		t.Errorf("the late write: %v", err)
	}
	if err := write(low, "no such row", "late"); !errors.Is(err, fence.ErrRefused) {
		t.Errorf("a late write that finds no row: %v", err)
	}
	if content, err := readContent(ctx, r.own); err != nil || len(content) != 1 || content[0] != "low" {
		t.Errorf("%q, %v", content, err)
	}
}

// A blind write that verifies itself keeps a successor out until it ends, and is refused once there is one, also where it finds no row.
func TestVerifyWithinTheWrite(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.open(ctx, time.Hour)
	former := r.acquire(ctx, session, "n")
	if _, err := r.own.Exec(ctx, `INSERT INTO content (value) VALUES ('first')`); err != nil {
		t.Fatal(err)
	}
	write := func(db interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	}, claim fence.Claim, key, to string) error {
		_, err := db.Exec(ctx, `UPDATE content SET value = $5 WHERE value = $6 AND (`+verifyText+`) IS NOT NULL`, append(verifyArgs(claim), to, key)...)
		return FenceError(claim, err)
	}
	tx := r.begin(ctx, pgx.ReadCommitted)
	if err := write(tx, former, "first", "former"); err != nil {
		t.Fatal(err)
	}
	next := start(func() error {
		r.release(ctx, session, former)
		r.acquire(ctx, session, "n")
		return nil
	})
	if !r.blocked(ctx, 1, next) {
		t.Fatal("the successor did not wait: ", <-next)
	}
	tx.commit(ctx)
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"former", "no such row"} {
		if err := write(r.own, former, key, "late"); !errors.Is(err, fence.ErrRefused) {
			t.Errorf("a late write of %q: %v", key, err)
		}
	}
	if content, err := readContent(ctx, r.own); err != nil || len(content) != 1 || content[0] != "former" {
		t.Errorf("%q, %v", content, err)
	}
}

// What is left is at least 1 ms: 0 would be no bound at all.
func TestBoundIsNeverZero(t *testing.T) {
	ctx := t.Context()
	h := newHarness(t)
	for _, left := range []string{"1 microsecond", "-1 second", "0"} {
		b := &pgx.Batch{} // in one go: the connection would not live to the next one
		b.Queue(`SELECT tenure.bound_by('idle_in_transaction_session_timeout', $1::interval)`, left)
		b.Queue(`SELECT current_setting('idle_in_transaction_session_timeout')`)
		results := h.own.SendBatch(ctx, b)
		var none any
		var got string
		err := errors.Join(results.QueryRow().Scan(&none), results.QueryRow().Scan(&got), results.Close())
		if err != nil || got != "1ms" {
			t.Errorf("%s left: %s, %v", left, got, err)
		}
	}
}

// An idle holder is ended with its lease, and its successor is granted; one whose statement runs keeps its successor out.
func TestIdleHolderIsEndedAndBusyOneIsNot(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	const ttl = 300 * time.Millisecond
	for _, busy := range []bool{false, true} {
		name := fmt.Sprint("busy ", busy)
		session := r.open(ctx, ttl)
		claim := r.acquire(ctx, session, name)
		tx := r.begin(ctx, pgx.ReadCommitted)
		if err := Verify(ctx, tx, claim); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		if busy {
			go func() {
				_, err := tx.Exec(ctx, `SELECT pg_sleep(1)`)
				done <- errors.Join(err, tx.Commit(ctx))
			}()
		}
		r.expired(ctx, session)
		if granted := r.successor(ctx, name); granted && busy {
			t.Error("a successor was granted beside a running statement")
		}
		if busy {
			if err := <-done; err != nil {
				t.Errorf("the busy holder: %v", err)
			}
		}
		// In the idle case this waits for the server to end the holder, and fails if that takes longer than a second.
		var outcome string
		err := r.own.QueryRow(ctx, `SELECT outcome FROM tenure.acquire($1, $2, ARRAY[$3])`, uuid(r.open(ctx, time.Hour)), uuid(lease.NewID()), name).Scan(&outcome)
		if err != nil || outcome != "granted" && outcome != "held" { // held: by the successor above
			t.Errorf("%s: the successor got %q, %v", name, outcome, err)
		}
		if _, err := tx.Exec(ctx, `SELECT 1`); !busy && err == nil {
			t.Error("the idle holder's transaction goes on")
		}
	}
}

// What was verified in a savepoint is given up with it.
func TestSavepointGivesUpWhatItVerified(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.open(ctx, time.Hour)
	claim := r.acquire(ctx, session, "n")
	tx := r.begin(ctx, pgx.ReadCommitted)
	inner, err := tx.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(ctx, inner, claim); err != nil {
		t.Fatal(err)
	}
	r.lapse(ctx, session)
	if r.successor(ctx, "n") {
		t.Error("granted while the savepoint stood")
	}
	if err := inner.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if !r.successor(ctx, "n") {
		t.Error("the savepoint was rolled back and still keeps the successor out")
	}
}

// A prepared transaction outlives every bound: verify refuses where there can be one, unless the owner allows it.
func TestVerifyRefusesWherePreparedTransactionsAre(t *testing.T) {
	ctx := t.Context()
	server := testdb.Start(t, testdb.Options{Settings: map[string]string{"max_prepared_transactions": "5"}})
	r := &rig{t: t, harness: newHarnessOn(t, server, Options{})}
	claim := r.acquire(ctx, r.open(ctx, time.Hour), "n")
	verify := func() error {
		return pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error { return Verify(ctx, tx, claim) })
	}
	called := func(context.Context, pgx.Tx) error { t.Error("called"); return nil }
	if err := verify(); state(err) != statePrepared || errors.Is(err, fence.ErrRefused) {
		t.Errorf("verify: %v", err)
	}
	if err := r.store.Fenced(ctx, claim, called); !errors.Is(err, lease.ErrUnavailable) || state(err) != statePrepared {
		t.Errorf("Fenced: %v", err)
	}
	// The broken twin does not look.
	const looks = `pg_catalog.current_setting('max_prepared_transactions') OPERATOR(pg_catalog.=) '0'`
	if err := r.edit(ctx, swap(verifySig, looks, "true")); err != nil {
		t.Fatal(err)
	}
	if err := verify(); err != nil {
		t.Errorf("the naive form: %v", err)
	}
	if err := r.edit(ctx, swap(verifySig, "(true OR", "("+looks+" OR")); err != nil {
		t.Fatal(err)
	}
	if err := verify(); state(err) != statePrepared {
		t.Errorf("verify: %v", err)
	}
	if _, err := r.own.Exec(ctx, `UPDATE tenure.authority SET allow_prepared = true`); err != nil {
		t.Fatal(err)
	}
	if err := verify(); err != nil {
		t.Errorf("allowed: %v", err)
	}
}

// Behind PgBouncer in transaction mode, 8 goroutines on a pool of 3.
func TestChecksBehindPgBouncer(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	bouncer := testdb.StartBouncer(t, r.server, testdb.BouncerOptions{PoolSize: 3})
	for _, mode := range []string{"cache_describe", "exec"} {
		url := with(t, with(t, bouncer.URL(r.database), "default_query_exec_mode", mode), "pool_max_conns", "8")
		store := openStore(t, url, Options{})
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 16)
		for i := range 8 {
			claim := r.acquire(ctx, r.open(ctx, time.Hour), fmt.Sprint(mode, i))
			go func() {
				for range 20 {
					b := &pgx.Batch{}
					err := errors.Join(QueueVerify(b, claim), QueueEnter(b, claim.Name, claim), QueueAdmit(b, claim.Name, claim))
					b.Queue(`INSERT INTO content (value) VALUES ($1)`, claim.Name)
					err = errors.Join(err, pool.SendBatch(ctx, b).Close(), store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
						return Enter(ctx, tx, claim.Name, claim)
					}), pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return Verify(ctx, tx, claim) }))
					if err != nil {
						errs <- err
						return
					}
				}
				stale := claim
				stale.Acquisition = lease.NewID()
				if err := store.Fenced(ctx, stale, nil); !errors.Is(err, fence.ErrRefused) {
					errs <- fmt.Errorf("a stale claim: %w", err)
				}
				errs <- nil
			}()
		}
		for range 8 {
			if err := <-errs; err != nil {
				t.Errorf("%s: %v", mode, err)
			}
		}
		pool.Close()
	}
	if content, err := readContent(ctx, r.own); err != nil || len(content) != 2*8*20 {
		t.Errorf("%d writes, %v", len(content), err)
	}
}
