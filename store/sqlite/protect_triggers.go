package sqlite

import (
	"fmt"
	"slices"
	"strings"
)

// The triggers of a protected table, by what their names say. SQLite's triggers fire for each row, and a refusal undoes the whole statement.
const (
	triggerPrefix = "tenure_protect_"

	onInsert     = "insert"
	onUpdate     = "update"
	onMove       = "move"
	onDelete     = "delete"
	beforeInsert = "before_insert"
	beforeUpdate = "before_update"
)

func triggerKinds() []string {
	return []string{onInsert, onUpdate, onMove, onDelete, beforeInsert, beforeUpdate}
}

func triggerName(kind, table string) string { return triggerPrefix + kind + "_" + table }

// guard writes the triggers of one table.
type guard struct {
	table   table
	name    string   // the expression
	columns []string // those that it speaks of
}

// statements are the triggers as CREATE TRIGGER, by kind.
func (g guard) statements() map[string]string {
	// BEFORE, where the row that is there says it: nothing that fails after the write, and leaves it there (OR FAIL), comes sooner. AFTER for
	// what it will be, because only then it is: its number is drawn, and OR REPLACE has put defaults in place of NULLs.
	all := map[string]string{
		onInsert: g.create(onInsert, "AFTER INSERT", "", g.demand("NEW", false)),
		onUpdate: g.create(onUpdate, "BEFORE UPDATE", "", g.demand("OLD", false)),
		onDelete: g.create(onDelete, "BEFORE DELETE", "", g.demand("OLD", false)),
		// A row that moves from one name to another needs both. Most updates set no column that the name is made of, and are spared this.
		onMove: g.create(onMove, "AFTER UPDATE"+g.of(g.columns), "", g.demand("NEW", true)),
	}
	// OR REPLACE deletes the row that it meets under a unique key, and no DELETE trigger fires (but under PRAGMA recursive_triggers). So the
	// row is looked for before. A trigger cannot tell OR REPLACE from the other clauses: with each of them, the row that is met needs its claim.
	var inserted, updated, changed, columns []string
	for _, k := range g.keys() {
		inserted = append(inserted, g.meet(k.met()))
		updated = append(updated, g.meet(k.met()+" AND ("+k.changed()+")"))
		changed = append(changed, k.changed())
		columns = append(columns, k.columns...)
	}
	all[beforeInsert] = g.create(beforeInsert, "BEFORE INSERT", "", strings.Join(inserted, ""))
	all[beforeUpdate] = g.create(beforeUpdate, "BEFORE UPDATE"+g.of(columns), " WHEN "+strings.Join(changed, " OR "), strings.Join(updated, ""))
	return all
}

func (g guard) create(kind, when, condition, body string) string {
	return fmt.Sprintf("CREATE TRIGGER %s %s ON %s%s BEGIN%s\nEND", quote(triggerName(kind, g.table.Name)), when, quote(g.table.Name), condition, body)
}

// nameOf is the name of the row OLD or NEW. The expression sees the columns that it speaks of, and nothing else.
func (g guard) nameOf(row string) string {
	if len(g.columns) == 0 {
		return "(SELECT " + g.named("") + ")"
	}
	return "(SELECT " + g.named(" FROM (SELECT "+g.aliased(row)+")") + ")"
}

// named is what the expression gives, as a text. A number would be compared as one with the names that were presented, and 07 and 7.0,
// which are other leases, would do for 7. Bytes stay what they are, and are no name.
func (g guard) named(from string) string {
	return "CASE typeof(x) WHEN 'blob' THEN x ELSE CAST(x AS TEXT) END AS n FROM (SELECT (" + g.name + ") AS x" + from + ")"
}

func (g guard) aliased(row string) string {
	columns := make([]string, len(g.columns))
	for i, c := range g.columns {
		columns[i] = row + "." + quote(c) + " AS " + quote(c)
	}
	return strings.Join(columns, ", ")
}

// of is the clause that runs a trigger only for updates which set one of the columns. The row number may be set by each of its names, which
// nobody checks to be columns. A generated column is never set itself: then the trigger is run for all.
func (g guard) of(columns []string) string {
	names := []string{"rowid", "_rowid_", "oid"}
	for _, c := range columns {
		if g.table.column(c).Hidden != 0 {
			return ""
		}
		if !slices.Contains(names, quote(c)) {
			names = append(names, quote(c))
		}
	}
	return " OF " + strings.Join(names, ", ")
}

