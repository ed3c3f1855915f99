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

// TestNewPartitionsHoweverMade: what becomes part of a protected table is protected with it, by whatever statement, and also while protect waits for it.
func TestNewPartitionsHoweverMade(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `CREATE SCHEMA more CREATE TABLE part PARTITION OF public.events FOR VALUES FROM (20) TO (30);
		CREATE TABLE later (note text, order_id int); ALTER TABLE later INHERIT parent;
		CREATE TABLE loose (order_id int, day int)`)
	for _, write := range []string{`INSERT INTO more.part VALUES (7, 21)`, `INSERT INTO later (order_id) VALUES (7)`} {
		if bad := rowRefused(s.write(ctx, pgx.ReadCommitted, statement(write)), "orders/7", fence.NotPresented); bad != nil {
			t.Errorf("%s: %v", write, bad)
		}
	}
	x := s.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `CREATE TABLE joins () INHERITS (loose)`)
	waiting := make(chan error, 1)
	own := connect(t, s.url())
	pid := own.PgConn().PID()
	go func() {
		_, err := Protect(ctx, own, Protection{Table: "loose", Name: byOrder})
		waiting <- err
	}()
	s.awaitLock(ctx, pid)
	if err := x.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	if bad := rowRefused(s.write(ctx, pgx.ReadCommitted, statement(`INSERT INTO joins VALUES (7)`)), "orders/7", fence.NotPresented); bad != nil {
		t.Errorf("made while protect waited: %v", bad)
	}
}

// TestFirstProtectionsAtOnce: of two tables that are protected at the same time, the first of a database, both are.
func TestFirstProtectionsAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `DROP EVENT TRIGGER tenure_protect`)
	own := connect(t, s.url())
	pid := own.PgConn().PID()
	for _, table := range []string{"source", "customer"} { // another table, and the same one
		x := s.begin(ctx, pgx.ReadCommitted)
		if _, err := Protect(ctx, x.Tx, Protection{Table: "customer", Name: `'customers/' || id`}); err != nil {
			t.Fatal(err)
		}
		name := map[string]string{"source": byOrder, "customer": `'customers/' || id`}[table]
		waiting := make(chan error, 1)
		go func() {
			_, err := Protect(ctx, own, Protection{Table: table, Name: name})
			waiting <- err
		}()
		s.awaitLock(ctx, pid)
		if err := x.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-waiting; err != nil {
			t.Errorf("%s: %v", table, err)
		}
		for _, table := range []string{"customer", "source"} {
			if bad := s.write(ctx, pgx.ReadCommitted, statement(`DELETE FROM `+table)); !errors.Is(bad, fence.ErrRefused) {
				t.Errorf("%s: %v", table, bad)
			}
		}
	}
}

// TestOldSnapshotsMissNoTable: above READ COMMITTED, where a transaction does not see what was protected or made part of it since it began, it is refused.
func TestOldSnapshotsMissNoTable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `CREATE TABLE days (order_id int, day int) PARTITION BY RANGE (day); CREATE TABLE day_9 (order_id int, day int)`)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for what, sql := range map[string]string{"made": `CREATE TABLE day_1 PARTITION OF days FOR VALUES FROM (1) TO (2)`, "attached": `ALTER TABLE days ATTACH PARTITION day_9 FOR VALUES FROM (9) TO (10)`} {
			err := s.write(ctx, level, func(ctx context.Context, tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, `SELECT count(*) FROM orders`); err != nil {
					return err
				}
				if _, err := Protect(ctx, s.own, Protection{Table: "days", Name: byOrder}); err != nil {
					t.Fatal(err)
				}
				return statement(sql)(ctx, tx)
			})
			if !errors.Is(err, ErrBeginAgain) {
				t.Errorf("%s, a partition that is %s: %v", level, what, err)
			}
			if err := s.write(ctx, level, statement(sql+`; INSERT INTO events SELECT 1, 1 WHERE false`)); err != nil { // begun again
				t.Errorf("%s, a partition that is %s: %v", level, what, err)
			}
			if _, err := Unprotect(ctx, s.own, "days"); err != nil {
				t.Fatal(err)
			}
		}
		err := s.write(ctx, level, func(ctx context.Context, tx pgx.Tx) error {
			_, err := Protect(ctx, tx, Protection{Table: "days", Name: byOrder})
			return err
		})
		if state(err) != "TN007" && !errors.Is(err, ErrSetup) {
			t.Errorf("%s, protect: %v", level, err)
		}
	}
}

