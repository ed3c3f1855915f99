package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

const protectLong = `Makes a table refuse each INSERT, UPDATE and DELETE, by whatever program and role, unless its transaction has presented a valid
claim to the lease that a row is written under. --name is the SQL expression, over the columns of the table, that gives the
name of that lease. An update that changes the name needs claims to both. Code that has never heard of leases is refused too.

Without --apply the statements are printed and nothing is changed: for a migration of the table's owner. --remove takes
the protection away. --list shows what is protected, what of it is not in force, and what no trigger can stop; it exits 1
if anything is not in force.

PostgreSQL: statement-level triggers on the table, its partitions and what inherits from it; TRUNCATE needs a claim to the
table's own name, schema.table. Whoever applies owns the table and is a member of tenure_user. Partitions that are made
later are protected by an event trigger, which the first --apply of a superuser makes. --always: also in sessions with
session_replication_role = replica.
A claim is presented by SELECT tenure.present(claim) or postgres.Present, between BEGIN and COMMIT. In a database apart
from the authority, install the fence half first (tenure migrate --fence-only): rows go by high-water marks there.

SQLite: triggers in the file, for every program that writes it. A claim is presented by sqlite.Present.

JSON: {"store", "statements": [...]} of --print and --apply, {"store", "removed": true} of --remove, and of --list {"store",
"tables": [{"table", "name", "always", "truncate_name", "tables", "new_partitions", "problems": [...]}], "not_stopped": [...]}.`

// protectFlags is the command line of `tenure protect`.
type protectFlags struct {
	table, name               string
	show, apply, remove, list bool
	always, asJSON            bool
}

func (a *app) protectCommand() *cobra.Command {
	var f protectFlags
	cmd := &cobra.Command{
		Use:   "protect [TABLE]",
		Short: "make a table refuse writes without a claim",
		Long:  protectLong,
		Example: `  tenure protect orders --name "'orders/' || order_id" --store postgres://owner@db.example.com/app
  tenure protect orders --name "'orders/' || order_id" --apply --store postgres://owner@db.example.com/app
  tenure protect orders --name "'orders/' || order_id" --apply --store sqlite:app.db
  tenure protect --list --json
  tenure protect orders --remove`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.table = args[0]
			}
			if err := f.check(); err != nil {
				return err
			}
			l, err := a.env.locate(a.storeFlag)
			if err != nil {
				return err
			}
			return a.protect(cmd.Context(), l, f)
		},
	}
	cmd.Flags().StringVar(&f.name, "name", "", "SQL `EXPRESSION` that gives the name of a row's lease")
	cmd.Flags().BoolVar(&f.show, "print", false, "print the statements and change nothing (the default)")
	cmd.Flags().BoolVar(&f.apply, "apply", false, "protect the table now")
	cmd.Flags().BoolVar(&f.remove, "remove", false, "take the protection of the table away")
	cmd.Flags().BoolVar(&f.list, "list", false, "list what is protected and what is not in force")
	cmd.Flags().BoolVar(&f.always, "always", false, "also where session_replication_role = replica (PostgreSQL)")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

// check refuses flags that make no sense together.
func (f protectFlags) check() error {
	modes := 0
	for _, mode := range []bool{f.show, f.apply, f.remove, f.list} {
		if mode {
			modes++
		}
	}
	switch {
	case modes > 1:
		return usagef("--print, --apply, --remove and --list exclude each other")
	case f.list && f.table != "":
		return usagef("--list takes no table: it lists all that are protected")
	case !f.list && f.table == "":
		return usagef("which table? give its name, or --list")
	case (f.list || f.remove) && (f.name != "" || f.always):
		return usagef("--name and --always go with --print and --apply")
	case !f.list && !f.remove && f.name == "":
		return usagef(`--name is missing: the expression that gives the name of a row's lease, such as --name "'%s/' || id"`, f.table)
	}
	return nil
}

// protector is a store whose tables can be protected.
type protector interface {
	script(ctx context.Context, f protectFlags) ([]string, error)
	protect(ctx context.Context, f protectFlags) ([]string, error)
	remove(ctx context.Context, table string) (bool, error)
	list(ctx context.Context) (protectedJSON, error)
}

func (a *app) protect(ctx context.Context, l location, f protectFlags) error {
	if err := l.besideTheStore("protect"); err != nil {
		return err
	}
	if l.postgres {
		return onConnection(ctx, l, func(conn *pgx.Conn) error { return a.protectBy(ctx, l, f, postgresTables{conn}) })
	}
	if f.always {
		return usagef("--always is for PostgreSQL: triggers of SQLite know no replication")
	}
	s, _, err := a.open(ctx, openOptions{made: true})
	if err != nil {
		return err
	}
	defer a.close(ctx, s)
	file, ok := s.(*sqlite.Store)
	if !ok {
		return usagef("store %q has no tables to protect: name a file of SQLite or a PostgreSQL database", l.shown)
	}
	return a.protectBy(ctx, l, f, sqliteTables{file})
}

