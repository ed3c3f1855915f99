package postgres

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// scaleNames is how many names the tests of scale use.
const scaleNames = "TENURE_POSTGRES_NAMES"

func manyNames(t *testing.T) int {
	t.Helper()
	text := os.Getenv(scaleNames)
	if text == "" {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1000 || n > 1_000_000 {
		t.Fatalf("%s=%q: want 1000 to 1000000", scaleNames, text)
	}
	return n
}

// take acquires names in batches, by the function that a store's batches call, and returns the ids.
func (r *rig) take(ctx context.Context, session fence.ID, names []string) []fence.ID {
	r.t.Helper()
	all := make([]fence.ID, 0, len(names))
	for batch := range slices.Chunk(names, maxBatch) {
		ids := make([]fence.ID, len(batch))
		for i := range ids {
			ids[i] = r.ids.New()
		}
		var granted int
		err := r.own.QueryRow(ctx, `SELECT coalesce(cardinality(os), 0) FROM tenure.acquire_many($1, $2, $3, $4, $5)`,
			uuid(session), uuid(fence.ID{}), uuids(ids), batch, make([]pgtype.Interval, len(batch))).Scan(&granted)
		if err != nil || granted != len(batch) {
			r.t.Fatalf("%d of %d names: %v", granted, len(batch), err)
		}
		all = append(all, ids...)
	}
	return all
}

func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s/%07d", prefix, i)
	}
	return names
}

// number reads one number.
func (r *rig) number(ctx context.Context, sql string, args ...any) (n int64) {
	r.t.Helper()
	if err := r.own.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// TestL69ManyNames: a bounded number of bytes for each name, all of which can be pruned, and no token comes again after it.
func TestL69ManyNames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	names := numbered("some/plausible/prefix", manyNames(t))
	const size = `SELECT pg_total_relation_size('tenure.lease') + pg_total_relation_size('tenure.ended') + pg_total_relation_size('tenure.session')`
	empty := r.number(ctx, size)
	session := r.open(ctx, time.Hour)
	ids := r.take(ctx, session, names)
	perName := (r.number(ctx, size) - empty) / int64(len(names))
	if perName > 700 {
		t.Errorf("%d bytes for each name", perName)
	}
	for i := 0; i < len(ids); i += maxBatch {
		end := min(i+maxBatch, len(ids))
		if n := r.number(ctx, `SELECT cardinality(tenure.release_many($1, $2, $3, $4))`, uuid(session), uuid(r.ids.New()), uuids(ids[i:end]), names[i:end]); n != int64(end-i) {
			t.Fatalf("%d of %d were released", n, end-i)
		}
	}
	if err := r.store.Close(ctx, session); err != nil {
		t.Fatal(err)
	}
	if err := r.Advance(ctx, 2*lease.MinPruneAge); err != nil {
		t.Fatal(err)
	}
	highest := r.number(ctx, `SELECT max(token) FROM tenure.lease`)
	for range len(names)/lease.MaxPrune + 2 {
		if _, err := r.store.Prune(ctx, lease.MinPruneAge, lease.MaxPrune); err != nil {
			t.Fatal(err)
		}
	}
	if left := r.number(ctx, `SELECT (SELECT count(*) FROM tenure.lease) + (SELECT count(*) FROM tenure.ended) + (SELECT count(*) FROM tenure.session)`); left > 0 {
		t.Errorf("%d rows are left after pruning", left)
	}
	if c := r.acquire(ctx, r.open(ctx, time.Hour), names[0]); int64(c.Token) <= highest {
		t.Errorf("token %d after %d, which was pruned", c.Token, highest)
	}
	t.Logf("%d names of %d bytes took %d bytes each", len(names), len(names[0]), perName)
}

// TestL77ManyLeasesExpireTogether: expiry is decided by who reads; it writes nothing by itself, costs one verdict for a session however many
// leases it had, and what others acquire meanwhile does not wait for it.
func TestL77ManyLeasesExpireTogether(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	const sessions = 20
	each := manyNames(t) / 2 / sessions
	names := make([][]string, sessions)
	for i := range names {
		names[i] = numbered(fmt.Sprint(i), each)
		r.take(ctx, r.open(ctx, time.Minute), names[i])
	}
	other := r.open(ctx, time.Hour)
	idle := r.cycles(ctx, other, "idle")
	if err := r.Advance(ctx, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	const verdicts = `SELECT count(*) FROM tenure.session WHERE ended = 3`
	after := r.cycles(ctx, other, "after")
	if n := r.number(ctx, verdicts); n > 0 {
		t.Errorf("%d sessions were judged by nobody's request", n)
	}
	for i := range names { // two of each session
		r.acquire(ctx, other, names[i][0])
		r.acquire(ctx, other, names[i][each-1])
	}
	if n := r.number(ctx, verdicts); n != sessions {
		t.Errorf("%d verdicts over %d sessions", n, sessions)
	}
	if limit := 3*idle + 50*time.Millisecond; after > limit {
		t.Errorf("an acquire beside %d expired leases took %v, %v before", sessions*each, after, idle)
	}
	t.Logf("%d leases: p99 %v idle, %v when they had expired", sessions*each, idle, after)
}

// cycles acquires and releases, and returns the 99th percentile of the acquires.
func (r *rig) cycles(ctx context.Context, session fence.ID, prefix string) time.Duration {
	r.t.Helper()
	const n = 200
	var took []time.Duration
	for _, name := range numbered(prefix, n) {
		began := time.Now()
		c := r.acquire(ctx, session, name)
		took = append(took, time.Since(began))
		r.release(ctx, session, c)
	}
	slices.Sort(took)
	return took[n*99/100]
}

// TestL80RenewalIsOneRow: a renewal updates the session's row, in place, and no lease's, however many there are.
func TestL80RenewalIsOneRow(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	for _, table := range []string{"lease", "session"} { // what it takes stock of so many leases under is an old snapshot, beside which no page is tidied
		if _, err := r.own.Exec(ctx, `ALTER TABLE tenure.`+table+` SET (autovacuum_enabled = false)`); err != nil {
			t.Fatal(err)
		}
	}
	session := r.open(ctx, time.Hour)
	r.take(ctx, session, numbered("n", manyNames(t)/2))
	const renewals = 300
	stats := func() (sessions, hot, leases int64) {
		r.t.Helper()
		if c := r.store.renewals.conn; c != nil { // what it did is counted when it says so
			if _, err := c.Exec(ctx, `SELECT pg_stat_force_next_flush()`); err != nil {
				t.Fatal(err)
			}
		}
		const updated = `SELECT n_tup_upd FROM pg_stat_user_tables WHERE schemaname = 'tenure' AND relname = $1`
		return r.number(ctx, updated, "session"), r.number(ctx, `SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'tenure' AND relname = 'session'`), r.number(ctx, updated, "lease")
	}
	if _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session}); err != nil {
		t.Fatal(err)
	}
	r.own.Reset() // what the test did is counted when its connections close
	r.soon(ctx, fmt.Sprintf(`SELECT n_tup_upd >= %d FROM pg_stat_user_tables WHERE schemaname = 'tenure' AND relname = 'lease'`, manyNames(t)/2))
	sessions, hot, leases := stats()
	for range renewals {
		if _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session}); err != nil {
			t.Fatal(err)
		}
	}
	sessions2, hot2, leases2 := stats()
	if sessions2-sessions != renewals || leases2 != leases || hot2-hot < renewals*99/100 {
		t.Errorf("%d renewals updated %d rows of sessions, %d of them in place, and %d of leases", renewals, sessions2-sessions, hot2-hot, leases2-leases)
	}
}
