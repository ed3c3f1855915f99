package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
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
	Key     int     `json:"key"`     // its place in the primary key, or 0
}

type key struct {
	Index   string    `json:"index"`
	Partial int       `json:"partial"`
	SQL     *string   `json:"sql"` // its definition, if it has one of its own
	Parts   []keyPart `json:"parts"`
}

type keyPart struct {
	Name      *string `json:"name"` // of the column; none for an expression
	Collation string  `json:"collation"`
}

// tableStatement answers in one row, because [DBTX] has no other reads.
const tableStatement = `SELECT json_object('name', l.name, 'type', l.type, 'without_rowid', l.wr,
	'columns', json((SELECT json_group_array(json_object('name', c.name, 'not_null', c."notnull", 'default', c.dflt_value, 'hidden', c.hidden, 'key', c.pk))
		FROM pragma_table_xinfo(l.name, 'main') c)),
	'keys', json((SELECT json_group_array(json_object('index', i.name, 'partial', i.partial,
			'sql', (SELECT m.sql FROM main.sqlite_schema m WHERE m.type = 'index' AND m.name = i.name),
			'parts', json((SELECT json_group_array(json_object('name', k.name, 'collation', k.coll)) FROM pragma_index_xinfo(i.name, 'main') k WHERE k.key))))
		FROM pragma_index_list(l.name, 'main') i WHERE i."unique")),
	'triggers', json((SELECT json_group_array(json_object('name', m.name, 'tbl', m.tbl_name, 'sql', m.sql, 'at', m.rowid)) FROM main.sqlite_schema m
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
		columns, _, _, ok := t.read(k)
		if !ok {
			return badTable(t.Name, "the definition of its unique index %s is not understood", k.Index)
		}
		for _, c := range columns {
			// Before an UPDATE, releases of SQLite differ in whether they have computed it.
			if t.column(c).Hidden != 0 {
				return badTable(t.Name, "unique index %s is over the generated column %s: what OR REPLACE deletes under it is not seen by triggers; make the index on the expression itself", k.Index, c)
			}
		}
	}
	return nil
}

// plain reports whether the key is over columns alone, and of all rows.
func (k key) plain() bool {
	return k.Partial == 0 && !slices.ContainsFunc(k.Parts, func(part keyPart) bool { return part.Name == nil })
}

// read returns the columns that a key depends on, what it is over, as SQL, and its condition, or "".
func (t table) read(k key) (columns, items []string, where string, ok bool) {
	if k.plain() {
		for _, part := range k.Parts {
			columns = append(columns, *part.Name)
			items = append(items, quote(*part.Name))
		}
		return columns, items, "", true
	}
	if k.SQL == nil {
		return nil, nil, "", false
	}
	items, where, ok = indexParts(*k.SQL)
	if !ok || len(items) != len(k.Parts) {
		return nil, nil, "", false
	}
	columns = nil
	for text := strings.Join(items, " ") + " " + where; text != ""; {
		n, _ := element(text)
		if c := t.column(unquote(text[:n])); c.Name != "" && !slices.Contains(columns, c.Name) {
			columns = append(columns, c.Name)
		}
		text = text[n:]
	}
	return columns, items, where, true
}

// unquote is the identifier that an element of SQL is, in quotes or not; a quote within is left doubled, so such a name is not found by it.
func unquote(element string) string {
	if len(element) >= 2 && strings.IndexByte("\"`[", element[0]) >= 0 {
		return element[1 : len(element)-1]
	}
	return element
}

// ignoresAfter reports whether the trigger may end the work on a row that is written already, by its text: comments aside.
func (t trigger) ignoresAfter() bool {
	return t.after(`\braise\s*\(\s*ignore\s*\)`)
}

// failsAfter reports whether the trigger may fail and leave a row that is written already: by RAISE(FAIL), or by a write of its own, under OR FAIL.
func (t trigger) failsAfter() bool {
	return t.after(`\bbegin\b.*(\braise\s*\(\s*fail\b|\b(insert|update|delete|replace)\b)`)
}

// after reports whether the trigger is run after a write, and its text has what is looked for.
func (t trigger) after(what string) bool {
	const name = `("([^"]|"")*"|\[[^]]*\]|` + "`([^`]|``)*`" + `|'([^']|'')*'|[^\s."]+)`
	text := regexp.MustCompile(`(?s)/\*.*?\*/|--[^\n]*`).ReplaceAllString(t.SQL, " ")
	after := regexp.MustCompile(`(?is)^\s*create\s+trigger\s+` + name + `(\s*\.\s*` + name + `)?\s+after\b`)
	return after.MatchString(text) && regexp.MustCompile(`(?is)`+what).MatchString(text)
}

// overtaken are the problems of triggers that are run, and may fail, between a write and the trigger that looks at it.
func (t table) overtaken() (problems []string) {
	var first int64
	for _, own := range t.Triggers {
		if own.kind() == onInsert || own.kind() == onMove {
			first = max(first, own.At)
		}
	}
	for _, other := range t.Triggers {
		if other.kind() == "" && other.At > first && other.failsAfter() {
			problems = append(problems, "its trigger "+other.Name+" was made later and may fail after a write, which under OR FAIL leaves a row that was not looked at: protect the table again, which puts the protection first")
		}
	}
	return problems
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

// numbered are the columns that may be the row number under another name: a primary key of one column.
func (t table) numbered() []string {
	var names []string
	for _, c := range t.Columns {
		if c.Key > 0 {
			names = append(names, c.Name)
		}
	}
	return names
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
