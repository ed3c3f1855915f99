//go:build unix

package sql_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestOperationsInSQL takes operations through their lives by the functions alone, as a member of tenure_user, and one of tenure_operator.
func TestOperationsInSQL(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	for _, step := range []struct{ call, want string }{
		{`SELECT outcome || ' ' || state FROM tenure.op_submit('a', 'charge', '\x01', p_order => 'k')`, "submitted pending"},
		{`SELECT outcome || ' ' || state FROM tenure.op_submit('a', 'charge', '\x01')`, "known pending"},
		{`SELECT outcome || ' ' || blocked FROM tenure.op_submit('b', 'charge', '\x02', p_order => 'k')`, "submitted true"},
		{`SELECT tenure.op_submit('a', 'charge', '\x02')`, "TN020"},
		{`SELECT tenure.op_submit('', 'charge', '\x02')`, "TN004"},
		{`SELECT tenure.op_submit('refund', 'refund', '\x', p_compensates => 'a')`, "TN022"},
		{`SELECT tenure.op_submit('refund', 'refund', '\x', p_compensates => 'none')`, "TN024"},
		{`SELECT string_agg(id || ' ' || ordinal || ' ' || unsure, ',') FROM tenure.op_claim(ARRAY['charge'], 'w', 10, p_asks => true, p_undoes => true)`, "a 1 false"},
		{`SELECT lost::text || locked::text FROM tenure.op_renew(ARRAY['a', 'b'], ARRAY[1, 1], '20 seconds')`, "{2}{}"},
		{`SELECT tenure.op_complete('a', 2, 'effective')`, "TN004"},
		{`SELECT tenure.op_complete('a', 1, 'no answer', p_reason => 'timeout')`, ""},
		{`SELECT tenure.op_complete('a', 1, 'effective')`, "TN023"},
		{`SELECT outcome || ' ' || state || ' ' || step FROM tenure.op_cancel('a')`, "wished uncertain ask"},
		{`SELECT string_agg(id || ' ' || inquiries, ',') FROM tenure.op_due(ARRAY['charge'])`, "a 1"},
		{`SELECT outcome || ' ' || state FROM tenure.op_inquired('a', 'not observed')`, "recorded uncertain"},
		{`SELECT tenure.op_inquired('a', 'past')`, "TN004"},
		{`SELECT outcome || ' ' || state || ' ' || step || ' ' || array_to_string(knowns, ',') FROM tenure.op_respond('a', 1, 'effective', '\xff')`, "recorded succeeded undo effective"},
		{`SELECT outcome || ' ' || state || ' ' || conflicts FROM tenure.op_respond('a', 0, 'effective', '\xfe')`, "decided succeeded 1"},
		{`SELECT outcome || ' ' || state || ' ' || conflicts FROM tenure.op_respond('a', 1, 'effective', '\xfd')`, "stale succeeded 2"},
		{`SELECT tenure.op_cancel('a')`, "TN021"},
		{`SELECT state FROM tenure.op_submit('refund', 'refund', '\x', p_compensates => 'a')`, "pending"},
		{`SELECT step FROM tenure.op_undone('a', 'refund')`, "idle"},
		{`SELECT string_agg(id, ',') FROM tenure.op_claim(ARRAY['charge'], p_ttl => '1 millisecond')`, "b"},
		{`SELECT pg_sleep(0.01)`, ""},
		{`SELECT tenure.op_expire()::text`, "1"},
		{`SELECT tenure.op_resolve('b', 'failed', 'asked by telephone')`, "42501"},
		{`SELECT string_agg(kind || ' ' || coalesce(state, 'decided') || ' ' || count || ' ' || stuck, ',' ORDER BY kind, state) FROM tenure.op_stats()`, "charge uncertain 1 1,charge decided 1 0,refund pending 1 0"},
		{`SELECT string_agg(id, ',') FROM tenure.op_list(ARRAY['uncertain', 'pending'])`, "b,refund"},
		{`SELECT count(*)::text FROM tenure.operation`, "42501"},
	} {
		a.answers(step.call, step.want)
	}
	a.worker = a.watch
	a.answers(`SELECT outcome || ' ' || state FROM tenure.op_resolve('b', 'failed', 'asked by telephone')`, "recorded failed")
	a.answers(`SELECT bodies || ' ' || records || ' ' || forgotten FROM tenure.op_prune('1 microsecond', NULL, NULL)`, "2 0 0")
	a.answers(`SELECT kept || coalesce(octet_length(request), 0) || state FROM tenure.op_get('a')`, "without bodies0succeeded")
}

// answers demands what a call of the worker's answers: a text, or a SQLSTATE.
func (a *asker) answers(call, want string) {
	a.t.Helper()
	var got *string
	err := a.worker.QueryRow(a.t.Context(), "SELECT x::text FROM ("+call+") t (x)").Scan(&got)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused):
		if refused.Code != want {
			a.t.Errorf("%s: %v; want %q", call, err, want)
		}
	case err != nil:
		a.t.Errorf("%s: %v", call, err)
	case got == nil || *got != want:
		a.t.Errorf("%s: %v; want %q", call, got, want)
	}
}
