package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/fence"
)

// MigrateOptions are what [Migrate] may be asked for beside the schema.
type MigrateOptions struct {
	// Grant names roles that become members of tenure_user: they may acquire and fence. Names are taken as they are: nothing is folded to lower case.
	Grant []string

	// FenceOnly installs the fence half alone: marks, Present and Protect, for a database whose resources are guarded by leases of an
	// authority elsewhere. No store works on it. A database that has one of the two keeps it: the other is refused.
	FenceOnly bool
}

// Migrated says what [Migrate] found and left.
type Migrated struct {
	From, To  int      // versions; From is 0 where there was no schema
	Authority fence.ID // none with FenceOnly
}

// Migrate installs the schema "tenure", or brings it up to [SchemaVersion]; one that is up to date stays as it is. conn is not in a
// transaction, and is used by nobody else meanwhile.
//
// Each version is applied in one transaction, under an advisory lock: of two migrations at once one does the work and both succeed.
// A migration waits at most a minute for another one. The roles tenure_owner, tenure_user and tenure_operator are made where
// they are missing; they belong to the cluster. The role of conn is a superuser, or has CREATEROLE and CREATE on the database, or is a
// member of tenure_owner where the roles and the schema are there; else the error says what an administrator must run once.
//
// Migrate returns a [*SchemaError] that matches [ErrNewerSchema] or [ErrForeignSchema], having changed nothing; errors of the
// server match *pgconn.PgError, and say that nothing was changed where that is so. If it is unknown what became of it, run it again.
func Migrate(ctx context.Context, conn *pgx.Conn, o MigrateOptions) (Migrated, error) {
	if o.FenceOnly {
		return migrate(ctx, conn, halfSteps(), o)
	}
	return migrate(ctx, conn, steps(), o)
}

func migrate(ctx context.Context, conn *pgx.Conn, all []step, o MigrateOptions) (Migrated, error) {
	target := all[len(all)-1].version
	m := Migrated{To: target}
	if err := checkRoles(ctx, conn, o.Grant); err != nil {
		return m, err
	}
	// A role that may only look need not be able to do more where nothing is to be done.
	have, err := Version(ctx, conn)
	if err != nil && state(err) != stateNotAllowed {
		return m, explained("reading the version of the schema", err)
	}
	half, errHalf := isHalf(ctx, conn)
	if errHalf != nil {
		return m, explained("reading the schema", errHalf)
	}
	if m.From = have; err != nil || have < target || half != o.FenceOnly { // the last is refused by the script
		for i, s := range all {
			from, err := apply(ctx, conn, s)
			if err != nil {
				return m, err
			}
			if have = max(from, s.version); i == 0 {
				m.From = from
			}
		}
	}
	if have > target {
		return m, &SchemaError{Kind: ErrNewerSchema, Have: have, Want: target, Detail: "use a program as new as the schema; nothing was changed"}
	}
	if err := grant(ctx, conn, o.Grant); err != nil {
		return m, err
	}
	if o.FenceOnly {
		return m, nil
	}
	m.Authority, err = authorityID(ctx, conn)
	if state(err) == stateNotAllowed { // a role that is a member of tenure_owner and inherits nothing
		err = inTx(ctx, conn, "migrate", func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SET LOCAL ROLE tenure_owner`); err != nil {
				return err
			}
			m.Authority, err = authorityID(ctx, tx)
			return err
		})
	}
	return m, err
}

// isHalf reports whether the database has the fence half of the schema alone.
func isHalf(ctx context.Context, conn *pgx.Conn) (half bool, err error) {
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'mark')
		AND NOT EXISTS (SELECT 1 FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'authority') FROM pg_namespace n WHERE n.nspname = 'tenure'`).Scan(&half)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return half, err
}

// apply runs a version's script, and returns the version that was there before.
func apply(ctx context.Context, conn *pgx.Conn, s step) (from int, err error) {
	err = inTx(ctx, conn, "migrate", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.upScript()); err != nil {
			return err
		}
		var was string
		if err := tx.QueryRow(ctx, `SELECT current_setting('tenure.migrated_from')`).Scan(&was); err != nil {
			return err
		}
		from, err = strconv.Atoi(was)
		return err
	})
	return from, err
}

