package testdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/tenure-go/tenure/internal/testdb/pgserver"
)

func TestSharedIsOneServer(t *testing.T) {
	t.Parallel()
	a, b := Shared(t), Shared(t)
	if a != b || a.Port() != b.Port() {
		t.Error("Shared started two servers")
	}
}

func TestDatabaseIsTheTestsOwn(t *testing.T) {
	t.Parallel()
	s := Shared(t)
	var name string
	t.Run("used", func(t *testing.T) {
		name = s.Database(t)
		exec1(t, connect(t, s.URL(name)), "CREATE TABLE seats (n int)")
		if other := s.Database(t); other == name {
			t.Errorf("two databases are named %s", name)
		}
	})
	conn := connect(t, s.URL("postgres"))
	want(t, conn, "SELECT count(*)::text FROM pg_database WHERE datname = '"+name+"'", "0")
}

func TestTemplateIsFilledOnceAndCopied(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{}) // on the shared server it would be once a binary, whatever -count says
	var filled atomic.Int32
	fill := func(url string) error {
		filled.Add(1)
		conn, err := pgconn.Connect(context.Background(), url)
		if err != nil {
			return err
		}
		// Left open on purpose: a copy must not fail for it.
		_, err = conn.Exec(context.Background(), "CREATE TABLE seats (n int); INSERT INTO seats VALUES (1)").ReadAll()
		return err
	}
	t.Run("copies", func(t *testing.T) {
		for i := range 8 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				conn := connect(t, s.URL(s.Template(t, fill)))
				want(t, conn, "SELECT count(*)::text FROM seats", "1")
				exec1(t, conn, "INSERT INTO seats VALUES (2)")
			})
		}
	})
	if n := filled.Load(); n != 1 {
		t.Errorf("the template was prepared %d times", n)
	}
}

// TestTheLogShowsADeadlock holds the settings to what tests want of them: that a deadlock is seen though the waits
// are short, and is found in the log under the database that it happened in.
func TestTheLogShowsADeadlock(t *testing.T) {
	t.Parallel()
	s := Shared(t)
	name := s.Database(t)
	a, b := connect(t, s.URL(name)), connect(t, s.URL(name))
	exec1(t, a, "SET lock_timeout = '1s'")
	exec1(t, b, "SET lock_timeout = '1s'")
	exec1(t, a, "BEGIN; SELECT pg_advisory_xact_lock(1)")
	exec1(t, b, "BEGIN; SELECT pg_advisory_xact_lock(2)")
	done := make(chan error, 1)
	go func() {
		_, err := a.Exec(context.Background(), "SELECT pg_advisory_xact_lock(2)")
		done <- err
	}()
	_, second := b.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1)")
	if second != nil {
		exec1(t, b, "ROLLBACK")
	}
	err := errors.Join(second, <-done)
	var failed *pgconn.PgError
	if !errors.As(err, &failed) || failed.Code != "40P01" {
		t.Fatalf("two crossed locks: %v", err)
	}
	if log := s.LogOf(name); !strings.Contains(log, "deadlock detected") || !strings.Contains(log, "Process ") {
		t.Errorf("the log of %s has no deadlock:\n%s", name, log)
	}
	if log := s.LogOf("postgres"); strings.Contains(log, "deadlock detected") {
		t.Errorf("the log of another database has it:\n%s", log)
	}
}

func TestOptionsAreSettings(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Durable: true, Settings: map[string]string{"max_connections": "50", "application_name": "it's"}})
	conn := connect(t, s.URL("postgres"))
	want(t, conn, "SHOW max_connections", "50")
	want(t, conn, "SHOW fsync", "on")
	want(t, conn, "SHOW synchronous_commit", "on")
	want(t, connect(t, Shared(t).URL("postgres")), "SHOW fsync", "off")
	want(t, conn, "SELECT reset_val FROM pg_settings WHERE name = 'application_name'", "it's")
	exec1(t, conn, "CREATE ROLE somebody LOGIN")
	want(t, connect(t, s.URLAs("somebody", "postgres")), "SELECT current_user::text", "somebody")
}

// TestEndsAndRestarts ends a server in each way, and finds what was committed before and the port afterwards.
func TestEndsAndRestarts(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	port := s.Port()
	exec1(t, connect(t, s.URL("postgres")), "CREATE TABLE kept (n int)")
	ways := []struct {
		name string
		end  func(testing.TB)
	}{
		{"stop", s.Stop}, {"immediate", s.Immediate}, {"crash", s.Crash},
		{"crash paused", func(t testing.TB) { t.Helper(); s.Pause(t); s.Crash(t) }},
		{"stop paused", func(t testing.TB) { t.Helper(); s.Pause(t); s.Stop(t) }},
	}
	for i, way := range ways {
		conn := connect(t, s.URL("postgres"))
		exec1(t, conn, "INSERT INTO kept VALUES ($1)", i)
		way.end(t)
		if s.Control().Running() {
			t.Errorf("%s: the server still runs", way.name)
		}
		if err := conn.Ping(t.Context()); err == nil {
			t.Errorf("%s: a connection goes on", way.name)
		}
		if err := s.Control().Stop(t.Context()); !errors.Is(err, pgserver.ErrNotRunning) {
			t.Errorf("%s: stopping what does not run: %v", way.name, err)
		}
		s.Restart(t)
		if s.Port() != port {
			t.Errorf("%s: the port became %d", way.name, s.Port())
		}
		want(t, connect(t, s.URL("postgres")), "SELECT count(*)::text FROM kept", fmt.Sprint(i+1))
	}
	if err := s.Control().Restart(t.Context()); !errors.Is(err, pgserver.ErrRunning) {
		t.Errorf("starting what runs: %v", err)
	}
	if log := s.Log(); !strings.Contains(log, "not properly shut down") {
		t.Error("no start was a recovery")
	}
}

func TestPausedServerAnswersLater(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	conn := connect(t, s.URL("postgres"))
	s.Pause(t)
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT 1")
		answer <- err
	}()
	// A fifth of a second without an answer is no proof, but a server that was not stopped answers in a thousandth.
	select {
	case err := <-answer:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	s.Continue(t)
	if err := <-answer; err != nil {
		t.Errorf("after the pause: %v", err)
	}
	s.Pause(t) // and is left so: the cleanup must end it
}

// TestFailedStartSaysWhy asks for what PostgreSQL refuses, and wants its words.
func TestFailedStartSaysWhy(t *testing.T) {
	t.Parallel()
	before := Start(t, Options{})
	_, err := before.Control().Copy(t.Context(), Options{Settings: map[string]string{"shared_buffers": "none"}})
	if err == nil || !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("a setting without sense: %v", err)
	}
}
