package sqlite

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// shape is a table, a name expression and one lease, with what may be written under the claim to it.
type shape struct {
	table, name, lease string
	schema             string
	writes             []string // in this order, each in a transaction of its own
	refused            []string // under the claim, because they touch the row of another name
}

func shapesOfKeys() map[string]shape {
	return map[string]shape{
		"without rowid": {"t", `a || '/' || b`, "x/1", `CREATE TABLE t (a TEXT, b INTEGER, v, PRIMARY KEY (a, b)) WITHOUT ROWID; INSERT INTO t VALUES ('y', 1, 0)`,
			[]string{`INSERT INTO t VALUES ('x', 1, 0)`, `UPDATE t SET v = 1 WHERE a = 'x'`, `REPLACE INTO t VALUES ('x', 1, 2)`, `DELETE FROM t WHERE a = 'x'`},
			[]string{`REPLACE INTO t VALUES ('y', 1, 2)`, `UPDATE OR REPLACE t SET a = 'x'`}},
		"no key but the row number": {"t", `a`, "x", `CREATE TABLE t (a, v); INSERT INTO t VALUES ('y', 0)`,
			[]string{`INSERT INTO t VALUES ('x', 0)`, `UPDATE t SET v = 1 WHERE a = 'x'`, `DELETE FROM t WHERE a = 'x'`},
			[]string{`REPLACE INTO t (rowid, a) VALUES (1, 'x')`, `INSERT OR REPLACE INTO t (oid, a) SELECT 1, 'x'`}},
		"a column named rowid": {"t", `a`, "x", `CREATE TABLE t (a, rowid TEXT UNIQUE); INSERT INTO t VALUES ('y', 'r')`,
			[]string{`INSERT INTO t VALUES ('x', 's')`, `DELETE FROM t WHERE a = 'x'`},
			[]string{`REPLACE INTO t (_rowid_, a) VALUES (1, 'x')`, `REPLACE INTO t VALUES ('x', 'r')`}},
		"generated columns": {"t", `g`, "o/7", `CREATE TABLE t (id INTEGER PRIMARY KEY, g AS ('o/' || id), s AS (g || '!') STORED, v); INSERT INTO t (id) VALUES (1)`,
			[]string{`INSERT INTO t (id) VALUES (7)`, `UPDATE t SET v = 1 WHERE id = 7`, `REPLACE INTO t (id, v) VALUES (7, 2)`, `DELETE FROM t WHERE id = 7`},
			[]string{`UPDATE t SET id = 7 WHERE id = 1`, `UPDATE OR REPLACE t SET id = 7 WHERE id = 1`, `DELETE FROM t`}},
		"unique indexes of a part, and on expressions": {"t", `'o/' || id`, "o/7", `CREATE TABLE t (id INTEGER PRIMARY KEY, seat, active, code TEXT NOT NULL DEFAULT ('D' || '1'), "a b" TEXT);
			CREATE UNIQUE INDEX t_seat ON t (seat /* , ( */ DESC) -- not for all
			WHERE active > 0 AND seat IS NOT ')';
			CREATE UNIQUE INDEX t_code ON t (lower(code) || ',' DESC, [a b] COLLATE NOCASE ASC);
			INSERT INTO t VALUES (1, 's', 1, 'C', 'p'), (2, 's', 0, 'd1', 'q')`,
			[]string{`INSERT INTO t VALUES (7, 's', 0, 'c', 'x')`, `UPDATE t SET seat = 'u', active = 1 WHERE id = 7`, `REPLACE INTO t VALUES (7, 'v', 1, 'e', 'p')`, `DELETE FROM t WHERE id = 7`},
			[]string{`REPLACE INTO t VALUES (7, 's', 1, 'x', 'x')`, `REPLACE INTO t VALUES (7, 'x', 1, 'c', 'P')`, `REPLACE INTO t VALUES (7, 'x', 1, NULL, 'Q')`, `INSERT INTO t VALUES (7, 's', 1, 'x', 'x')`}},
		"names of Tenure's own and of SQL": {`t"a'b; --`, `"name" || token || mark || "or""der" || [text]`, "n1mot", `CREATE TABLE "t""a'b; --" (name, token, mark, "or""der", text, n, UNIQUE (name, "or""der"));
			INSERT INTO "t""a'b; --" VALUES ('y', 1, 'm', 'o', 't', 0)`,
			[]string{`INSERT INTO "t""a'b; --" VALUES ('n', 1, 'm', 'o', 't', 0)`, `UPDATE "t""a'b; --" SET n = 1 WHERE name = 'n'`, `DELETE FROM "t""a'b; --" WHERE name = 'n'`},
			[]string{`REPLACE INTO "t""a'b; --" (name, token, mark, "or""der", text) VALUES ('y', '', '', 'o', ''), ('n', 1, 'm', 'o', 't')`}},
	}
}

