//go:build unix

package choosing_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/store/postgres"
)

// patience bounds each wait of a test for something that must happen: it is where a test fails, and measures nothing.
const patience = 30 * time.Second

// TestMain plays a process of its own where a test started the binary again: see child_test.go.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(playRole(role, os.Stdin, os.Stdout))
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // they wait for timers, not for a processor
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(testdb.Main(m))
}

// install fills the database that every test gets a copy of: the schema, and rows to lock and to write.
func install(url string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := postgres.Migrate(ctx, conn, postgres.MigrateOptions{}); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL, version bigint NOT NULL DEFAULT 0);
		INSERT INTO account SELECT id, 100 FROM generate_series(1, 50) id;
		CREATE TABLE ledger (id bigint PRIMARY KEY, entry text NOT NULL, version bigint NOT NULL DEFAULT 0);
		INSERT INTO ledger VALUES (1, 'none');
		CREATE TABLE job (id bigint PRIMARY KEY, done bigint NOT NULL DEFAULT 0);
		INSERT INTO job SELECT id FROM generate_series(1, 40) id`)
	return err
}

// database is a fresh one: advisory locks are one database's own.
func database(t *testing.T) string {
	t.Helper()
	return testdb.Shared(t).Template(t, install)
}

// connect gives a connection that is closed when the test ends.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		conn.Close(ctx)
	})
	return conn
}

// with gives a URL settings of the server's, for its connections.
func with(t *testing.T, text string, settings map[string]string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	for name, value := range settings {
		query.Set(name, value)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// run runs statements that must succeed.
func run(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// value reads one value.
func value[T any](t *testing.T, conn *pgx.Conn, query string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// eventually asks every few milliseconds until it is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// dialer keeps the connections that it made, so that a test can do to them what a network does. They send no probes of their own.
type dialer struct {
	made chan net.Conn
}

func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, network, address)
	if err == nil {
		d.made <- conn
	}
	return conn, err
}