// awaitLock returns when the server process waits for a lock.
func (s *shopRig) awaitLock(ctx context.Context, pid uint32) {
	s.t.Helper()
	for waits := false; !waits; {
		if err := s.own.QueryRow(ctx, `SELECT pg_sleep(0.01) IS NOT NULL AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = $1 AND NOT l.granted)`, pid).Scan(&waits); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestProtectAlwaysWithManyPartitions: making the triggers fire for replicas does not begin again at each partition.
func TestProtectAlwaysWithManyPartitions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `CREATE TABLE wide (order_id int, day int) PARTITION BY LIST (day);
		DO $$ BEGIN FOR i IN 1..40 LOOP EXECUTE format('CREATE TABLE wide_%s PARTITION OF wide FOR VALUES IN (%s)', i, i); END LOOP; END $$;
		CREATE TABLE ddl (depth int); CREATE SEQUENCE depth;
		CREATE FUNCTION counted() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''public.depth''); END';
		CREATE EVENT TRIGGER counted ON ddl_command_end WHEN TAG IN ('CREATE TRIGGER') EXECUTE FUNCTION counted()`)
	if _, err := Protect(ctx, s.own, Protection{Table: "wide", Name: byOrder, Always: true}); err != nil {
		t.Fatal(err)
	}
	if made := s.text(ctx, `SELECT last_value::text FROM depth`); made != "164" {
		t.Errorf("%s triggers were made, want 4 for each of 41 tables", made)
	}
	if off := s.text(ctx, `SELECT count(*)::text FROM pg_trigger WHERE tgname LIKE 'tenure%' AND tgenabled = 'A'`); off != "164" {
		t.Errorf("%s fire for replicas", off)
	}
}

// TestColumnsCalledLikeVariables: the name expression means the columns, however they are called.
func TestColumnsCalledLikeVariables(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `CREATE TABLE odd (v_names text, tg_op text, tg_argv text, found text, "new" text)`)
	if _, err := Protect(ctx, s.own, Protection{Table: "odd", Name: `v_names || tg_op || tg_argv || found || "new"`}); err != nil {
		t.Fatal(err)
	}
	if bad := rowRefused(s.write(ctx, pgx.ReadCommitted, statement(`INSERT INTO odd VALUES ('a', 'b', 'c', 'd', 'e')`)), "abcde", fence.NotPresented); bad != nil {
		t.Error(bad)
	}
}

