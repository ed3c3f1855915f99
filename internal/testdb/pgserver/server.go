package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is one private PostgreSQL server. Its port and its data folder stay the same through restarts.
// Safe for use by several goroutines; two that stop and start it at once get errors, not a broken server.
type Server struct {
	host  host
	dir   string // holds data/ and log
	port  int
	guard *guard

	mu     sync.Mutex
	proc   *process // nil before the first start
	frozen []int    // children stopped by Pause
	paused bool
}

// Start initialises a data folder and starts a server on it: about a second. Who starts several keeps a [Data].
func Start(ctx context.Context, o Options) (*Server, error) {
	d, err := Init(ctx)
	if err != nil {
		return nil, err
	}
	s, err := d.Start(ctx, o)
	return s, errors.Join(err, d.Close())
}

// Close stops the server, whatever its state, and removes its folder. It is of no use afterwards.
func (s *Server) Close() error { return s.guard.close() }

// Port is the port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// Addr is the host:port.
func (s *Server) Addr() string { return hostPort(s.port) }

// DataDir is the folder that the server runs in.
func (s *Server) DataDir() string { return s.data() }

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

// URL is for a superuser.
func (s *Server) URL(database string) string { return s.URLAs(Admin, database) }

// URLAs is for a role, which must exist to be let in.
func (s *Server) URLAs(role, database string) string { return address(role, s.port, database) }

func address(role string, port int, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(role), Host: hostPort(port), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

func hostPort(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// Running reports whether the server runs; one that is paused does.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && s.proc.running()
}

// Paused reports whether the server was stopped by [Server.Pause] and not continued.
func (s *Server) Paused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused && s.proc != nil && s.proc.running()
}

// Log is what the server has written so far, through all its restarts.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.log())
	if err != nil {
		return ""
	}
	return string(text)
}

// first writes the settings of a new server and starts it, on another port if a process took the one chosen.
func (s *Server) first(ctx context.Context, o Options, own map[string]string) error {
	if err := s.configure(usual(o.Durable), own, o.Settings); err != nil {
		return err
	}
	var last error
	for range portTries {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.port = port
		if last = s.Restart(ctx); !errors.Is(last, errPortTaken) {
			return last
		}
	}
	return last
}

// Restart starts the server again, on the same port, after Stop, Immediate or Crash. It returns when the server
// accepts connections, of a standby: for reading. It returns [ErrRunning] if it runs.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && s.proc.running() {
		return ErrRunning
	}
	before := len(s.Log())
	// The server outlives the call that starts it.
	cmd := s.host.command(context.WithoutCancel(ctx), s.dir, filepath.Join(s.host.bin, "postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port))
	proc, err := launch(cmd, s.log(), s.guard)
	if err != nil {
		return err
	}
	s.proc, s.frozen, s.paused = proc, nil, false
	err = poll(ctx, func() (bool, error) {
		if !proc.running() {
			return false, startFailure(s.Log()[before:])
		}
		return s.ready(), nil
	})
	if err != nil {
		return fmt.Errorf("pgserver: start: %w", err)
	}
	return nil
}

// ready reads what the postmaster writes about itself: its process id first, its state in the eighth line.
func (s *Server) ready() bool {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(s.proc.pid) && strings.TrimSpace(lines[7]) == "ready"
}

func startFailure(log string) error {
	if strings.Contains(log, "Address already in use") {
		return errPortTaken
	}
	const most = 4096 // bytes of the log that are worth showing
	return fmt.Errorf("the server ended: %s", strings.TrimSpace(log[max(0, len(log)-most):]))
}

// Stop shuts the server down in its fast way: transactions are ended, a checkpoint is written, standbys get all there
// is. It returns [ErrNotRunning] if it does not run; when ctx ends first it may still be stopping.
func (s *Server) Stop(ctx context.Context) error { return s.end(ctx, sigFast) }

// Immediate stops the server without a checkpoint; it recovers when it starts again.
func (s *Server) Immediate(ctx context.Context) error { return s.end(ctx, sigNow) }

func (s *Server) end(ctx context.Context, how syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.running() {
		return ErrNotRunning
	}
	if err := s.continueLocked(); err != nil {
		return err
	}
	if err := send(s.proc.pid, how); err != nil {
		return err
	}
	return s.proc.wait(ctx)
}

// Crash kills the postmaster and every process of it at once, with SIGKILL. Nothing of the server runs afterwards.
func (s *Server) Crash(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.running() {
		return ErrNotRunning
	}
	pids, err := s.proc.freeze(ctx)
	for _, pid := range append(pids, s.proc.pid) {
		err = errors.Join(err, send(pid, sigKill))
	}
	if err := errors.Join(err, s.proc.wait(ctx), all(ctx, "Z", pids...)); err != nil {
		return fmt.Errorf("pgserver: crash: %w", err)
	}
	return nil
}

// Pause stops every process of the server where it stands (SIGSTOP). Connections stay open and get no answer, new
// ones are taken by the kernel and get none either.
func (s *Server) Pause(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.running() {
		return ErrNotRunning
	}
	pids, err := s.proc.freeze(ctx)
	s.frozen, s.paused = pids, true
	return err
}

// Continue lets a paused server go on. A server that is not paused is left alone.
func (s *Server) Continue(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.running() {
		return ErrNotRunning
	}
	return s.continueLocked()
}

func (s *Server) continueLocked() error {
	if !s.paused {
		return nil
	}
	var err error
	for _, pid := range append(s.frozen, s.proc.pid) {
		err = errors.Join(err, send(pid, sigContinue))
	}
	s.frozen, s.paused = nil, false
	return err
}

// Exec runs one statement, or several without arguments, as superuser on a connection of its own.
func (s *Server) Exec(ctx context.Context, database, sql string, args ...any) error {
	return s.connected(ctx, database, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// Query runs a statement that gives one row of one text, as superuser on a connection of its own.
func (s *Server) Query(ctx context.Context, database, sql string, args ...any) (string, error) {
	var value string
	err := s.connected(ctx, database, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sql, args...).Scan(&value)
	})
	return value, err
}

func (s *Server) connected(ctx context.Context, database string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	err = do(conn)
	// A server that was stopped meanwhile has closed the connection already.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(closing)
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	return nil
}
