package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
)

// harness is one fresh file with a store on it, and a connection of the harness's own.
type harness struct {
	t     testing.TB
	cfg   Config
	store *Store
	own   *sql.DB
	tick  *atomic.Int64 // of a manual clock, or nil
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	h := startHarness(t)
	t.Cleanup(h.stop)
	return h
}

// newManualHarness has a kernel clock that moves by Tick alone, so that instants can be met exactly.
func newManualHarness(t testing.TB) *harness {
	t.Helper()
	h := startManualHarness(t)
	t.Cleanup(h.stop)
	return h
}

// startHarness is newHarness for a caller that calls stop.
func startHarness(t testing.TB) *harness {
	t.Helper()
	h := &harness{t: t, cfg: Config{Path: filepath.Join(t.TempDir(), "tenure.db")}}
	h.start()
	return h
}

func startManualHarness(t testing.TB) *harness {
	t.Helper()
	h := &harness{t: t, cfg: Config{Path: filepath.Join(t.TempDir(), "tenure.db")}, tick: new(atomic.Int64)}
	h.cfg.bootID = "manual"
	h.cfg.kernelClock = func() time.Duration { return time.Duration(h.tick.Load()) }
	h.start()
	return h
}

// Tolerance is what one operation may take beside other tests.
func (h *harness) Tolerance() time.Duration {
	if h.tick != nil {
		return 0
	}
	return 300 * time.Millisecond
}

func (h *harness) start() {
	h.t.Helper()
	var err error
	if h.store, err = Open(context.Background(), h.cfg); err != nil {
		h.t.Fatal(err)
	}
	if h.own, err = sql.Open("sqlite", dsn(h.store.Path(), openBusy, false)); err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.own.Exec(`CREATE TABLE IF NOT EXISTS content (at INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT`); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) stop() {
	if err := errors.Join(h.own.Close(), h.store.Shutdown(context.Background())); err != nil {
		h.t.Error(err)
	}
}

func (h *harness) Store() lease.Store            { return h.store }
func (h *harness) Operator() leasetest.Operator  { return h.store }
func (h *harness) Resource() leasetest.Resource  { return &resource{store: h.store, own: h.own} }
func (h *harness) Tick(d time.Duration)          { h.tick.Add(int64(d)) }
func (h *harness) Restart(context.Context) error { h.stop(); h.start(); return nil }

// Advance moves every stored instant back by d, in one transaction. The authority's mark is no promise to
// anybody, only a floor for its clock: it stays.
func (h *harness) Advance(ctx context.Context, d time.Duration) error {
	tx, err := h.own.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, update := range []string{
		`UPDATE tenure_session SET expiry = expiry - ?1, ended_at = ended_at - ?1`,
		`UPDATE tenure_lease SET hold_end = CASE hold_end WHEN 0 THEN 0 ELSE hold_end - ?1 END, over_at = over_at - ?1`,
		`UPDATE tenure_ended SET at = at - ?1`,
		`UPDATE tenure_authority SET origin = origin - ?1`,
	} {
		if _, err := tx.ExecContext(ctx, update, int64(d)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Check looks at the file for what must never be.
func (h *harness) Check(ctx context.Context) error {
	for what, query := range map[string]string{
		"integrity":                      `SELECT group_concat(integrity_check) FROM pragma_integrity_check WHERE integrity_check <> 'ok'`,
		"tokens above the counter":       `SELECT group_concat(name) FROM tenure_lease WHERE token > (SELECT issued FROM tenure_authority)`,
		"one token granted twice":        `SELECT group_concat(token) FROM (SELECT token FROM tenure_lease GROUP BY token HAVING count(*) > 1)`,
		"ended and held at once":         `SELECT group_concat(name) FROM tenure_lease l JOIN tenure_ended e USING (acquisition) WHERE l.over = 0 AND e.how NOT IN (3, 4, 6)`,
		"a record that nothing leads to": `SELECT group_concat(hex(s.id)) FROM tenure_session s JOIN tenure_ended e ON e.session = s.id WHERE s.ended = 0 AND s.ended_up_to < e.acquisition`,
		"an acquisition of other size":   `SELECT group_concat(acq) FROM (SELECT hex(acquisition) acq FROM tenure_lease WHERE over = 0 GROUP BY acquisition HAVING count(*) > max(names))`,
		"a mark above the issued tokens": `SELECT group_concat(m.name) FROM tenure_mark m JOIN tenure_authority a ON a.id = m.authority WHERE m.token > a.issued AND NOT EXISTS (SELECT 1 FROM tenure_ahead)`,
	} {
		var found sql.NullString
		if err := h.own.QueryRowContext(ctx, query).Scan(&found); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if found.Valid {
			return fmt.Errorf("%s: %s", what, found.String)
		}
	}
	return nil
}

// resource is the table content, guarded by the claims of the store beside it.
type resource struct {
	store *Store
	own   *sql.DB
}

const resourceName = "content"

func (r *resource) Strict(ctx context.Context, claim fence.Claim, value string, between func()) error {
	return r.store.Fenced(ctx, claim, func(ctx context.Context, tx *Tx) error {
		if between != nil {
			between()
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO content (value) VALUES (?)`, value)
		return err
	})
}

// transact runs fn in a transaction of the caller's own.
func (r *resource) transact(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := r.own.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (r *resource) Marked(ctx context.Context, claim fence.Claim, edit func([]string) []string, between func()) error {
	return r.transact(ctx, func(tx *sql.Tx) error {
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
		if _, err := tx.ExecContext(ctx, `DELETE FROM content`); err != nil {
			return err
		}
		for _, value := range edit(slices.Clone(content)) {
			if _, err := tx.ExecContext(ctx, `INSERT INTO content (value) VALUES (?)`, value); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *resource) Blind(ctx context.Context, claim fence.Claim, value string) error {
	return r.transact(ctx, func(tx *sql.Tx) error {
		if err := Admit(ctx, tx, resourceName, claim); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO content (value) VALUES (?)`, value)
		return err
	})
}

func (r *resource) Read(ctx context.Context) ([]string, error) { return readContent(ctx, r.own) }

func (r *resource) Recreate(ctx context.Context) error {
	return r.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DROP TABLE content; CREATE TABLE content (at INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT`)
		return err
	})
}

func readContent(ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}) ([]string, error) {
	rows, err := db.QueryContext(ctx, `SELECT value FROM content ORDER BY at`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var content []string
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		content = append(content, strings.Clone(value))
	}
	return content, rows.Err()
}