func shapesOfNames() map[string]shape {
	return map[string]shape{
		"one lease for the whole table": {"t", `'the table'`, "the table", `CREATE TABLE t (a UNIQUE, v); INSERT INTO t VALUES (1, 1)`,
			[]string{`INSERT INTO t VALUES (2, 2)`, `UPDATE t SET v = 3`, `UPDATE OR REPLACE t SET a = 1 WHERE a = 2`, `REPLACE INTO t VALUES (1, 5)`, `DELETE FROM t`}, nil},
		"a number as the name": {"t", `id`, "7", `CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT) STRICT; INSERT INTO t VALUES (1, '')`,
			[]string{`INSERT INTO t VALUES (7, 'a')`, `UPDATE t SET v = 'b' WHERE id = 7`, `DELETE FROM t WHERE id = 7`}, []string{`DELETE FROM t`}},
		"one INTEGER key without rowid": {"t", `id`, "7", `CREATE TABLE t (id INTEGER PRIMARY KEY, v) WITHOUT ROWID; INSERT INTO t VALUES (1, '')`,
			[]string{`INSERT INTO t VALUES (7, 'a')`, `UPDATE t SET v = 'b' WHERE id = 7`, `DELETE FROM t WHERE id = 7`}, []string{`REPLACE INTO t VALUES (7, ''), (1, '')`, `UPDATE OR REPLACE t SET id = 7`}},
		// Names of leases are compared byte by byte, whatever the column's or the expression's collation.
		"names that differ in case": {"t", `a COLLATE NOCASE`, "x", `CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE, v); INSERT INTO t VALUES (1, 'X', 0)`,
			[]string{`INSERT INTO t VALUES (7, 'x', 0)`, `UPDATE t SET v = 1 WHERE id = 7`, `DELETE FROM t WHERE id = 7`},
			[]string{`UPDATE t SET v = 1`, `UPDATE t SET a = 'x'`, `INSERT INTO t (a) VALUES ('X')`, `DELETE FROM t`, `REPLACE INTO t VALUES (1, 'x', 0)`}},
		"a name in a column of another collation": {"t", `a`, "x", `CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT COLLATE RTRIM, v); INSERT INTO t VALUES (1, 'x ', 0), (2, 'x', 0)`,
			[]string{`UPDATE t SET v = 1 WHERE id = 2`, `DELETE FROM t WHERE id = 2`},
			[]string{`UPDATE t SET v = 1`, `UPDATE t SET a = 'x ' WHERE id = 2`, `UPDATE t SET a = 'x' WHERE id = 1`}},
		"its own triggers write it": {"t", `a`, "x", `CREATE TABLE t (id INTEGER PRIMARY KEY, a, v DEFAULT 0); INSERT INTO t VALUES (1, 'y', 0);
			CREATE TRIGGER count AFTER UPDATE OF v ON t BEGIN UPDATE t SET v = NEW.v WHERE a = NEW.v; END;
			CREATE TRIGGER after BEFORE UPDATE OF id ON t BEGIN SELECT RAISE(IGNORE); END;
			CREATE TRIGGER more BEFORE INSERT ON t WHEN NEW.a = 'x' AND NEW.v = 9 BEGIN UPDATE t SET v = 8 WHERE a = 'y'; END`,
			[]string{`INSERT INTO t (id, a) VALUES (7, 'x')`, `UPDATE t SET v = 1 WHERE a = 'x'`, `DELETE FROM t WHERE a = 'x'`},
			[]string{`INSERT INTO t VALUES (8, 'x', 9)`}},
	}
}

// Tables of every shape: what a stranger may not write, the holder of the one lease may.
func TestShapesOfTables(t *testing.T) {
	t.Parallel()
	all := shapesOfKeys()
	maps.Copy(all, shapesOfNames())
	for what, c := range all {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := newUnguarded(t, c.schema)
			g.protect(c.table, c.name)
			claim := []fence.Claim{g.p.take(c.lease)}
			for _, statement := range c.refused {
				before := g.content(c.table)
				wantRefused(t, statement, g.write(claim, statement))
				if after := g.content(c.table); after != before {
					t.Errorf("%s: refused, and changed\n%sinto\n%s", statement, before, after)
				}
			}
			for _, statement := range c.writes {
				wantRefused(t, statement, g.foreign(statement))
				if err := g.write(claim, statement); err != nil {
					t.Errorf("%s: %v", statement, err)
				}
			}
		})
	}
}

