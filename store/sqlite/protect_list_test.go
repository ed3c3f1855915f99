package sqlite

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// listed is the protections of the file as text, one a line, with their problems.
func (g *guarded) listed() string {
	g.t.Helper()
	all, err := g.s.Protected(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	var lines []string
	for _, p := range all {
		lines = append(lines, p.Table+" by "+p.Name+": "+strings.Join(p.Problems, "; "))
	}
	return strings.Join(lines, "\n")
}

// What is in force is listed, and whatever has taken it out of force since is found.
func TestProtectedSaysWhatIsInForce(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change string
		says   []string
	}{
		"nothing":                             {`CREATE TABLE other (a)`, []string{"orders by 'orders/' || id: \n", "shops by 'shops': "}},
		"a trigger is dropped":                {`DROP TRIGGER tenure_protect_delete_orders`, []string{"trigger tenure_protect_delete_orders is missing: protect the table again"}},
		"all triggers are dropped":            {dropTriggers("orders"), []string{"none of its triggers is there"}},
		"a trigger is made anew":              {`DROP TRIGGER tenure_protect_delete_orders; CREATE TRIGGER tenure_protect_delete_orders AFTER DELETE ON orders BEGIN SELECT 1; END`, []string{"tenure_protect_delete_orders is not as it should be"}},
		"the table is dropped":                {`DROP TABLE orders`, []string{"orders by 'orders/' || id: none of its triggers is there: the table was dropped"}},
		"the table is made anew":              {`CREATE TABLE n AS SELECT * FROM orders; DROP TABLE orders; ALTER TABLE n RENAME TO orders`, []string{"none of its triggers is there", "made anew; protect it again"}},
		"the table is renamed":                {`ALTER TABLE orders RENAME TO sales`, []string{`sales by 'orders/' || id: the table was renamed, and was "orders"`}},
		"a unique index is made":              {`CREATE UNIQUE INDEX more ON orders (place, code)`, []string{"before_insert_orders is not as it should be", "before_update_orders is not as it should be", "protect the table again"}},
		"a partial unique index is made":      {`CREATE UNIQUE INDEX more ON orders (place) WHERE state`, []string{"before_insert_orders is not as it should be"}},
		"a column that the name has, renamed": {`ALTER TABLE orders RENAME COLUMN id TO number`, []string{"the table has changed", "is not as it should be"}},
		"a column is added and one dropped":   {`ALTER TABLE orders ADD COLUMN more; ALTER TABLE orders DROP COLUMN state`, []string{"orders by 'orders/' || id: \n"}},
		"a trigger that ignores is made":      {`CREATE TRIGGER "my trigger" /* x */ AFTER UPDATE ON orders BEGIN SELECT RAISE ( ignore ); END`, []string{"the table has changed", "my trigger calls RAISE(IGNORE)"}},
		"a trigger that fails is made":        {`CREATE TRIGGER "my trigger" AFTER UPDATE ON orders BEGIN SELECT RAISE (FAIL, 'no'); END`, []string{"my trigger was made later and may fail after a write"}},
		"a trigger that writes is made":       {`CREATE TRIGGER mine AFTER INSERT ON orders BEGIN INSERT INTO shops VALUES (NEW.id); END`, []string{"mine was made later and may fail after a write"}},
		"what all rest on is changed":         {`DROP VIEW tenure_in_force; CREATE VIEW tenure_in_force AS SELECT name FROM tenure_presented`, []string{"tenure_in_force, which every protection rests on, is missing or was changed"}},
		"what all rest on is missing":         {`DROP TRIGGER tenure_presented_insert`, []string{"tenure_presented_insert, which"}},
		"a protection that nobody asked for":  {`DELETE FROM tenure_protected WHERE tbl = 'orders'`, []string{"orders by : it has triggers of a protection that nobody asked for"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, `CREATE TABLE Shops (id INTEGER PRIMARY KEY); INSERT INTO Shops VALUES (1)`)
			g.protect("shops", `'shops'`)
			before := g.listed()
			plainExec(t, g.s.path, c.change)
			got := g.listed()
			found := false
			for _, says := range c.says {
				found = found || strings.Contains(strings.ToLower(got+"\n"), strings.ToLower(says))
			}
			if !found {
				t.Errorf("listed is\n%s\nwant %q", got, c.says)
			}
			if what != "nothing" && !strings.Contains(what, "added") && got == before {
				t.Errorf("the list says what it said before: %s", got)
			}
			wantRefused(t, "the other table", g.foreign(`DELETE FROM shops`))
		})
	}
}

func dropTriggers(table string) string {
	var all []string
	for _, kind := range triggerKinds() {
		all = append(all, "DROP TRIGGER "+quote(triggerName(kind, table)))
	}
	return strings.Join(all, "; ")
}

