package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
)

// harness is one fresh database with a store on it, and a pool of the harness's own.
type harness struct {
	t        testing.TB
	server   *testdb.Server
	database string
	opts     Options
	storeURL func(*harness) string // how the store reaches the database
	store    *Store
	own      *pgxpool.Pool
}

// install is what a template database gets.
func install(url string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := Migrate(ctx, conn, MigrateOptions{}); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `CREATE TABLE content (at bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value text NOT NULL)`)
	return err
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	return newHarnessOn(t, testdb.Shared(t), Options{})
}

func newHarnessOn(t testing.TB, server *testdb.Server, o Options) *harness {
	t.Helper()
	h := &harness{t: t, server: server, opts: o}
	h.database = server.Template(t, install)
	h.start()
	t.Cleanup(h.stop)
	return h
}

// newOwnHarness has a server of its own, for a test that stops it.
func newOwnHarness(t testing.TB) *harness {
	t.Helper()
	return newHarnessOn(t, testdb.Start(t, testdb.Options{}), Options{SyncRelease: true})
}

func (h *harness) url() string { return h.server.URL(h.database) }

// with adds a parameter to a connection string.
func with(t testing.TB, connection, key, value string) string {
	t.Helper()
	u, err := url.Parse(connection)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(key, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func (h *harness) start() {
	h.t.Helper()
	ctx := context.Background()
	storeURL := with(h.t, h.url(), "pool_max_conns", "8")
	if h.storeURL != nil {
		storeURL = h.storeURL(h)
	}
	var err error
	if h.store, err = Open(ctx, storeURL, h.opts); err != nil {
		h.t.Fatal(err)
	}
	if h.own, err = pgxpool.New(ctx, with(h.t, h.url(), "pool_max_conns", "4")); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) stop() {
	h.own.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := h.store.Shutdown(ctx); err != nil {
		h.t.Error(err)
	}
}

func (h *harness) Store() lease.Store           { return h.store }
func (h *harness) Operator() leasetest.Operator { return h.store }
func (h *harness) Resource() leasetest.Resource { return &resource{store: h.store, own: h.own} }

// Tolerance is what one operation may take beside other tests.
func (h *harness) Tolerance() time.Duration { return 400 * time.Millisecond }

// Restart kills the server as well as the store.
func (h *harness) Restart(context.Context) error {
	h.server.Crash(h.t)
	h.own.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.store.Shutdown(ctx) // as after kill -9: its answers are nobody's
	h.server.Restart(h.t)
	h.start()
	return nil
}

// Advance moves every stored instant back by d, in one transaction.
func (h *harness) Advance(ctx context.Context, d time.Duration) error {
	return pgx.BeginFunc(ctx, h.own, func(tx pgx.Tx) error {
		for _, update := range []string{
			`UPDATE tenure.session SET expires_at = expires_at - $1::interval, ended_at = ended_at - $1::interval`,
			`UPDATE tenure.ended SET at = at - $1::interval`,
			`UPDATE tenure.authority SET origin = origin - $1::interval`,
		} {
			if _, err := tx.Exec(ctx, update, d); err != nil {
				return err
			}
		}
		// A fenced transaction keeps its row locked, and its lease's end is its session's: only rows with an end of their own are touched.
		_, err := tx.Exec(ctx, `UPDATE tenure.lease SET hold_until = hold_until - $1::interval, over_at = over_at - $1::interval WHERE over <> 0 OR hold_until IS NOT NULL`, d)
		return err
	})
}

// Check looks at the database for what must never be.
func (h *harness) Check(ctx context.Context) error {
	for what, query := range map[string]string{
		"tokens above the sequence":    `SELECT string_agg(name, ',') FROM tenure.lease WHERE token > (SELECT last_value FROM tenure.token)`,
		"one token granted twice":      `SELECT string_agg(token::text, ',') FROM (SELECT token FROM tenure.lease WHERE token > 0 GROUP BY token HAVING count(*) > 1) t`,
		"ended and held at once":       `SELECT string_agg(name, ',') FROM tenure.lease l JOIN tenure.ended e USING (session, acquisition) WHERE l.over = 0 AND e.how NOT IN (3, 4)`,
		"an acquisition of other size": `SELECT string_agg(acquisition::text, ',') FROM (SELECT acquisition FROM tenure.lease WHERE over = 0 GROUP BY acquisition HAVING count(*) > max(names)) t`,
		"a mark above the issued":      `SELECT string_agg(m.name, ',') FROM tenure.mark m JOIN tenure.authority a ON a.id = m.authority WHERE m.token > (SELECT last_value FROM tenure.token) AND NOT a.ahead`,
	} {
		var found *string
		if err := h.own.QueryRow(ctx, query).Scan(&found); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if found != nil {
			return fmt.Errorf("%s: %s", what, *found)
		}
	}
	return nil
}

// resource is the table content, guarded by the claims of the store beside it.
type resource struct {
	store *Store
	own   *pgxpool.Pool
}

const resourceName = "content"

func (r *resource) Strict(ctx context.Context, claim fence.Claim, value string, between func()) error {
	return r.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
		if between != nil {
			between()
		}
		_, err := tx.Exec(ctx, `INSERT INTO content (value) VALUES ($1)`, value)
		return err
	})
}

func (r *resource) Marked(ctx context.Context, claim fence.Claim, edit func([]string) []string, between func()) error {
	return pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error {
		if err := Enter(ctx, tx, resourceName, claim); err != nil {
			return err
		}
		content, err := readContent(ctx, tx)
		if err != nil {
			return err
		}
		if between != nil {
			between()
		}
		if _, err := tx.Exec(ctx, `DELETE FROM content`); err != nil {
			return err
		}
		for _, value := range edit(slices.Clone(content)) {
			if _, err := tx.Exec(ctx, `INSERT INTO content (value) VALUES ($1)`, value); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *resource) Blind(ctx context.Context, claim fence.Claim, value string) error {
	return pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error {
		if err := Admit(ctx, tx, resourceName, claim); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO content (value) VALUES ($1)`, value)
		return err
	})
}

func (r *resource) Read(ctx context.Context) ([]string, error) { return readContent(ctx, r.own) }

func (r *resource) Recreate(ctx context.Context) error {
	_, err := r.own.Exec(ctx, `DROP TABLE content; CREATE TABLE content (at bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value text NOT NULL)`)
	return err
}

func readContent(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) ([]string, error) {
	rows, err := db.Query(ctx, `SELECT value FROM content ORDER BY at`)
	if err != nil {
		return nil, err
	}
	content, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return content, errors.Join(err)
}
