package sqlite

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/fence"

	lib "modernc.org/sqlite/lib"
)

// protectionGuarantees is what must hold of a protected table, by the name of the guarantee.
func protectionGuarantees() map[string]func(g *guarded) bool {
	return map[string]func(g *guarded) bool{
		"a foreign UPDATE is refused": func(g *guarded) bool {
			return errors.Is(FenceError(g.foreign(`UPDATE orders SET state = 'stolen' WHERE id = 1`)), fence.ErrRefused)
		},
		"a foreign INSERT is refused": func(g *guarded) bool {
			return errors.Is(FenceError(g.foreign(`INSERT INTO orders (id, code) VALUES (9, 'x')`)), fence.ErrRefused)
		},
		"a foreign DELETE is refused": func(g *guarded) bool {
			return errors.Is(FenceError(g.foreign(`DELETE FROM orders WHERE id = 1`)), fence.ErrRefused)
		},
		"REPLACE deletes no unclaimed row": func(g *guarded) bool {
			return errors.Is(g.write([]fence.Claim{g.p.take("orders/9")}, `REPLACE INTO orders (id, code) VALUES (9, 'two')`), fence.ErrRefused)
		},
		"UPDATE OR REPLACE deletes no unclaimed row": func(g *guarded) bool {
			return errors.Is(g.write([]fence.Claim{g.p.take("orders/1")}, `UPDATE OR REPLACE orders SET code = 'two' WHERE id = 1`), fence.ErrRefused)
		},
		"a row is not moved to an unclaimed name": func(g *guarded) bool {
			return errors.Is(g.write([]fence.Claim{g.p.take("orders/1")}, `UPDATE orders SET id = 9 WHERE id = 1`), fence.ErrRefused)
		},
		"a row is not moved from an unclaimed name": func(g *guarded) bool {
			return errors.Is(g.write([]fence.Claim{g.p.take("orders/9")}, `UPDATE orders SET id = 9 WHERE id = 1`), fence.ErrRefused)
		},
		"what was presented does not outlive its transaction": func(g *guarded) bool {
			claim := g.p.take("orders/1")
			err := inOwnTx(g.t.Context(), g.own, func(tx *sql.Tx) error { return Present(g.t.Context(), tx, claim) }) // Done is forgotten
			return resultCode(err) == lib.SQLITE_CONSTRAINT && errors.Is(FenceError(g.foreign(`UPDATE orders SET state = 'stolen' WHERE id = 1`)), fence.ErrRefused)
		},
		"what was left behind is void once a store has written": func(g *guarded) bool {
			claim := g.p.take("orders/1")
			g.leaveBehind(claim)
			if err := g.p.renew(); err != nil {
				g.t.Fatal(err)
			}
			return errors.Is(FenceError(g.foreign(`UPDATE orders SET state = 'stolen' WHERE id = 1`)), fence.ErrRefused)
		},
		"a superseded claim is not presented by hand": func(g *guarded) bool {
			old := g.p.take("orders/1")
			g.p.drop(old)
			g.p.take("orders/1")
			return g.forge(old) != nil
		},
		"a released claim is not presented by hand": func(g *guarded) bool {
			old := g.p.take("orders/1")
			g.p.drop(old)
			return g.forge(old) != nil
		},
		"what was presented is not changed by hand": func(g *guarded) bool {
			return g.write([]fence.Claim{g.p.take("orders/9")}, `UPDATE tenure_presented SET name = 'orders/1'`, `UPDATE orders SET state = 'stolen' WHERE id = 1`) != nil
		},
	}
}

// leaveBehind makes what no program should: a row of what was presented that is committed, because foreign keys were off.
func (g *guarded) leaveBehind(c fence.Claim) {
	g.t.Helper()
	if err := g.forge(c); err != nil {
		g.t.Fatal(err)
	}
}

// forge writes a claim into the table of what was presented, past Present.
func (g *guarded) forge(c fence.Claim) error {
	_, err := g.stranger.ExecContext(g.t.Context(), `INSERT INTO tenure_presented (name, acquisition, token, mark, at)
		SELECT ?, ?, ?, mark, mark FROM tenure_authority`, c.Name, c.Acquisition[:], int64(c.Token))
	return err
}

func TestProtection(t *testing.T) {
	t.Parallel()
	for guarantee, holds := range protectionGuarantees() {
		if !holds(newGuarded(t)) {
			t.Errorf("not kept: %s", guarantee)
		}
	}
}

// changed is a file's trigger or view with one text put for another.
func changedSQL(t *testing.T, kind, name, from, to string) []string {
	t.Helper()
	made := plainValue(t, newGuarded(t).s.path, `SELECT sql FROM sqlite_schema WHERE name = `+literal(name))
	if !strings.Contains(made, from) {
		t.Fatalf("%s does not contain %q: %s", name, from, made)
	}
	return []string{`DROP ` + kind + ` ` + quote(name), strings.ReplaceAll(made, from, to)}
}

// TestBrokenProtections demands that each naive form is caught by the guarantee that it breaks.
func TestBrokenProtections(t *testing.T) {
	t.Parallel()
	withoutKey := []string{`DROP TRIGGER tenure_presented_insert`, `DROP TRIGGER tenure_presented_update`, `DROP VIEW tenure_in_force`, `DROP TABLE tenure_presented`,
		`CREATE TABLE tenure_presented (name TEXT PRIMARY KEY, acquisition BLOB NOT NULL, token INTEGER NOT NULL, mark INTEGER NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID`,
		`CREATE VIEW tenure_in_force AS SELECT p.name AS name FROM tenure_presented p CROSS JOIN tenure_authority a WHERE a.one = 1 AND a.mark = p.mark`}
	for guarantee, breaks := range map[string][]string{
		"a foreign UPDATE is refused":                           {`DROP TRIGGER tenure_protect_update_orders`},
		"a foreign INSERT is refused":                           {`DROP TRIGGER tenure_protect_insert_orders`},
		"a foreign DELETE is refused":                           {`DROP TRIGGER tenure_protect_delete_orders`},
		"REPLACE deletes no unclaimed row":                      {`DROP TRIGGER tenure_protect_before_insert_orders`},
		"UPDATE OR REPLACE deletes no unclaimed row":            {`DROP TRIGGER tenure_protect_before_update_orders`},
		"a row is not moved to an unclaimed name":               {`DROP TRIGGER tenure_protect_move_orders`},
		"a row is not moved from an unclaimed name":             changedSQL(t, "TRIGGER", "tenure_protect_update_orders", "OLD.", "NEW."),
		"what was presented does not outlive its transaction":   withoutKey,
		"what was left behind is void once a store has written": changedSQL(t, "VIEW", "tenure_in_force", "a.mark = p.mark", "p.mark > 0"),
		"a superseded claim is not presented by hand":           {`DROP TRIGGER tenure_presented_insert`},
		"a released claim is not presented by hand":             changedSQL(t, "TRIGGER", "tenure_presented_insert", "l.over = 0", "l.over >= 0"),
		"what was presented is not changed by hand":             {`DROP TRIGGER tenure_presented_update`},
	} {
		g := newGuarded(t)
		plainExec(t, g.s.path, breaks...)
		if protectionGuarantees()[guarantee](g) {
			t.Errorf("the broken twin is not caught: %s", guarantee)
		}
	}
}
