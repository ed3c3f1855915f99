package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
)

// scanning calls each function of the fast paths on tables that are empty and known to be, so that a scan is the cheapest plan, and returns
// those that scanned a table which grows: a connection keeps that plan, until the statistics are made anew.
func (r *rig) scanning() []string {
	r.t.Helper()
	ctx := r.t.Context()
	if _, err := r.own.Exec(ctx, `ANALYSE tenure.lease, tenure.session, tenure.ended, tenure.mark`); err != nil {
		r.t.Fatal(err)
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	s, other := uuid(r.open(ctx, time.Minute)), uuid(r.open(ctx, time.Minute))
	var ids [6]fence.ID
	for i := range ids {
		ids[i] = r.ids.New()
	}
	zero := uuid(fence.ID{})
	var found []string
	for _, call := range []struct {
		function string
		args     []any
	}{
		{"acquire_one($1, $2, $3, 'a', NULL)", []any{s, zero, uuid(ids[0])}},
		{"acquire_one($1, $2, $3, 'a', NULL)", []any{other, zero, uuid(ids[1])}}, // held
		{"release_one($1, $2, $3, 'a')", []any{s, zero, uuid(ids[0])}},
		{"acquire_one($1, $2, $3, 'a', NULL)", []any{other, zero, uuid(ids[2])}}, // another held it last
		{"verify($1, 'a', $2, (SELECT last_value FROM tenure.token))", []any{uuid(r.store.id), uuid(ids[2])}},
		{"verify_bounded($1, 'a', $2, (SELECT last_value FROM tenure.token))", []any{uuid(r.store.id), uuid(ids[2])}},
		{"enter('file', $1, 'a', $2, (SELECT last_value FROM tenure.token))", []any{uuid(r.store.id), uuid(ids[2])}},
		{"admit('file', $1, 'a', $2, (SELECT last_value FROM tenure.token))", []any{uuid(r.store.id), uuid(ids[2])}},
		{"acquire_many($1, $2, ARRAY[$3::uuid], ARRAY['b'], NULL)", []any{s, zero, uuid(ids[3])}},
		{"acquire_many($1, $2, ARRAY[$3::uuid], ARRAY['b'], NULL)", []any{other, zero, uuid(ids[4])}},
		{"release_many($1, $2, ARRAY[$3::uuid], ARRAY['b'], ARRAY['(0,1)'::tid])", []any{s, zero, uuid(ids[4])}}, // nothing of it is there
		{"release_many($1, $2, ARRAY[$3::uuid], ARRAY['b'])", []any{s, zero, uuid(ids[3])}},
		{"acquire_rows($1, $2, $3, ARRAY['b', 'c'], NULL, 0)", []any{other, zero, uuid(ids[5])}},
		{"release_rows($1, $2, ARRAY['b', 'c'], 0)", []any{other, uuid(ids[5])}},
		{"session_renew($1, $2)", []any{s, zero}},
	} {
		before := x.scans()
		x.do(ctx, `SELECT tenure.`+call.function, call.args...)
		if after := x.scans(); after != before {
			found = append(found, fmt.Sprintf("%s: %s, before %s", call.function, after, before))
		}
	}
	return found
}

// scans is how often this transaction has scanned the tables that grow.
func (x *hand) scans() (text string) {
	x.t.Helper()
	err := x.QueryRow(x.t.Context(), `SELECT string_agg(relname || ' ' || seq_scan, ', ' ORDER BY relname) FROM pg_stat_xact_user_tables
		WHERE schemaname = 'tenure' AND relname IN ('lease', 'session', 'ended', 'mark')`).Scan(&text)
	if err != nil {
		x.t.Fatal(err)
	}
	return text
}

func TestPlansOfEmptyTables(t *testing.T) {
	t.Parallel()
	for _, found := range (&rig{t: t, harness: newHarness(t)}).scanning() {
		t.Error(found)
	}
}

// TestUnboundPlansScan: without the setting, the test above finds the scan.
func TestUnboundPlansScan(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, harness: newHarness(t)}
	if _, err := r.own.Exec(t.Context(), `ALTER FUNCTION tenure.acquire_one RESET enable_seqscan`); err != nil {
		t.Fatal(err)
	}
	if found := r.scanning(); !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, "acquire_one") }) {
		t.Fatalf("not found, but %q", found)
	}
}
