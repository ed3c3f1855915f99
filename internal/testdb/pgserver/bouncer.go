package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// BouncerOptions size a PgBouncer.
type BouncerOptions struct {
	PoolSize int // connections to the server for each role and database; 0 is 20
}

// Bouncer is a PgBouncer in transaction mode before one server. It lets in every role that the server knows.
// Safe for use by several goroutines.
type Bouncer struct {
	dir   string
	port  int
	guard *guard
	proc  *process
}

// StartBouncer starts a PgBouncer, of which version 1.18 is enough, before s; it accepts connections when StartBouncer
// returns. It returns an error matching [ErrNotInstalled] when there is none.
func (s *Server) StartBouncer(ctx context.Context, o BouncerOptions) (*Bouncer, error) {
	program, err := bouncerProgram()
	if err != nil {
		return nil, err
	}
	dir, err := s.host.folder(false)
	if err != nil {
		return nil, err
	}
	g, err := startGuard(s.host.user, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	b := &Bouncer{dir: dir, guard: g}
	for range portTries {
		err = b.start(ctx, s, program, o)
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return b, nil
}

func (b *Bouncer) start(ctx context.Context, s *Server, program string, o BouncerOptions) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	b.port = port
	size := o.PoolSize
	if size == 0 {
		size = 20
	}
	// A role that is not in the file is looked up in the server, by the superuser that is.
	config := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d auth_user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = %d
max_client_conn = 2000
ignore_startup_parameters = extra_float_digits
`, s.port, Admin, port, b.file("users"), size)
	err = errors.Join(
		os.WriteFile(b.file("config"), []byte(config), 0o644),
		os.WriteFile(b.file("users"), []byte(strconv.Quote(Admin)+` ""`+"\n"), 0o644))
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	b.proc, err = launch(s.host.command(context.WithoutCancel(ctx), b.dir, program, b.file("config")), b.file("log"), b.guard)
	if err != nil {
		return err
	}
	dialer := net.Dialer{}
	return poll(ctx, func() (bool, error) {
		if !b.proc.running() {
			return false, startFailure(b.Log())
		}
		conn, err := dialer.DialContext(ctx, "tcp", hostPort(port))
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet: that is what is waited for
		}
		return true, conn.Close()
	})
}

func (b *Bouncer) file(name string) string { return filepath.Join(b.dir, name) }

// URL is for a superuser.
func (b *Bouncer) URL(database string) string { return address(Admin, b.port, database) }

// URLAs is for a role, which must exist in the server.
func (b *Bouncer) URLAs(role, database string) string { return address(role, b.port, database) }

// Log is what PgBouncer has written so far.
func (b *Bouncer) Log() string {
	text, err := os.ReadFile(b.file("log"))
	if err != nil {
		return ""
	}
	return string(text)
}

// Close stops PgBouncer at once, with the connections it holds, and removes its folder.
func (b *Bouncer) Close() error { return b.guard.close() }
