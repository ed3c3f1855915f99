package pgserver

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// busy starts a server and a backend of it that computes without end: one that would notice neither the end of its
// postmaster nor that of its client.
func busy(t *testing.T) (s *Server, backend int) {
	t.Helper()
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = conn.Exec(context.Background(), "DO $$ BEGIN LOOP END LOOP; END $$") // ends with its backend
		_ = conn.Close(context.Background())
	}()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	backend = int(conn.PgConn().PID())
	err = poll(t.Context(), func() (bool, error) { return stateOf(t.Context(), backend) == "R", nil })
	if err != nil {
		t.Fatal(err)
	}
	return s, backend
}

func TestCrashKillsBusyBackends(t *testing.T) {
	t.Parallel()
	s, backend := busy(t)
	if err := s.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state := stateOf(t.Context(), backend); state != "" && state != "Z" {
		t.Errorf("after the crash the backend is in state %q", state)
	}
}

func TestPauseStopsBusyBackends(t *testing.T) {
	t.Parallel()
	s, backend := busy(t)
	if err := s.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state := stateOf(t.Context(), backend); !strings.HasPrefix(state, "T") {
		t.Errorf("of a paused server the backend is in state %q", state)
	}
	if err := s.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := poll(t.Context(), func() (bool, error) { return stateOf(t.Context(), backend) == "R", nil }); err != nil {
		t.Error(err)
	}
}