// demand refuses unless a claim to the name of the row OLD or NEW was presented; moved: only if it is not the one of OLD.
func (g guard) demand(row string, moved bool) string {
	names, condition := g.nameOf(row)+" AS n", ""
	if moved {
		names += ", " + g.nameOf("OLD") + " AS was"
		condition = "r.n COLLATE BINARY IS NOT r.was AND "
	}
	return fmt.Sprintf(`
	SELECT CASE WHEN r.n IS NULL THEN RAISE(ABORT, %s)
		WHEN EXISTS (SELECT 1 FROM tenure_in_force) THEN RAISE(ABORT, %s)
		WHEN EXISTS (SELECT 1 FROM tenure_presented) THEN RAISE(ABORT, %s)
		ELSE RAISE(ABORT, %s) END
	FROM (SELECT %s) AS r WHERE %sNOT EXISTS (SELECT 1 FROM tenure_in_force AS h WHERE h.name COLLATE BINARY = r.n);`,
		g.refusal(rowUnnamed), g.refusal(rowOfOther), g.refusal(rowLeftOver), g.refusal(rowUnclaimed), names, condition)
}

// meet refuses if another row is met, and no claim to its name was presented.
func (g guard) meet(condition string) string {
	columns := "1"
	if len(g.columns) > 0 {
		columns = g.aliased("o")
	}
	return fmt.Sprintf(`
	SELECT RAISE(ABORT, %s) FROM (SELECT %s) AS r
	WHERE NOT EXISTS (SELECT 1 FROM tenure_in_force AS h WHERE h.name COLLATE BINARY = r.n);`,
		g.refusal(rowMet), g.named(" FROM (SELECT "+columns+" FROM "+quote(g.table.Name)+" AS o WHERE "+condition+")"))
}

// uniqueKey is a key as conditions on a row o that is there, and the rows OLD and NEW; and the columns that it depends on.
type uniqueKey struct{ same, differs, columns []string }

// met: o has the key that the new row is going to have.
func (k uniqueKey) met() string { return strings.Join(k.same, " AND ") }

// changed: an update gives the row another key, as far as the columns can tell. A row that keeps its key meets none.
func (k uniqueKey) changed() string { return strings.Join(k.differs, " OR ") }

// keys are all by which a row may be met: the row number, if the table has one, and its unique indexes.
func (g guard) keys() []uniqueKey {
	var keys []uniqueKey
	if g.table.WithoutRowID == 0 {
		id := g.table.rowid()
		// Before an INSERT that lets SQLite draw the number, it is -1 here: a row of that number would be met for nothing.
		keys = append(keys, uniqueKey{same: []string{"o." + id + " = NEW." + id}, differs: []string{"NEW." + id + " IS NOT OLD." + id}, columns: g.table.numbered()})
	}
	for _, index := range g.table.Keys {
		var k uniqueKey
		columns, items, where, _ := g.table.read(index)
		k.columns = columns
		row := make([]string, len(columns))
		for i, c := range columns {
			row[i] = g.coming(c) + " AS " + quote(c)
			k.differs = append(k.differs, "NEW."+quote(c)+" COLLATE BINARY IS NOT OLD."+quote(c))
			if !index.plain() { // an expression may tell values apart that compare as equal: 1 and 1.0
				k.differs = append(k.differs, "typeof(NEW."+quote(c)+") IS NOT typeof(OLD."+quote(c)+")")
			}
		}
		coming := func(expression string) string {
			return "(SELECT (" + expression + ") FROM (SELECT " + strings.Join(row, ", ") + "))"
		}
		for i, part := range index.Parts {
			collate := " COLLATE " + quote(part.Collation) // the index's, which may be another than the column's
			if part.Name != nil {
				k.same = append(k.same, "o."+quote(*part.Name)+collate+" = "+g.coming(*part.Name))
			} else {
				k.same = append(k.same, "("+items[i]+")"+collate+" = "+coming(items[i]))
			}
		}
		if where != "" {
			k.same = append(k.same, "("+where+")", coming(where))
		}
		keys = append(keys, k)
	}
	return keys
}

// coming is what a column is going to hold: OR REPLACE puts the default in place of a NULL that may not be, after the trigger has run.
func (g guard) coming(name string) string {
	c := g.table.column(name)
	if c.NotNull != 0 && c.Default != nil {
		return "ifnull(NEW." + quote(name) + ", (" + *c.Default + "))"
	}
	return "NEW." + quote(name)
}
