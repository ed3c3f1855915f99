package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"

	lib "modernc.org/sqlite/lib"
)

const (
	maxPresent = 4096 // claims in one call
	// maxAtOnce is how many claims may be presented before it is known that there was no wait. With more the lock is taken first.
	maxAtOnce = 16
)

const (
	// presentStatement leaves it to the table's trigger to verify each claim: all are presented, or none. Each claim of the list is one text, see
	// listed, because taking more JSON apart would cost more than the look-ups.
	presentStatement = `INSERT OR REPLACE INTO tenure_presented (name, acquisition, token, mark, at)
		SELECT substr(j.value, 52), unhex(substr(j.value, 1, 32)), CAST(substr(j.value, 33, 19) AS INTEGER), a.mark, a.anchor + ?2
		FROM tenure_authority a CROSS JOIN pragma_foreign_keys f CROSS JOIN json_each(?1) j WHERE f.foreign_keys = 1 AND a.id = ?4 AND a.boot_id = ?3`
	// lockStatement changes nothing and takes the writer lock.
	lockStatement = `UPDATE tenure_authority SET one = one WHERE one = 0`
	doneStatement = `DELETE FROM tenure_presented`
)

// Present hands claims to the triggers of protected tables, for this transaction alone, beside those that it has presented before. Each is
// verified as by [Verify], under the file's only writer lock: no successor is recognised before the transaction ends. As Verify, it must be the
// first statement of the transaction; 1 to 4096 claims at a time.
//
// Before it commits, the transaction must call [Done]. A transaction that has presented and forgets it is not committed: COMMIT fails with
// SQLITE_CONSTRAINT_FOREIGNKEY, and everything is rolled back. For that, foreign keys must be enforced on the connection
// (?_pragma=foreign_keys(ON) in its DSN; SQLite's own default is off): where they are not, Present returns an error matching [ErrSettings].
// In [Store.Fenced] both is taken care of. A savepoint that is rolled back takes back what was presented, or done, after it.
//
// One thing can hide a forgotten Done: rows of a deferred foreign key that had no parent before, as `PRAGMA foreign_key_check` lists them, and that
// are removed in the same transaction, because SQLite only counts violations. The claims it leaves are void as soon as any store writes to the file, at
// the latest when the lease is granted to somebody else.
//
// Present returns a [*fence.RefusedError], [*fence.ForeignError] or [*fence.AheadError] of the first claim that does not hold, an
// error matching [fence.ErrInvalid] for what is no claim, or an error of the driver. The caller must roll back then.
func Present(ctx context.Context, tx DBTX, claims ...fence.Claim) error {
	if len(claims) == 0 || len(claims) > maxPresent {
		return &fence.InvalidError{What: "claims", Problem: fmt.Sprintf("want 1 to %d, not %d", maxPresent, len(claims))}
	}
	if own, ok := tx.(*Tx); ok {
		own.presented = append(own.presented, claims...)
		return present(ctx, tx, claims, own.store.kernel, own.store.bootID)
	}
	k := kernel()
	if k.err != nil {
		return &lease.UnavailableError{Op: "present", Err: k.err}
	}
	return present(ctx, tx, claims, k.now, k.bootID)
}

// Done takes back all that the transaction has presented: its last statement before it commits. What is written after it is refused by
// protected tables. Calling it without having presented anything changes nothing.
func Done(ctx context.Context, tx DBTX) error {
	if _, err := tx.ExecContext(ctx, doneStatement); err != nil {
		return fmt.Errorf("taking back what was presented: %w", err)
	}
	return nil
}

// listed is a claim as presentStatement reads it: 32 digits, 19 digits, and the name.
func listed(c fence.Claim) string {
	return fmt.Sprintf("%X%019d%s", c.Acquisition[:], int64(c.Token), c.Name)
}

func present(ctx context.Context, tx DBTX, claims []fence.Claim, now clock.Source, bootID string) error {
	list := make([]string, len(claims))
	for i, c := range claims {
		if err := c.Check(); err != nil {
			return err
		}
		list[i] = listed(c)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	insert := func(at time.Duration) (bool, error) {
		result, err := tx.ExecContext(ctx, presentStatement, string(text), int64(at), bootID, claims[0].Authority[:])
		if extendedCode(err) == lib.SQLITE_CONSTRAINT_TRIGGER {
			return false, nil
		}
		if err != nil {
			return false, presentError(ctx, tx, err)
		}
		n, err := result.RowsAffected()
		return int(n) == len(claims) && sameAuthority(claims), err
	}
	if len(claims) <= maxAtOnce {
		before := now()
		if all, err := insert(before); err != nil || all && now()-before < verifyAtOnce {
			return err
		}
	}
	// There are many, or it waited for the lock, or something is out of the common: the clock is read under the lock.
	if _, err := tx.ExecContext(ctx, lockStatement); err != nil {
		return fmt.Errorf("present: %w", err)
	}
	if all, err := insert(now()); err != nil || all {
		return err
	}
	// A caller that does not roll back, as it must, shall have nothing presented.
	return errors.Join(whyNotPresented(ctx, tx, claims, now, bootID), Done(ctx, tx))
}

func sameAuthority(claims []fence.Claim) bool {
	for _, c := range claims {
		if c.Authority != claims[0].Authority {
			return false
		}
	}
	return true
}

// whyNotPresented is the error for claims that were not all presented.
func whyNotPresented(ctx context.Context, tx DBTX, claims []fence.Claim, now clock.Source, bootID string) error {
	if err := checkEnforced(ctx, tx); err != nil {
		return err
	}
	for _, c := range claims {
		if err := stand(ctx, tx, c, now, bootID); err != nil {
			return err
		}
	}
	return &lease.UnavailableError{Op: "present", Err: errors.New("the claims hold at this moment, and did not when they were presented; roll back and begin again")}
}

// presentError explains what is no fault of the claims: a file that no store of this version has opened, or a handle that is no transaction.
func presentError(ctx context.Context, tx DBTX, err error) error {
	var version int
	switch resultCode(err) {
	case lib.SQLITE_ERROR:
		if tx.QueryRowContext(ctx, `SELECT version FROM tenure_schema`).Scan(&version) == nil && version < SchemaVersion {
			return &FileError{Path: mainFile(ctx, tx), Kind: ErrOlderSchema, Detail: "open it once with a store of this version, which adds what is missing", Err: err}
		}
	case lib.SQLITE_CONSTRAINT:
		return fmt.Errorf("present: claims are presented in a transaction that is open, and were not presented: %w", err)
	}
	return fmt.Errorf("present: %w", err)
}

// checkEnforced returns an error unless a forgotten [Done] is noticed by COMMIT.
func checkEnforced(ctx context.Context, tx DBTX) error {
	var on bool
	if err := tx.QueryRowContext(ctx, `PRAGMA foreign_keys`).Scan(&on); err != nil {
		return fmt.Errorf("present: %w", err)
	}
	if on {
		return nil
	}
	return &FileError{Path: mainFile(ctx, tx), Kind: ErrSettings,
		Detail: "foreign keys are not enforced on this connection, so a claim could outlive its transaction; nothing was presented; add ?_pragma=foreign_keys(ON) to its DSN"}
}

// mainFile is the path of the database, for errors.
func mainFile(ctx context.Context, tx DBTX) string {
	var path string
	if err := tx.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path); err != nil {
		return errors.Join(errors.New("a database"), err).Error()
	}
	return path
}
