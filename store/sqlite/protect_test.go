package sqlite

import (
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// Every form of writing, by a program that has never heard of leases: refused, and nothing changes.
func TestStrangersWriteNothing(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, `CREATE VIEW open_orders AS SELECT * FROM orders`,
		`CREATE TRIGGER open_orders_update INSTEAD OF UPDATE ON open_orders BEGIN UPDATE orders SET state = NEW.state WHERE id = OLD.id; END`)
	g.p.take("orders/1") // held by others: that helps nobody who does not present
	before := g.content("orders")
	for _, statement := range []string{
		`INSERT INTO orders (code) VALUES ('x')`, `INSERT INTO orders (id, code) VALUES (9, 'x')`, `INSERT INTO orders (id) SELECT 10 FROM orders LIMIT 1`,
		`INSERT OR REPLACE INTO orders (id, code) VALUES (1, 'x')`, `REPLACE INTO orders (code) VALUES ('one')`, `INSERT OR REPLACE INTO orders (id) VALUES (9)`,
		`INSERT OR IGNORE INTO orders (id, code) VALUES (9, 'x')`, `INSERT OR FAIL INTO orders (id, code) VALUES (9, 'x'), (11, 'y')`,
		`INSERT OR ROLLBACK INTO orders (id, code) VALUES (9, 'x')`,
		`INSERT INTO orders (id, code) VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET state = 'stolen'`,
		`INSERT INTO orders (id, code) VALUES (1, 'x') ON CONFLICT DO NOTHING`,
		`INSERT INTO orders (id, code) VALUES (9, 'x') RETURNING id`,
		`UPDATE orders SET state = 'stolen'`, `UPDATE orders SET state = 'stolen' WHERE id = 1`, `UPDATE orders SET id = 9 WHERE id = 1`,
		`UPDATE orders SET rowid = 9 WHERE id = 1`, `UPDATE OR REPLACE orders SET id = 2 WHERE id = 1`, `UPDATE OR IGNORE orders SET state = 'stolen'`,
		`UPDATE OR FAIL orders SET state = 'stolen'`, `UPDATE orders SET state = 'stolen' FROM (SELECT 1 AS one) WHERE id = one`,
		`UPDATE open_orders SET state = 'stolen' WHERE id = 1`, `WITH w AS (SELECT 1 AS one) UPDATE orders SET state = 'stolen' WHERE id IN w`,
		`DELETE FROM orders`, `DELETE FROM orders WHERE id = 1`, `DELETE FROM orders WHERE id = 1 RETURNING id`,
	} {
		wantRefused(t, statement, g.foreign(statement), `"orders"`, orderName, "nothing was written")
		if after := g.content("orders"); after != before {
			t.Fatalf("%s: refused, and changed\n%sinto\n%s", statement, before, after)
		}
	}
	// What touches no row is no write.
	for _, statement := range []string{`DELETE FROM orders WHERE id = 99`, `UPDATE orders SET state = 'x' WHERE id = 99`, `INSERT INTO orders SELECT * FROM orders WHERE id = 99`} {
		if err := g.foreign(statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// Each form of writing passes under the claims to the names that it touches, and not with one of them missing.
func TestClaimsToTheNamesOfTheRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		statement string
		needs     []string
		after     string // of one value that shows it
		shows     string
	}{
		{`INSERT INTO orders (id, code) VALUES (9, 'x')`, []string{"orders/9"}, "1", `SELECT count(*) FROM orders WHERE id = 9`},
		{`INSERT INTO orders (code) VALUES ('x')`, []string{"orders/4"}, "4", `SELECT max(id) FROM orders`},
		{`INSERT INTO orders (id, code) VALUES (8, 'x'), (9, 'y')`, []string{"orders/8", "orders/9"}, "5", `SELECT count(*) FROM orders`},
		{`UPDATE orders SET state = 'paid' WHERE id = 1`, []string{"orders/1"}, "paid", `SELECT state FROM orders WHERE id = 1`},
		{`UPDATE orders SET state = 'paid'`, []string{"orders/1", "orders/2", "orders/3"}, "3", `SELECT count(*) FROM orders WHERE state = 'paid'`},
		{`UPDATE orders SET id = 9 WHERE id = 1`, []string{"orders/1", "orders/9"}, "9", `SELECT id FROM orders WHERE code = 'one'`},
		{`UPDATE orders SET _rowid_ = 9 WHERE id = 1`, []string{"orders/1", "orders/9"}, "9", `SELECT id FROM orders WHERE code = 'one'`},
		{`UPDATE orders SET [OID] = 9 WHERE id = 1`, []string{"orders/1", "orders/9"}, "9", `SELECT id FROM orders WHERE code = 'one'`},
		{`UPDATE OR REPLACE orders SET "RowID" = 2 WHERE id = 1`, []string{"orders/1", "orders/2"}, "2", `SELECT count(*) FROM orders`},
		{`DELETE FROM orders WHERE id < 3`, []string{"orders/1", "orders/2"}, "1", `SELECT count(*) FROM orders`},
		{`DELETE FROM orders`, []string{"orders/1", "orders/2", "orders/3"}, "0", `SELECT count(*) FROM orders`},
		// What OR REPLACE deletes, under each key.
		{`INSERT OR REPLACE INTO orders (id, code) VALUES (1, 'x')`, []string{"orders/1"}, "x", `SELECT code FROM orders WHERE id = 1`},
		{`REPLACE INTO orders (id, code) VALUES (9, 'two')`, []string{"orders/2", "orders/9"}, "3", `SELECT count(*) FROM orders`},
		{`REPLACE INTO orders (id, code, shop, place) VALUES (9, 'x', 'S', 'p2')`, []string{"orders/2", "orders/9"}, "3", `SELECT count(*) FROM orders`},
		{`REPLACE INTO orders (id, code) VALUES (9, NULL)`, []string{"orders/3", "orders/9"}, "3", `SELECT count(*) FROM orders`}, // the default
		{`UPDATE OR REPLACE orders SET code = 'two' WHERE id = 1`, []string{"orders/1", "orders/2"}, "2", `SELECT count(*) FROM orders`},
		{`UPDATE OR REPLACE orders SET code = NULL WHERE id = 1`, []string{"orders/1", "orders/3"}, "2", `SELECT count(*) FROM orders`},
		{`UPDATE OR REPLACE orders SET place = 'p2' WHERE id = 1`, []string{"orders/1", "orders/2"}, "2", `SELECT count(*) FROM orders`},
		{`UPDATE OR REPLACE orders SET id = 2 WHERE id = 1`, []string{"orders/1", "orders/2"}, "2", `SELECT count(*) FROM orders`},
		{`UPDATE OR REPLACE orders SET rowid = 2 WHERE id = 1`, []string{"orders/1", "orders/2"}, "2", `SELECT count(*) FROM orders`},
		{`INSERT INTO orders (id, code) VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET state = 'paid'`, []string{"orders/1"}, "paid", `SELECT state FROM orders WHERE id = 1`},
		{`INSERT INTO orders (id, code) VALUES (9, 'two') ON CONFLICT (code) DO UPDATE SET id = 8`, []string{"orders/2", "orders/8"}, "8", `SELECT id FROM orders WHERE code = 'two'`},
		{`INSERT OR IGNORE INTO orders (id, code) VALUES (9, 'two')`, []string{"orders/2"}, "3", `SELECT count(*) FROM orders`},
	} {
		t.Run(c.statement, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t)
			var claims []fence.Claim
			for _, name := range c.needs {
				claims = append(claims, g.p.take(name))
			}
			other, before := g.p.take("orders/77"), g.content("orders")
			for i := range claims {
				less := append(append([]fence.Claim{other}, claims[:i]...), claims[i+1:]...)
				wantRefused(t, "without "+c.needs[i], g.write(less, c.statement))
				if after := g.content("orders"); after != before {
					t.Fatalf("without %s: refused, and changed into\n%s", c.needs[i], after)
				}
			}
			if err := g.write(claims, c.statement); err != nil {
				t.Fatalf("under all of its claims: %v", err)
			}
			if got := plainValue(t, g.s.path, c.shows); got != c.after {
				t.Errorf("%s: %s, want %s", c.shows, got, c.after)
			}
			if n := g.count(`SELECT count(*) FROM tenure_presented`); n != 0 {
				t.Errorf("%d rows of what was presented are left", n)
			}
		})
	}
}