// Down takes the whole schema away: every session, lease, token and mark, and what depends on its tables and functions. Nothing tells
// the holders. A schema that is made later is another authority. The roles stay: they are the cluster's, and
// other databases may use them. Where there is no schema, Down changes nothing. conn is as for [Migrate], its role a superuser or
// a member of tenure_owner.
//
// Down waits at most a minute for each lock, open fenced transactions hold some. While tables are protected ([Protect]) it is refused, and names them. It returns a [*SchemaError] that matches
// [ErrNewerSchema] or [ErrForeignSchema], having changed nothing.
func Down(ctx context.Context, conn *pgx.Conn) error {
	return down(ctx, conn, steps())
}

func down(ctx context.Context, conn *pgx.Conn, all []step) error {
	for i := len(all) - 1; i >= 0; i-- {
		err := inTx(ctx, conn, opDown, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, all[i].downScript()); err != nil {
				return err
			}
			var newer bool
			if err := tx.QueryRow(ctx, `SELECT current_setting('tenure.migrated_from')::int > $1`, all[i].version).Scan(&newer); err != nil {
				return err
			}
			if newer {
				return &SchemaError{Kind: ErrNewerSchema, Want: all[i].version, Detail: "use a program as new as the schema to take it away; nothing was changed"}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRoles refuses roles that do not exist, before anything is changed.
func checkRoles(ctx context.Context, conn *pgx.Conn, roles []string) error {
	for _, role := range roles {
		var there bool
		if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)`, role).Scan(&there); err != nil {
			return fmt.Errorf("postgres: looking for role %q: %w", role, err)
		}
		if !there {
			return fmt.Errorf("postgres: there is no role %q to grant tenure_user to; nothing was changed: make it, or check its spelling, which is taken as it is", role)
		}
	}
	return nil
}

// grant makes the roles members of tenure_user; those that are stay so, whoever asks.
func grant(ctx context.Context, conn *pgx.Conn, roles []string) error {
	if len(roles) == 0 {
		return nil
	}
	return inTx(ctx, conn, "granting tenure_user", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', '`+lockBound+`', true), pg_advisory_xact_lock(`+strconv.Itoa(lockKey)+`)`); err != nil {
			return err
		}
		for _, role := range roles {
			var member bool
			err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid JOIN pg_roles u ON u.oid = m.member
				WHERE r.rolname = 'tenure_user' AND u.rolname = $1)`, role).Scan(&member)
			if err == nil && !member {
				_, err = tx.Exec(ctx, grantStatement(role))
			}
			if err != nil {
				return fmt.Errorf("role %q: %w", role, err)
			}
		}
		return nil
	})
}

// undoBound is how long a rollback may take before the connection is closed instead.
const undoBound = 5 * time.Second

// inTx runs do in a transaction at READ COMMITTED, which sees after a wait for the lock what the other migration did.
func inTx(ctx context.Context, conn *pgx.Conn, what string, do func(pgx.Tx) error) error {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return explained(what, err)
	}
	if err := do(tx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
		defer cancel()
		return explained(what, errors.Join(err, tx.Rollback(ctx)))
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("postgres: %s: the answer to COMMIT did not come, run it again to see: %w", what, err)
	}
	return nil
}

// stateForeignSchema is raised by the frame of migrations for a schema "tenure" that is not Tenure's.
const (
	stateForeignSchema = "42P06"
	stateNotAllowed    = "42501"
)

// explained adds what the server advises, and gives a schema of somebody else's its type.
func explained(what string, err error) error {
	var schema *SchemaError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &schema):
		return schema
	case !errors.As(err, &pg):
		return fmt.Errorf("postgres: %s: %w", what, err)
	case pg.Code == stateForeignSchema:
		return &SchemaError{Kind: ErrForeignSchema, Detail: pg.Message + "; " + pg.Hint}
	case pg.Hint != "":
		if pg.Code == stateNotAllowed {
			return fmt.Errorf("postgres: %s: %w", what, &setupError{err: err, advice: pg.Hint})
		}
		return fmt.Errorf("postgres: %s: %w; %s", what, err, pg.Hint)
	case pg.Code == stateNotAllowed:
		return fmt.Errorf("postgres: %s: %w", what, hinted(what, err))
	}
	return fmt.Errorf("postgres: %s: %w", what, err)
}
