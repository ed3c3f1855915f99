package sqlite

import (
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// A row whose name is a number is written under that lease alone, not under another whose name is the same number in other digits.
func TestNumbersAreComparedAsTexts(t *testing.T) {
	t.Parallel()
	for _, number := range []string{"INTEGER PRIMARY KEY", "NUMERIC UNIQUE", "INTEGER"} {
		g := newUnguarded(t, `CREATE TABLE t (id `+number+`, v TEXT UNIQUE); INSERT INTO t VALUES (7, 'a')`)
		g.protect("t", "id")
		for _, other := range []string{"07", "7.0", " 7", "7e0", "+7"} {
			claim := []fence.Claim{g.p.take(other)}
			for _, statement := range []string{`UPDATE t SET v = 'b'`, `DELETE FROM t`, `REPLACE INTO t VALUES (7, 'b')`, `REPLACE INTO t VALUES (8, 'a')`,
				`INSERT INTO t VALUES (7, 'c')`, `UPDATE t SET id = 8`} {
				wantRefused(t, statement+" under "+other, g.write(claim, statement))
			}
		}
		if err := g.write([]fence.Claim{g.p.take("7"), g.p.take("8")}, `UPDATE t SET id = 8, v = 'b'`); err != nil {
			t.Errorf("%s: under the claims: %v", number, err)
		}
		if got := g.content("t"); got != "8 b\n" {
			t.Errorf("%s: %s", number, got)
		}
	}
}

// An update that gives a row a value which compares as equal may still meet another row under an index on an expression.
func TestEqualValuesMeetUnderAnExpression(t *testing.T) {
	t.Parallel()
	g := newUnguarded(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, k); CREATE UNIQUE INDEX t_kind ON t (typeof(k)); INSERT INTO t VALUES (1, 1), (2, 2.5)`)
	g.protect("t", `'o/' || id`)
	one := []fence.Claim{g.p.take("o/1")}
	wantRefused(t, "the claim to one of two rows", g.write(one, `UPDATE OR REPLACE t SET k = 1.0 WHERE id = 1`))
	if got := g.content("t"); got != "1 1\n2 2.5\n" {
		t.Error(got)
	}
	if err := g.write(append(one, g.p.take("o/2")), `UPDATE OR REPLACE t SET k = 1.0 WHERE id = 1`); err != nil {
		t.Error(err)
	}
}
