package postgres

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// protectedWrite is one statement on a protected table, and the names whose claims it needs.
type protectedWrite struct {
	what  string
	run   func(context.Context, pgx.Tx) error
	needs []string
}

func protectedWrites() []protectedWrite {
	one, two, three, four := "orders/1", "orders/2", "orders/3", "orders/4"
	copyIn := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"order_id"}, pgx.CopyFromRows([][]any{{4}, {5}}))
		return err
	}
	return []protectedWrite{
		{"insert", statement(`INSERT INTO orders VALUES (4)`), []string{four}},
		{"insert of many", statement(`INSERT INTO orders SELECT order_id + 3 FROM source WHERE order_id < 3`), []string{four, "orders/5"}},
		{"copy", copyIn, []string{four, "orders/5"}},
		{"update", statement(`UPDATE orders SET state = 'x' WHERE order_id = 1`), []string{one}},
		{"update of all", statement(`UPDATE orders SET state = 'x'`), []string{one, two, three}},
		{"update from", statement(`UPDATE orders o SET state = s.state FROM source s WHERE s.order_id = o.order_id`), []string{one, two}},
		{"update that renames", statement(`UPDATE orders SET order_id = 4 WHERE order_id = 1`), []string{one, four}},
		{"delete", statement(`DELETE FROM orders WHERE order_id = 1`), []string{one}},
		{"delete using", statement(`DELETE FROM orders o USING source s WHERE s.order_id = o.order_id`), []string{one, two}},
		{"upsert that inserts", statement(`INSERT INTO orders VALUES (4) ON CONFLICT (order_id) DO UPDATE SET state = 'x'`), []string{four}},
		{"upsert that updates", statement(`INSERT INTO orders VALUES (1) ON CONFLICT (order_id) DO UPDATE SET state = 'x'`), []string{one}},
		{"upsert of both", statement(`INSERT INTO orders VALUES (1), (4) ON CONFLICT (order_id) DO UPDATE SET state = 'x'`), []string{one, four}},
		{"upsert that renames", statement(`INSERT INTO orders VALUES (1) ON CONFLICT (order_id) DO UPDATE SET order_id = 4`), []string{one, four}},
		{"statement within a statement", statement(`WITH d AS (DELETE FROM orders WHERE order_id = 1 RETURNING state) INSERT INTO orders SELECT 4, NULL, state FROM d`), []string{one, four}},
		{"through a view", statement(`UPDATE open_orders SET state = 'x' WHERE order_id = 1`), []string{one}},
		{"through a function", statement(`SELECT touch(1)`), []string{one}},
		{"cascade of a delete", statement(`DELETE FROM customer WHERE id = 1`), []string{one}},
		{"cascade of an update", statement(`UPDATE customer SET id = id + 100 WHERE id < 3`), []string{one, two}},
		{"truncate", statement(`TRUNCATE orders`), []string{"public.orders"}},
		{"truncate that cascades", statement(`TRUNCATE customer CASCADE`), []string{"public.orders"}},
		{"merge", statement(`MERGE INTO orders o USING source s ON o.order_id = s.order_id WHEN MATCHED AND s.order_id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET state = s.state
			WHEN NOT MATCHED THEN INSERT VALUES (s.order_id)`), []string{one, two, four}},
		{"a partition's rows", statement(`UPDATE events SET what = 'x' WHERE day = 11`), []string{one}},
		{"a partition itself", statement(`UPDATE events_2 SET what = 'x'`), []string{one}},
		{"insert into a partition", statement(`INSERT INTO events_1 VALUES (4, 4, 'made')`), []string{four}},
		{"a row that changes partition", statement(`UPDATE events SET day = 12 WHERE day = 2`), []string{two}},
		{"truncate of a partition", statement(`TRUNCATE events_1`), []string{"public.events"}},
		{"copy into a partition", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"events_1"}, []string{"order_id", "day"}, pgx.CopyFromRows([][]any{{4, 4}}))
			return err
		}, []string{four}},
		{"a table that inherits, by its parent", statement(`UPDATE parent SET note = 'x'`), []string{one}},
		{"a table that inherits", statement(`DELETE FROM child`), []string{one}},
		{"two statements", statement(`UPDATE orders SET state = 'x' WHERE order_id = 1; UPDATE orders SET state = 'x' WHERE order_id = 2`), []string{one, two}},
	}
}

