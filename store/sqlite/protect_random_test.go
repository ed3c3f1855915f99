package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// twinTables are two of one shape, with every kind of key: what is done to the unprotected one shows which rows a statement changes.
const twinTables = `CREATE TABLE %[1]s (id INTEGER PRIMARY KEY, owner TEXT NOT NULL DEFAULT 'a', code TEXT NOT NULL DEFAULT 'c1' UNIQUE ON CONFLICT %[2]s, x INTEGER, y INTEGER, v INTEGER DEFAULT 0);
	CREATE UNIQUE INDEX %[1]s_pair ON %[1]s (x, y); CREATE UNIQUE INDEX %[1]s_part ON %[1]s (y) WHERE v > 3; CREATE UNIQUE INDEX %[1]s_folded ON %[1]s (lower(code), owner)`

// drawWrite makes a statement on %s at random, over so few values that it meets other rows more often than not.
func drawWrite(r *rand.Rand) string {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	id := func() string { return pick("1", "2", "3", "4", "5", "NULL") }
	owner := func() string { return pick("'a'", "'b'", "'c'", "'d'", "NULL") }
	code := func() string { return pick("'c1'", "'c2'", "'C2'", "'c3'", "'C4'", "NULL") }
	n := func() string { return pick("1", "2", "3", "4", "5") }
	row := func() string {
		return "(" + strings.Join([]string{id(), owner(), code(), n(), n(), n()}, ", ") + ")"
	}
	or := func() string {
		return pick("", "", "OR REPLACE ", "OR REPLACE ", "OR IGNORE ", "OR ABORT ", "OR FAIL ")
	}
	where := func() string {
		return pick(" WHERE id = "+n(), " WHERE owner = "+owner(), " WHERE v > "+n(), " WHERE id IN ("+n()+", "+n()+")", "")
	}
	set := func() string {
		return pick("v = "+n(), "v = v + 1", "owner = "+owner(), "code = "+code(), "x = "+n()+", y = "+n(), "id = "+n(), "rowid = "+n(), "id = id + 1", "owner = "+owner()+", id = "+n(), "y = "+n()+", v = "+n())
	}
	switch r.IntN(10) {
	case 0, 1, 2:
		return "INSERT " + or() + "INTO %s VALUES " + row() + pick("", ", "+row())
	case 3:
		return "INSERT INTO %s VALUES " + row() + " ON CONFLICT " + pick("(id) ", "(code) ", "") + pick("DO NOTHING", "DO UPDATE SET "+set())
	case 4:
		return "INSERT " + or() + "INTO %s SELECT NULL, owner, code || '+', x + 1, y, v FROM %s" + where()
	case 5:
		return "DELETE FROM %s" + where()
	}
	return "UPDATE " + or() + "%s SET " + set() + where()
}