func (a *app) protectBy(ctx context.Context, l location, f protectFlags, p protector) error {
	switch {
	case f.list:
		found, err := p.list(ctx)
		if err != nil {
			return err
		}
		found.Store = l.shown
		return a.sayProtected(found, f.asJSON)
	case f.remove:
		was, err := p.remove(ctx, f.table)
		if err != nil {
			return err
		}
		if !was {
			return fmt.Errorf("table %s is not protected; nothing was changed; `tenure protect --list` shows what is", f.table)
		}
		if f.asJSON {
			return a.printJSON(struct {
				Store   string `json:"store"`
				Removed bool   `json:"removed"`
			}{l.shown, true})
		}
		return a.print(fmt.Sprintf("%s: table %s is not protected any more\n", l.shown, f.table))
	}
	run := p.script
	if f.apply {
		run = p.protect
	}
	statements, err := run(ctx, f)
	if err != nil {
		return err
	}
	if f.asJSON {
		return a.printJSON(struct {
			Store      string   `json:"store"`
			Statements []string `json:"statements"`
		}{l.shown, statements})
	}
	if f.apply {
		return a.print(fmt.Sprintf("%s: table %s is protected: rows are written under the lease %s\n", l.shown, f.table, f.name))
	}
	return a.print(strings.Join(statements, ";\n") + ";\n")
}

// protectedJSON is the list as --json shows it.
type protectedJSON struct {
	Store      string               `json:"store"`
	Tables     []protectedTableJSON `json:"tables"`
	NotStopped []string             `json:"not_stopped"`
}

type protectedTableJSON struct {
	Table         string   `json:"table"`
	Name          string   `json:"name"`
	Always        bool     `json:"always"`
	TruncateName  string   `json:"truncate_name,omitempty"`
	Tables        int      `json:"tables"`
	NewPartitions bool     `json:"new_partitions"`
	Problems      []string `json:"problems"`
}

func (a *app) sayProtected(p protectedJSON, asJSON bool) error {
	off := false
	text := ""
	for _, t := range p.Tables {
		text += fmt.Sprintf("%s: rows are written under the lease %s\n", printable(t.Table), printable(t.Name))
		if t.TruncateName != "" {
			text += fmt.Sprintf("  truncate under %s; tables %d; new partitions %s; replica role %s\n", printable(t.TruncateName), t.Tables, yesNo(t.NewPartitions), yesNo(t.Always))
		}
		for _, problem := range t.Problems {
			off = true
			text += "  NOT IN FORCE: " + printable(problem) + "\n"
		}
	}
	if len(p.Tables) == 0 {
		text = p.Store + ": no table is protected\n"
	}
	text += "no trigger stops:\n"
	for _, gap := range p.NotStopped {
		text += "  - " + gap + "\n"
	}
	say := func() error { return a.print(text) }
	if asJSON {
		say = func() error { return a.printJSON(p) }
	}
	err := say()
	if err == nil && off {
		return &codedError{exitFailed}
	}
	return err
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// postgresTables are those of a database.
type postgresTables struct{ conn *pgx.Conn }

func (p postgresTables) protection(f protectFlags) postgres.Protection {
	return postgres.Protection{Table: f.table, Name: f.name, Always: f.always}
}

func (p postgresTables) script(ctx context.Context, f protectFlags) ([]string, error) {
	statements, err := postgres.ProtectScript(ctx, p.conn, p.protection(f))
	return append(append([]string{"BEGIN"}, statements...), "COMMIT"), err
}

func (p postgresTables) protect(ctx context.Context, f protectFlags) ([]string, error) {
	return postgres.Protect(ctx, p.conn, p.protection(f))
}

func (p postgresTables) remove(ctx context.Context, table string) (bool, error) {
	return postgres.Unprotect(ctx, p.conn, table)
}

func (p postgresTables) list(ctx context.Context) (protectedJSON, error) {
	found, err := postgres.Protections(ctx, p.conn)
	out := protectedJSON{Tables: []protectedTableJSON{}, NotStopped: postgres.ProtectionGaps()}
	for _, t := range found {
		out.Tables = append(out.Tables, protectedTableJSON{t.Table, t.Name, t.Always, t.TruncateName, t.Tables, t.NewPartitions, listed(t.Problems)})
	}
	return out, err
}

// sqliteTables are those of a file.
type sqliteTables struct{ store *sqlite.Store }

func (s sqliteTables) script(ctx context.Context, f protectFlags) ([]string, error) {
	script, err := s.store.ProtectScript(ctx, sqlite.Protection{Table: f.table, Name: f.name})
	return []string{strings.TrimSuffix(strings.TrimSpace(script), ";")}, err
}

func (s sqliteTables) protect(ctx context.Context, f protectFlags) ([]string, error) {
	statements, err := s.script(ctx, f)
	if err != nil {
		return nil, err
	}
	return statements, s.store.Protect(ctx, sqlite.Protection{Table: f.table, Name: f.name})
}

func (s sqliteTables) remove(ctx context.Context, table string) (bool, error) {
	return s.store.Unprotect(ctx, table)
}

func (s sqliteTables) list(ctx context.Context) (protectedJSON, error) {
	found, err := s.store.Protected(ctx)
	out := protectedJSON{Tables: []protectedTableJSON{}, NotStopped: sqlite.ProtectionGaps()}
	for _, t := range found {
		out.Tables = append(out.Tables, protectedTableJSON{Table: t.Table, Name: t.Name, Tables: 1, Problems: listed(t.Problems)})
	}
	return out, err
}

// listed is never nil, so that JSON has a list.
func listed(all []string) []string { return append([]string{}, all...) }
