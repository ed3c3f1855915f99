package testdb

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb/pgserver"
)

// Options say how a server differs from the usual one: settings, durability, and how a standby reaches its primary.
type Options = pgserver.Options

// Server is a private PostgreSQL server. Its methods end the test they are given when they fail; so they are called from
// the test's own goroutine, except those that take no test. Each is bounded by a minute.
type Server struct {
	server  *pgserver.Server
	shared  bool
	durable bool

	creating sync.Mutex // PostgreSQL refuses to copy a template that is being copied or used
	template template
}

// Start starts a server of this test's own, some 0.2 s after the first of the binary, which takes a second more. It is
// stopped, whatever its state, and removed when the test ends; the end of its log is shown if the test has failed.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	server, err := binary.start(ctx, o)
	return own(t, server, o, err)
}

// own makes a server the test's.
func own(t testing.TB, server *pgserver.Server, o Options, err error) *Server {
	t.Helper()
	if err != nil {
		fatal(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			const most = 4096 // bytes
			log := server.Log()
			t.Logf("log of the server at port %d ends:\n%s", server.Port(), log[max(0, len(log)-most):])
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Server{server: server, durable: o.Durable}
}

// do runs one act on a server within the limit.
func do(t testing.TB, act func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := act(ctx); err != nil {
		fatal(t, err)
	}
}

// Control is the server for code under test that starts and stops servers itself.
func (s *Server) Control() *pgserver.Server { return s.server }

// URL is for a superuser: loopback TCP, no password, no TLS.
func (s *Server) URL(database string) string { return s.server.URL(database) }

// URLAs is for a role, which must exist.
func (s *Server) URLAs(role, database string) string { return s.server.URLAs(role, database) }

// Port is the server's port on 127.0.0.1; it stays the same through restarts.
func (s *Server) Port() int { return s.server.Port() }

// DataDir is the server's data folder.
func (s *Server) DataDir() string { return s.server.DataDir() }

// Log is what the server has written so far, through all its restarts: errors, warnings, lock waits over 100 ms, and
// deadlocks, which it looks for after 100 ms. Each line has USER@DATABASE before its text.
func (s *Server) Log() string { return s.server.Log() }

// LogOf is the part of Log that is about one database, for a test on the shared server.
func (s *Server) LogOf(database string) string {
	var found strings.Builder
	mine := false
	for line := range strings.Lines(s.Log()) {
		if !strings.HasPrefix(line, "\t") { // else it goes on with the entry before
			mine = strings.Contains(line, "@"+database+" ")
		}
		if mine {
			found.WriteString(line)
		}
	}
	return found.String()
}

// Stop shuts the server down in PostgreSQL's fast way.
func (s *Server) Stop(t testing.TB) { t.Helper(); do(t, s.server.Stop) }

// Immediate stops the server without a checkpoint, as pg_ctl stop -m immediate does.
func (s *Server) Immediate(t testing.TB) { t.Helper(); do(t, s.server.Immediate) }

// Crash kills all processes of the server with SIGKILL.
func (s *Server) Crash(t testing.TB) { t.Helper(); do(t, s.server.Crash) }

// Restart starts the server after any of these, on the same port, and returns when it accepts connections.
func (s *Server) Restart(t testing.TB) { t.Helper(); do(t, s.server.Restart) }

// Pause stops every process of the server where it stands (SIGSTOP).
func (s *Server) Pause(t testing.TB) { t.Helper(); do(t, s.server.Pause) }

// Continue lets a paused server go on.
func (s *Server) Continue(t testing.TB) { t.Helper(); do(t, s.server.Continue) }

// Promote makes a standby a primary and returns when it accepts writes.
func (s *Server) Promote(t testing.TB) { t.Helper(); do(t, s.server.Promote) }

// WaitCaughtUp waits until standby has replayed what s has written so far.
func (s *Server) WaitCaughtUp(t testing.TB, standby *Server) {
	t.Helper()
	do(t, func(ctx context.Context) error { return s.server.WaitCaughtUp(ctx, standby.server) })
}

// Standby starts a streaming standby of s on a port of its own; it has caught up when Standby returns, and is the test's
// like a server of [Start].
func (s *Server) Standby(t testing.TB, o Options) *Server {
	t.Helper()
	return derive(t, s.server.Standby, o)
}

// Copy starts a plain copy of s, which may run or not, as a primary of its own on a port of its own; it is the test's
// like a server of [Start].
func (s *Server) Copy(t testing.TB, o Options) *Server {
	t.Helper()
	return derive(t, s.server.Copy, o)
}

func derive(t testing.TB, from func(context.Context, Options) (*pgserver.Server, error), o Options) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	server, err := from(ctx, o)
	return own(t, server, o, err)
}
