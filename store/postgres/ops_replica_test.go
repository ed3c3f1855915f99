package postgres

import (
	"errors"
	"testing"

	"github.com/tenure-go/tenure/operation"
)

// unreplicatedSubmission submits while the standby stands still, and has the wait for it cancelled: the commit is on the primary alone. Then it submits the same again, and reports
// whether that waited for the standby.
func unreplicatedSubmission(t *testing.T, twin []edit) (waited bool) {
	t.Helper()
	ctx := t.Context()
	r, standby := newReplicated(t)
	for _, e := range twin {
		if err := r.edit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	ops := r.store.Operations()
	standby.Pause(t)
	defer standby.Continue(t)
	submit := func() error { _, err := ops.Submit(ctx, submission("o")); return err }
	first := start(submit)
	if !r.waitFor(ctx, waitsForStandby, first) {
		t.Fatalf("the submission did not wait for the standby: %v", <-first)
	}
	if err := r.edit(ctx, edit{now: cancelWaiting}); err != nil {
		t.Fatal(err)
	}
	if err := <-first; !errors.Is(err, operation.ErrUnknown) {
		t.Fatalf("a submission that is on one server alone was told: %v", err)
	}
	again := start(submit)
	waited = r.waitFor(ctx, waitsForStandby, again)
	standby.Continue(t)
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	return waited
}

// TestKnownSubmissionWaitsForAStandby: it is told as known only after a durable write of its own.
func TestKnownSubmissionWaitsForAStandby(t *testing.T) {
	t.Parallel()
	if !unreplicatedSubmission(t, nil) {
		t.Fatal("a submission that no standby has was answered by a look at the row")
	}
}

// TestKnownSubmissionWithoutAWrite is the twin: it answers from the row.
func TestKnownSubmissionWithoutAWrite(t *testing.T) {
	t.Parallel()
	if unreplicatedSubmission(t, []edit{{"op_known_before", "IF current_setting('synchronous_standby_names') <> '' THEN", "IF false THEN"}}) {
		t.Fatal("the twin was not caught")
	}
}