// What foreign keys do to the rows of a protected table is done to them: it needs their claims.
func TestCascades(t *testing.T) {
	t.Parallel()
	for action, statement := range map[string]string{
		"ON DELETE CASCADE":     `DELETE FROM shops WHERE id = 1`,
		"ON DELETE SET NULL":    `DELETE FROM shops WHERE id = 1`,
		"ON DELETE SET DEFAULT": `DELETE FROM shops WHERE id = 1`,
		"ON UPDATE CASCADE":     `UPDATE shops SET id = 9 WHERE id = 1`,
	} {
		g := newUnguarded(t, `CREATE TABLE shops (id INTEGER PRIMARY KEY); CREATE TABLE items (id INTEGER PRIMARY KEY, shop INTEGER DEFAULT 2 REFERENCES shops (id) `+action+`);
			INSERT INTO shops VALUES (1), (2); INSERT INTO items VALUES (5, 1), (6, 1)`)
		g.protect("items", `'items/' || id`)
		five, six := g.p.take("items/5"), g.p.take("items/6")
		before := g.content("items") + g.content("shops")
		wantRefused(t, action, g.write(nil, statement))
		wantRefused(t, action+", under one of the claims", g.write([]fence.Claim{five}, statement))
		if after := g.content("items") + g.content("shops"); after != before {
			t.Errorf("%s: refused, and changed into\n%s", action, after)
		}
		if err := g.write([]fence.Claim{five, six}, statement); err != nil {
			t.Errorf("%s, under all claims: %v", action, err)
		}
	}
}

// What cannot be protected is refused with a reason, and nothing is changed.
func TestTablesThatCannotBeProtected(t *testing.T) {
	t.Parallel()
	g := newUnguarded(t, `CREATE TABLE t (a, b, g AS (a), rowid TEXT)`, `CREATE VIEW v AS SELECT * FROM t`, `CREATE VIRTUAL TABLE f USING fts5(a)`,
		`CREATE TABLE generated (a, g AS (a || 1) UNIQUE)`, `CREATE TABLE numbers (rowid, oid, _rowid_)`, `CREATE TABLE ignoring (a)`,
		`CREATE TRIGGER [before] AFTER DELETE ON ignoring BEGIN SELECT RAISE(IGNORE); END`)
	before := g.count(`SELECT count(*) FROM sqlite_schema`)
	for table, says := range map[string]string{
		"": "1 to", "none": "no such table", "v": "view", "f": "virtual", "f_data": "shadow", "tenure_lease": "own", "TENURE_MARK": "own", "sqlite_schema": "own", "sqlite_temp_schema": "no such table",
		"ignoring": "RAISE(IGNORE)", "generated": "column g", "numbers": "row number", "t\x00": "1 to", "t'; DROP TABLE t; --": "no such table",
		strings.Repeat("x", 10<<20): "1 to",
	} {
		err := g.s.Protect(t.Context(), Protection{Table: table, Name: `'x'`})
		wantKind(t, err, lease.ErrInvalid, says, "nothing was changed")
		if _, err := g.s.ProtectScript(t.Context(), Protection{Table: table, Name: `'x'`}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("a script for table %.20q: %v", table, err)
		}
	}
	if after := g.count(`SELECT count(*) FROM sqlite_schema`); after != before {
		t.Errorf("the schema has %d objects, and had %d", after, before)
	}
}

