package drill

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/store/sqlite"
)

// protectedPrefix is what the names of tables begin with that drills protect; run and short name follow.
const protectedPrefix = "drill_tenure_"

// sqliteRefusal is how the refusal of a protected table begins, for code that has never heard of Tenure.
const sqliteRefusal = "tenure: refused a row of "

func (s sqliteSite) protect(ctx context.Context, r *resource) error {
	return r.inTx(ctx, func(tx *sql.Tx) error {
		if err := sweepProtections(ctx, tx, time.Now()); err != nil {
			return err
		}
		return sqlite.Protect(ctx, tx, sqlite.Protection{Table: r.sql("[" + r.rows.table + "]"), Name: r.rowName()})
	})
}

func (s sqliteSite) unprotect(ctx context.Context, r *resource) error {
	return r.inTx(ctx, func(tx *sql.Tx) error {
		_, err := sqlite.Unprotect(ctx, tx, r.sql("["+r.rows.table+"]"))
		return err
	})
}

func (s sqliteSite) present(ctx context.Context, tx *sql.Tx, claim fence.Claim) error {
	return sqlite.Present(ctx, tx, claim)
}

func (s sqliteSite) done(ctx context.Context, tx *sql.Tx) error { return sqlite.Done(ctx, tx) }

func (s sqliteSite) refused(err error) error {
	if refused := new(sqlite.RowError); errors.As(sqlite.FenceError(err), &refused) {
		return errors.Join(&fence.RefusedError{Resource: refused.Table, Why: fence.NotPresented}, err)
	}
	return err
}

// stranger also logs the write, which is the drill's book-keeping, in the same transaction.
func (s sqliteSite) stranger(ctx context.Context, r *resource, _ string, f form, w writing) (refusal string, err error) {
	text, err := json.Marshal(append(append([]string{}, w.base...), w.element))
	if err != nil {
		return "", err
	}
	content := string(text)
	args := []any{w.round, content}
	var statement string
	switch f {
	case formUpdate:
		statement = `UPDATE [value] SET content = ?2 WHERE round = ?1`
	case formUpsert:
		statement = `INSERT INTO [value] (round, content) VALUES (?1, ?2) ON CONFLICT (round) DO UPDATE SET content = ?2`
	case formReplace:
		statement = `INSERT OR REPLACE INTO [value] (round, content) VALUES (?1, ?2)`
	case formDelete:
		statement, content, args = `DELETE FROM [value] WHERE round = ?1`, "[]", args[:1]
	default:
		return "", fmt.Errorf("%w: no form %q of a write here", ErrProcess, f)
	}
	err = r.inTx(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, r.sql(statement), args...)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("%w: the %s found no row to write", ErrProcess, f))
		}
		_, err = tx.ExecContext(ctx, r.sql(strangerText), w.round, w.writer, w.element, content)
		return err
	})
	if err != nil && strings.Contains(err.Error(), sqliteRefusal) { // SQLite has one code for every trigger's refusal
		return err.Error(), nil
	}
	return "", err
}

// sweepProtections takes away what is still known of protected tables that drills left when they were killed, once the tables are gone.
func sweepProtections(ctx context.Context, tx *sql.Tx, now time.Time) error {
	form := regexp.MustCompile(`^` + protectedPrefix + `([0-9a-f]{8})[0-9a-f]{8}_value$`)
	all, err := sqlite.Protected(ctx, tx)
	if err != nil {
		return err
	}
	swept := 0
	for _, p := range all {
		match := form.FindStringSubmatch(p.Table)
		if match == nil || swept == maxSwept || !longAgo(match[1], now) {
			continue
		}
		swept++
		if _, err := sqlite.Unprotect(ctx, tx, p.Table); err != nil {
			return err
		}
	}
	return nil
}
