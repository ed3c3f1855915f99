package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
)

const (
	presentText     = `SELECT tenure.present($1::uuid, $2::text, $3::uuid, $4::bigint)`
	presentManyText = `SELECT tenure.present($1::uuid, $2::text[], $3::uuid[], $4::bigint[])`
)

// MaxPresent is how many claims one call of [Present] takes.
const MaxPresent = 4096

// Present verifies claims, all or none, and presents them to the triggers of protected tables for the rest of the transaction; see [Protect]. A write to
// a protected row passes if a claim to its name was presented and still holds at that moment. Claims of one call are of one authority, each to another name; a second
// call adds to the first. No successor of any of them is recognised before the transaction ends.
//
// Present stands before the writes, in the same savepoint as they or in one around it: rolling back to a savepoint takes back what was presented
// after it. What was presented is a setting of the transaction, and gone with it, so behind a pooler in transaction mode it belongs between BEGIN and COMMIT.
// Two calls keep the byte order of names, else two transactions may deadlock. Errors, isolation levels and the bound on idling are as for [Verify]. Above READ COMMITTED
// writes see no renewal that came after the first statement: what is written later than the lease's end at that moment is refused.
func Present(ctx context.Context, tx pgx.Tx, claims ...fence.Claim) error {
	return present(claims, func(text string, args ...any) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	})
}

// PresentSQL is [Present] for a transaction of database/sql, with the driver pgx/v5/stdlib.
func PresentSQL(ctx context.Context, tx *sql.Tx, claims ...fence.Claim) error {
	return present(claims, func(text string, args ...any) error {
		_, err := tx.ExecContext(ctx, text, args...)
		return err
	})
}

// QueuePresent adds [Present] to a batch, as [QueueVerify] does.
func QueuePresent(b *pgx.Batch, claims ...fence.Claim) error {
	text, args, err := presentation(claims)
	if err == nil {
		b.Queue(text, args...)
	}
	return err
}

func present(claims []fence.Claim, do send) error {
	text, args, err := presentation(claims)
	if err != nil {
		return err
	}
	err = do(text, args...)
	return FenceError(refusedOf(claims, err), err)
}

// presentation is the call that presents the claims.
func presentation(claims []fence.Claim) (text string, args []any, err error) {
	if len(claims) == 0 || len(claims) > MaxPresent {
		return "", nil, &fence.InvalidError{What: "claim", Problem: fmt.Sprintf("want 1 to %d claims, not %d", MaxPresent, len(claims))}
	}
	names, acquisitions, tokens := make([]string, len(claims)), make([]pgtype.UUID, len(claims)), make([]int64, len(claims))
	for i, c := range claims {
		if err := c.Check(); err != nil {
			return "", nil, err
		}
		if c.Authority != claims[0].Authority {
			return "", nil, &fence.InvalidError{What: "claim", Problem: "claims of several authorities; present those of one authority in one call"}
		}
		names[i], acquisitions[i], tokens[i] = c.Name, uuid(c.Acquisition), int64(c.Token)
	}
	if len(claims) == 1 {
		return presentText, verifyArgs(claims[0]), nil
	}
	return presentManyText, []any{claims[0].Authority.String(), names, acquisitions, tokens}, nil
}

// refusedOf is the claim that a refusal is of.
func refusedOf(claims []fence.Claim, err error) fence.Claim {
	var pg *pgconn.PgError
	var facts struct{ Name string }
	if errors.As(err, &pg) && json.Unmarshal([]byte(pg.Detail), &facts) == nil {
		for _, c := range claims {
			if c.Name == facts.Name {
				return c
			}
		}
	}
	return claims[0]
}

// Protection is a table that refuses writes without a claim.
type Protection struct {
	Table string // as SQL writes it: schema.table, quoted where it needs to be
	// Name is an immutable SQL expression over the columns of the table: the name of the lease that a row is written under, such as 'orders/' || order_id.
	Name   string
	Always bool // also in sessions with session_replication_role = replica

	// What [Protections] tells beside.
	TruncateName  string   // of the lease that TRUNCATE needs
	Tables        int      // the table, its partitions and the tables that inherit from it
	NewPartitions bool     // partitions that are made later are protected with it; else after [Protect] was called again
	Problems      []string // what is not in force: triggers that are missing or switched off, a guard that was changed
}

