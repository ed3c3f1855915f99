package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// opHarness is one fresh file with a store of operations on it.
type opHarness struct{ *harness }

func newOpHarness(t testing.TB) *opHarness {
	t.Helper()
	return &opHarness{newHarness(t)}
}

// newManualOpHarness has a kernel clock that moves by Tick alone.
func newManualOpHarness(t testing.TB) *opHarness {
	t.Helper()
	return &opHarness{newManualHarness(t)}
}

// Store is the store under test.
func (h *opHarness) Store() operation.Backend { return h.store.Operations() }

// Advance moves every stored instant back by d, but those that stand for none.
func (h *opHarness) Advance(ctx context.Context, d time.Duration) error {
	if err := h.harness.Advance(ctx, d); err != nil {
		return err
	}
	return inOwnTx(ctx, h.own, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE tenure_operation SET due = due - ?1, created = created - ?1, decided = decided - iif(decided <> 0, ?1, 0), first = first - iif(first <> 0, ?1, 0),
			until = until - iif(until <> 0, ?1, 0), again_until = again_until - iif(again_until NOT IN (-1, 9223372036854775807), ?1, 0),
			not_after = not_after - iif(not_after <> 0, ?1, 0), began = began - iif(began <> 0, ?1, 0), ended = ended - iif(ended <> 0, ?1, 0)`, int64(d))
		if err == nil {
			_, err = tx.ExecContext(ctx, `UPDATE tenure_attempt SET began = began - ?1, ended = ended - ?1`, int64(d))
		}
		return err
	})
}

// Check looks at the file for what must never be.
func (h *opHarness) Check(ctx context.Context) error {
	return errors.Join(h.harness.Check(ctx), checkOperations(ctx, h.own))
}

// checkOperations looks at all operations of a file.
func checkOperations(ctx context.Context, db *sql.DB) error {
	const undecided = `(SELECT n, ord, id, blocked FROM tenure_operation WHERE state <= 3 AND ord <> '')`
	for what, query := range map[string]string{
		"a step that does not fit the state": `SELECT group_concat(id) FROM tenure_operation WHERE NOT CASE state WHEN 1 THEN step = 2 WHEN 2 THEN step = 3 WHEN 3 THEN step IN (1, 2, 4)
			WHEN 4 THEN step = 1 OR step = 5 AND wished ELSE step = 1 END`,
		"a decision without its time":         `SELECT group_concat(id) FROM tenure_operation WHERE (state >= 4) <> (decided > 0)`,
		"an open attempt in another state":    `SELECT group_concat(id) FROM tenure_operation WHERE state <> 2 AND known = 3 AND kept <> 3 AND state <= 3 OR state = 2 AND known <> 3`,
		"attempts that are not counted":       `SELECT group_concat(id) FROM tenure_operation o WHERE attempts <> (number > 0) + (SELECT count(*) FROM tenure_attempt a WHERE a.n = o.n)`,
		"a number that does not rise":         `SELECT group_concat(o.id) FROM tenure_operation o JOIN tenure_attempt a ON a.n = o.n WHERE a.number >= o.number`,
		"a number that came twice":            `SELECT group_concat(number) FROM (SELECT number FROM tenure_attempts GROUP BY number HAVING count(*) > 1)`,
		"a number above the counter":          `SELECT group_concat(number) FROM tenure_attempts WHERE number > (SELECT issued FROM tenure_authority)`,
		"a number that a lease has":           `SELECT group_concat(number) FROM tenure_attempts WHERE number IN (SELECT token FROM tenure_lease)`,
		"an older attempt that is open":       `SELECT group_concat(n) FROM tenure_attempt WHERE known = 3`,
		"the first of its order blocked":      `SELECT group_concat(u.id) FROM ` + undecided + ` u WHERE u.blocked <> (u.n > (SELECT min(v.n) FROM ` + undecided + ` v WHERE v.ord = u.ord))`,
		"blocked though decided":              `SELECT group_concat(id) FROM tenure_operation WHERE blocked AND (state >= 4 OR ord = '')`,
		"attempting though blocked":           `SELECT group_concat(id) FROM tenure_operation WHERE blocked AND attempts > 0`,
		"a body that was forgotten":           `SELECT group_concat(id) FROM tenure_operation o WHERE kept <> 1 AND EXISTS (SELECT 1 FROM tenure_body b WHERE b.n = o.n AND (kept = 3 OR part = 0))`,
		"a result that is nowhere":            `SELECT group_concat(id) FROM tenure_operation o WHERE result_of <> 0 AND NOT EXISTS (SELECT 1 FROM tenure_body b WHERE b.n = o.n AND b.part = o.result_of)`,
		"a row without its operation":         `SELECT group_concat(n) FROM (SELECT n FROM tenure_attempt UNION SELECT n FROM tenure_conflict UNION SELECT n FROM tenure_body) WHERE n NOT IN (SELECT n FROM tenure_operation)`,
		"conflicts that are not counted":      `SELECT group_concat(id) FROM tenure_operation o WHERE conflicts < (SELECT count(*) FROM tenure_conflict c WHERE c.n = o.n)`,
		"a compensation of what is undecided": `SELECT group_concat(o.id) FROM tenure_operation o JOIN tenure_operation t ON t.id = o.compensates AND t.n < o.n WHERE t.state <> 4`,
	} {
		var found sql.NullString
		if err := db.QueryRowContext(ctx, query).Scan(&found); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if found.Valid {
			return fmt.Errorf("%s: %s", what, found.String)
		}
	}
	return nil
}

// submission is an operation that asks for little.
func submission(id string) operation.SubmitRequest {
	request := []byte(`{"for":"` + id + `"}`)
	return operation.SubmitRequest{ID: id, Kind: "k", Request: request, Fingerprint: operation.FingerprintOf("k", request)}
}

// claimOf asks for n operations of that kind.
func claimOf(n int) operation.ClaimRequest {
	return operation.ClaimRequest{Worker: "w", TTL: time.Minute, Limit: n, Kinds: []operation.KindClaim{{Kind: "k", Limit: n, Timeout: time.Hour, MaxAttempts: 3, Asks: true}}}
}

// desk is operations that a test works on.
type desk struct {
	t   testing.TB
	ops *Operations
}

func (d *desk) submit(ids ...string) {
	d.t.Helper()
	for _, id := range ids {
		if _, err := d.ops.Submit(d.t.Context(), submission(id)); err != nil {
			d.t.Fatal(err)
		}
	}
}

// claim begins the attempt that is due.
func (d *desk) claim() operation.Job {
	d.t.Helper()
	jobs, err := d.ops.Claim(d.t.Context(), claimOf(1))
	if err != nil || len(jobs) != 1 {
		d.t.Fatalf("claimed %v, %v", jobs, err)
	}
	return jobs[0]
}

func (d *desk) get(id string) operation.Record {
	d.t.Helper()
	found, err := d.ops.Get(d.t.Context(), id)
	if err != nil {
		d.t.Fatal(err)
	}
	return found
}

// done is the success of an attempt.
func done(ref operation.Ref) operation.Completion {
	return operation.Completion{Ref: ref, Answer: operation.Answer{Known: operation.Effective, Result: []byte("done " + strconv.FormatInt(int64(ref.Number), 10))}}
}
