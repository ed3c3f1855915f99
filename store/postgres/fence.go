package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/fence"
)

// The checks, for both kinds of transaction. The casts are for connections that send no types.
const (
	verifyText  = `SELECT tenure.verify($1::uuid, $2, $3::uuid, $4)`
	boundedText = `SELECT tenure.verify_bounded($1::uuid, $2, $3::uuid, $4)`
	enterText   = `SELECT tenure.enter($1, $2::uuid, $3, $4::uuid, $5)`
	admitText   = `SELECT tenure.admit($1, $2::uuid, $3, $4::uuid, $5)`
	allowText   = `SELECT tenure.allow($1, $2::uuid, $3)`
)

// Verify is the strict check, for a resource in the authority's own database: it returns nil only if the claim is of the latest
// acquisition of its name and valid by the authority's clock. No successor is recognised before the transaction ends, because the check
// locks the lease's row: a long transaction keeps it waiting.
//
// Verify stands before the writes, in the same savepoint as they or in one around it: rolling back to a savepoint gives up
// what was verified after it. READ COMMITTED is the supported level. Above it Verify must be the first statement of the
// transaction, and a lease that has changed hands since the snapshot is [ErrBeginAgain]. Verify ends the connection when it stays
// idle in the transaction for longer than the lease had left; it does not end a statement that runs: [Store.Fenced] bounds those too.
//
// A blind write by key may carry the check itself, which saves a statement; see [Admit] for what such a statement may do:
//
//	UPDATE orders SET state = $5 WHERE id = $6 AND (SELECT tenure.verify($1, $2, $3, $4)) IS NOT NULL
//
// Verify returns a [*fence.RefusedError], [*fence.ForeignError] or [*fence.AheadError], or an error of the driver. After any
// error the transaction is aborted and the caller rolls it back; refusals of a caller's own transaction are the caller's to count,
// and an AheadError is for [Store.ReportAhead] then. A resource that takes claims from outside asks [fence.Claim.For] first which
// name the claim is to. Several claims are verified in the byte order of their names, else two transactions may dead-lock with an
// acquire of several names. tx is used as by any other statement: not by two goroutines at once.
func Verify(ctx context.Context, tx pgx.Tx, claim fence.Claim) error {
	return verify(claim, func(text string, args ...any) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	})
}

// VerifySQL is [Verify] for a transaction of database/sql, with the driver pgx/v5/stdlib.
func VerifySQL(ctx context.Context, tx *sql.Tx, claim fence.Claim) error {
	return verify(claim, func(text string, args ...any) error {
		_, err := tx.ExecContext(ctx, text, args...)
		return err
	})
}

// Enter raises the resource's high-water mark to the claim's token and writes it, also when it is equal. A holder that reads the
// resource before it writes calls it first: it must be the first statement of the transaction, and one of its own, so that what is
// read afterwards is read by a later snapshot. The first claim to enter binds the resource to its authority and name; see [Allow].
//
// The mark's row stays locked until the transaction ends: transactions that enter one resource run one after the other. Several
// resources are entered in a fixed order, before anything is read. Enter
// stands in the same savepoint as the writes or in one around it. READ COMMITTED is the supported level. Above it, Enter as the
// first statement is right too, and returns [ErrBeginAgain] whenever somebody else has entered since the snapshot, also
// under the same token.
//
// Enter returns a [*fence.RefusedError] naming the newer token, a [*fence.ForeignError] or a [*fence.AheadError], or an error of
// the driver; what then holds is as for [Verify]. It notices no expiry, and knows nothing of a successor that has not
// touched the resource: see package fence. Sharing as for Verify.
func Enter(ctx context.Context, tx pgx.Tx, resource string, claim fence.Claim) error {
	return raise(enterText, resource, claim, func(text string, args ...any) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	})
}

// EnterSQL is [Enter] for a transaction of database/sql, with the driver pgx/v5/stdlib.
func EnterSQL(ctx context.Context, tx *sql.Tx, resource string, claim fence.Claim) error {
	return raise(enterText, resource, claim, func(text string, args ...any) error {
		_, err := tx.ExecContext(ctx, text, args...)
		return err
	})
}