// Statements is where the statements of protections run: a connection, a pool or a transaction of pgx.
type Statements interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Protect makes a table, its partitions and the tables that inherit from it refuse each INSERT, UPDATE, DELETE and TRUNCATE of every role, its owner
// and superusers included, in whatever form it comes, unless the transaction has presented a claim ([Present], or tenure.present in SQL) to the
// name of each row that it writes; an update needs the names before and after. TRUNCATE needs a claim to the table's own name, schema.table. Rows are checked at the end of
// the statement that writes them. Protecting again changes the expression. It returns the statements that it ran. The tables are locked (ACCESS EXCLUSIVE) until
// its transaction ends.
//
// What no trigger stops: DDL, DISABLE TRIGGER and DROP by the owner or a superuser, a session with session_replication_role = replica
// (unless Always), what a logical subscription applies, a table that is written before it is attached as a partition. [Protections] tells what is switched off.
//
// The role of db owns the table and is a member of tenure_user. A partition made later is protected by an event trigger, which only a superuser's first call can make.
// Errors: one that matches [fence.ErrInvalid] for a table or expression that cannot be protected, one that matches [ErrSetup] where a right is missing, or the driver's.
// Nothing was changed then. It runs at READ COMMITTED. Outside a transaction it is applied all or not at all; if its answer is lost, ask [Protections].
func Protect(ctx context.Context, db Statements, p Protection) ([]string, error) {
	return protectBy(ctx, db, "SELECT * FROM tenure.protect($1::text::regclass, $2, $3)", p)
}

// ProtectScript returns the statements that [Protect] would run, for a migration of the table's owner. It changes nothing. The event trigger for
// new partitions is not among them.
func ProtectScript(ctx context.Context, db Statements, p Protection) ([]string, error) {
	return protectBy(ctx, db, "SELECT * FROM tenure.protect_script($1::text::regclass, $2, $3)", p)
}

func protectBy(ctx context.Context, db Statements, text string, p Protection) ([]string, error) {
	rows, err := db.Query(ctx, text, p.Table, p.Name, p.Always)
	if err != nil {
		return nil, protectError(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return all, protectError(err)
}

// Unprotect takes the protection of a table and of those below it away, and reports whether there was one. Rights and errors are as for [Protect].
func Unprotect(ctx context.Context, db Statements, table string) (was bool, err error) {
	rows, err := db.Query(ctx, `SELECT tenure.unprotect($1::text::regclass)`, table)
	if err != nil {
		return false, protectError(err)
	}
	was, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	return was, protectError(err)
}

// Protections returns the protected tables of the database, and what of their protection is not in force.
func Protections(ctx context.Context, db Statements) ([]Protection, error) {
	rows, err := db.Query(ctx, `SELECT relation::text, name, always, truncate_name, tables, new_partitions, problems FROM tenure.protections()`)
	if err != nil {
		return nil, protectError(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Protection])
	return all, protectError(err)
}

func protectError(err error) error {
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
		return err
	case pg.Code == stateNotAllowed && pg.Hint != "": // tenure's own, which says what to do
		return &setupError{err: err, advice: pg.Hint}
	case pg.Code == "42P01" || pg.Code == "42602":
		return &fence.InvalidError{What: "table", Problem: pg.Message + "; write it as in SQL, with its schema where that is not in the search path"}
	case setupState(pg.Code):
		return hinted("protect", err)
	}
	return FenceError(fence.Claim{}, err)
}

// ProtectionGaps says what the triggers of a protected table do not stop, for whoever lists protections.
func ProtectionGaps() []string {
	return []string{
		"the owner of the table and superusers: DROP TABLE, DROP or DISABLE TRIGGER, ALTER TABLE, CREATE OR REPLACE of the guard's function",
		"while there is no event trigger (a superuser's --apply makes it): CREATE OR REPLACE TRIGGER by a role that has the right TRIGGER on the table",
		"what is written to a partition that is a foreign table, at the table itself or behind it",
		"sessions with session_replication_role = replica, unless it was protected with --always",
		"what a subscription of logical replication applies: it fires no triggers of statements",
		"what is in a table before it is attached as a partition, or made to inherit; partitions that are made later, while there is no event trigger (a superuser's --apply makes it)",
		"a function of the name expression that is declared IMMUTABLE and is not",
	}
}
