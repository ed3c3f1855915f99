package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

const write = `INSERT INTO content (value) VALUES ('written')`

// fencedRig is a rig whose store has one connection for Fenced: one that came back unclean is met again.
func fencedRig(t *testing.T) *rig {
	t.Helper()
	h := &harness{t: t, server: testdb.Shared(t), storeURL: func(h *harness) string { return with(t, h.url(), "pool_max_conns", "1") }}
	h.database = h.server.Template(t, install)
	h.start()
	t.Cleanup(h.stop)
	return &rig{t: t, harness: h}
}

// holds demands what the resource holds, and that the store's connection is clean and works.
func (r *rig) holds(ctx context.Context, rows int) {
	r.t.Helper()
	if content, err := readContent(ctx, r.own); err != nil || len(content) != rows {
		r.t.Errorf("the resource holds %q, %v; want %d rows", content, err, rows)
	}
	var idle, statement, level string
	err := r.store.pool.QueryRow(ctx, `SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('statement_timeout'), current_setting('transaction_isolation')`).
		Scan(&idle, &statement, &level)
	if err != nil || idle != "0" || statement != "0" || level != "read committed" {
		r.t.Errorf("the connection came back with %s, %s, %s, %v", idle, statement, level, err)
	}
	var open int
	err = r.own.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`).Scan(&open)
	if err != nil || open != 0 {
		r.t.Errorf("%d transactions are left open, %v", open, err)
	}
}

func TestFencedCommitsAndRefuses(t *testing.T) {
	ctx := t.Context()
	r := fencedRig(t)
	session := r.open(ctx, time.Hour)
	claim := r.acquire(ctx, session, "n")
	err := r.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > time.Hour {
			t.Error("fn's context does not end with the lease")
		}
		_, err := tx.Exec(ctx, write)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	own := errors.New("fn's own")
	err = r.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, write)
		return errors.Join(own, err)
	})
	if !errors.Is(err, own) || lease.CodeOf(err) != "other" {
		t.Errorf("fn's error came back as %v", err)
	}
	r.holds(ctx, 1)
	called := func(context.Context, pgx.Tx) error { t.Error("called"); return nil }
	foreign, ahead := claim, claim
	foreign.Authority, ahead.Token = lease.NewID(), claim.Token+1000
	r.release(ctx, session, claim)
	for i, want := range []struct {
		claim fence.Claim
		kind  error
	}{{claim, fence.ErrRefused}, {foreign, fence.ErrForeign}, {ahead, fence.ErrAhead}, {fence.Claim{}, fence.ErrInvalid}} {
		before := r.store.Refusals()
		if err := r.store.Fenced(ctx, want.claim, called); !errors.Is(err, want.kind) || errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("%v; want %v", err, want.kind)
		}
		if counted := r.store.Refusals() - before; counted != map[bool]int64{true: 1, false: 0}[i < 3] {
			t.Errorf("%v: counted %d", want.kind, counted)
		}
		r.holds(ctx, 1)
	}
	// The token from the future has stopped its name.
	_, err = r.store.Acquire(ctx, lease.AcquireRequest{Session: session, ID: lease.NewID(), Names: []string{"n"}})
	if !errors.Is(err, fence.ErrAhead) {
		t.Errorf("acquire after a token from the future: %v", err)
	}
}

// fn panics, ends the transaction by each means, swallows an error, or leaves rows open: each has its outcome, and the connection is clean.
func TestFencedWhateverFnDoes(t *testing.T) {
	ctx := t.Context()
	r := fencedRig(t)
	claim := r.acquire(ctx, r.open(ctx, time.Hour), "n")
	rows := 0
	for _, c := range []struct {
		name string
		want error // nil: committed
		adds int
		fn   func(ctx context.Context, tx pgx.Tx) error
	}{
		{"commits by the method", errFnCommits, 0, func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }},
		{"commits by the method and goes on", nil, 1, func(ctx context.Context, tx pgx.Tx) error { _ = tx.Commit(ctx); return nil }},
		{"rolls back by the method", lease.ErrUnavailable, 0, func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }},
		{"commits by a statement", lease.ErrUnknown, 1, func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "COMMIT"); return err }},
		{"rolls back by a statement", lease.ErrUnknown, 0, func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "ROLLBACK"); return err }},
		{"swallows an error", lease.ErrUnavailable, 0, func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "SELECT 1/0"); return nil }},
		{"is warned", nil, 1, func(ctx context.Context, tx pgx.Tx) error { // with the code of a cancelled wait for a standby
			_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE WARNING 'w'; END $$")
			return err
		}},
		{"leaves rows open", lease.ErrUnavailable, 0, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, "SELECT generate_series(1, 100000)") //nolint:gocritic,sqlclosecheck // that is what is tried
			return err
		}},
		{"uses a savepoint", nil, 1, func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT 1"); return err }))
		}},
	} {
		err := r.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, write); err != nil {
				return err
			}
			return c.fn(ctx, tx)
		})
		if !errors.Is(err, c.want) {
			t.Errorf("fn %s: %v; want %v", c.name, err, c.want)
		}
		rows += c.adds
		r.holds(ctx, rows)
	}
	func() {
		defer func() {
			if recover() != "fn" {
				t.Error("the panic did not go on")
			}
		}()
		_ = r.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, write)
			panic(map[bool]any{true: "fn", false: err}[err == nil])
		})
	}()
	r.holds(ctx, rows)
}

// A constraint that is looked at by COMMIT is fn's error, and certainly nothing was applied.
func TestFencedRefusedAtCommit(t *testing.T) {
	ctx := t.Context()
	r := fencedRig(t)
	claim := r.acquire(ctx, r.open(ctx, time.Hour), "n")
	if _, err := r.own.Exec(ctx, `ALTER TABLE content ADD CONSTRAINT once UNIQUE (value) DEFERRABLE INITIALLY DEFERRED`); err != nil {
		t.Fatal(err)
	}
	err := r.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, write+", ('written')")
		return err
	})
	if state(err) != "23505" || errors.Is(err, lease.ErrUnknown) {
		t.Errorf("%v", err)
	}
	r.holds(ctx, 0)
}

// The bound ends fn's context, and nothing is committed past it, whatever fn does with that. The successor is granted.
func TestFencedEndsWithTheLease(t *testing.T) {
	ctx := t.Context()
	r := fencedRig(t)
	for name, fn := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"fn waits and returns nil": func(ctx context.Context, _ pgx.Tx) error { <-ctx.Done(); return nil },
		"fn is in a statement":     func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, `SELECT pg_sleep(60)`); return err },
		"fn's statement is beyond its context": func(_ context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), `SELECT pg_sleep(60)`) //nolint:contextcheck // that is what is tried
			return err
		},
	} {
		session := r.open(ctx, 300*time.Millisecond)
		claim := r.acquire(ctx, session, name)
		err := r.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, write); err != nil {
				return err
			}
			return fn(ctx, tx)
		})
		if !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, errLeaseOver) {
			t.Errorf("%s: %v", name, err)
		}
		r.expired(ctx, session)
		if !r.successor(ctx, name) {
			t.Errorf("%s: the successor is kept out", name)
		}
		r.holds(ctx, 0)
	}
}

// The caller's context ends the transaction before COMMIT is sent, and not after: then its answer is waited for.
func TestFencedCancelled(t *testing.T) {
	r := fencedRig(t)
	claim := r.acquire(t.Context(), r.open(t.Context(), time.Hour), "n")
	ctx, cancel := context.WithCancel(t.Context())
	err := r.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, write)
		cancel()
		return err
	})
	if !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in fn: %v", err)
	}
	r.holds(t.Context(), 0)
	if err := r.store.Fenced(ctx, claim, nil); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("cancelled before: %v", err)
	}
	// COMMIT waits for a deferred trigger that waits for this test's lock.
	must(t, connect(t, r.url()), `CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END'`,
		`CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON content DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION waits()`)
	lock := r.begin(t.Context(), pgx.ReadCommitted)
	lock.do(t.Context(), `SELECT pg_advisory_xact_lock(1)`)
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	done := start(func() error {
		return r.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, write)
			return err
		})
	})
	if !r.blocked(t.Context(), 1, done) {
		t.Fatal("COMMIT did not wait: ", <-done)
	}
	cancel()
	lock.rollback(t.Context())
	if err := <-done; err != nil {
		t.Errorf("cancelled in COMMIT: %v", err)
	}
	r.holds(t.Context(), 1)
}

