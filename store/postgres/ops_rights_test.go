package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/operation/operationtest"
)

// TestOperationsTakeRights: a member of tenure_user submits and works; verdicts and forgetting take tenure_operator, and the error says so; the tables are nobody's.
func TestOperationsTakeRights(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	admin, conn := asRole(t, roleUser)
	config := conn.Config()
	s := openStore(t, testdb.Shared(t).URLAs(config.User, config.Database), Options{})
	f := &office{rig: &rig{t: t, harness: &harness{t: t, store: s}}, ops: s.Operations()}
	f.submit("a", "b")
	for _, known := range []operation.Known{operation.Effective, operation.NoAnswer} {
		job := f.begin()
		job.Ref = operation.Ref{ID: job.ID, Number: job.Number}
		errs, err := f.ops.Complete(ctx, []operation.Completion{{Ref: job.Ref, Answer: operation.Answer{Known: known}, RetryIn: time.Hour}})
		if err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
	}
	_, resolve := f.ops.Resolve(ctx, operation.Verdict{ID: "b", State: operation.Failed, Reason: "asked"})
	_, prune := f.ops.Prune(ctx, operation.PruneRequest{Bodies: 1, Limit: 10})
	for _, err := range []error{resolve, prune} {
		if !errors.Is(err, operation.ErrUnavailable) || !errors.Is(err, ErrSetup) || !strings.Contains(err.Error(), roleOperator) {
			t.Errorf("without tenure_operator: %v", err)
		}
	}
	refusedRights(t, conn, `SELECT * FROM tenure.operation`, `SELECT * FROM tenure.attempts`, `UPDATE tenure.attempt SET known = 5`, `DELETE FROM tenure.conflict`, `SELECT nextval('tenure.submission')`,
		`SELECT tenure.op_lock('a')`, `SELECT tenure.op_unblock('k')`)
	must(t, admin, `GRANT tenure_operator TO `+config.User)
	if rec, err := f.ops.Resolve(ctx, operation.Verdict{ID: "b", State: operation.Failed, Reason: "asked"}); err != nil || rec.State != operation.Failed {
		t.Errorf("%+v, %v", rec, err)
	}
	if p, err := f.ops.Prune(ctx, operation.PruneRequest{Bodies: 1, Limit: 10}); err != nil || p.Bodies != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestBouncerOperationConformance runs the suite through PgBouncer in transaction mode, in both ways to do without prepared statements.
func TestBouncerOperationConformance(t *testing.T) {
	b := startBouncer(t)
	for _, mode := range []string{"cache_describe", "exec"} {
		t.Run(mode, func(t *testing.T) {
			runOps(t, operationtest.Cases(), func(t testing.TB) *opHarness { t.Helper(); return &opHarness{b.harness(t, mode)} })
		})
	}
}
