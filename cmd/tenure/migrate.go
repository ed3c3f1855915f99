package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

const migrateLong = `Makes the store if it is missing, or brings an older schema up to date, and says where and which authority it is. To run
it again changes nothing. A store written by a newer Tenure is refused.

SQLite. Every command does the same when it opens a store; migrate is for doing it at a time of one's own choosing, and for
--adopt. A database that belongs to an application is left alone unless --adopt is given: then Tenure's tables, whose
names all start with tenure_, are installed beside the application's, so that one transaction can check a lease and
write what it protects.

PostgreSQL, named by --database-url or --store. Installs the schema "tenure", each version in one transaction under an
advisory lock: of two migrations at once one does the work and both succeed. The roles tenure_user (acquires and fences),
tenure_operator (also revokes and prunes) and tenure_owner (owns the schema, raises the epoch) are made where they are missing.
The role that migrates is a superuser, or has CREATEROLE and CREATE on the database; one that has not is told what an
administrator must run once. --grant ROLE makes ROLE a member of tenure_user, and may be repeated.

--fence-only installs the fence half alone: marks and protected tables (tenure protect), for a database whose resources are
guarded by leases of an authority elsewhere. No store works on it.

--print prints SQL for psql, Rails, Alembic or Flyway and touches nothing: that of PostgreSQL if the store is named by a
postgres:// URL, which need not lead anywhere, else that of SQLite.

--down --yes drops the schema from a PostgreSQL database with every session, lease, token and mark in it, and with all
that depends on it. Holders are not told. The roles stay, because other databases of the cluster may use them.

JSON: {"store", "authority" (not of the fence half), "schema": version, "from": the version before, 0 if none (PostgreSQL)}.`

// migrateFlags is the command line of `tenure migrate`.
type migrateFlags struct {
	url                            string
	grant                          []string
	adopt, show, down, yes, asJSON bool
	fenceOnly                      bool
}