// rowsOf is the table by row number, each row as its name and its whole content.
func rowsOf(ctx context.Context, tx *sql.Tx, table string) (map[int64][2]string, error) {
	rows, err := tx.QueryContext(ctx, `SELECT id, 'o/' || owner, concat_ws('|', id, owner, code, x, y, v) FROM `+table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[int64][2]string{}
	for rows.Next() {
		var id int64
		var row [2]string
		if err := rows.Scan(&id, &row[0], &row[1]); err != nil {
			return nil, err
		}
		all[id] = row
	}
	return all, rows.Err()
}

// touched are the names of the rows that differ between two states, before and after.
func touched(before, after map[int64][2]string) map[string]bool {
	names := map[string]bool{}
	for id, row := range before {
		if after[id] != row {
			names[row[0]] = true
		}
	}
	for id, row := range after {
		if before[id] != row {
			names[row[0]] = true
		}
	}
	return names
}

// randomWrites does random statements under random claims, on a file that breaks have broken, and counts how they ended.
func randomWrites(t *testing.T, conflict string, steps int, breaks ...string) (map[string]int, error) {
	t.Helper()
	const seed = 20261130
	g := newUnguarded(t, fmt.Sprintf(twinTables, "orders", conflict), fmt.Sprintf(twinTables, "twin", conflict))
	g.protect("orders", `'o/' || owner`)
	plainExec(t, g.s.path, breaks...)
	names := []string{"o/a", "o/b", "o/c", "o/d"}
	claims := map[string]fence.Claim{}
	for _, name := range names {
		claims[name] = g.p.take(name)
	}
	r := rand.New(rand.NewPCG(seed, uint64(len(conflict))))
	counts := map[string]int{}
	for step := range steps {
		var presented []fence.Claim
		for _, name := range names {
			if step%3 == 0 || r.IntN(2) == 0 {
				presented = append(presented, claims[name])
			}
		}
		write := drawWrite(r)
		outcome, err := g.step(write, presented, step%3 == 0)
		if err != nil {
			return counts, fmt.Errorf("seed %d, %s, step %d, %s under %d claims: %w", seed, conflict, step, write, len(presented), err)
		}
		counts[outcome]++
	}
	return counts, nil
}

// Random statements under random claims: what passes changes what it would have changed, and no row whose name was not claimed, before or
// after; what is refused changes nothing; and under all claims nothing is refused.
func TestRandomWrites(t *testing.T) {
	t.Parallel()
	const steps = 300
	for _, conflict := range []string{"ABORT", "REPLACE"} {
		counts, err := randomWrites(t, conflict, steps)
		if err != nil {
			t.Error(err)
		}
		for _, outcome := range []string{"passed", "refused", "failed in both"} {
			if counts[outcome] < steps/20 {
				t.Errorf("%s: the statements are a poor draw: %v", conflict, counts)
			}
		}
	}
}

// Without any one of the triggers, random statements find it out.
func TestRandomWritesFindWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, kind := range triggerKinds() {
		if _, err := randomWrites(t, "ABORT", 1000, `DROP TRIGGER `+triggerName(kind, "orders")); err == nil || resultCode(err) != 0 {
			t.Errorf("without the trigger %s: %v", kind, err)
		}
	}
}

// step does one statement to both tables, in one transaction.
func (g *guarded) step(write string, presented []fence.Claim, all bool) (outcome string, err error) {
	refused := errors.New("refused")
	ctx := g.t.Context()
	err = inOwnTx(ctx, g.own, func(tx *sql.Tx) error {
		if len(presented) > 0 {
			if err := Present(ctx, tx, presented...); err != nil {
				return err
			}
		}
		before, err := rowsOf(ctx, tx, "twin")
		if err != nil {
			return err
		}
		_, twinErr := tx.ExecContext(ctx, strings.ReplaceAll(write, "%s", "twin"))
		wanted, err := rowsOf(ctx, tx, "twin")
		if err != nil {
			return err
		}
		_, writeErr := tx.ExecContext(ctx, strings.ReplaceAll(write, "%s", "orders"))
		after, err := rowsOf(ctx, tx, "orders")
		if err != nil {
			return err
		}
		if errors.Is(FenceError(writeErr), fence.ErrRefused) {
			outcome = "refused"
			if all {
				return fmt.Errorf("under all claims: %w", writeErr)
			}
			if len(touched(before, after)) != 0 {
				return fmt.Errorf("refused, and changed %v into %v", before, after)
			}
			return refused
		}
		if outcome = "passed"; writeErr != nil {
			outcome = "failed in both"
		}
		if (writeErr == nil) != (twinErr == nil) || len(touched(wanted, after)) != 0 {
			return fmt.Errorf("it became %v, %w, want %v, %w", after, writeErr, wanted, twinErr)
		}
		for name := range touched(before, after) {
			if !slices.ContainsFunc(presented, func(c fence.Claim) bool { return c.Name == name }) {
				return fmt.Errorf("%s was not claimed, and %v became %v", name, before, after)
			}
		}
		return Done(ctx, tx)
	})
	if errors.Is(err, refused) {
		return outcome, nil
	}
	return outcome, err
}