// A table that is renamed stays protected, and one whose columns are renamed too; protected again, it is as new.
func TestRenamedTablesStayProtected(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	plainExec(t, g.s.path, `ALTER TABLE orders RENAME TO "sales of 'x'"`, `ALTER TABLE "sales of 'x'" RENAME COLUMN id TO number`, `ALTER TABLE "sales of 'x'" RENAME COLUMN code TO "a code"`)
	two := []fence.Claim{g.p.take("orders/2")}
	const update = `UPDATE "sales of 'x'" SET state = 'a' WHERE number = 2`
	wantRefused(t, "renamed", g.foreign(update), "no claim was presented")
	wantRefused(t, "what REPLACE meets", g.write(two, `REPLACE INTO "sales of 'x'" (number, "a code") VALUES (2, 'one')`), "unique key")
	wantRefused(t, "moved by a column that was renamed", g.write(two, `UPDATE "sales of 'x'" SET number = 9 WHERE number = 2`), "to other names")
	wantRefused(t, "moved by the row number", g.write(two, `UPDATE "sales of 'x'" SET oid = 9 WHERE number = 2`), "to other names")
	wantRefused(t, "what UPDATE OR REPLACE meets", g.write(two, `UPDATE OR REPLACE "sales of 'x'" SET "a code" = 'one' WHERE number = 2`), "unique key")
	if err := g.write(two, update); err != nil {
		t.Error(err)
	}
	plainExec(t, g.s.path, `CREATE TABLE orders (id)`)
	wantKind(t, g.s.Protect(t.Context(), Protection{Table: "orders", Name: `id`}), lease.ErrInvalid, "sales of 'x'", "protect that one again first")
	g.protect("sales of 'x'", `'orders/' || number`)
	g.protect("orders", `id`)
	if found, err := g.s.Unprotect(t.Context(), "orders"); !found || err != nil {
		t.Errorf("unprotect: %v, %v", found, err)
	}
	if got, want := g.listed(), `sales of 'x' by 'orders/' || number: `; got != want {
		t.Errorf("listed %q, want %q", got, want)
	}
	wantRefused(t, "protected again", g.foreign(update), `"sales of 'x'"`)
	if err := g.write(two, update); err != nil {
		t.Error(err)
	}
}

// Protecting again puts the new name in place of the old one; taking the protection away lets everybody write again.
func TestProtectAgainAndUnprotect(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.protect("Orders", `'o/' || id`)
	if got, want := g.listed(), `orders by 'o/' || id: `; got != want {
		t.Errorf("listed %q, want %q", got, want)
	}
	wantRefused(t, "under the name of before", g.write([]fence.Claim{g.p.take("orders/1")}, steal), `'o/' || id`)
	if err := g.write([]fence.Claim{g.p.take("o/1")}, `UPDATE orders SET state = 'paid' WHERE id = 1`); err != nil {
		t.Error(err)
	}
	if found, err := g.s.Unprotect(t.Context(), "ORDERS"); !found || err != nil {
		t.Errorf("unprotect: %v, %v", found, err)
	}
	if found, err := g.s.Unprotect(t.Context(), "orders"); found || err != nil {
		t.Errorf("unprotect again: %v, %v", found, err)
	}
	if err := g.foreign(steal); err != nil {
		t.Errorf("a table that is protected no more: %v", err)
	}
	if n := g.count(`SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name GLOB 'tenure_protect_*'`); n != 0 || g.listed() != "" {
		t.Errorf("%d triggers are left, listed %q", n, g.listed())
	}
	g.protect("orders", orderName)
	plainExec(t, g.s.path, `DROP TABLE orders`)
	if found, err := g.s.Unprotect(t.Context(), "orders"); !found || err != nil || g.listed() != "" {
		t.Errorf("unprotect of a table that is no more: %v, %v, listed %q", found, err, g.listed())
	}
}

// The script is what Protect runs: run by another program, it leaves the same schema, and printing it leaves nothing.
func TestProtectScript(t *testing.T) {
	t.Parallel()
	const schema = `SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name)`
	want := newGuarded(t)
	g := newUnguarded(t, ordersTable)
	before := plainValue(t, g.s.path, schema)
	script, err := g.s.ProtectScript(t.Context(), Protection{Table: "orders", Name: orderName})
	if err != nil {
		t.Fatal(err)
	}
	if after := plainValue(t, g.s.path, schema); after != before {
		t.Errorf("printing it changed the schema into %s", after)
	}
	for range 2 { // a second script drops what the first made
		plainExec(t, g.s.path, script)
		if got, want := plainValue(t, g.s.path, schema), plainValue(t, want.s.path, schema); got != want {
			t.Errorf("the schema is\n%s\nwant\n%s", got, want)
		}
		if script, err = g.s.ProtectScript(t.Context(), Protection{Table: "orders", Name: orderName}); err != nil {
			t.Fatal(err)
		}
	}
	// In a transaction of the caller's own, and in a fenced one, it is the same; rolled back, nothing is protected.
	tx, err := g.own.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Protect(t.Context(), tx, Protection{Table: "orders", Name: `'other'`}); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	if got, want := g.listed(), "orders by "+orderName+": "; got != want {
		t.Errorf("listed %q, want %q", got, want)
	}
}

// Protecting takes its turn beside the writes of all others.
func TestProtectBesideOthers(t *testing.T) {
	t.Parallel()
	g := newUnguarded(t, ordersTable)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 10 {
				if err := g.s.Protect(t.Context(), Protection{Table: "orders", Name: orderName}); err != nil {
					t.Error(err)
				}
				if _, err := g.p.ask(fmt.Sprintf("n/%d/%d", i, j)); err != nil {
					t.Error(err)
				}
				if _, err := g.s.Protected(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got, want := g.listed(), "orders by "+orderName+": "; got != want {
		t.Errorf("listed %q, want %q", got, want)
	}
	err := inOwnTx(t.Context(), g.own, func(tx *sql.Tx) error {
		all, err := Protected(t.Context(), tx)
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("%d protections", len(all))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if len(ProtectionGaps()) == 0 {
		t.Error("nothing is said of what protection does not stop")
	}
}
