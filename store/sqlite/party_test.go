package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// newPath is a database that does not exist yet, in a folder of its own.
func newPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "t.db")
}

// openWith opens a store that is shut down when the test ends.
func openWith(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutDown(t, s) })
	return s
}

func openPath(t testing.TB, path string) *Store {
	t.Helper()
	return openWith(t, Config{Path: path})
}

func shutDown(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// hands are clocks that a test turns.
type hands struct{ kernel, wall atomic.Int64 }

func newHands() *hands {
	h := new(hands)
	h.kernel.Store(int64(time.Hour))
	h.wall.Store(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixNano())
	return h
}

// config is the store's at path, by these clocks, under the kernel that boot names.
func (h *hands) config(path, boot string) Config {
	return Config{
		Path: path, bootID: boot,
		kernelClock: func() time.Duration { return time.Duration(h.kernel.Load()) },
		wallClock:   func() time.Time { return time.Unix(0, h.wall.Load()) },
	}
}

// pass lets time go by, on both clocks.
func (h *hands) pass(d time.Duration) {
	h.kernel.Add(int64(d))
	h.wall.Add(int64(d))
}

// party is one session at a store.
type party struct {
	t       testing.TB
	s       *Store
	session fence.ID
	ids     lease.IDs
}

func join(t testing.TB, s *Store, ttl time.Duration) *party {
	t.Helper()
	p := &party{t: t, s: s, session: lease.NewID()}
	if _, err := s.Open(t.Context(), lease.OpenRequest{ID: p.session, Owner: t.Name(), TTL: ttl}); err != nil {
		t.Fatal(err)
	}
	return p
}

// ask asks for a name once, under a new acquisition.
func (p *party) ask(name string) (lease.Grant, error) {
	grants, err := p.s.Acquire(p.t.Context(), lease.AcquireRequest{Session: p.session, ID: p.ids.New(), Names: []string{name}})
	if err != nil {
		return lease.Grant{}, err
	}
	return grants[0], nil
}

// take is ask, where a refusal fails the test.
func (p *party) take(name string) fence.Claim {
	p.t.Helper()
	grant, err := p.ask(name)
	if err != nil {
		p.t.Fatal(err)
	}
	return grant.Claim
}

func (p *party) release(c fence.Claim) error {
	_, err := p.s.Release(p.t.Context(), lease.ReleaseRequest{Session: p.session, ID: c.Acquisition, Names: []string{c.Name}})
	return err
}

// drop is release, where an error fails the test.
func (p *party) drop(c fence.Claim) {
	p.t.Helper()
	if err := p.release(c); err != nil {
		p.t.Fatal(err)
	}
}

func (p *party) renew() error {
	_, err := p.s.Renew(p.t.Context(), lease.RenewRequest{Session: p.session})
	return err
}

// wantKind fails the test unless err matches kind, and unless its text has all of the words.
func wantKind(t testing.TB, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want an error matching %q", err, kind)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error should say %q: %v", word, err)
		}
	}
}

// plainDB is what a user, or another program, opens the file with. The query is the DSN's.
func plainDB(t testing.TB, path, query string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// plainExec runs statements in a file and closes it again.
func plainExec(t testing.TB, path string, statements ...string) {
	t.Helper()
	db := plainDB(t, path, "?_pragma=busy_timeout(5000)")
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// plainValue reads one value from a file and closes it again.
func plainValue(t testing.TB, path, query string) string {
	t.Helper()
	db := plainDB(t, path, "?_pragma=busy_timeout(5000)")
	defer db.Close()
	var value string
	if err := db.QueryRowContext(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// contents reads a file. Only for files that nobody in this process has open.
func contents(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
