package drill

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/store/postgres"
)

// SQLSTATEs, as code knows them that has never heard of Tenure.
const (
	rowRefused   = "TN013" // a protected table's
	mayNot       = "42501"
	stillNeeded  = "2BP01"
	goneAlready  = "42704"
	strangerText = `INSERT INTO [log] (round, writer, element, token, content) VALUES (?1, ?2, ?3, 0, ?4)`
)

func hasState(err error, states ...string) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	for _, state := range states {
		if pg.Code == state {
			return true
		}
	}
	return false
}

// alone runs fn in a transaction on a connection of its own.
func (s postgresSite) alone(ctx context.Context, fn func(tx pgx.Tx) error) (err error) {
	_, address, err := s.addresses()
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return pgx.BeginFunc(ctx, conn, fn)
}

// protect runs the statements for the table and nothing else: [postgres.Protect] may also make an event trigger, which would be the database's.
func (s postgresSite) protect(ctx context.Context, r *resource) error {
	return s.alone(ctx, func(tx pgx.Tx) error {
		script, err := postgres.ProtectScript(ctx, tx, postgres.Protection{Table: r.sql("[" + r.rows.table + "]"), Name: r.rowName()})
		if err != nil {
			return err
		}
		for _, statement := range script {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s postgresSite) unprotect(ctx context.Context, r *resource) error {
	return s.alone(ctx, func(tx pgx.Tx) error {
		_, err := postgres.Unprotect(ctx, tx, r.sql("["+r.rows.table+"]"))
		return err
	})
}

func (s postgresSite) present(ctx context.Context, tx *sql.Tx, claim fence.Claim) error {
	return postgres.PresentSQL(ctx, tx, claim)
}

func (s postgresSite) done(context.Context, *sql.Tx) error { return nil }

func (s postgresSite) refused(err error) error { return postgres.FenceError(fence.Claim{}, err) }

// stranger also logs the write, which is the drill's book-keeping, in the same transaction.
func (s postgresSite) stranger(ctx context.Context, r *resource, role string, f form, w writing) (refusal string, err error) {
	err = s.alone(ctx, func(tx pgx.Tx) error {
		if role != "" { // within the transaction, so that it holds behind a pooler too
			if _, err := tx.Exec(ctx, `SET LOCAL ROLE `+role); err != nil {
				return err
			}
		}
		content, err := strange(ctx, tx, r, f, w)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, r.sql(strangerText), w.round, w.writer, w.element, content)
		return err
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == rowRefused {
		return pg.Code + ": " + pg.Message, nil
	}
	return "", err
}

// strange sends the one statement, and returns what the value then is.
func strange(ctx context.Context, tx pgx.Tx, r *resource, f form, w writing) (content string, err error) {
	text, err := json.Marshal(append(append([]string{}, w.base...), w.element))
	if err != nil {
		return "", err
	}
	content = string(text)
	var tag pgconn.CommandTag
	switch f {
	case formUpdate:
		tag, err = tx.Exec(ctx, r.sql(`UPDATE [item] SET content = ?2 WHERE round = ?1`), w.round, content)
	case formUpsert:
		tag, err = tx.Exec(ctx, r.sql(`INSERT INTO [item] (round, content) VALUES (?1, ?2) ON CONFLICT (round, version) DO UPDATE SET content = ?2`), w.round, content)
	case formCopy:
		line := strconv.Itoa(w.round) + "\t2\t" + strings.ReplaceAll(content, `\`, `\\`) + "\n"
		tag, err = tx.Conn().PgConn().CopyFrom(ctx, strings.NewReader(line), r.sql(`COPY [item] (round, version, content) FROM STDIN`))
	case formDelete:
		content = "[]"
		tag, err = tx.Exec(ctx, r.sql(`DELETE FROM [item] WHERE round = ?1`), w.round)
	default:
		return "", fmt.Errorf("%w: no form %q of a write here", ErrProcess, f)
	}
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("%w: the %s found no row to write", ErrProcess, f)
	}
	return content, err
}

// role is the name of the role that a run makes: letters, digits and underscores.
func (r *resource) role() string { return r.prefix + r.run }

// createRole makes a role that may write the run's values and owns nothing. It cannot log in: who writes as this role switches to it.
func (s postgresSite) createRole(ctx context.Context, r *resource, now time.Time) error {
	if err := s.sweepRoles(ctx, now); err != nil {
		return err
	}
	role := r.role()
	return s.alone(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `CREATE ROLE `+role); hasState(err, mayNot) {
			return fmt.Errorf("%w: %w", errNoRole, err)
		} else if err != nil {
			return err
		}
		for _, grant := range []string{`GRANT ` + role + ` TO CURRENT_USER`, `GRANT USAGE ON SCHEMA {schema} TO ` + role,
			`GRANT SELECT, INSERT, UPDATE, DELETE ON [item] TO ` + role, `GRANT INSERT ON [log] TO ` + role} {
			if _, err := tx.Exec(ctx, r.sql(grant)); err != nil {
				return err
			}
		}
		return nil
	})
}

// dropRole takes back what was granted, and drops the role.
func (s postgresSite) dropRole(ctx context.Context, r *resource) error {
	role := r.role()
	return s.alone(ctx, func(tx pgx.Tx) error {
		for _, statement := range []string{`REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM ` + role, `REVOKE ALL ON SCHEMA {schema} FROM ` + role, `DROP ROLE ` + role} {
			if _, err := tx.Exec(ctx, r.sql(statement)); err != nil {
				return fmt.Errorf("dropping role %s: %w", role, err)
			}
		}
		return nil
	})
}

// sweepRoles drops the roles of drills that were killed, once their schemas have been dropped. Those that may not be dropped from here stay:
// another role's, and those with a schema in another database.
func (s postgresSite) sweepRoles(ctx context.Context, now time.Time) error {
	form := regexp.MustCompile(`^` + tablePrefix + `([0-9a-f]{8})[0-9a-f]{8}$`)
	var old []string
	err := s.alone(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT rolname::text FROM pg_roles r WHERE starts_with(rolname, $1)
			AND NOT EXISTS (SELECT 1 FROM pg_namespace n WHERE n.nspname = r.rolname) LIMIT 4096`, tablePrefix)
		if err != nil {
			return err
		}
		old, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	swept := 0
	for _, role := range old {
		match := form.FindStringSubmatch(role)
		if err != nil || match == nil || swept == maxSwept || !longAgo(match[1], now) {
			continue
		}
		swept++
		err = s.alone(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `DROP ROLE `+role) // letters, digits and underscores
			return err
		})
		if hasState(err, mayNot, stillNeeded, goneAlready) {
			err = nil
		}
	}
	return err
}