func (a *app) migrateCommand() *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "make the store, or bring its schema up to date",
		Long:  migrateLong,
		Example: `  tenure migrate
  tenure migrate --store sqlite:app.db --adopt
  tenure migrate --database-url postgres://deployer@db.example.com/app --grant app
  tenure migrate --database-url postgres:// --print --grant app > tenure.sql
  tenure migrate --database-url postgres://deployer@db.example.com/app --down --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := f.locate(a)
			if err != nil {
				return err
			}
			if l.postgres {
				return a.migratePostgres(cmd.Context(), l, f)
			}
			return a.migrateSQLite(cmd.Context(), f)
		},
	}
	cmd.Flags().StringVar(&f.url, "database-url", "", "`URL` of a PostgreSQL database, instead of --store")
	cmd.Flags().StringArrayVar(&f.grant, "grant", nil, "make `ROLE` a member of tenure_user (PostgreSQL; may be repeated)")
	cmd.Flags().BoolVar(&f.fenceOnly, "fence-only", false, "install the fence half alone, and no store (PostgreSQL)")
	cmd.Flags().BoolVar(&f.adopt, "adopt", false, "install beside the tables of an application (SQLite)")
	cmd.Flags().BoolVar(&f.show, "print", false, "print the SQL of the newest schema and touch nothing")
	cmd.Flags().BoolVar(&f.down, "down", false, "drop the schema and all that is in it (PostgreSQL)")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "mean it: with --down")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

// locate finds the store, and refuses flags that make no sense for it or together.
func (f migrateFlags) locate(a *app) (location, error) {
	if f.url != "" && a.storeFlag != "" {
		return location{}, usagef("--store and --database-url both name a store: give one of them")
	}
	if f.url != "" && !isPostgres(f.url) {
		return location{}, usagef("--database-url %q: want postgres://USER@HOST/DATABASE; another store is named by --store", withoutPassword(f.url))
	}
	named := a.storeFlag
	if f.url != "" {
		named = f.url
	}
	l, err := a.env.locate(named)
	switch {
	case err != nil && f.show && named == "" && a.env.getenv("TENURE_STORE") == "": // nothing is opened, so nothing need be found
		l = location{}
	case err != nil:
		return l, err
	}
	switch {
	case l.remote:
		return l, l.besideTheStore("migrate")
	case l.postgres && f.adopt:
		return l, usagef("--adopt is for a file of SQLite; on PostgreSQL Tenure has a schema of its own")
	case !l.postgres && (len(f.grant) > 0 || f.down || f.yes || f.fenceOnly):
		return l, usagef("--grant, --fence-only, --down and --yes are for PostgreSQL: name it by --database-url. A store in a file is removed with its file")
	case f.yes && !f.down:
		return l, usagef("--yes goes with --down")
	case f.down && (f.show || len(f.grant) > 0):
		return l, usagef("--down goes with neither --print nor --grant")
	case f.down && !f.yes:
		return l, usagef("--down drops every session, lease, token and mark in %s, and holders are not told; add --yes to mean it. Nothing was changed", l.shown)
	}
	return l, nil
}

func (a *app) migrateSQLite(ctx context.Context, f migrateFlags) error {
	if f.show {
		return a.print(sqlite.Schema())
	}
	s, l, err := a.open(ctx, openOptions{adopt: f.adopt})
	if err != nil {
		return err
	}
	defer a.close(ctx, s)
	return a.sayMigrated(f, l, authorityOf(s), sqlite.SchemaVersion, nil)
}

func (a *app) migratePostgres(ctx context.Context, l location, f migrateFlags) error {
	switch {
	case f.show && f.fenceOnly:
		return a.print(postgres.FenceScript(f.grant...))
	case f.show:
		return a.print(postgres.Script(f.grant...))
	case f.down:
		return a.takeDown(ctx, l, f)
	}
	var m postgres.Migrated
	err := onConnection(ctx, l, func(conn *pgx.Conn) (err error) {
		m, err = postgres.Migrate(ctx, conn, postgres.MigrateOptions{Grant: f.grant, FenceOnly: f.fenceOnly})
		return err
	})
	if err != nil {
		return err
	}
	return a.sayMigrated(f, l, m.Authority, m.To, &m.From)
}

func (a *app) takeDown(ctx context.Context, l location, f migrateFlags) error {
	err := onConnection(ctx, l, func(conn *pgx.Conn) error { return postgres.Down(ctx, conn) })
	if err != nil {
		return err
	}
	if f.asJSON {
		return a.printJSON(struct {
			Store  string `json:"store"`
			Schema int    `json:"schema"`
		}{l.shown, 0})
	}
	return a.print(fmt.Sprintf("%s: no schema any more; the roles tenure_user, tenure_operator and tenure_owner are the cluster's and stay\n", l.shown))
}

// sayMigrated prints the outcome. from is nil for a store that does not say which version it had.
func (a *app) sayMigrated(f migrateFlags, l location, authority fence.ID, version int, from *int) error {
	if f.asJSON {
		return a.printJSON(struct {
			Store     string   `json:"store"`
			Authority fence.ID `json:"authority,omitzero"`
			Schema    int      `json:"schema"`
			From      *int     `json:"from,omitempty"`
		}{l.shown, authority, version, from})
	}
	done := "up to date"
	switch {
	case from == nil || *from == version:
	case *from == 0:
		done = "installed"
	default:
		done = fmt.Sprintf("brought up from %d", *from)
	}
	text := fmt.Sprintf("%s: authority %s, schema %d, %s\n", l.shown, authority, version, done)
	if f.fenceOnly {
		text = fmt.Sprintf("%s: fence half, schema %d, %s\n", l.shown, version, done)
	}
	if len(f.grant) > 0 {
		var roles []string
		for _, role := range f.grant {
			roles = append(roles, printable(role))
		}
		text += "granted tenure_user to " + strings.Join(roles, ", ") + "\n"
	}
	return a.print(text)
}

// print writes to standard output.
func (a *app) print(text string) error {
	if _, err := fmt.Fprint(a.stdout, text); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// authorityOf is the id in the claims of a store; zero if it does not say.
func authorityOf(s store) fence.ID {
	if known, ok := s.(interface{ Authority() fence.ID }); ok {
		return known.Authority()
	}
	return fence.ID{}
}
