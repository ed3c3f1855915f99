package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// ErrSetup is matched where the server refuses a call for a reason that no repetition mends: a right, a function or the schema is missing, or
// the isolation level is another than READ COMMITTED. Nothing was applied, and the error says what to change. A store's errors of this kind
// also match [lease.ErrUnavailable], as those of an outage do, so a waiter goes on asking: look for ErrSetup where that is not wanted.
var ErrSetup = errors.New("the database or the connection is not set up for this call")

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
	errInSale     = errors.New("somebody is in the middle of a sale")
	errPooled     = errors.New("postgres: notifications do not come through a pooler: this outbox polls")
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
	stateIsolation      = "TN007"
)

// The roles that the schema's rights are granted to.
const (
	roleUser     = "tenure_user"
	roleOperator = "tenure_operator"
	roleOwner    = "tenure_owner"
)

// Calls that take more than tenure_user, as they stand in errors.
const (
	opRevoke       = "revoke"
	opPrune        = "prune"
	opRaiseEpoch   = "raise epoch"
	opNewAuthority = "new authority"
	opDown         = "migrate down"
	opResolve      = "resolve"
)

// setupError matches [ErrSetup] and says what to change.
type setupError struct {
	err    error
	advice string
}

// Error is the server's, and the advice.
func (e *setupError) Error() string {
	if e.advice == "" {
		return e.err.Error()
	}
	return e.err.Error() + "; " + e.advice
}

// Is makes the error match [ErrSetup].
func (e *setupError) Is(target error) bool { return target == ErrSetup }

// Unwrap returns the server's error.
func (e *setupError) Unwrap() error { return e.err }

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
	if invalid := invalidBy(err); invalid != nil {
		return invalid
	}
	err = hinted(op, err)
	if !sent || pgconn.SafeToRetry(err) || refusedByServer(err) {
		return &lease.UnavailableError{Op: op, Err: err}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		s.log.Debug("a call was given up", "op", op, "id", id, "error", err)
	}
	return &lease.UnknownError{Op: op, ID: id, Err: err}
}

// invalidBy is the server's judgement that the request makes no sense, or nil.
func invalidBy(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != stateInvalid {
		return nil
	}
	var facts struct{ Field string }
	if json.Unmarshal([]byte(pg.Detail), &facts) != nil || facts.Field == "" {
		facts.Field = "request"
	}
	return &lease.InvalidError{Field: facts.Field, Problem: strings.TrimPrefix(pg.Message, "invalid "+facts.Field+": ")}
}

// hinted adds to the server's error of op what can be done about it, and [ErrSetup] where repeating does nothing.
func hinted(op string, err error) error {
	code := state(err)
	hint := hintFor(op, code)
	var connecting *pgconn.ConnectError
	switch {
	case errors.As(err, &connecting) && code == stateNotAllowed:
		return &setupError{err: err, advice: "let an administrator run GRANT CONNECT ON DATABASE ... TO the role of this connection"}
	case errors.As(err, &connecting):
		return err
	case setupState(code):
		return &setupError{err: err, advice: hint}
	case hint != "":
		return fmt.Errorf("%w; %s", err, hint)
	}
	return err
}

// setupState reports whether a SQLSTATE means that the call is refused until somebody changes rights, schema or settings. A server that is
// read-only is not among them: a standby may be promoted. Nor is a statement that a pooler lost: the next one may be found.
func setupState(code string) bool {
	return strings.HasPrefix(code, "42") && code != stateTwoStatements || code == stateNoSchema || code == stateIsolation
}

// roleFor is the role whose members may make a call.
func roleFor(op string) string {
	switch op {
	case opRevoke, opPrune, opResolve, opPause, opRetry, opReplay:
		return roleOperator
	case opRaiseEpoch, opNewAuthority, opDown:
		return roleOwner
	}
	return roleUser
}

// rightFor says what lets a role make a call.
func rightFor(op string) string {
	role := roleFor(op)
	hint := "this needs " + role + ": let an administrator run GRANT " + role + " TO the role of this connection"
	if role == roleUser {
		hint += ", or `tenure migrate --database-url URL --grant ROLE`"
	}
	return hint
}

func hintFor(op, code string) string {
	switch code {
	case stateNoStatement, stateTwoStatements:
		return "behind PgBouncer in transaction mode, set default_query_exec_mode=cache_describe (or exec) in the connection string"
	case stateUndefined, stateNoSchema:
		return "is the schema installed and up to date? run `tenure migrate --database-url URL`; the fence half (--fence-only) has no store"
	case stateNotAllowed:
		return rightFor(op)
	case stateIsolation:
		return "default_transaction_isolation of the role, the database or the server is another: let an administrator run " +
			"ALTER ROLE ... SET default_transaction_isolation = 'read committed', or, not behind PgBouncer, add default_transaction_isolation=read%20committed to the connection string"
	case "25006", "55000":
		return "this server is a standby, or read-only: connect to the primary"
	}
	return ""
}