// Name expressions that are none, or not always the same, or lead out of where they are put.
func TestNameExpressionsThatCannotBe(t *testing.T) {
	t.Parallel()
	g := newUnguarded(t, ordersTable)
	before := g.count(`SELECT count(*) FROM sqlite_schema`)
	for name, says := range map[string]string{
		``: "1 to", "  \n": "1 to", strings.Repeat("id+", 10<<20/3) + "id": "1 to", strings.Repeat("x", maxExpression+1): "1 to", "'\xff'": "UTF-8", "id\x00": "no place",
		// It would lead out.
		`1); DROP TABLE orders; --`: "bracket", `1)) END; DROP TABLE orders; SELECT ((1`: "bracket", `1; DROP TABLE orders`: "no place", `id -- `: "comments", `id /* */`: "comments",
		`'a`: "quote", `"id`: "quote", "`id": "quote", `[id`: "quote", `(id`: "not closed", `id)`: "bracket", `(id))(`: "bracket", `)(`: "bracket",
		// It is no expression over the columns of the row.
		`SELECT 1`: "no place", `(SELECT 1)`: "no place", `EXISTS (SELECT 1)`: "no place", `id IN orders`: "subqueries", `?1`: "no place", `:id`: "no place", `@id`: "no place", `$id`: "no place",
		`NEW.id`: "NEW.id", `orders.id`: "orders.id", `rowid`: "no such column", `nope`: "nope", `"nope"`: "no column", `[nope]`: "no column", `RAISE(IGNORE)`: "no place", `count(*)`: "aggregate",
		`row_number() OVER ()`: "window", `1, 2`: "row value", `id, code`: "row value", `id AS x`: "syntax", `id ASC`: "syntax", `nofunction(id)`: "nofunction", `*`: "syntax", `id COLLATE nope`: "nope", `()`: "syntax",
		// It is not always the same.
		`random()`: "deterministic", `randomblob(4)`: "deterministic", `changes()`: "deterministic", `last_insert_rowid()`: "deterministic", `total_changes()`: "deterministic", `sqlite_version()`: "deterministic",
		`date('now')`: "time", `DATE ( code )`: "time", `strftime('%s')`: "time", `CURRENT_TIMESTAMP`: "time", `current_date`: "time", `unixepoch('subsec')`: "time", `code LIKE 'A%'`: "setting", `like('A%', code)`: "setting",
		`load_extension('x')`: "deterministic",
	} {
		err := g.s.Protect(t.Context(), Protection{Table: "orders", Name: name})
		if !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "nothing was changed") || len(err.Error()) > 1000 {
			t.Errorf("%.60q: %.300v, want an error that says %q", name, err, says)
		}
	}
	if after := g.count(`SELECT count(*) FROM sqlite_schema`); after != before {
		t.Errorf("the schema has %d objects, and had %d", after, before)
	}
	if n := g.count(`SELECT count(*) FROM orders`); n != 3 {
		t.Errorf("%d orders", n)
	}
	for _, name := range []string{`id`, `"id"`, "`ID`", `[Id]`, `'date(''now'')' || id`, `'; DROP TABLE orders; --' || "code"`, `printf('%s/%d', shop, id)`, `CASE WHEN id > 1 THEN 'a' ELSE 'b' END`,
		`coalesce(shop, 'none') COLLATE nocase`, `substr(code, 1, 2)`, `id != 3`, `id IN (1, 2)`, `'💺' || id`, `CAST(id AS text)`} {
		if err := g.s.Protect(t.Context(), Protection{Table: "ORDERS", Name: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Rows whose name is none are refused, whatever was presented, and so is what their names are not.
func TestRowsWithoutAName(t *testing.T) {
	t.Parallel()
	g := newUnguarded(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, a, v); INSERT INTO t VALUES (1, NULL, 0), (2, 'x', 0)`)
	g.protect("t", `a`)
	claim := []fence.Claim{g.p.take("x"), g.p.take("7")}
	for _, statement := range []string{`INSERT INTO t (v) VALUES (1)`, `UPDATE t SET a = 'x' WHERE id = 1`, `UPDATE t SET a = NULL WHERE id = 2`, `DELETE FROM t WHERE id = 1`} {
		wantRefused(t, statement, g.write(claim, statement), "its name is NULL", "the columns that its name is made of")
	}
	wantRefused(t, "what REPLACE meets", g.write(claim, `REPLACE INTO t VALUES (1, 'x', 0)`), "unique key")
	for _, statement := range []string{`INSERT INTO t (a) VALUES (x'78')`, `INSERT INTO t (a) VALUES ('x' || char(0))`, `INSERT INTO t (a) VALUES ('X')`, `INSERT INTO t (a) VALUES ('x ')`, `INSERT INTO t (a) VALUES ('')`,
		`INSERT INTO t (a) VALUES (hex(zeroblob(5 << 20)))`, `INSERT INTO t (a) VALUES (7.5)`} {
		wantRefused(t, statement, g.write(claim, statement), "to other names")
	}
	if err := g.write(claim, `INSERT INTO t (a) VALUES ('x'), (7)`); err != nil {
		t.Error(err)
	}
}

// What UPDATE OR REPLACE deletes under a unique index of a part, or on an expression: that row's claim is needed too.
func TestUpdateOrReplaceUnderPartsAndExpressions(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{`UPDATE OR REPLACE t SET active = 1 WHERE id = 2`, `UPDATE OR REPLACE t SET code = 'C' WHERE id = 2`, `UPDATE OR REPLACE t SET id = 1 WHERE id = 2`} {
		g := newUnguarded(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, seat, active, code); CREATE UNIQUE INDEX t_seat ON t (seat) WHERE active = 1;
			CREATE UNIQUE INDEX t_code ON t (lower(code)); INSERT INTO t VALUES (1, 's', 1, 'c'), (2, 's', 0, 'd')`)
		g.protect("t", `'o/' || id`)
		one, two := g.p.take("o/1"), g.p.take("o/2")
		wantRefused(t, statement, g.write([]fence.Claim{two}, statement), "o/")
		if err := g.write([]fence.Claim{two}, `UPDATE OR REPLACE t SET seat = 'u', code = 'D' WHERE id = 2`, `UPDATE t SET seat = 's' WHERE id = 2`); err != nil {
			t.Errorf("an update that meets nothing: %v", err)
		}
		if err := g.write([]fence.Claim{one, two}, statement); err != nil {
			t.Errorf("%s, under both claims: %v", statement, err)
		}
		if n := g.count(`SELECT count(*) FROM t`); n != 1 {
			t.Errorf("%s: %d rows are left, want 1", statement, n)
		}
	}
}

func TestIndexParts(t *testing.T) {
	t.Parallel()
	for definition, want := range map[string]string{
		`CREATE UNIQUE INDEX i ON t (a)`:                                        `a|`,
		`CREATE UNIQUE INDEX "i (" ON [t)] (a ASC, lower(b), "c,d" desc)`:       `a;lower(b);"c,d"|`,
		"CREATE UNIQUE INDEX i ON t (a -- (,\n, b /* ) */)\nwhere a IN (1, 2)":  `a;b|a IN (1, 2)`,
		`CREATE UNIQUE INDEX i ON t (a || ')' || 'it''s,' COLLATE NOCASE DESC)`: `a || ')' || 'it''s,' COLLATE NOCASE|`,
	} {
		items, where, ok := indexParts(definition)
		if got := strings.Join(items, ";") + "|" + where; !ok || got != want {
			t.Errorf("%s: %s, %v, want %s", definition, got, ok, want)
		}
	}
	for _, definition := range []string{``, `CREATE UNIQUE INDEX i ON t`, `CREATE UNIQUE INDEX i ON t (a`, `CREATE UNIQUE INDEX i ON t (a) WITH x`} {
		if items, where, ok := indexParts(definition); ok {
			t.Errorf("%q was understood as %q, %q", definition, items, where)
		}
	}
}

// A cascade that moves rows to another name needs the claims to both.
func TestCascadesThatMoveRows(t *testing.T) {
	t.Parallel()
	for action, c := range map[string]struct {
		statement string
		needs     []string
	}{
		"ON UPDATE CASCADE":     {`UPDATE shops SET id = 9 WHERE id = 1`, []string{"shop/1", "shop/9"}},
		"ON DELETE SET DEFAULT": {`DELETE FROM shops WHERE id = 1`, []string{"shop/1", "shop/2"}},
		"ON DELETE SET NULL":    {`DELETE FROM shops WHERE id = 1`, []string{"shop/1", "shop/none"}},
	} {
		g := newUnguarded(t, `CREATE TABLE shops (id INTEGER PRIMARY KEY); CREATE TABLE items (id INTEGER PRIMARY KEY, shop INTEGER DEFAULT 2 REFERENCES shops (id) `+action+`);
			INSERT INTO shops VALUES (1), (2); INSERT INTO items VALUES (5, 1), (6, 1)`)
		g.protect("items", `'shop/' || coalesce("SHOP", 'none')`)
		before := g.content("items") + g.content("shops")
		var claims []fence.Claim
		for _, name := range c.needs {
			claims = append(claims, g.p.take(name))
		}
		for i := range claims {
			wantRefused(t, action, g.write(claims[i:i+1], c.statement), "to other names")
		}
		if after := g.content("items") + g.content("shops"); after != before {
			t.Errorf("%s: refused, and changed into\n%s", action, after)
		}
		if err := g.write(claims, c.statement); err != nil {
			t.Errorf("%s, under both claims: %v", action, err)
		}
	}
}