// TestGeneratedNames: a name may come from a generated column where the guard sees what was generated; a partition generates too late for the rows that come to it by its parent.
func TestGeneratedNames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `CREATE TABLE made (id int, name text GENERATED ALWAYS AS ('made/' || id) STORED);
		CREATE TABLE parts (id int, day int, name text GENERATED ALWAYS AS ('parts/' || id) STORED) PARTITION BY RANGE (day);
		CREATE TABLE part (gone int, name text GENERATED ALWAYS AS ('parts/' || id) STORED, day int, id int); ALTER TABLE part DROP COLUMN gone;
		ALTER TABLE parts ATTACH PARTITION part FOR VALUES FROM (0) TO (10)`)
	for _, name := range []string{`name`, `coalesce(name, 'nobody')`, `'x/' || day || name`} {
		if _, err := Protect(ctx, s.own, Protection{Table: "parts", Name: name}); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "column name is generated") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for table, name := range map[string]string{"made": `coalesce(name, 'nobody')`, "parts": `'parts/' || id`} {
		if _, err := Protect(ctx, s.own, Protection{Table: table, Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for write, name := range map[string]string{`INSERT INTO made VALUES (7)`: "made/7", `INSERT INTO parts VALUES (7, 1)`: "parts/7", `INSERT INTO part (id, day) VALUES (7, 1)`: "parts/7"} {
		if bad := rowRefused(s.write(ctx, pgx.ReadCommitted, statement(write)), name, fence.NotPresented); bad != nil {
			t.Errorf("%s: %v", write, bad)
		}
	}
}

// TestGuardsBelongToTheOwner: a role that may make functions beside the table, or has the right TRIGGER on it, gets no hold of its guards; and the owner keeps one on
// those that a superuser made.
func TestGuardsBelongToTheOwner(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	clerk, owner := "edge_clerk_"+s.database, "edge_owner_"+s.database
	for _, r := range []string{clerk, owner} {
		s.do(ctx, fmt.Sprintf(`CREATE ROLE %q; GRANT CREATE, USAGE ON SCHEMA public TO %q`, r, r))
		t.Cleanup(func() {
			if _, err := s.own.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %q CASCADE`, r)); err != nil {
				t.Error(err)
			}
			dropRoles(t, s.server, r)
		})
	}
	s.do(ctx, fmt.Sprintf(`CREATE TABLE till (order_id int); ALTER TABLE till OWNER TO %q; GRANT ALL ON till TO %q; GRANT tenure_user TO %q`, owner, clerk, owner))
	guard := "tenure_guard_" + s.text(ctx, `SELECT 'till'::regclass::oid::text`)
	const idle = ` RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; `
	s.do(ctx, fmt.Sprintf(`SET ROLE %q; CREATE FUNCTION public.%s()%s CREATE FUNCTION public.idle()%s RESET ROLE`, clerk, guard, idle, idle))
	if _, err := Protect(ctx, s.own, Protection{Table: "till", Name: byOrder}); err != nil {
		t.Fatal(err)
	}
	as := func(role, sql string) error {
		return s.write(ctx, pgx.ReadCommitted, statement(fmt.Sprintf(`SET LOCAL ROLE %q; %s`, role, sql)))
	}
	for what, sql := range map[string]string{
		"a function that was there before":    `CREATE OR REPLACE FUNCTION public.` + guard + `()` + idle,
		"a trigger by another of its name":    `CREATE OR REPLACE TRIGGER tenure_guard_insert AFTER INSERT ON till FOR EACH STATEMENT EXECUTE FUNCTION public.idle()`,
		"a trigger that was not there before": `CREATE TRIGGER tenure_guard_other AFTER INSERT ON till FOR EACH STATEMENT EXECUTE FUNCTION public.idle()`,
	} {
		if err := as(clerk, sql); state(err) != stateNotAllowed && (state(err) != "42601" || !s.before14(ctx)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, sql := range []string{`SELECT tenure.protect('till', 'order_id::text')`, `SELECT tenure.unprotect('till')`} {
		if err := as(owner, sql); err != nil {
			t.Errorf("the owner: %s: %v", sql, err)
		}
		former := fmt.Sprintf(`ALTER TABLE till OWNER TO %q; GRANT tenure_user TO %q; SET LOCAL ROLE %q; `, clerk, clerk, clerk)
		if err := s.write(ctx, pgx.ReadCommitted, statement(former+sql)); err != nil {
			t.Errorf("the next owner: %s: %v", sql, err)
		}
	}
	for _, lacks := range []struct{ revoke, told string }{
		{fmt.Sprintf(`REVOKE ALL ON till FROM %q`, owner), "GRANT UPDATE ON public.till"},
		{fmt.Sprintf(`REVOKE CREATE ON SCHEMA public FROM %q`, owner), "GRANT CREATE ON SCHEMA public"},
	} {
		s.do(ctx, lacks.revoke)
		err := protectError(as(owner, `SELECT tenure.protect('till', 'order_id::text')`))
		if !errors.Is(err, ErrSetup) || !strings.Contains(err.Error(), lacks.told) {
			t.Errorf("an owner after %s: %v", lacks.revoke, err)
		}
	}
}

// before14 reports whether the server has no CREATE OR REPLACE TRIGGER.
func (s *shopRig) before14(ctx context.Context) bool {
	return s.text(ctx, `SELECT current_setting('server_version_num')`) < "140000"
}

// TestOneGuardFunctionAFamily: a function that guards another table keeps its body, as after a restore, where it is called after another table's oid.
func TestOneGuardFunctionAFamily(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `CREATE TABLE invoice (id int)`)
	s.do(ctx, fmt.Sprintf(`ALTER FUNCTION %s() RENAME TO tenure_guard_%s`, s.text(ctx, `SELECT tgfoid::regproc::text FROM pg_trigger WHERE tgrelid = 'orders'::regclass AND tgname = 'tenure_guard_insert'`),
		s.text(ctx, `SELECT 'invoice'::regclass::oid::text`)))
	for range 2 {
		if _, err := Protect(ctx, s.own, Protection{Table: "invoice", Name: `'invoices/' || id`}); err != nil {
			t.Fatal(err)
		}
		for write, name := range map[string]string{`INSERT INTO invoice VALUES (7)`: "invoices/7", `INSERT INTO orders VALUES (7)`: "orders/7"} {
			if bad := rowRefused(s.write(ctx, pgx.ReadCommitted, statement(write)), name, fence.NotPresented); bad != nil {
				t.Errorf("%s: %v", write, bad)
			}
		}
	}
}

// TestForgedTextIsNotRepeated: what was set by hand makes no error larger.
func TestForgedTextIsNotRepeated(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	for what, forged := range map[string]string{"digits": `repeat('9', 5000000)`, "text": `repeat('x', 5000000)`, "a little": `'x'`, "lines": `E'1\\nERROR'`} {
		err := s.write(ctx, pgx.ReadCommitted, statement(`SELECT set_config('tenure.presented', '{"orders/1": "x:' || `+forged+` || '"}', true); UPDATE orders SET state = 'x' WHERE order_id = 1`))
		var refused *fence.RefusedError
		if !errors.As(err, &refused) || refused.Claim.Token != 0 || len(err.Error()) > 1000 {
			t.Errorf("%s: %.300v", what, err)
		}
	}
}

// TestProtectionsAmongStrangers: triggers that only are called as guards are, without arguments or with others, hide nothing of the real ones.
func TestProtectionsAmongStrangers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
		CREATE TABLE foreigners (id int);
		CREATE TRIGGER tenure_guard_update BEFORE UPDATE ON foreigners FOR EACH ROW EXECUTE FUNCTION own();
		CREATE TRIGGER tenure_guard_a BEFORE INSERT ON foreigners FOR EACH ROW EXECUTE FUNCTION own('x');
		CREATE TRIGGER tenure_guard_a BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION own();
		DROP TRIGGER tenure_guard_delete ON orders;
		CREATE TRIGGER tenure_guard_delete BEFORE DELETE ON orders FOR EACH ROW EXECUTE FUNCTION own('x')`)
	all, err := Protections(ctx, s.own)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		switch p.Table {
		case "foreigners":
			if p.Name != "" || len(p.Problems) == 0 {
				t.Errorf("%+v", p)
			}
		case "orders":
			if p.Name != `('orders/'::text || order_id)` || !slices.Equal(p.Problems, []string{"public.orders: trigger tenure_guard_delete is missing"}) {
				t.Errorf("%+v", p)
			}
		}
	}
	if len(all) != 4 {
		t.Errorf("%+v", all)
	}
}

// TestProtectionsTellOfOtherTriggers: a trigger that is called as a guard and is none is told, and what a guard cannot be made for.
func TestProtectionsTellOfOtherTriggers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	guard := func(table string) string {
		return s.text(ctx, `SELECT tgfoid::regproc::text FROM pg_trigger WHERE tgname = 'tenure_guard_insert' AND tgrelid = '`+table+`'::regclass`)
	}
	again := func(kind, table, rest string) string {
		return fmt.Sprintf(`DROP TRIGGER tenure_guard_%[1]s ON %[2]s; DO $d$ BEGIN EXECUTE (SELECT format('CREATE TRIGGER tenure_guard_%[1]s %%s EXECUTE FUNCTION %[4]s(%%L, %%L)', $c$%[3]s$c$, a[1], a[2])
			FROM (SELECT tenure.guard_args(tgargs) FROM pg_trigger WHERE tgname = 'tenure_guard_delete' AND tgrelid = '%[2]s'::regclass) x (a)); END $d$`, kind, table, rest, guard(table))
	}
	for _, off := range []struct{ sql, want string }{
		{again("insert", "orders", "AFTER INSERT ON orders REFERENCING NEW TABLE AS tenure_new FOR EACH STATEMENT WHEN (false)"), "public.orders: trigger tenure_guard_insert is missing"},
		{again("update", "orders", "AFTER UPDATE ON orders FOR EACH ROW"), "public.orders: trigger tenure_guard_update is missing"},
		{again("truncate", "parent", "AFTER TRUNCATE ON parent FOR EACH STATEMENT"), "public.parent: trigger tenure_guard_truncate is missing"},
		{`ALTER FUNCTION ` + guard("events") + `() RESET ALL`, "function " + "public." + guard("events") + "() was changed"},
		{`CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing; CREATE FOREIGN TABLE abroad PARTITION OF events FOR VALUES FROM (90) TO (99) SERVER nowhere`,
			"public.abroad: a foreign table has no guard"},
	} {
		s.do(ctx, off.sql)
		all, err := Protections(ctx, s.own)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, p := range all {
			found = append(found, p.Problems...)
		}
		if !slices.Contains(found, off.want) {
			t.Errorf("%.60s: told is %q, want %q", off.sql, found, off.want)
		}
	}
}
