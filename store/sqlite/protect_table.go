package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tenure-go/tenure/lease"
)

// table is what a protection has to know of the table that it is for.
type table struct {
	Name         string   `json:"name"`
	Type         string   `json:"type"`
	WithoutRowID int      `json:"without_rowid"`
	Columns      []column `json:"columns"`
	Keys         []key    `json:"keys"` // its unique indexes
	// Triggers are all of the table's, those of a protection too.
	Triggers []trigger `json:"triggers"`
}

type column struct {
	Name    string  `json:"name"`
	NotNull int     `json:"not_null"`
	Default *string `json:"default"` // as SQL
	Hidden  int     `json:"hidden"`  // 2 and 3: generated
}

type key struct {
	Index   string      `json:"index"`
	Partial int         `json:"partial"`
	Columns []keyColumn `json:"columns"`
}

type keyColumn struct {
	CID       int     `json:"cid"` // -2: an expression
	Name      *string `json:"name"`
	Collation string  `json:"collation"`
}

// tableStatement answers in one row, because [DBTX] has no other reads.
const tableStatement = `SELECT json_object('name', l.name, 'type', l.type, 'without_rowid', l.wr,
	'columns', json((SELECT json_group_array(json_object('name', c.name, 'not_null', c."notnull", 'default', c.dflt_value, 'hidden', c.hidden))
		FROM pragma_table_xinfo(l.name, 'main') c)),
	'keys', json((SELECT json_group_array(json_object('index', i.name, 'partial', i.partial,
			'columns', json((SELECT json_group_array(json_object('cid', k.cid, 'name', k.name, 'collation', k.coll)) FROM pragma_index_xinfo(i.name, 'main') k WHERE k.key))))
		FROM pragma_index_list(l.name, 'main') i WHERE i."unique")),
	'triggers', json((SELECT json_group_array(json_object('name', m.name, 'tbl', m.tbl_name, 'sql', m.sql)) FROM main.sqlite_schema m
		WHERE m.type = 'trigger' AND m.tbl_name = l.name COLLATE NOCASE)))
	FROM pragma_table_list l WHERE l.schema = 'main' AND l.name = ?1 COLLATE NOCASE`

func badTable(name, format string, args ...any) error {
	return &lease.InvalidError{Field: "table", Problem: fmt.Sprintf("%.100q: ", name) + fmt.Sprintf(format, args...) + "; nothing was changed"}
}

// readTable returns the table if it can be protected, or a [*lease.InvalidError].
func readTable(ctx context.Context, tx DBTX, name string) (table, error) {
	if name == "" || len(name) > maxExpression || strings.ContainsRune(name, 0) {
		return table{}, badTable(name, "want a name of 1 to %d bytes", maxExpression)
	}
	var raw []byte
	err := tx.QueryRowContext(ctx, tableStatement, name).Scan(&raw)
	if errors.Is(err, sql.ErrNoRows) {
		return table{}, badTable(name, "there is no such table in the main database")
	}
	if err != nil {
		return table{}, fmt.Errorf("reading the shape of table %q: %w", name, err)
	}
	var t table
	if err := json.Unmarshal(raw, &t); err != nil {
		return table{}, fmt.Errorf("reading the shape of table %q: %w", name, err)
	}
	return t, t.check()
}

// check returns an error unless triggers see everything that can be done to a row of the table.
func (t table) check() error {
	folded := fold(t.Name)
	switch {
	case strings.HasPrefix(folded, "sqlite_") || strings.HasPrefix(folded, "tenure_"):
		return badTable(t.Name, "a table of SQLite's or of Tenure's own cannot be protected")
	case t.Type == "view":
		return badTable(t.Name, "it is a view: protect the tables behind it")
	case t.Type != "table":
		return badTable(t.Name, "it is a %s table, and those have no triggers", t.Type)
	case t.WithoutRowID == 0 && t.rowid() == "":
		return badTable(t.Name, "it has columns named rowid, oid and _rowid_: no trigger can see its row number")
	}
	for _, other := range t.Triggers {
		if other.ignoresAfter() {
			return badTable(t.Name, "its trigger %s calls RAISE(IGNORE) after the write: the triggers that would refuse the row may then not be run, and the row stays written; make it a BEFORE trigger", other.Name)
		}
	}
	for _, k := range t.Keys {
		// A row that OR REPLACE deletes under this key could not be found by the trigger.
		if k.Partial != 0 {
			return badTable(t.Name, "unique index %s has a WHERE: what OR REPLACE deletes under it is not seen by triggers; keep what it is for in a table of its own", k.Index)
		}
		for _, c := range k.Columns {
			if c.Name == nil {
				return badTable(t.Name, "unique index %s is over an expression: what OR REPLACE deletes under it is not seen by triggers", k.Index)
			}
			if t.column(*c.Name).Hidden != 0 {
				return badTable(t.Name, "unique index %s is over the generated column %s: what OR REPLACE deletes under it is not seen by triggers", k.Index, *c.Name)
			}
		}
	}
	return nil
}

// ignoresAfter reports whether the trigger may end the work on a row that is written already, by its text: comments aside.
func (t trigger) ignoresAfter() bool {
	const name = `("([^"]|"")*"|\[[^]]*\]|` + "`([^`]|``)*`" + `|'([^']|'')*'|[^\s."]+)`
	text := regexp.MustCompile(`(?s)/\*.*?\*/|--[^\n]*`).ReplaceAllString(t.SQL, " ")
	after := regexp.MustCompile(`(?is)^\s*create\s+trigger\s+` + name + `(\s*\.\s*` + name + `)?\s+after\b`)
	ignores := regexp.MustCompile(`(?is)\braise\s*\(\s*ignore\s*\)`)
	return after.MatchString(text) && ignores.MatchString(text)
}

// rowid is a name of the row number that no column has taken, or "".
func (t table) rowid() string {
	for _, name := range []string{"rowid", "_rowid_", "oid"} {
		if t.column(name).Name == "" {
			return name
		}
	}
	return ""
}

func (t table) column(name string) column {
	for _, c := range t.Columns {
		if fold(c.Name) == fold(name) {
			return c
		}
	}
	return column{}
}

// quote is an identifier in SQL.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// literal is a text in SQL.
func literal(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
