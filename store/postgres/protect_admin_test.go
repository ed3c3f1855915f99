package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
)

// TestProtectRefuses: what is no table of the caller's, and what is no name expression, is refused by name and changes nothing.
func TestProtectRefuses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `CREATE TABLE goods (id int PRIMARY KEY, tag text, at timestamptz, doc json);
		CREATE SEQUENCE counter;
		CREATE FUNCTION volatile_name() RETURNS text LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN ''x''; END';
		CREATE TEMPORARY TABLE passing (id int);
		CREATE MATERIALIZED VIEW seen AS SELECT 1 AS id`) //nolint:misspell // SQL's own spelling
	before := s.catalog(ctx)
	for _, bad := range []struct{ table, name, want string }{
		{"nowhere", byOrder, "does not exist"},
		{"goods; DROP TABLE goods", `'g'`, "table"},
		{"", `'g'`, "table"},
		{"open_orders", byOrder, "only tables"},
		{"seen", `id::text`, "only tables"},
		{"counter", `'c'`, "only tables"},
		{"passing", `id::text`, "temporary"},
		{"events_1", byOrder, "protect public.events"},
		{"tenure.lease", `name`, "system"},
		{"pg_catalog.pg_class", `relname::text`, "system"},
		{"goods", ``, "4096 bytes"},
		{"goods", " \n\t", "4096 bytes"},
		{"goods", strings.Repeat("x", 10<<20), "4096 bytes"},
		{"goods", `public.volatile_name()`, "immutable"},
		{"goods", `volatile_name()`, "does not exist"},
		{"goods", `random()::text`, "immutable"},
		{"goods", `now()::text`, "immutable"},
		{"goods", `at::text`, "immutable"},
		{"goods", `clock_timestamp()::text || id`, "immutable"},
		{"goods", `doc::text || (SELECT 1)`, "expression"},
		{"goods", `(SELECT tag FROM goods LIMIT 1)`, "expression"},
		{"goods", `max(tag)`, "expression"},
		{"goods", `row_number() OVER ()`, "expression"},
		{"goods", `generate_series(1, 2)::text`, "expression"},
		{"goods", `absent`, "expression"},
		{"goods", `other.tag`, "expression"},
		{"goods", `goods.tag`, "expression"},
		{"goods", `'a', 'b'`, "expression"},
		{"goods", `'a'; DROP TABLE goods`, "expression"},
		{"goods", `'a')); DROP TABLE goods; SELECT ((1`, "expression"},
		{"goods", `'a') FROM goods; DROP TABLE goods --`, "expression"},
		{"goods", `'a'::text) FROM goods WHERE (true`, "expression"},
		{"goods", `'a' -- `, ""},
		{"goods", `'a' /*`, "expression"},
		{"goods", `$1`, "expression"},
		{"goods", `'a`, "expression"},
		{"goods", `'$body$; DROP TABLE goods; $body$'`, ""},
	} {
		p := Protection{Table: bad.table, Name: bad.name}
		_, err := Protect(ctx, s.own, p)
		if bad.want == "" { // one expression after all: what looks like SQL in it is a comment or a string
			if err != nil {
				t.Errorf("%s by %.40q: %v", bad.table, bad.name, err)
			}
			if was, err := Unprotect(ctx, s.own, bad.table); !was || err != nil {
				t.Errorf("unprotect: %t, %v", was, err)
			}
		} else if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s by %.40q: %v; want it invalid: %s", bad.table, bad.name, err, bad.want)
		}
		if _, again := ProtectScript(ctx, s.own, p); (again == nil) != (err == nil) {
			t.Errorf("%s by %.40q: the script says %v", bad.table, bad.name, again)
		}
		if after := s.catalog(ctx); after != before {
			t.Fatalf("%s by %.40q left\n%s\nof\n%s", bad.table, bad.name, after, before)
		}
	}
}

// catalog is every table, function and trigger outside the system's schemas.
func (s *shopRig) catalog(ctx context.Context) string {
	s.t.Helper()
	return s.text(ctx, `SELECT string_agg(x, ' ' ORDER BY x) FROM (
		SELECT oid::regclass::text FROM pg_class WHERE relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace, 'pg_toast'::regnamespace)
		UNION ALL SELECT oid::regprocedure::text || md5(prosrc) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		UNION ALL SELECT concat(tgname, tgrelid::regclass, tgenabled) FROM pg_trigger) a (x)`)
}

