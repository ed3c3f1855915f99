package pgserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// Standby starts a streaming standby of s, on a port of its own, with its own folder and life. When Standby returns, it
// answers reads and has replayed what s had written. [Options.Via] says how it reaches s.
func (s *Server) Standby(ctx context.Context, o Options) (*Server, error) {
	reach := o.Via
	if reach == "" {
		reach = hostPort(s.port)
	}
	host, port, err := net.SplitHostPort(reach)
	if err != nil {
		return nil, fmt.Errorf("pgserver: Options.Via: %w", err)
	}
	standby, err := prepare(s.host, o.Durable, func(n *Server) error {
		if err := s.backup(ctx, n); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(n.data(), "standby.signal"), nil, 0o644); err != nil {
			return fmt.Errorf("pgserver: %w", err)
		}
		return n.first(ctx, o, map[string]string{
			"primary_conninfo": fmt.Sprintf("host=%s port=%s user=%s sslmode=disable gssencmode=disable", host, port, Admin),
			// A cut link is tried again at once, not after five seconds.
			"wal_retrieve_retry_interval": "100ms",
		})
	})
	if err != nil {
		return nil, err
	}
	if err := s.WaitCaughtUp(ctx, standby); err != nil {
		return nil, fmt.Errorf("%w; closing the standby: %w", err, standby.Close())
	}
	return standby, nil
}

// Copy starts a plain copy of s as a primary of its own: the same history and the same system identifier, on another
// port. It takes a base backup of a server that runs, and copies the files of one that does not.
func (s *Server) Copy(ctx context.Context, o Options) (*Server, error) {
	return prepare(s.host, o.Durable, func(n *Server) error {
		take := s.backup
		if !s.Running() {
			take = func(ctx context.Context, n *Server) error { return copyData(ctx, s.host, s.data(), n.data()) }
		}
		if err := take(ctx, n); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(n.data(), "standby.signal")); err != nil {
			return fmt.Errorf("pgserver: %w", err)
		}
		return n.first(ctx, o, nil)
	})
}

func (s *Server) backup(ctx context.Context, to *Server) error {
	return s.host.run(ctx, to.dir, filepath.Join(s.host.bin, "pg_basebackup"), "-D", to.data(), "-h", "127.0.0.1",
		"-p", strconv.Itoa(s.port), "-U", Admin, "-X", "stream", "-c", "fast", "--no-sync")
}

// Promote makes a standby a primary, on a new timeline, and returns when it accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	const seconds = 60
	done, err := s.Query(ctx, "postgres", "SELECT (pg_promote(true, $1) AND NOT pg_is_in_recovery())::text", seconds)
	if err == nil && done != "true" {
		err = fmt.Errorf("pgserver: the standby was not promoted within %d s", seconds)
	}
	return err
}

// WaitCaughtUp waits until standby has replayed all that s has written so far.
func (s *Server) WaitCaughtUp(ctx context.Context, standby *Server) error {
	written, err := s.Query(ctx, "postgres", "SELECT pg_current_wal_insert_lsn()::text")
	if err != nil {
		return err
	}
	// What was inserted and not flushed is shipped only with the next commit: have one.
	if err := s.Exec(ctx, "postgres", "SELECT txid_current()"); err != nil {
		return err
	}
	err = standby.connected(ctx, "postgres", func(conn *pgx.Conn) error {
		return poll(ctx, func() (bool, error) {
			var there bool
			err := conn.QueryRow(ctx, "SELECT coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)", written).Scan(&there)
			return there, err
		})
	})
	if err != nil {
		return fmt.Errorf("pgserver: waiting for the standby to reach %s: %w", written, err)
	}
	return nil
}