// The answer to COMMIT is lost, in each way in which it can be: the outcome is unknown, and the row tells it.
func TestFencedLosesTheAnswerToCommit(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	claim := r.acquire(ctx, r.open(ctx, time.Hour), "n")
	proxy := testdb.StartProxy(t, r.server.Addr())
	store := openStore(t, proxy.URL(r.server, r.database), Options{})
	err := store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, write)
		proxy.AfterNext([]byte("commit"), nil) // here: "begin isolation level read committed" has it too
		return err
	})
	var unknown *lease.UnknownError
	if !errors.As(err, &unknown) || unknown.Settle == "" || unknown.ID != claim.Acquisition {
		t.Errorf("%v", err)
	}
	if content, err := readContent(ctx, r.own); err != nil || len(content) != 1 {
		t.Errorf("%q, %v", content, err)
	}
	// Lost before: the check's answer, and that of a write.
	for match, kind := range map[string]error{"verify_bounded": lease.ErrUnavailable, "INSERT": nil} {
		proxy.AfterNext([]byte(match), nil)
		err := store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, write)
			return err
		})
		if err == nil || kind != nil && !errors.Is(err, kind) || errors.Is(err, lease.ErrUnknown) {
			t.Errorf("the answer to %s lost: %v", match, err)
		}
	}
	if content, err := readContent(ctx, r.own); err != nil || len(content) != 1 {
		t.Errorf("%q, %v", content, err)
	}
}

