package pgserver

import (
	"context"
	"strings"
	"testing"
	"time"

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
		_, _ = conn.Exec(t.Context(), "DO $$ BEGIN LOOP END LOOP; END $$") // ends with its backend or the test
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

// bounded is for what would be waited for in vain.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestCrashKillsBusyBackends(t *testing.T) {
	t.Parallel()
	s, backend := busy(t)
	ctx := bounded(t)
	if err := s.Crash(ctx); err != nil {
		t.Fatal(err)
	}
	if state := stateOf(ctx, backend); state != "" && state != "Z" {
		t.Errorf("after the crash the backend is in state %q", state)
	}
}

func TestPauseStopsBusyBackends(t *testing.T) {
	t.Parallel()
	s, backend := busy(t)
	ctx := bounded(t)
	if err := s.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if state := stateOf(ctx, backend); !strings.HasPrefix(state, "T") {
		t.Errorf("of a paused server the backend is in state %q", state)
	}
	if err := s.Continue(ctx); err != nil {
		t.Fatal(err)
	}
	if err := poll(ctx, func() (bool, error) { return stateOf(ctx, backend) == "R", nil }); err != nil {
		t.Error(err)
	}
}
