package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
)

// DBTX is a transaction that is open: a *sql.Tx of the caller's own, or the [*Tx] of [Store.Fenced].
type DBTX interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// kernel is read once: neither the boot id nor the time namespace of a running process changes.
var kernel = sync.OnceValue(func() (k struct {
	now    clock.Source
	bootID string
	err    error
}) {
	k.now, k.bootID, k.err = clock.Kernel()
	return k
})

// Verify is the strict check, for a resource in the authority's own file: it returns nil only if the claim is
// of the latest acquisition of its name and valid by the authority's clock. No successor is recognised before the
// transaction ends, because the check takes the file's only writer lock.
//
// It must be the first statement of the transaction: after a read, SQLite refuses to write when
// somebody else has written since (SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT: roll back and begin again).
// It returns a [*fence.RefusedError], [*fence.ForeignError] or [*fence.AheadError]; the caller must roll back then.
// A resource that takes claims from outside asks [fence.Claim.For] first which name the claim is to.
//
// A transaction of the caller's own does not take Tenure's turns and may starve beside busy stores; [Store.Fenced] does.
// In a plain transaction the statement is parsed anew each time; [Prepare] spares that.
func Verify(ctx context.Context, tx DBTX, claim fence.Claim) error {
	if err := claim.Check(); err != nil {
		return err
	}
	k := kernel()
	if k.err != nil {
		return &lease.UnavailableError{Op: "verify", Err: k.err}
	}
	return verify(ctx, tx, claim, k.now, k.bootID)
}

func verify(ctx context.Context, tx DBTX, claim fence.Claim, now clock.Source, bootID string) error {
	// One statement in the common case, because a caller's transaction has none prepared and parsing is what costs. It
	// writes, though it changes nothing: that takes the writer lock, so that what it read stays true.
	before := now()
	result, err := tx.ExecContext(ctx, verifyStatement,
		claim.Name, claim.Acquisition[:], int64(claim.Token), int64(before), claim.Authority[:], bootID)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if n, err := result.RowsAffected(); err == nil && n == 1 && now()-before < verifyAtOnce {
		return nil
	}
	// It waited for the lock, or something is out of the common: the clock is read again, under the lock.
	return stand(ctx, tx, claim, now, bootID)
}

// verifyAtOnce is how long a statement may take that did not wait. A successor cannot have been granted in it: the row was the
// claim's, and its session not ended, when the lock was won.
const verifyAtOnce = time.Millisecond

// stand reads where the claim stands, under the writer lock that verify has taken.
func stand(ctx context.Context, tx DBTX, claim fence.Claim, now clock.Source, bootID string) error {
	var authority, acquisition, sessionID []byte
	var boot string
	var anchor, mark int64
	var row leaseRow
	var holder session
	var over, ended int
	standing := fence.Standing{Name: claim.Name}
	err := tx.QueryRowContext(ctx, `SELECT a.id, a.issued, a.boot_id, a.anchor, a.mark, coalesce(l.token, 0), l.acquisition, l.session,
		coalesce(l.hold_end, 0), coalesce(l.over, 0), s.id IS NOT NULL, coalesce(s.since, 0), coalesce(s.expiry, 0), coalesce(s.ended, 0)
		FROM tenure_authority a LEFT JOIN tenure_lease l ON l.name = ? LEFT JOIN tenure_session s ON s.id = l.session`, claim.Name).
		Scan(&authority, &standing.Issued, &boot, &anchor, &mark, &standing.Token, &acquisition, &sessionID,
			&row.holdEnd, &over, &holder.found, &holder.since, &holder.expiry, &ended)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	at := anchor + int64(now())
	if boot != bootID || at < mark {
		return &lease.UnavailableError{Op: "verify", Err: errors.New("no store has had the file open since this kernel started; open it once")}
	}
	copy(standing.Authority[:], authority)
	copy(standing.Acquisition[:], acquisition)
	row.token, row.over, holder.ended = int64(standing.Token), lease.End(over), lease.End(ended)
	if standing.Token > 0 {
		standing.Over = reason(row.overBy(&holder, at))
	}
	return fence.Verify(standing, claim)
}