// Admit checks a write at the resource's high-water mark and raises it, in the transaction of that write. It is for blind
// writes: a holder that reads first must [Enter]. A blind write by key may carry the check itself, which saves a statement:
//
//	UPDATE orders SET state = $6 WHERE id = $7 AND (SELECT tenure.admit($1, $2, $3, $4, $5)) IS NOT NULL
//
// Such a statement reads by a snapshot that is older than its check: what it writes must depend on nothing but its arguments and the
// row that it writes. Pass its error through [FenceError]. Errors, savepoints and sharing are as for Enter.
func Admit(ctx context.Context, tx pgx.Tx, resource string, claim fence.Claim) error {
	return raise(admitText, resource, claim, func(text string, args ...any) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	})
}

// AdmitSQL is [Admit] for a transaction of database/sql, with the driver pgx/v5/stdlib.
func AdmitSQL(ctx context.Context, tx *sql.Tx, resource string, claim fence.Claim) error {
	return raise(admitText, resource, claim, func(text string, args ...any) error {
		_, err := tx.ExecContext(ctx, text, args...)
		return err
	})
}

// Allow admits another authority or name for a resource, beside the one that entered first. Holders of different names do not
// exclude each other: whoever allows two has a reason why they need not. Allowing again changes nothing. It holds once
// the transaction is committed.
func Allow(ctx context.Context, tx pgx.Tx, resource string, authority fence.ID, name string) error {
	return allow(resource, authority, name, func(text string, args ...any) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	})
}

// AllowSQL is [Allow] for a transaction of database/sql, with the driver pgx/v5/stdlib.
func AllowSQL(ctx context.Context, tx *sql.Tx, resource string, authority fence.ID, name string) error {
	return allow(resource, authority, name, func(text string, args ...any) error {
		_, err := tx.ExecContext(ctx, text, args...)
		return err
	})
}

// QueueVerify adds [Verify] to a batch, so that it costs no round trip of its own. Queued first in a batch that is sent outside a
// transaction, it fences the whole batch, which is one transaction then. The server skips what stands after a refusal.
// Pass the batch's error through [FenceError]. An invalid claim is an error matching [fence.ErrInvalid], and nothing is queued.
func QueueVerify(b *pgx.Batch, claim fence.Claim) error {
	if err := claim.Check(); err != nil {
		return err
	}
	b.Queue(verifyText, verifyArgs(claim)...)
	return nil
}

// QueueEnter adds [Enter] to a batch, as [QueueVerify] does. What the same batch reads after it is read by later snapshots at
// READ COMMITTED. Where the batch follows others in one transaction, nothing may have been read before it.
func QueueEnter(b *pgx.Batch, resource string, claim fence.Claim) error {
	return queueRaise(b, enterText, resource, claim)
}

// QueueAdmit adds [Admit] to a batch, as [QueueVerify] does.
func QueueAdmit(b *pgx.Batch, resource string, claim fence.Claim) error {
	return queueRaise(b, admitText, resource, claim)
}

// send runs one statement of a transaction.
type send func(text string, args ...any) error

func verify(claim fence.Claim, do send) error {
	if err := claim.Check(); err != nil {
		return err
	}
	return FenceError(claim, do(verifyText, verifyArgs(claim)...))
}

func raise(text, resource string, claim fence.Claim, do send) error {
	if err := errors.Join(claim.Check(), checkResource(resource)); err != nil {
		return err
	}
	return FenceError(claim, do(text, raiseArgs(resource, claim)...))
}

func queueRaise(b *pgx.Batch, text, resource string, claim fence.Claim) error {
	if err := errors.Join(claim.Check(), checkResource(resource)); err != nil {
		return err
	}
	b.Queue(text, raiseArgs(resource, claim)...)
	return nil
}

