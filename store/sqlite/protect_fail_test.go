package sqlite

import (
	"strings"
	"testing"
)

// A trigger of the table's own that fails after a write leaves the row there under OR FAIL, or by RAISE(FAIL): a row that was there before
// has been looked at by then, whichever trigger was made first.
func TestWhatFailsAfterAWriteComesTooLate(t *testing.T) {
	t.Parallel()
	const log = `CREATE TABLE log (k UNIQUE ON CONFLICT FAIL); INSERT INTO log VALUES (1), (2), (3), (9); `
	for trigger, statement := range map[string]string{
		`CREATE TRIGGER mine AFTER UPDATE ON orders BEGIN SELECT RAISE(FAIL, 'mine'); END`:              `UPDATE orders SET state = 'stolen'`,
		`CREATE TRIGGER mine AFTER DELETE ON orders BEGIN SELECT RAISE(FAIL, 'mine'); END`:              `DELETE FROM orders`,
		log + `CREATE TRIGGER mine AFTER UPDATE ON orders BEGIN INSERT INTO log VALUES (NEW.id); END`:   `UPDATE OR FAIL orders SET state = 'stolen'`,
		log + ` CREATE TRIGGER mine AFTER DELETE ON orders BEGIN INSERT INTO log VALUES (OLD.id); END `: `DELETE FROM orders`,
	} {
		g := newGuarded(t)
		plainExec(t, g.s.path, trigger)
		before := g.content("orders")
		wantRefused(t, statement, g.foreign(statement))
		if after := g.content("orders"); after != before {
			t.Errorf("%s: changed into\n%s", trigger, after)
		}
	}
	// Not so a row that is new: the list says it, and what it says to do helps.
	g := newGuarded(t)
	plainExec(t, g.s.path, log+`CREATE TRIGGER mine AFTER INSERT ON orders BEGIN INSERT INTO log VALUES (NEW.id); END`)
	if got := g.listed(); !strings.Contains(got, "its trigger mine was made later") {
		t.Errorf("listed is %s", got)
	}
	g.protect("orders", orderName)
	if got := g.listed(); strings.Contains(got, "mine") {
		t.Errorf("protected again, listed is %s", got)
	}
	before := g.content("orders")
	wantRefused(t, "a new row", g.foreign(`INSERT OR FAIL INTO orders VALUES (9, 'nine', 's', 'p9', 'new')`))
	if after := g.content("orders"); after != before {
		t.Errorf("changed into\n%s", after)
	}
}