// unprotected lists the writes that passed without one of the claims that they need, or changed something, or did not pass with all of them.
func (s *shopRig) unprotected(ctx context.Context, level pgx.TxIsoLevel) (found []string) {
	s.t.Helper()
	var version int
	if err := s.own.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		s.t.Fatal(err)
	}
	held := map[string]fence.Claim{}
	for _, name := range []string{"orders/1", "orders/2", "orders/3", "orders/4", "orders/5", "public.orders", "public.events", "orders/other"} {
		held[name] = s.acquire(ctx, s.session, name)
	}
	before := s.content(ctx, s.own)
	for _, w := range protectedWrites() {
		if w.what == "merge" && version < 150000 {
			continue
		}
		all := []fence.Claim{held["orders/other"]}
		for _, name := range w.needs {
			all = append(all, held[name])
		}
		slices.SortFunc(all, func(a, b fence.Claim) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
		err := s.write(ctx, level, w.run)
		if rowRefused(err, w.needs[0], fence.NotPresented) != nil {
			found = append(found, fmt.Sprintf("%s without a claim: %v", w.what, err))
		}
		for _, name := range w.needs {
			some := slices.DeleteFunc(slices.Clone(all), func(c fence.Claim) bool { return c.Name == name })
			err := s.write(ctx, level, w.run, some...)
			if rowRefused(err, name, fence.NotPresented) != nil {
				found = append(found, fmt.Sprintf("%s without %s: %v", w.what, name, err))
			}
		}
		if err := s.write(ctx, level, w.run, all...); err != nil {
			found = append(found, fmt.Sprintf("%s with all claims: %v", w.what, err))
		}
		if after := s.content(ctx, s.own); after != before {
			s.t.Fatalf("%s: left\n%s\nof\n%s", w.what, after, before)
		}
	}
	return found
}

// TestProtectedWrites: each form of a write is refused unless a claim to each of its names was presented.
func TestProtectedWrites(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			for _, found := range newShop(t).unprotected(t.Context(), level) {
				t.Error(found)
			}
		})
	}
}

// TestCarelessGuards: guards that leave something out let a write pass, and the test above sees it.
func TestCarelessGuards(t *testing.T) {
	for name, twin := range map[string]struct {
		edit edit
		want string
	}{
		"an update looks at the new rows alone": {edit{"guard_body", `SELECT (%1$s)::text COLLATE "C" FROM tenure_old UNION SELECT (%1$s)::text COLLATE "C" FROM tenure_new`, `SELECT DISTINCT (%1$s)::text COLLATE "C" FROM tenure_new`}, "update that renames without orders/1: "},
		"an update looks at the old rows alone": {edit{"guard_body", `SELECT (%1$s)::text COLLATE "C" FROM tenure_old UNION SELECT (%1$s)::text COLLATE "C" FROM tenure_new`, `SELECT DISTINCT (%1$s)::text COLLATE "C" FROM tenure_old`}, "update that renames without orders/4: "},
		"one name stands for all":               {edit{"guard_body", "PERFORM tenure.guard(TG_RELID, v_names);", "PERFORM tenure.guard(TG_RELID, v_names[1:1]);"}, "update of all without orders/"},
		"partitions have no triggers":           {edit{"family", "SELECT f.oid::regclass FROM f JOIN", "SELECT p_table FROM f JOIN"}, "a partition itself without a claim: "},
		"truncate needs nothing":                {edit{"guard_body", "v_names := ARRAY[TG_ARGV[1]];", "v_names := '{}';"}, "truncate without a claim: "},
		"a claim to any name will do":           {edit{"unguarded", "PERFORM tenure.refuse_row(", "IF p_presented IS NOT NULL THEN RETURN; END IF; PERFORM tenure.refuse_row("}, "update without orders/1: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := newShop(t, twin.edit).unprotected(t.Context(), pgx.ReadCommitted)
			if !slices.ContainsFunc(found, func(f string) bool { return len(f) >= len(twin.want) && f[:len(twin.want)] == twin.want }) {
				t.Fatalf("%q was not found, but %q", twin.want, found)
			}
		})
	}
}