func allow(resource string, authority fence.ID, name string, do send) error {
	if err := errors.Join(checkResource(resource), fence.CheckName(name)); err != nil {
		return err
	}
	if authority.IsZero() {
		return &fence.InvalidError{What: "claim", Problem: "no authority"}
	}
	return FenceError(fence.Claim{Authority: authority, Name: name}, do(allowText, resource, authority.String(), name))
}

func verifyArgs(c fence.Claim) []any {
	return []any{c.Authority.String(), c.Name, c.Acquisition.String(), int64(c.Token)}
}

func raiseArgs(resource string, c fence.Claim) []any {
	return []any{resource, c.Authority.String(), c.Name, c.Acquisition.String(), int64(c.Token)}
}

func checkResource(resource string) error {
	if resource == "" || len(resource) > fence.MaxName || !utf8.ValidString(resource) || strings.ContainsRune(resource, 0) {
		return &fence.InvalidError{What: "resource", Problem: fmt.Sprintf("want 1 to %d bytes of UTF-8 without NUL", fence.MaxName)}
	}
	return nil
}

// SQLSTATEs of the checks.
const (
	stateInvalid  = "TN004"
	statePrepared = "TN008"
	stateRefused  = "TN010"
	stateForeign  = "TN011"
	stateAhead    = "TN012"
	stateRow      = "TN013" // a protected table's row
)

// FenceError is what err, of a batch or a statement that carried a check of claim, means: a [*fence.RefusedError],
// [*fence.ForeignError], [*fence.AheadError] or [*fence.InvalidError] where the server refused it (of a protected table's row that was written without a
// claim: with [fence.NotPresented], whatever claim is given here), an error that matches
// [ErrBeginAgain] and still is the driver's, and err itself for everything else, nil included. It goes by SQLSTATE, never by text.
func FenceError(claim fence.Claim, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	var facts struct {
		Resource, Authority, Name, Token, Why, Newer, Issued, Field string
	}
	switch pg.Code {
	case stateSerialization, stateDeadlock:
		return fmt.Errorf("%w: %w; nothing was written; roll back and begin the transaction again", ErrBeginAgain, err)
	case statePrepared:
		return fmt.Errorf("%w; %s", err, pg.Hint)
	case stateInvalid, stateRefused, stateForeign, stateAhead, stateRow:
		if bad := json.Unmarshal([]byte(pg.Detail), &facts); bad != nil {
			return fmt.Errorf("%w; its detail is not of this version of the schema: %w", err, bad)
		}
	default:
		return err
	}
	switch pg.Code {
	case stateRefused:
		return &fence.RefusedError{Resource: facts.Resource, Claim: claim, Why: reasonOf(facts.Why), Newer: tokenOf(facts.Newer)}
	case stateRow:
		if claim.Name != facts.Name || claim.Token != tokenOf(facts.Token) {
			claim = fence.Claim{Name: facts.Name, Token: tokenOf(facts.Token)}
		}
		return &fence.RefusedError{Resource: facts.Resource, Claim: claim, Why: reasonOf(facts.Why), Newer: tokenOf(facts.Newer)}
	case stateForeign:
		authority, bad := fence.ParseID(facts.Authority)
		if bad != nil {
			return fmt.Errorf("%w; its detail is not of this version of the schema: %w", err, bad)
		}
		return &fence.ForeignError{Resource: facts.Resource, Claim: claim, Authority: authority, Name: facts.Name}
	case stateAhead:
		return &fence.AheadError{Claim: claim, Issued: tokenOf(facts.Issued)}
	}
	return &fence.InvalidError{What: facts.Field, Problem: strings.TrimPrefix(pg.Message, "invalid "+facts.Field+": ")}
}

// reasonOf reads a reason as the schema's functions write it, which is as [fence.Reason] writes it.
func reasonOf(text string) fence.Reason {
	for r := fence.Superseded; r <= fence.NotPresented; r++ {
		if r.String() == text {
			return r
		}
	}
	return fence.NotGranted
}

// tokenOf reads a token, or returns 0 where none is told.
func tokenOf(text string) fence.Token {
	token, err := fence.ParseToken(text)
	if err != nil {
		return 0
	}
	return token
}
