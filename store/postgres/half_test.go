package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
)

// half is a database with the fence half and a protected table, beside an authority elsewhere.
type half struct {
	*rig
	conn    *pgx.Conn
	session fence.ID
}

func newHalf(t *testing.T) *half {
	t.Helper()
	ctx := t.Context()
	h := &half{rig: &rig{t: t, harness: newHarness(t)}}
	h.conn = connect(t, h.server.URL(h.server.Database(t)))
	if m, err := Migrate(ctx, h.conn, MigrateOptions{FenceOnly: true}); err != nil || m.From != 0 || m.To != SchemaVersion || !m.Authority.IsZero() {
		t.Fatalf("%+v, %v", m, err)
	}
	must(t, h.conn, `CREATE TABLE orders (order_id int, state text)`, `INSERT INTO orders VALUES (1, 'new'), (2, 'new')`)
	if _, err := Protect(ctx, h.conn, Protection{Table: "orders", Name: byOrder}); err != nil {
		t.Fatal(err)
	}
	h.session = h.open(ctx, time.Hour)
	return h
}

// write updates all rows in a transaction that presents the claims, and commits.
func (h *half) write(ctx context.Context, level pgx.TxIsoLevel, sql string, claims ...fence.Claim) error {
	h.t.Helper()
	return FenceError(fence.Claim{}, pgx.BeginTxFunc(ctx, h.conn, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
		if len(claims) > 0 {
			if err := Present(ctx, tx, claims...); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, sql)
		return err
	}))
}

// TestFenceHalf: a table in a database apart from the authority goes by the marks of the names of its rows.
func TestFenceHalf(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			h := newHalf(t)
			const one, both = `UPDATE orders SET state = 'x' WHERE order_id = 1`, `UPDATE orders SET state = 'y'`
			first, second := h.acquire(ctx, h.session, "orders/1"), h.acquire(ctx, h.session, "orders/2")
			wrong := func(what string, err error, name string, why fence.Reason) {
				t.Helper()
				if bad := rowRefused(err, name, why); bad != nil {
					t.Errorf("%s: %v", what, bad)
				}
			}
			wrong("no claim", h.write(ctx, level, one), "orders/1", fence.NotPresented)
			wrong("another row's claim", h.write(ctx, level, one, second), "orders/1", fence.NotPresented)
			wrong("one of two claims", h.write(ctx, level, both, first), "orders/2", fence.NotPresented)
			wrong("truncate", h.write(ctx, level, `TRUNCATE orders`, first, second), "public.orders", fence.NotPresented)
			for _, claims := range [][]fence.Claim{{first}, {first, second}, {second, first}} {
				sql := one
				if len(claims) == 2 {
					sql = both
				}
				if err := h.write(ctx, level, sql, claims...); err != nil {
					t.Errorf("%d claims: %v", len(claims), err)
				}
			}
			h.release(ctx, h.session, first)
			// High-water: before its successor has presented itself here, the former owner is accepted.
			next := h.acquire(ctx, h.session, "orders/1")
			if err := h.write(ctx, level, one, first); err != nil {
				t.Errorf("before the successor came: %v", err)
			}
			if err := h.write(ctx, level, one, next); err != nil {
				t.Errorf("the successor: %v", err)
			}
			wrong("after the successor came", h.write(ctx, level, one, first), "orders/1", fence.Superseded)
			forged := `SELECT set_config('tenure.presented', '{"orders/1": "` + first.Authority.String() + `:999999"}', true); ` + one
			wrong("forged", h.write(ctx, level, forged), "orders/1", fence.Superseded)
			foreign := next
			foreign.Authority = h.ids.New()
			if err := h.write(ctx, level, one, foreign); !errors.Is(err, fence.ErrForeign) {
				t.Errorf("another authority: %v", err)
			}
		})
	}
}

// TestDownWhileTablesAreProtected: the schema is not taken away from under them.
func TestDownWhileTablesAreProtected(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h := newHalf(t)
	if err := Down(ctx, h.conn); err == nil || !strings.Contains(err.Error(), "public.orders") {
		t.Errorf("down: %v", err)
	}
	if _, err := Unprotect(ctx, h.conn, "orders"); err != nil {
		t.Fatal(err)
	}
	if err := Down(ctx, h.conn); err != nil {
		t.Error(err)
	}
	must(t, h.conn, `UPDATE orders SET state = 'free'`, `CREATE TABLE another (id int)`)
}

// TestAHalfThatTrusts: a guard that believes the setting is caught.
func TestAHalfThatTrusts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h := newHalf(t)
	body := value[string](t, h.conn, `SELECT pg_get_functiondef('tenure.guard'::regproc)`)
	broken := strings.Replace(body, "concat(m.authority, ':', m.token) = (v_presented ->> u.name)", "v_presented ? u.name", 1)
	if broken == body {
		t.Fatal("the guard was changed: change the twin with it")
	}
	must(t, h.conn, broken)
	if err := h.write(ctx, pgx.ReadCommitted, `UPDATE orders SET state = 'x' WHERE order_id = 1`, h.acquire(ctx, h.session, "orders/1")); err != nil {
		t.Fatal(err)
	}
	err := h.write(ctx, pgx.ReadCommitted, `SELECT set_config('tenure.presented', '{"orders/1": "x"}', true); UPDATE orders SET state = 'x' WHERE order_id = 1`)
	if rowRefused(err, "orders/1", fence.Superseded) == nil {
		t.Error("the twin was not caught")
	}
}

// TestFenceHalfIsNoStore: the half and the whole do not become each other, and the half's script runs again and again.
func TestFenceHalfIsNoStore(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h := newHalf(t)
	for range 2 {
		must(t, h.conn, FenceScript())
	}
	if m, err := Migrate(ctx, h.conn, MigrateOptions{FenceOnly: true}); err != nil || m.From != SchemaVersion {
		t.Errorf("again: %+v, %v", m, err)
	}
	if _, err := Migrate(ctx, h.conn, MigrateOptions{}); err == nil || !strings.Contains(err.Error(), "fence half") {
		t.Errorf("the whole on the half: %v", err)
	}
	whole := connect(t, h.url())
	if _, err := Migrate(ctx, whole, MigrateOptions{FenceOnly: true}); err == nil || !strings.Contains(err.Error(), "authority of its own") {
		t.Errorf("the half on the whole: %v", err)
	}
	if _, err := Open(ctx, h.conn.Config().ConnString(), Options{}); !errors.Is(err, ErrSetup) && !errors.Is(err, ErrNoSchema) {
		t.Errorf("a store on the half: %v", err)
	}
	for _, f := range functions(t, h.conn) {
		if f.Public != slices.Contains(decisions()[forEverybody], f.Name) {
			t.Errorf("%s: PUBLIC may execute it: %t", f.Signature, f.Public)
		}
		if f.Definer && !f.Pinned && !slices.Contains(qualified(), f.Signature) {
			t.Errorf("%s: SECURITY DEFINER without a pinned search path", f.Signature)
		}
		if slices.Contains([]string{f.Granted}, "tenure_user") && f.Reads && !f.Definer {
			t.Errorf("%s: touches a table, which its callers may not", f.Signature)
		}
	}
}