// staleWrites are writes under claims that hold no more, or never did; each returns what was wrong with its refusal.
func (s *shopRig) staleWrites(ctx context.Context) (found []string) {
	s.t.Helper()
	update := statement(`UPDATE orders SET state = 'stale' WHERE order_id = 1`)
	check := func(what string, err error, why fence.Reason) {
		if bad := rowRefused(err, "orders/1", why); bad != nil {
			found = append(found, what+": "+bad.Error())
		}
	}
	short := s.open(ctx, 300*time.Millisecond)
	late := s.acquire(ctx, short, "orders/1")
	// The lease expires between present and the write.
	expired := func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0; SELECT pg_sleep(0.35)`); err != nil {
			return err
		}
		return update(ctx, tx)
	}
	check("expired after it was presented", s.write(ctx, pgx.ReadCommitted, expired, late), fence.Expired)
	check("presented when it had expired", s.write(ctx, pgx.ReadCommitted, update, late), fence.Expired)
	first := s.acquire(ctx, s.session, "orders/1")
	if err := s.write(ctx, pgx.ReadCommitted, update, first); err != nil {
		found = append(found, "the holder's: "+err.Error())
	}
	s.release(ctx, s.session, first)
	check("released", s.write(ctx, pgx.ReadCommitted, update, first), fence.Released)
	second := s.acquire(ctx, s.open(ctx, time.Hour), "orders/1")
	check("superseded", s.write(ctx, pgx.ReadCommitted, update, first), fence.Superseded)
	for what, setting := range map[string]string{
		"another acquisition":    fmt.Sprintf(`{"orders/1": "%s:%d"}`, first.Acquisition, second.Token),
		"a token from somewhere": fmt.Sprintf(`{"orders/1": "%s:%d"}`, second.Acquisition, second.Token+1),
		"a name alone":           `{"orders/1": ""}`,
	} {
		err := s.write(ctx, pgx.ReadCommitted, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT set_config('tenure.presented', $1, true)`, setting); err != nil {
				return err
			}
			return update(ctx, tx)
		})
		why := fence.Superseded
		if what == "another acquisition" {
			why = fence.NotGranted
		}
		check("forged: "+what, err, why)
	}
	for _, garbage := range []string{"x", `[]`, `"orders/1"`, `{"orders/1": ["x"]}`, `null`} {
		err := s.write(ctx, pgx.ReadCommitted, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT set_config('tenure.presented', $1, true)`, garbage); err != nil {
				return err
			}
			return update(ctx, tx)
		})
		if err == nil {
			found = append(found, "forged, and no object: "+garbage)
		}
	}
	return found
}

// TestStaleClaimsAtAProtectedTable: a claim is verified again at each write, whatever was presented.
func TestStaleClaimsAtAProtectedTable(t *testing.T) {
	t.Parallel()
	for _, found := range newShop(t).staleWrites(t.Context()) {
		t.Error(found)
	}
}

// TestTrustingGuards: guards that believe the setting are caught.
func TestTrustingGuards(t *testing.T) {
	live := "PERFORM 1 FROM tenure.session s WHERE s.id OPERATOR(pg_catalog.=) v_session AND s.ended OPERATOR(pg_catalog.=) 0 AND s.since OPERATOR(pg_catalog.<) v_token"
	for name, twin := range map[string]struct {
		edit edit
		want string
	}{
		"the setting is believed":         {edit{"guard", "IF v_presented IS NOT NULL AND", "IF v_presented OPERATOR(pg_catalog.?) p_names[1] THEN RETURN; END IF; IF v_presented IS NOT NULL AND"}, "forged: "},
		"the session is not looked at":    {edit{"guard", live, "PERFORM 1; RETURN; PERFORM 1 FROM tenure.session s WHERE s.id OPERATOR(pg_catalog.=) v_session"}, "expired after it was presented"},
		"the acquisition is not compared": {edit{"guard", "pg_catalog.concat(l.acquisition, ':', l.token) OPERATOR(pg_catalog.=) (v_presented OPERATOR(pg_catalog.->>) p_names[1])", "l.token::pg_catalog.text OPERATOR(pg_catalog.=) pg_catalog.split_part(v_presented OPERATOR(pg_catalog.->>) p_names[1], ':', 2)"}, "forged: another acquisition"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := newShop(t, twin.edit).staleWrites(t.Context())
			if !slices.ContainsFunc(found, func(f string) bool { return len(f) >= len(twin.want) && f[:len(twin.want)] == twin.want }) {
				t.Fatalf("%q was not found, but %q", twin.want, found)
			}
		})
	}
}

// TestPresentKeepsTheSuccessorOut: a lease that was presented is not granted to a successor before the transaction ends, and savepoints take back what was presented in them.
func TestPresentKeepsTheSuccessorOut(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	held := s.claims(ctx, "orders/1", "orders/2")
	update := func(id int) string { return fmt.Sprintf(`UPDATE orders SET state = 'x' WHERE order_id = %d`, id) }
	x := s.begin(ctx, pgx.ReadCommitted)
	if err := Present(ctx, x, held[0]); err != nil {
		t.Fatal(err)
	}
	inner, err := x.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := Present(ctx, inner, held[1]); err != nil {
		t.Fatal(err)
	}
	for id := 1; id <= 2; id++ {
		if _, err := inner.Exec(ctx, update(id)); err != nil {
			t.Error(err)
		}
	}
	if err := inner.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	x.do(ctx, update(1))
	if _, err := s.store.Revoke(ctx, lease.RevokeRequest{Name: "orders/2", Token: held[1].Token, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	_, err = x.Exec(ctx, update(2))
	if bad := rowRefused(FenceError(fence.Claim{}, err), "orders/2", fence.NotPresented); bad != nil {
		t.Errorf("presented in a savepoint that was rolled back: %v", bad)
	}
}

// TestPresentOutsideATransaction: behind PgBouncer what was presented before BEGIN is gone, and the write is refused.
func TestPresentOutsideATransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	c := s.claims(ctx, "orders/1")[0]
	bouncer := testdb.StartBouncer(t, s.server, testdb.BouncerOptions{})
	pool := connect(t, with(t, bouncer.URL(s.database), "default_query_exec_mode", "exec"))
	if _, err := pool.Exec(ctx, `SELECT tenure.present($1)`, c.String()); err != nil {
		t.Fatal(err)
	}
	_, err := pool.Exec(ctx, `UPDATE orders SET state = 'x' WHERE order_id = 1`)
	if bad := rowRefused(FenceError(fence.Claim{}, err), "orders/1", fence.NotPresented); bad != nil {
		t.Error(bad)
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := Present(ctx, tx, c); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `UPDATE orders SET state = 'x' WHERE order_id = 1`); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Error(err)
	}
}
