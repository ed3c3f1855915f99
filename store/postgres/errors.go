package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// The kinds of [SchemaError].
var (
	// ErrNoSchema: the database has no schema of Tenure's. Run `tenure migrate --database-url URL`.
	ErrNoSchema = errors.New("no schema")
	// ErrOlderSchema: the schema is older than this program needs. Run `tenure migrate --database-url URL`.
	ErrOlderSchema = errors.New("older schema")
	// ErrNewerSchema: the schema was written by a newer Tenure. Use a newer program.
	ErrNewerSchema = errors.New("newer schema")
	// ErrForeignSchema: the schema "tenure" is not Tenure's.
	ErrForeignSchema = errors.New("foreign schema")
)

// SchemaError says why a database cannot be used as it is. It matches its Kind.
type SchemaError struct {
	Kind       error
	Have, Want int    // versions, where they are known
	Detail     string // what to do
}

// Error says what was found and what to do.
func (e *SchemaError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("postgres: %v; %s", e.Kind, e.Detail)
	}
	return fmt.Sprintf("postgres: %v: the database has version %d, this program needs %d; %s", e.Kind, e.Have, e.Want, e.Detail)
}

// Is makes the error match its kind.
func (e *SchemaError) Is(target error) bool { return target == e.Kind }

var (
	errShutDown   = errors.New("the store was shut down")
	errQueueFull  = errors.New("too many requests of this session are waiting already")
	errTooMany    = errors.New("the rows changed under every attempt")
	errReplicated = errors.New("the wait for a synchronous standby was cancelled: the commit may be on this server alone")
)

// What a fenced transaction ends with, beside the errors of package fence.
var (
	// ErrBeginAgain: the transaction met another one at the same rows and cannot go on (SQLSTATE 40001, 40P01). Nothing was
	// written. Roll back and begin again: the check of the new transaction says whether the claim still holds.
	ErrBeginAgain = errors.New("begin again")

	errLeaseOver  = errors.New("the lease's remaining time is over")
	errRolledBack = errors.New("fn rolled it back and returned no error")
	errFnEnded    = errors.New("fn ended the transaction itself")
	errFnCommits  = errors.New("postgres: a fenced transaction is committed by its store; return nil from the function instead")
)

// SQLSTATEs that are told apart. Those in class TN are raised by the schema's own functions.
const (
	stateBeginAgain     = "TN006"
	stateSerialization  = "40001"
	stateDeadlock       = "40P01"
	stateLockTimeout    = "55P03"
	stateCheckViolation = "23514"
	stateUndefined      = "42883"
	stateNoSchema       = "3F000"
	stateNoStatement    = "26000" // a named prepared statement behind a pooler that changes the server
	stateTwoStatements  = "42P05"
)

// state is the SQLSTATE of a server's error, or "".
func state(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// refusedByServer reports whether the server answered with an error that ended the transaction: nothing was applied. An end of the
// connection (FATAL) is no such answer, it may come after the commit.
func refusedByServer(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
}

// failed translates an error of the driver for the request op under id: certainly not applied, or unknown. sent is false where
// no statement can have been sent.
func (s *Store) failed(op string, id fence.ID, sent bool, err error) error {
	var unsent *lease.UnavailableError
	if err == nil {
		return nil
	} else if errors.As(err, &unsent) {
		return unsent // it is translated: there was no connection
	}
	if hint := hintFor(state(err)); hint != "" {
		err = fmt.Errorf("%w; %s", err, hint)
	}
	if !sent || pgconn.SafeToRetry(err) || refusedByServer(err) {
		return &lease.UnavailableError{Op: op, Err: err}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		s.log.Debug("a call was given up", "op", op, "id", id, "error", err)
	}
	return &lease.UnknownError{Op: op, ID: id, Err: err}
}

func hintFor(code string) string {
	switch code {
	case stateNoStatement, stateTwoStatements:
		return "behind PgBouncer in transaction mode, set default_query_exec_mode=cache_describe (or exec) in the connection string"
	case stateUndefined, stateNoSchema:
		return "is the schema installed and up to date? run `tenure migrate --database-url URL`"
	case "42501":
		return "the role needs tenure_user: `tenure migrate --database-url URL --grant ROLE`"
	case "25006", "55000":
		return "this server is a standby, or read-only: connect to the primary"
	}
	return ""
}