// pg_terminate_backend in each step: nothing is applied, and the next transaction works.
func TestFencedTerminated(t *testing.T) {
	ctx := t.Context()
	r := fencedRig(t)
	claim := r.acquire(ctx, r.open(ctx, time.Hour), "n")
	terminate := func(where string) error {
		var ended int
		err := r.own.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname = current_database() AND `+where).Scan(&ended)
		if err == nil && ended != 1 {
			err = fmt.Errorf("%d backends ended", ended)
		}
		return err
	}
	lock := r.begin(ctx, pgx.ReadCommitted)
	lock.do(ctx, `SELECT 1 FROM tenure.lease WHERE name = 'n' FOR UPDATE`)
	called := func(context.Context, pgx.Tx) error { t.Error("called"); return nil }
	done := start(func() error { return r.store.Fenced(ctx, claim, called) })
	if !r.blocked(ctx, 1, done) {
		t.Fatal("verify did not wait: ", <-done)
	}
	if err := terminate(`wait_event_type = 'Lock'`); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("in verify: %v", err)
	}
	lock.rollback(ctx)
	for _, last := range []bool{false, true} { // in the last case COMMIT is what meets the ended connection
		err := r.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, write)
			if err == nil {
				err = terminate(`state = 'idle in transaction'`)
			}
			if err != nil || last {
				return err
			}
			_, err = tx.Exec(ctx, write)
			return err
		})
		if err == nil || !last && errors.Is(err, lease.ErrUnknown) || last && !errors.Is(err, lease.ErrUnknown) && !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("in fn (before COMMIT: %v): %v", last, err)
		}
		if _, err := readContent(ctx, r.own); err != nil {
			t.Error(err)
		}
	}
	r.holds(ctx, 0)
	if err := r.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, write); return err }); err != nil {
		t.Error(err)
	}
	r.holds(ctx, 1)
}

// A store that is shut down ends fn's context, and waits for the transaction's end.
func TestFencedWhileShutDown(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	claim := r.acquire(ctx, r.open(ctx, time.Hour), "n")
	store := openStore(t, r.url(), Options{})
	inside := make(chan struct{})
	done := start(func() error {
		return store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, write)
			close(inside)
			<-ctx.Done()
			return err
		})
	})
	<-inside
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_ = store.Shutdown(soon)
	if err := <-done; !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, errShutDown) {
		t.Errorf("%v", err)
	}
	if err := store.Fenced(ctx, claim, nil); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("afterwards: %v", err)
	}
	if content, err := readContent(ctx, r.own); err != nil || len(content) != 0 {
		t.Errorf("%q, %v", content, err)
	}
}