// TestRowsWithoutAUsableName: a row whose name is NULL, or none that a lease can have, is refused, and the error is of bounded size.
func TestRowsWithoutAUsableName(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `CREATE TABLE notes (name text)`)
	if _, err := Protect(ctx, s.own, Protection{Table: "notes", Name: "name"}); err != nil {
		t.Fatal(err)
	}
	c := s.claims(ctx, "orders/1")
	for what, value := range map[string]string{"NULL": `NULL`, "empty": `''`, "10 MB": `repeat('x', 10485760)`, "with a control character": `E'a\nb'`} {
		for _, claims := range [][]fence.Claim{nil, c} {
			err := s.write(ctx, pgx.ReadCommitted, statement(`INSERT INTO notes VALUES (`+value+`)`), claims...)
			var refused *fence.RefusedError
			if !errors.As(err, &refused) || refused.Why != fence.NotPresented || len(err.Error()) > 2000 {
				t.Errorf("%s: %.200v", what, err)
			}
		}
	}
}

// TestProtectIsForEveryRole: whoever writes is refused, with the same facts; a role that does not own the table can neither protect nor unprotect it; a search path of
// one's own opens nothing.
func TestProtectIsForEveryRole(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, hostile)
	s.do(ctx, `CREATE FUNCTION evil.any_text(text, text) RETURNS text LANGUAGE sql AS 'SELECT ''orders/other''::text'; DROP OPERATOR IF EXISTS evil.|| (text, text);
		CREATE OPERATOR evil.|| (FUNCTION = evil.any_text, LEFTARG = text, RIGHTARG = text)`)
	role, owner := "shop_clerk_"+s.database, "shop_owner_"+s.database
	for _, r := range []string{role, owner} {
		s.do(ctx, fmt.Sprintf(`CREATE ROLE %q`, r))
		t.Cleanup(func() {
			if _, err := s.own.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %q`, r)); err != nil {
				t.Error(err)
			}
			dropRoles(t, s.server, r)
		})
	}
	s.do(ctx, fmt.Sprintf(`GRANT ALL ON ALL TABLES IN SCHEMA public TO %q; GRANT tenure_user TO %q; GRANT ALL ON SCHEMA public TO %q;
		CREATE TABLE own (order_id int); ALTER TABLE own OWNER TO %q`, role, owner, owner, owner))
	update := statement(`UPDATE orders SET state = 'x'`) // without an operator, which would be the role's own
	as := func(role, path string) error {
		return s.write(ctx, pgx.ReadCommitted, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL ROLE %q; SET LOCAL search_path = %s`, role, path)); err != nil {
				return err
			}
			return update(ctx, tx)
		})
	}
	for _, path := range []string{"public", "evil, pg_catalog, public", "pg_temp, evil, public"} {
		if bad := rowRefused(as(role, path), "orders/1", fence.NotPresented); bad != nil {
			t.Errorf("as a role that knows nothing of leases, path %s: %v", path, bad)
		}
	}
	for what, call := range map[string]string{"protect": `SELECT tenure.protect('orders', '''x''')`, "unprotect": `SELECT tenure.unprotect('orders')`} {
		err := s.write(ctx, pgx.ReadCommitted, statement(fmt.Sprintf(`SET LOCAL ROLE %q; %s`, owner, call)))
		if state(err) != stateNotAllowed {
			t.Errorf("%s of another's table: %v", what, err)
		}
	}
	for _, step := range []string{`SELECT tenure.protect('own', 'order_id::text')`, `SELECT tenure.unprotect('own')`} {
		if err := s.write(ctx, pgx.ReadCommitted, statement(fmt.Sprintf(`SET LOCAL ROLE %q; %s`, owner, step))); err != nil {
			t.Errorf("an owner who is no superuser: %s: %v", step, err)
		}
	}
}