func reason(how lease.End) fence.Reason {
	switch how {
	case 0:
		return 0
	case lease.EndReleased, lease.EndClosed:
		return fence.Released
	case lease.EndRevoked:
		return fence.Revoked
	case lease.EndSuperseded:
		return fence.Superseded
	case lease.EndExpired, lease.EndForgotten: // a session that is forgotten had ended, and no release was written
		return fence.Expired
	}
	return fence.NotGranted
}

// Enter raises the resource's high-water mark to the claim's token and writes it, also when it is equal. A
// holder that reads the resource before it writes calls it first: it must be the first statement of the transaction.
// The first claim to enter binds the resource to its authority and name.
//
// It returns a [*fence.RefusedError] naming the newer token, a [*fence.ForeignError] or a [*fence.AheadError]; the caller
// must roll back then. It notices no expiry: see package fence.
func Enter(ctx context.Context, tx DBTX, resource string, claim fence.Claim) error {
	return raise(ctx, tx, resource, claim)
}

// Admit checks a write at the resource's high-water mark and raises it, in the transaction of that write. It is
// for blind writes: a holder that reads first must [Enter]. Errors as for Enter.
func Admit(ctx context.Context, tx DBTX, resource string, claim fence.Claim) error {
	return raise(ctx, tx, resource, claim)
}

func raise(ctx context.Context, tx DBTX, resource string, claim fence.Claim) error {
	if err := claim.Check(); err != nil {
		return err
	}
	if err := checkResource(resource); err != nil {
		return err
	}
	// It writes, also when the token is equal, and takes the file's only writer lock, also when it moves no row.
	result, err := tx.ExecContext(ctx, raiseStatement,
		int64(claim.Token), resource, claim.Authority[:], claim.Name)
	if err != nil {
		return fmt.Errorf("raising the mark of %q: %w", resource, err)
	}
	if moved, err := result.RowsAffected(); err != nil || moved == 1 {
		return err
	}
	return firstEntry(ctx, tx, resource, claim)
}

// firstEntry is for a claim that moved no mark: nothing has entered yet, or the claim is stale, foreign or from the future.
func firstEntry(ctx context.Context, tx DBTX, resource string, claim fence.Claim) error {
	mark := fence.Mark{Resource: resource}
	var authority, own []byte
	var issued int64
	err := tx.QueryRowContext(ctx, `SELECT a.id, a.issued, m.authority, coalesce(m.name, ''), coalesce(m.token, 0)
		FROM tenure_authority a LEFT JOIN tenure_mark m ON m.resource = ?
		ORDER BY m.authority = ? AND m.name = ? DESC LIMIT 1`, resource, claim.Authority[:], claim.Name).
		Scan(&own, &issued, &authority, &mark.Name, &mark.Token)
	if err != nil {
		return fmt.Errorf("reading the mark of %q: %w", resource, err)
	}
	copy(mark.Authority[:], authority)
	if _, err := fence.Enter(mark, claim); err != nil {
		return err
	}
	if asID(own) == claim.Authority && int64(claim.Token) > issued {
		return &fence.AheadError{Claim: claim, Issued: fence.Token(issued)}
	}
	return affected(tx.ExecContext(ctx, `INSERT INTO tenure_mark (resource, authority, name, token) VALUES (?, ?, ?, ?)`,
		resource, claim.Authority[:], claim.Name, int64(claim.Token)))
}

// Allow admits another authority or name for a resource, beside the one that entered first. Holders of different names do not
// exclude each other: whoever allows two has a reason why they need not. Allowing again changes nothing.
func Allow(ctx context.Context, tx DBTX, resource string, authority fence.ID, name string) error {
	if err := fence.CheckName(name); err != nil {
		return err
	}
	if err := checkResource(resource); err != nil {
		return err
	}
	if authority.IsZero() {
		return &fence.InvalidError{What: "claim", Problem: "no authority"}
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO tenure_mark (resource, authority, name, token) VALUES (?, ?, ?, 0)
		ON CONFLICT (resource, authority, name) DO NOTHING`, resource, authority[:], name)
	return err
}

func checkResource(resource string) error {
	if resource == "" || len(resource) > fence.MaxName {
		return &fence.InvalidError{What: "resource", Problem: fmt.Sprintf("want 1 to %d bytes", fence.MaxName)}
	}
	return nil
}
