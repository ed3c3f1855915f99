package testdb

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// template is the database that Template copies.
type template struct {
	once   sync.Once
	failed error
	count  int // databases made so far; under creating
}

const templateName = "tenure_template"

// Database makes an empty database of this test's own and returns its name. When the test ends it is dropped, with
// the connections that are still open.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return s.create(t, "template1")
}

// Template returns a copy, of this test's own, of a database that prepare has filled; prepare gets its URL. It runs
// once for each server: all callers on one server give the same function, and have closed its connections when it
// returns. The copy is dropped like that of [Server.Database].
func (s *Server) Template(t testing.TB, prepare func(url string) error) string {
	t.Helper()
	s.template.once.Do(func() { s.template.failed = s.fill(prepare) })
	if err := s.template.failed; err != nil {
		fatal(t, fmt.Errorf("testdb: preparing the template: %w", err))
	}
	return s.create(t, templateName)
}

// fill makes the template, and lets nobody connect to it any more: a copy fails while somebody is.
func (s *Server) fill(prepare func(url string) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.server.Exec(ctx, "postgres", "CREATE DATABASE "+templateName); err != nil {
		return err
	}
	if err := prepare(s.URL(templateName)); err != nil {
		return err
	}
	return s.server.Exec(ctx, "postgres", "ALTER DATABASE "+templateName+" ALLOW_CONNECTIONS false; "+
		"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '"+templateName+"'")
}

func (s *Server) create(t testing.TB, from string) string {
	t.Helper()
	s.creating.Lock()
	defer s.creating.Unlock()
	s.template.count++
	name := databaseName(s.template.count, t.Name())
	strategy := "file_copy" // two checkpoints and no log: half the time where nothing is flushed
	if s.durable {
		strategy = "wal_log" // one flush of the log, not one of each file
	}
	do(t, func(ctx context.Context) error {
		return s.server.Exec(ctx, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+from+" STRATEGY "+strategy)
	})
	if s.shared { // else it goes with its server
		t.Cleanup(func() { s.drop(t, name) })
	}
	return name
}

func (s *Server) drop(t testing.TB, name string) {
	t.Helper()
	if !s.server.Running() || s.server.Paused() {
		t.Errorf("testdb: %s left the shared server stopped; a test that stops a server starts its own", t.Name())
		return
	}
	do(t, func(ctx context.Context) error {
		return s.server.Exec(ctx, "postgres", "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
}

// databaseName needs no quotes in SQL, fits PostgreSQL's 63 bytes, and shows in a log whose database it was.
func databaseName(number int, test string) string {
	const most = 40 // bytes of the test's name
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return fmt.Sprintf("t%d_%s", number, plain[:min(len(plain), most)])
}