// TestProtectionsTellWhatIsOff: new partitions are protected with their parent, and what an owner has switched off is told.
func TestProtectionsTellWhatIsOff(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `CREATE TABLE events_3 PARTITION OF events FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (day);
		CREATE TABLE events_3a PARTITION OF events_3 FOR VALUES FROM (20) TO (25);
		CREATE TABLE events_4 (order_id int, day int, what text);
		INSERT INTO events_4 VALUES (7, 31, 'before it was attached');
		ALTER TABLE events ATTACH PARTITION events_4 FOR VALUES FROM (30) TO (40);
		CREATE TABLE grandchild () INHERITS (child);
		CREATE TABLE unrelated (id int)`)
	for _, write := range []string{`INSERT INTO events_3a VALUES (7, 21)`, `INSERT INTO events_3 VALUES (7, 21)`, `UPDATE events_4 SET what = 'x'`, `INSERT INTO grandchild VALUES (7)`} {
		if bad := rowRefused(s.write(ctx, pgx.ReadCommitted, statement(write)), "orders/7", fence.NotPresented); bad != nil {
			t.Errorf("%s: %v", write, bad)
		}
	}
	problems := func() []string {
		t.Helper()
		all, err := Protections(ctx, s.own)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, p := range all {
			if !p.NewPartitions || p.TruncateName != "public."+p.Table || p.Name != `('orders/'::text || order_id)` {
				t.Errorf("%+v", p)
			}
			found = append(found, p.Problems...)
		}
		if len(all) != 3 || all[0].Table != "events" || all[0].Tables != 6 {
			t.Errorf("%+v", all)
		}
		return found
	}
	if found := problems(); len(found) > 0 {
		t.Errorf("nothing was switched off, and told is %q", found)
	}
	function := s.text(ctx, `SELECT tgfoid::regproc::text FROM pg_trigger WHERE tgrelid = 'orders'::regclass AND tgname = 'tenure_guard_insert'`)
	for _, off := range []struct{ sql, want string }{
		{`ALTER TABLE orders DISABLE TRIGGER tenure_guard_update`, "public.orders: trigger tenure_guard_update is disabled"},
		{`ALTER TABLE orders ENABLE REPLICA TRIGGER tenure_guard_insert`, "public.orders: trigger tenure_guard_insert is for replicas alone"},
		{`DROP TRIGGER tenure_guard_delete ON events_4`, "public.events_4: trigger tenure_guard_delete is missing"},
		{`CREATE OR REPLACE FUNCTION ` + function + `() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN NULL; END'`, "function public." + function + "() was changed"},
	} {
		s.do(ctx, off.sql)
		if found := problems(); !slices.Contains(found, off.want) {
			t.Errorf("%s: told is %q", off.sql, found)
		}
	}
	for _, table := range []string{"orders", "events"} { // once more mends it
		if _, err := Protect(ctx, s.own, Protection{Table: table, Name: byOrder}); err != nil {
			t.Fatal(err)
		}
	}
	if found := problems(); len(found) > 0 {
		t.Errorf("after it was protected again: %q", found)
	}
}

// TestProtectAlways: a session that replicates passes the triggers unless they are for it too.
func TestProtectAlways(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	replicating := statement(`SET LOCAL session_replication_role = replica; UPDATE orders SET state = 'x' WHERE order_id = 1`)
	if err := s.write(ctx, pgx.ReadCommitted, replicating); err != nil {
		t.Errorf("it is said to pass: %v", err)
	}
	if _, err := Protect(ctx, s.own, Protection{Table: "orders", Name: byOrder, Always: true}); err != nil {
		t.Fatal(err)
	}
	// Tables that had no triggers, while the event trigger is there: enabling them fires it.
	s.do(ctx, `CREATE TABLE late (order_id int); CREATE TABLE parted (order_id int) PARTITION BY LIST (order_id); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)`)
	for _, table := range []string{"late", "parted"} {
		if _, err := Protect(ctx, s.own, Protection{Table: table, Name: byOrder, Always: true}); err != nil {
			t.Fatal(err)
		}
	}
	s.do(ctx, `CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2)`)
	for _, write := range []string{`INSERT INTO late VALUES (1)`, `INSERT INTO parted_1 VALUES (1)`, `INSERT INTO parted_2 VALUES (2)`} {
		err := s.write(ctx, pgx.ReadCommitted, statement(`SET LOCAL session_replication_role = replica; `+write))
		if !errors.Is(err, fence.ErrRefused) {
			t.Errorf("%s: %v", write, err)
		}
	}
	if bad := rowRefused(s.write(ctx, pgx.ReadCommitted, replicating), "orders/1", fence.NotPresented); bad != nil {
		t.Error(bad)
	}
	was, err := Unprotect(ctx, s.own, "orders")
	if !was || err != nil {
		t.Errorf("%t, %v", was, err)
	}
	if err := s.write(ctx, pgx.ReadCommitted, statement(`UPDATE orders SET state = 'x'; TRUNCATE orders`)); err != nil {
		t.Error(err)
	}
	if was, err = Unprotect(ctx, s.own, "orders"); was || err != nil {
		t.Errorf("again: %t, %v", was, err)
	}
}
