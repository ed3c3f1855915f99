package pgserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Admin is the superuser of every server.
const Admin = "tenure_test_admin"

// Options say how a server differs from the usual one. The zero value is the usual one.
type Options struct {
	// Settings are lines of postgresql.conf; they win over what this package sets.
	Settings map[string]string

	// Durable turns fsync on and puts the files on a disk. Without it a killed process loses nothing; only a machine
	// that stops does; and on Linux the files are in memory where /dev/shm has 2 GiB free and TMPDIR is not set.
	Durable bool

	// Via is the host:port by which a standby reaches its primary, such as a proxy's; "" is directly. Cutting it
	// leaves commits unshipped for certain: a paused standby's socket goes on taking bytes.
	Via string
}

// Data is an initialised data folder that no server runs in. Copying it is some ten times quicker than initdb.
// Safe for use by several goroutines.
type Data struct {
	host  host
	dir   string
	guard *guard
}

// Init makes a data folder. It returns an error matching [ErrNotInstalled] when there is no PostgreSQL.
//
// The default collation is English and not "C": a query that forgets to say COLLATE "C" shall be seen to.
func Init(ctx context.Context) (*Data, error) {
	h, err := newHost(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := h.folder(false)
	if err != nil {
		return nil, err
	}
	g, err := startGuard(h.user, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d := &Data{host: h, dir: dir, guard: g}
	err = h.run(ctx, dir, filepath.Join(h.bin, "initdb"), "-D", d.data(), "-U", Admin, "--auth=trust", "--no-sync",
		"--encoding=UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en")
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return d, nil
}

func (d *Data) data() string { return filepath.Join(d.dir, "data") }

// Close removes the folder. Servers that were started from it have folders of their own.
func (d *Data) Close() error { return d.guard.close() }

// Start starts a server on a copy of the folder; it accepts connections when Start returns. The server's life is
// not ctx's: it runs until [Server.Close], or the end of this process.
func (d *Data) Start(ctx context.Context, o Options) (*Server, error) {
	return prepare(d.host, o.Durable, func(s *Server) error {
		if err := copyData(ctx, d.host, d.data(), s.data()); err != nil {
			return err
		}
		return s.first(ctx, o, nil)
	})
}

// prepare makes a folder with its guard and fills it; a failure leaves neither.
func prepare(h host, durable bool, fill func(*Server) error) (*Server, error) {
	dir, err := h.folder(durable)
	if err != nil {
		return nil, err
	}
	g, err := startGuard(h.user, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Server{host: h, dir: dir, guard: g}
	if err := fill(s); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return s, nil
}

// copyData copies a data folder in which nothing runs, and leaves out what says that something did.
func copyData(ctx context.Context, h host, from, to string) error {
	if err := h.run(ctx, filepath.Dir(to), "cp", "-R", "-p", from, to); err != nil {
		return err
	}
	for _, name := range []string{"postmaster.pid", "postmaster.opts", "standby.signal"} {
		if err := os.RemoveAll(filepath.Join(to, name)); err != nil {
			return fmt.Errorf("pgserver: %w", err)
		}
	}
	return nil
}

// usual is what every server is set to.
func usual(durable bool) map[string]string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		"max_connections":         "300",
		"shared_buffers":          "32MB",
		"fsync":                   strconv.FormatBool(durable),
		"synchronous_commit":      "on",
		// In files of the data folder, so that a killed server leaves nothing behind in the machine.
		"dynamic_shared_memory_type": "mmap",
		// A standby that was away finds what it missed, if that was not much.
		"wal_keep_size":   "64MB",
		"lc_messages":     "C",
		"timezone":        "UTC",
		"log_timezone":    "UTC",
		"log_destination": "stderr",
		"log_line_prefix": "%m [%p] %u@%d ",
		"log_lock_waits":  "on",
		// Far below any lock_timeout in use, which would otherwise end a deadlock before anybody saw it.
		"deadlock_timeout": "100ms",
	}
	if !durable {
		settings["max_wal_size"] = "256MB" // it may be in memory
	}
	return settings
}

// configure appends settings to postgresql.conf, where the last line of a name wins.
func (s *Server) configure(layers ...map[string]string) error {
	var text strings.Builder
	for _, layer := range layers {
		names := make([]string, 0, len(layer))
		for name := range layer {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(&text, "%s = '%s'\n", name, strings.ReplaceAll(layer[name], "'", "''"))
		}
	}
	file, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	_, err = file.WriteString("\n" + text.String())
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	return nil
}

const portTries = 8

// freePort finds a port below the range that systems give to outgoing connections, so that none takes it while
// its server is stopped.
func freePort() (int, error) {
	const lowest, count = 20000, 12000
	var last error
	for range portTries {
		port := lowest + rand.IntN(count)
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("pgserver: no free port: %w", last)
}
