package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// everyCall asks for each thing that changes something, under ids of its own.
func (r *rig) everyCall(ctx context.Context, s *Store, session fence.ID, held fence.Claim) map[string]error {
	all := map[string]error{}
	_, all["open"] = s.Open(ctx, lease.OpenRequest{ID: r.ids.New(), Owner: "o", TTL: time.Minute})
	_, all["acquire"] = s.Acquire(ctx, lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{"new"}})
	_, all["acquire many"] = s.Acquire(ctx, lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{"a", "b"}})
	_, all["release"] = s.Release(ctx, lease.ReleaseRequest{Session: session, ID: held.Acquisition, Names: []string{held.Name}})
	_, all["renew"] = s.Renew(ctx, lease.RenewRequest{Session: session})
	_, all["revoke"] = s.Revoke(ctx, lease.RevokeRequest{Name: held.Name, Token: held.Token, Reason: "r"})
	_, all["raise epoch"] = s.RaiseEpoch(ctx, 0)
	all["fenced"] = s.Fenced(ctx, held, func(context.Context, pgx.Tx) error { return nil })
	all["close"] = s.Close(ctx, session)
	return all
}

// TestRenewalsBesideAPoolInUse: whoever uses up the pool does not stop renewals, the first one and the one after a cut included.
func TestRenewalsBesideAPoolInUse(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := fencedRig(t)
	session := r.open(ctx, time.Hour)
	c, err := r.store.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	renew := func() error { _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session}); return err }
	if err := renew(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.own.Exec(ctx, `SELECT pg_terminate_backend($1, 5000)`, r.store.renewals.conn.PgConn().PID()); err != nil {
		t.Fatal(err)
	}
	if err := renew(); err == nil {
		t.Fatal("the connection was not cut: this test shows nothing")
	}
	if err := renew(); err != nil {
		t.Error(err)
	}
}

// TestOutOfConnections: the server takes no connection; every call says that it was not applied, and works when there is room again.
func TestOutOfConnections(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := newOwnRig(t, map[string]string{"max_connections": "14", "superuser_reserved_connections": "3"}, Options{})
	session := r.open(ctx, time.Hour)
	held := r.acquire(ctx, session, "n")
	r.store.pool.Reset()
	r.own.Close()
	conns, err := takeAll(ctx, r.url())
	if state(err) != "53300" {
		t.Fatalf("want SQLSTATE 53300, got: %v", err)
	}
	for call, err := range r.everyCall(ctx, r.store, session, held) {
		if !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("%s without a connection: %v", call, err)
		}
	}
	for _, conn := range conns {
		if err := conn.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if r.own, err = pgxpool.New(ctx, r.url()); err != nil {
		t.Fatal(err)
	}
	for call, err := range r.everyCall(ctx, r.store, session, held) {
		if err != nil && !(call == "revoke" || call == "fenced") { // released before
			t.Errorf("%s with connections again: %v", call, err)
		}
	}
}

// takeAll takes all connections of the server; err is what the next one was told.
func takeAll(ctx context.Context, url string) (conns []*pgx.Conn, err error) {
	const most = 300
	for range most {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return conns, err
		}
		conns = append(conns, conn)
	}
	return conns, errors.New("the server takes more connections than the test does")
}

// TestStandbyRefuses: calls on a standby say that nothing was applied, and to connect to the primary. Reading works.
func TestStandbyRefuses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := newOwnRig(t, nil, Options{})
	session := r.open(ctx, time.Hour)
	held := r.acquire(ctx, session, "n")
	standby := r.server.Standby(t, testdb.Options{})
	s := openStore(t, standby.URL(r.database), Options{})
	r.refusesWrites(ctx, s, session, held)
}

// TestReadOnlyRefuses: the same where the role's transactions are read-only.
func TestReadOnlyRefuses(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.open(ctx, time.Hour)
	held := r.acquire(ctx, session, "n")
	r.refusesWrites(ctx, openStore(t, with(t, r.url(), "default_transaction_read_only", "on"), Options{}), session, held)
}

