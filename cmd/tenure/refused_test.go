//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

// TestRunEndsWhereWaitingMendsNothing: without --wait and --try, what an administrator must change ends the wait and names the remedy.
func TestRunEndsWhereWaitingMendsNothing(t *testing.T) {
	t.Parallel()
	s := testdb.Start(t, testdb.Options{})
	w, database := postgresWorld(t, s)
	runSQL(t, s.URL(database), "CREATE ROLE app LOGIN", "CREATE ROLE strict LOGIN", "GRANT tenure_user TO app, strict", "ALTER ROLE strict SET default_transaction_isolation = serializable")
	w.fails(exitNoStore, "default_transaction_isolation", "run", "job", "--store", withSecret(s.URLAs("strict", database)), "--", "true")
	app := withSecret(s.URLAs("app", database))
	w.fails(exitNoStore, "GRANT CREATE ON DATABASE", "drill", "pause", "--rounds", "1", "--store", app)
	runSQL(t, s.URL(database), "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure FROM tenure_user",
		"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure TO app", // all but the ways to acquire
		`DO $$ DECLARE f regprocedure; BEGIN
			FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace AND proname LIKE 'acquire%' LOOP
				EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM app', f);
			END LOOP;
		END $$`)
	got := w.do("run", "job", "--store", app, "--json-status", "s.json", "--", "true")
	if got.code != exitNoStore || strings.Count(got.stderr, "GRANT tenure_user") != 1 || !strings.Contains(got.last(), "the store refuses it") || w.status("s.json").Outcome != "no_store" {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
}

// TestRunConnections: while its command runs, and is renewed for, a run holds the one connection that its help names.
func TestRunConnections(t *testing.T) {
	t.Parallel()
	s := testdb.Shared(t)
	w, database := postgresWorld(t, s)
	const count = `CREATE FUNCTION others() RETURNS bigint VOLATILE LANGUAGE plpgsql AS $$
		DECLARE n bigint;
		BEGIN
			FOR i IN 1..20 LOOP -- a second, in which there are two renewals at least
				PERFORM pg_stat_clear_snapshot();
				SELECT count(*) INTO n FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend';
				EXIT WHEN n > 1;
				PERFORM pg_sleep(0.05);
			END LOOP;
			RETURN n;
		END $$`
	runSQL(t, s.URL(database), count)
	if out := w.ok("run", "job", "--ttl", "1s", "--store", withSecret(s.URL(database))+"&pool_max_conns=1", "--", "psql", "--no-psqlrc", "-Atc", "SELECT others()", s.URL(database)); out != "1\n" {
		t.Errorf("connections of a run: %s", out)
	}
}

// TestFailuresAreTold: the first failure of a wait, each change of its kind, and the same again only after a minute.
func TestFailuresAreTold(t *testing.T) {
	var out bytes.Buffer
	var now time.Duration
	r := &runner{app: &app{stderr: &out}, now: func() time.Duration { return now }}
	var cause error
	failed := r.sayFailure(func(err error) { cause = err })
	down := func(port int) error {
		return &lease.UnavailableError{Op: "acquire", Err: fmt.Errorf("dial from port %d", port)}
	}
	readOnly := &lease.UnavailableError{Op: "acquire", Err: &pgconn.PgError{Code: "25006"}}
	for i, c := range []struct {
		err   error
		after time.Duration
		lines int
	}{
		{down(1), 0, 1},
		{down(2), time.Second, 1},
		{readOnly, time.Second, 2},
		{readOnly, time.Second, 2},
		{&lease.UnknownError{Op: "acquire", Err: errors.New("x")}, time.Second, 3},
		{down(3), time.Second, 4},
		{down(4), sayAgain, 5},
	} {
		now += c.after
		failed(c.err)
		if n := strings.Count(out.String(), "\n"); n != c.lines || cause != nil {
			t.Errorf("step %d: %d lines, want %d, given up: %v\n%s", i, n, c.lines, cause, out.String())
		}
	}
	failed(&lease.UnavailableError{Op: "acquire", Err: postgres.ErrSetup})
	if !errors.Is(cause, errNoUse) {
		t.Errorf("it goes on waiting: %v", cause)
	}
}
