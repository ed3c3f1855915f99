package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/lease"
)

// Protection is a table whose rows no program writes without the claim to a lease: triggers in the file refuse it, whatever the program. Each row has its
// own lease, whose name Name says.
type Protection struct {
	// Table is a table of the file, not a view or a virtual table.
	Table string
	// Name is an SQL expression over the columns of the table that gives the name of a row's lease, such as 'orders/' || order_id. It is
	// deterministic, without sub-selects, parameters, LIKE, or functions of date and time; at most 4096 bytes. A constant makes one lease guard the whole table.
	Name string
	// Problems say what is not in force as it should be, and what to do. Only [Protected] sets them.
	Problems []string
}

// ProtectionGaps says what the triggers of a protected table do not stop, for whoever lists protections.
func ProtectionGaps() []string {
	return []string{
		"changes of the schema: DROP TABLE, DROP TRIGGER, ALTER TABLE, and a table that is made anew under the old name, as many migrations do (protect it again)",
		"a connection that switches triggers off (SQLITE_DBCONFIG_ENABLE_TRIGGER; .dbconfig in the sqlite3 shell; a TEMP trigger of its own on the table that calls RAISE(IGNORE)) or writes the schema (PRAGMA writable_schema)",
		"a trigger of the table's own, made later, that calls RAISE(IGNORE) after a write: those that refuse the row may then not be run (the list of protections finds it)",
		"a trigger of the table's own, made later, that fails after an INSERT, by RAISE(FAIL) or by a write of its own under OR FAIL: the row that it left has not been looked at, nor the new name of one that an UPDATE moved (the list of protections finds it; protecting the table again puts the protection first)",
		"a connection without a rollback journal (PRAGMA journal_mode = OFF, which a program can choose while no other has the file open): a refused statement fails there, but what it had written stays",
		"a unique index that is made later: what OR REPLACE deletes under it is not looked for (the list of protections finds it)",
		"incremental blob I/O (sqlite3_blob_write): it fires no triggers; it cannot write columns that are in an index",
		"a program that replaces the file, or restores another into it",
		"a program that writes Tenure's own tables, or defines anew, on its connection, a function that the name expression calls",
	}
}

// Protect refuses from now on every INSERT, UPDATE and DELETE on rows of the table, by whatever program, without the claim to the row's lease,
// presented by [Present] in the same transaction. An UPDATE that changes the name needs the claims to the old and the new one; a write that
// meets another row under a unique key needs the claim to that row's lease, also with OR IGNORE or DO NOTHING, because triggers cannot tell
// those from OR REPLACE, which deletes it. Protecting a table again replaces its protection. Rows that are there already are not looked at.
//
// tx is a transaction, because it takes several statements; it holds for others once that is committed. The claims of other
// programs that write the table are not asked for now. Protect returns an error matching [lease.ErrInvalid] for a table or an
// expression that cannot be used, or an error of the driver, and has changed nothing then.
func Protect(ctx context.Context, tx DBTX, p Protection) error {
	return inSavepoint(ctx, tx, true, func() error {
		statements, err := protectStatements(ctx, tx, p)
		if err != nil {
			return err
		}
		for _, statement := range statements {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("protecting table %q: %w", p.Table, err)
			}
		}
		return compileTriggers(ctx, tx, p.Table)
	})
}

// ProtectScript is the SQL that [Protect] would run now, as a transaction for a program such as the sqlite3 shell. It changes nothing, and
// must be given a transaction all the same, because the expression is tried on a temporary table. Errors as for Protect.
func ProtectScript(ctx context.Context, tx DBTX, p Protection) (string, error) {
	var script string
	err := inSavepoint(ctx, tx, false, func() error {
		statements, err := protectStatements(ctx, tx, p)
		script = "BEGIN IMMEDIATE;\n" + strings.Join(append(statements, "COMMIT"), ";\n") + ";\n"
		return err
	})
	if err != nil {
		return "", err
	}
	return script, nil
}