func (r *rig) refusesWrites(ctx context.Context, s *Store, session fence.ID, held fence.Claim) {
	r.t.Helper()
	info, err := s.Get(ctx, "n")
	if err != nil || info.Token != held.Token {
		r.t.Errorf("reading: %+v, %v", info, err)
	}
	for call, err := range r.everyCall(ctx, s, session, held) {
		if call == "fenced" && (err == nil || errors.Is(err, lease.ErrUnavailable)) {
			continue // it asks for a transaction that writes, whatever the default is; a standby says no in its own words
		}
		if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "primary") {
			r.t.Errorf("%s: want ErrUnavailable that names the primary, got: %v", call, err)
		}
	}
}

// TestSchemasThatDoNotFit: each is an error of its own kind, and says what to do.
func TestSchemasThatDoNotFit(t *testing.T) {
	server := testdb.Shared(t)
	ctx := t.Context()
	changed := func(sql string) string {
		name := server.Template(t, install)
		conn, err := pgx.Connect(ctx, server.URL(name))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
		return server.URL(name)
	}
	for name, c := range map[string]struct {
		url  string
		want error
		says string
	}{
		"none":    {server.URL(server.Database(t)), ErrNoSchema, "tenure migrate"},
		"older":   {changed(`DELETE FROM tenure.migration; INSERT INTO tenure.migration (version) VALUES (0)`), ErrNoSchema, "tenure migrate"},
		"newer":   {changed(`INSERT INTO tenure.migration (version) VALUES (1000)`), ErrNewerSchema, "newer"},
		"foreign": {changed(`DROP SCHEMA tenure CASCADE; CREATE SCHEMA tenure; CREATE TABLE tenure.session (id int)`), ErrNoSchema, ""},
	} {
		s, err := Open(ctx, c.url, Options{})
		if err == nil {
			shutDown(t, s)
		}
		var typed *SchemaError
		if !errors.Is(err, c.want) || !errors.As(err, &typed) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: want %v, got: %v", name, c.want, err)
		}
	}
}

// TestClientEncoding: where the database says that clients speak LATIN1, a name would be read as another one. A pool that [Configure]
// has prepared says UTF8, any other is refused.
func TestClientEncoding(t *testing.T) {
	server := testdb.Shared(t)
	ctx := t.Context()
	name := server.Template(t, install)
	plain, err := pgxpool.New(ctx, server.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Exec(ctx, `ALTER DATABASE `+pgx.Identifier{name}.Sanitize()+` SET client_encoding = 'LATIN1'`); err != nil { //nolint:misspell // pgx names it so
		t.Fatal(err)
	}
	plain.Reset()
	if s, err := New(ctx, plain, Options{}); err == nil {
		shutDown(t, s)
		t.Error("a pool that speaks LATIN1 was taken")
	} else if !strings.Contains(err.Error(), "client_encoding=UTF8") {
		t.Errorf("it does not say what to do: %v", err)
	}
	s := openStore(t, server.URL(name), Options{})
	var read string
	if err := s.pool.QueryRow(ctx, `SELECT encode(convert_to($1::text, 'UTF8'), 'hex')`, "ü").Scan(&read); err != nil || read != "c3bc" {
		t.Errorf("ü was read as %s, %v", read, err)
	}
}

// TestWrongDatabase: there is none of that name, or no server at all.
func TestWrongDatabase(t *testing.T) {
	server := testdb.Shared(t)
	ctx := t.Context()
	for what, url := range map[string]string{
		"no such database": server.URL("no_such_database"),
		"no such role":     server.URLAs("no_such_role", "postgres"),
		"no server":        "postgres://nobody@127.0.0.1:1/none?sslmode=disable",
	} {
		s, err := Open(ctx, url, Options{})
		if err == nil {
			shutDown(t, s)
			t.Errorf("%s: it was opened", what)
			continue
		}
		t.Logf("%s: %v", what, err)
	}
}

// TestSchemaIsTakenAway: a store whose schema goes away beneath it says what to do.
func TestSchemaIsTakenAway(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.open(ctx, time.Hour)
	held := r.acquire(ctx, session, "n")
	if _, err := r.own.Exec(ctx, `DROP SCHEMA tenure CASCADE`); err != nil {
		t.Fatal(err)
	}
	for call, err := range r.everyCall(ctx, r.store, session, held) {
		if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "tenure migrate") {
			t.Errorf("%s: want ErrUnavailable that names `tenure migrate`, got: %v", call, err)
		}
	}
}
