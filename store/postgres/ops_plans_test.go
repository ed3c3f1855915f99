package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// opScanning calls each function of operations on tables that are empty and known to be, and returns those that scanned a table which grows, as [rig.scanning] does.
func (f *office) opScanning() []string {
	f.t.Helper()
	ctx := f.t.Context()
	if err := f.exec(ctx, `ANALYSE tenure.operation, tenure.attempt, tenure.conflict`); err != nil {
		f.t.Fatal(err)
	}
	x := f.rig.begin(ctx, pgx.ReadCommitted)
	var found []string
	for _, call := range []string{
		`op_submit('a', 'k', '', p_order => 'k')`, `op_submit('b', 'k', '', p_order => 'k')`, `op_submit('a', 'k', '')`,
		`op_submit_many(ARRAY['c', 'd'], ARRAY['k', 'k'], ARRAY['', '']::bytea[], ARRAY[sha256(''), sha256('')], ARRAY[0, 0], ARRAY['0', '0']::interval[])`,
		`op_claim(ARRAY['k'], p_limit => 1, p_window => '1000 days', p_asks => true)`, `op_claim(ARRAY['k', 'l'], p_limit => 2)`, `op_claim(ARRAY['k'], p_id => 'b')`,
		`op_renew(ARRAY['a', 'c'], ARRAY[(op_get('a')).numbers[1], 1], '1 minute')`, `op_renew(ARRAY['a'], ARRAY[(op_get('a')).numbers[1]], '1 millisecond', 100)`,
		`op_complete_many(ARRAY['c'], ARRAY[(op_get('c')).numbers[1]], ARRAY[2::smallint], ARRAY[''::bytea], ARRAY[''], ARRAY[false], ARRAY['0'::interval])`,
		`op_claim(ARRAY['k'], p_limit => 2)`, `op_complete('d', (op_get('d')).numbers[1], 'effective', 'r')`,
		`op_cancel('a')`, `op_expire()`, `op_due(ARRAY['k'])`, `op_inquired('a', 'not observed')`, `op_respond('a', (op_get('a')).numbers[1], 'effective', 'r')`, `op_respond('a', 0, 'effective', 'other')`,
		`op_submit('undo', 'k', '', p_compensates => 'a')`, `op_undone('a', 'undo')`, `op_get('a')`,
	} {
		before := x.opScans()
		x.do(ctx, `SET LOCAL search_path = tenure, pg_catalog`)
		x.do(ctx, `SELECT * FROM tenure.`+call)
		if after := x.opScans(); after != before {
			found = append(found, fmt.Sprintf("%s: %s, before %s", call, after, before))
		}
	}
	return found
}

// opScans is how often this transaction has scanned the tables of operations.
func (x *hand) opScans() (text string) {
	x.t.Helper()
	err := x.QueryRow(x.t.Context(), `SELECT string_agg(relname || ' ' || seq_scan, ', ' ORDER BY relname) FROM pg_stat_xact_user_tables
		WHERE schemaname = 'tenure' AND relname IN ('operation', 'attempt', 'conflict')`).Scan(&text)
	if err != nil {
		x.t.Fatal(err)
	}
	return text
}

func TestPlansOfOperationsOnEmptyTables(t *testing.T) {
	t.Parallel()
	for _, found := range newOffice(t).opScanning() {
		t.Error(found)
	}
}

// TestUnboundPlansOfOperationsScan: without the setting, the test above finds the scan.
func TestUnboundPlansOfOperationsScan(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	if err := f.exec(t.Context(), `ALTER FUNCTION tenure.op_claim_many RESET enable_seqscan`); err != nil {
		t.Fatal(err)
	}
	if found := f.opScanning(); !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, "op_claim") }) {
		t.Fatalf("not found, but %q", found)
	}
}