// Unprotect takes the protection of a table away, and reports whether there was any. It is done once tx, a transaction, is committed.
func Unprotect(ctx context.Context, tx DBTX, name string) (bool, error) {
	var found bool
	err := inSavepoint(ctx, tx, true, func() error {
		_, all, err := readProtections(ctx, tx)
		if err != nil {
			return err
		}
		for _, one := range all {
			if fold(one.Table) != fold(name) && fold(one.registered()) != fold(name) {
				continue
			}
			found = true
			if _, err := tx.ExecContext(ctx, `DROP TRIGGER `+quote(one.Name)); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM tenure_protected WHERE tbl = ?`, one.registered()); err != nil {
				return err
			}
		}
		result, err := tx.ExecContext(ctx, `DELETE FROM tenure_protected WHERE tbl = ?`, name)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		found = found || n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("taking away the protection of %q: %w", name, err)
	}
	return found, nil
}

// Protected lists the protections of the file, by table, and what of them is not in force any more: a table that was made anew has no triggers,
// one that was given another unique key needs others. What no protection stops is in [ProtectionGaps]. It reads; tx is a transaction, so that it
// reads one state.
func Protected(ctx context.Context, tx DBTX) ([]Protection, error) {
	asked, triggers, err := readProtections(ctx, tx)
	if err != nil {
		return nil, fmt.Errorf("listing protections: %w", err)
	}
	changed, err := changedOwn(ctx, tx)
	if err != nil {
		return nil, fmt.Errorf("listing protections: %w", err)
	}
	var found []Protection
	for _, p := range asked {
		p, err := judge(ctx, tx, p, triggers)
		if err != nil {
			return nil, fmt.Errorf("listing protections: %w", err)
		}
		p.Problems = append(p.Problems, changed...)
		found = append(found, p)
	}
	for _, one := range triggers {
		known := slices.ContainsFunc(asked, func(p Protection) bool { return fold(p.Table) == fold(one.registered()) })
		listed := slices.ContainsFunc(found, func(p Protection) bool { return fold(p.Table) == fold(one.Table) })
		if !known && !listed {
			found = append(found, Protection{Table: one.Table, Problems: []string{"it has triggers of a protection that nobody asked for: protect it, or take the protection away"}})
		}
	}
	slices.SortFunc(found, func(a, b Protection) int { return strings.Compare(fold(a.Table), fold(b.Table)) })
	return found, nil
}

// judge compares what was asked for with the triggers that are there.
func judge(ctx context.Context, tx DBTX, p Protection, triggers []trigger) (Protection, error) {
	there := map[string]string{}
	asked := p.Table
	for _, one := range triggers {
		if fold(one.registered()) == fold(asked) {
			there[one.kind()] = one.SQL
			p.Table = one.Table // it follows a table that is renamed
		}
	}
	if len(there) == 0 {
		p.Problems = []string{"none of its triggers is there: the table was dropped or made anew; protect it again, or take the protection away"}
		return p, nil
	}
	if fold(p.Table) != fold(asked) {
		p.Problems = append(p.Problems, fmt.Sprintf("the table was renamed, and was %q: its rows are protected, under the old name in errors; protect it again", asked))
		return p, nil
	}
	t, err := readTable(ctx, tx, p.Table)
	columns, nameErr := checkName(p.Name, t.Columns)
	if err = errors.Join(err, nameErr); err != nil {
		if errors.Is(err, lease.ErrInvalid) {
			p.Problems = append(p.Problems, "the table has changed: "+err.Error())
			return p, nil
		}
		return p, err
	}
	p.Problems = append(p.Problems, t.overtaken()...)
	want := guard{table: t, name: p.Name, columns: columns}.statements()
	for _, kind := range triggerKinds() {
		switch there[kind] {
		case want[kind]:
		case "":
			p.Problems = append(p.Problems, "trigger "+triggerName(kind, asked)+" is missing: protect the table again")
		default:
			p.Problems = append(p.Problems, "trigger "+triggerName(kind, asked)+" is not as it should be, because it or the table's columns or unique keys have changed: protect the table again")
		}
	}
	return p, nil
}

// changedOwn are the problems of what all protections rest on.
func changedOwn(ctx context.Context, tx DBTX) ([]string, error) {
	var problems []string
	for _, name := range []string{"tenure_presented", "tenure_presented_insert", "tenure_presented_update", "tenure_in_force"} {
		var definition string
		err := tx.QueryRowContext(ctx, `SELECT sql FROM main.sqlite_schema WHERE name = ?`, name).Scan(&definition)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		if err != nil || !strings.Contains(schemaV2, definition) {
			problems = append(problems, name+", which every protection rests on, is missing or was changed: make it again as in the schema (tenure migrate --print)")
		}
	}
	return problems, nil
}

// trigger is one of a protection's, as the file has it.
type trigger struct {
	Name  string `json:"name"`
	Table string `json:"tbl"` // as it is called now
	SQL   string `json:"sql"`
	At    int64  `json:"at"` // its place in the schema: what was made later is run sooner
}

func (t trigger) kind() string {
	for _, kind := range triggerKinds() {
		if strings.HasPrefix(t.Name, triggerName(kind, "")) {
			return kind
		}
	}
	return ""
}

// registered is what the table was called when it was protected.
func (t trigger) registered() string { return strings.TrimPrefix(t.Name, triggerName(t.kind(), "")) }

func readProtections(ctx context.Context, tx DBTX) ([]Protection, []trigger, error) {
	var asked []Protection
	var triggers []trigger
	for _, read := range []struct {
		query string
		into  any
	}{
		{`SELECT json_group_array(json_object('Table', tbl, 'Name', name)) FROM tenure_protected`, &asked},
		{`SELECT json_group_array(json_object('name', name, 'tbl', tbl_name, 'sql', sql)) FROM main.sqlite_schema
			WHERE type = 'trigger' AND name GLOB '` + triggerPrefix + `*'`, &triggers},
	} {
		var raw []byte
		err := tx.QueryRowContext(ctx, read.query).Scan(&raw)
		if err == nil {
			err = json.Unmarshal(raw, read.into)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	triggers = slices.DeleteFunc(triggers, func(t trigger) bool { return t.kind() == "" })
	return asked, triggers, nil
}

// protectStatements is what Protect runs. Nothing that it does itself is to stay.
func protectStatements(ctx context.Context, tx DBTX, p Protection) ([]string, error) {
	t, err := readTable(ctx, tx, p.Table)
	if err != nil {
		return nil, err
	}
	columns, err := checkName(p.Name, t.Columns)
	if err != nil {
		return nil, err
	}
	if err := tryName(ctx, tx, t, p.Name); err != nil {
		return nil, err
	}
	_, triggers, err := readProtections(ctx, tx)
	if err != nil {
		return nil, err
	}
	var statements []string
	for _, one := range triggers {
		if fold(one.Table) != fold(t.Name) && fold(one.registered()) == fold(t.Name) {
			return nil, badTable(t.Name, "the triggers of %q, which was called so before, still have its name: protect that one again first", one.Table)
		}
		if fold(one.Table) == fold(t.Name) {
			statements = append(statements, "DROP TRIGGER "+quote(one.Name))
			if former := one.registered(); fold(former) != fold(t.Name) {
				statements = append(statements, "DELETE FROM tenure_protected WHERE tbl = "+literal(former))
			}
		}
	}
	made := guard{table: t, name: p.Name, columns: columns}.statements()
	for _, kind := range triggerKinds() {
		statements = append(statements, made[kind])
	}
	return append(statements, "INSERT INTO tenure_protected (tbl, name) VALUES ("+literal(t.Name)+", "+literal(p.Name)+
		") ON CONFLICT (tbl) DO UPDATE SET name = excluded.name"), nil
}

// tryName makes an index on the expression, which SQLite does only for one that is deterministic, reads columns alone, and can be evaluated. The index is
// on an empty copy, but for one row of NULLs, in the temporary database: not even the writer lock is taken for it.
func tryName(ctx context.Context, tx DBTX, t table, name string) error {
	err := inSavepoint(ctx, tx, false, func() error {
		for _, statement := range []string{
			"CREATE TEMP TABLE tenure_shape AS SELECT * FROM main." + quote(t.Name) + " LIMIT 0",
			"INSERT INTO temp.tenure_shape DEFAULT VALUES",
			"CREATE INDEX temp.tenure_shape_name ON tenure_shape ((" + name + ") || '')", // a text alone would be taken for a column
		} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return badName("%.200q: %v", name, err)
	}
	return nil
}

// compileTriggers has SQLite read the triggers: what it cannot run must not wait for the next write to say so.
func compileTriggers(ctx context.Context, tx DBTX, name string) error {
	t, err := readTable(ctx, tx, name)
	if err != nil {
		return err
	}
	statements := []string{"EXPLAIN INSERT INTO main." + quote(t.Name) + " DEFAULT VALUES", "EXPLAIN DELETE FROM main." + quote(t.Name)}
	for _, c := range t.Columns {
		if c.Hidden == 0 {
			statements = append(statements, "EXPLAIN UPDATE main."+quote(t.Name)+" SET "+quote(c.Name)+" = "+quote(c.Name))
			break
		}
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return badTable(name, "the triggers cannot be run: %v", err)
		}
	}
	return nil
}

// inSavepoint runs fn, and takes back what it did unless it is to be kept and fn returns nil.
func inSavepoint(ctx context.Context, tx DBTX, keep bool, fn func() error) error {
	const name = "tenure_protect"
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+name); err != nil {
		return err
	}
	err := fn()
	if err != nil || !keep {
		_, backErr := tx.ExecContext(ctx, "ROLLBACK TO "+name)
		err = errors.Join(err, backErr)
	}
	_, endErr := tx.ExecContext(ctx, "RELEASE "+name)
	if errors.Is(endErr, sql.ErrTxDone) || endErr == nil {
		return err
	}
	return errors.Join(err, endErr)
}
