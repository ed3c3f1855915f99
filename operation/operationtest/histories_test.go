package operationtest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/internal/ophistories"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/operation/operationtest"
)

var _ operationtest.StepHarness = (*harness)(nil)

// Tolerance is none where the clock stands still.
func (h *harness) Tolerance() time.Duration {
	if h.clock != nil {
		return 0
	}
	return 500 * time.Millisecond
}

// TestInStepWithItself runs random histories on two memory stores, one of them on the clock that runs.
func TestInStepWithItself(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := ophistories.Draw(rt, newManual(), ophistories.Options{Steps: 60})
		if err := operationtest.InStep(t.Context(), newManual(), newManual(), ops); err != nil {
			rt.Fatal(err)
		}
		ops = ophistories.Draw(rt, newManual(), ophistories.Options{Steps: 60, Away: time.Second})
		if err := operationtest.InStep(t.Context(), newManual(), newHarness(), ops); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestInStepCatches demands that random histories catch these stores, without a case written for each.
func TestInStepCatches(t *testing.T) {
	faults := map[string]func(h *harness){}
	for _, broken := range twins() {
		faults[broken.fault] = broken.breaks
	}
	for _, fault := range []string{
		"a claim does not skip what another has", "completion is unconditional", "a completion that moved nothing is told as done",
		"a stale completion is refused, and recorded all the same", "a batch shares its fate", "the last of a batch counts", "expiry at equality is missed",
		"an expired attempt is taken for one that was not sent", "an expired attempt has failed", "a claim expires early", "no answer is taken for not sent",
		"what is not observed has failed", "that the instant has passed is believed", "a late success is ignored", "a late success against a decision is dropped",
		"a conflict overwrites the decision", "what is known of an attempt is what was said last", "cancelling while an attempt is at work succeeds",
		"a wish is recorded, and not honoured", "a submission compares the kind only", "a submission compares the request only",
		"a submission compares nothing while an attempt is at work", "a number repeats", "numbers fall", "a claim is renewed beyond its timeout",
		"a stale attempt renews the current one", "a claim past its time is lost before anybody ends it", "the window is ignored",
		"the window leaves no room for the attempt", "order is ignored", "an uncertain one does not block its order", "order is kept within a kind",
		"only a success lets the next begin", "priorities are ignored", "the newest goes first", "a retry is not put off", "attempts are not bounded",
		"attempts carry no instant", "what is due is not held", "who asks is not heard on when to ask again", "a finding waits for the attempt at work",
		"an operator may resolve what is at work", "anything undoes", "a listing shows bodies", "a list ignores wishes", "statistics do not tell what is stuck",
		"prune takes what is uncertain", "prune leaves bodies", "the age counts from the submission", "expire ignores its limit", "a claim of one operation takes any",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			breaks := faults[fault]
			if breaks == nil {
				t.Fatal("there is no such twin")
			}
			if err := caughtInStep(t.Context(), breaks, newManual, ophistories.Options{Steps: 60}); err == nil {
				t.Errorf("%d histories did not catch it", maxHistories)
			}
		})
	}
}

const maxHistories = 400

// caughtInStep returns the first difference that a drawn history shows between the oracle and the broken store.
func caughtInStep(ctx context.Context, breaks func(h *harness), fresh func() *harness, o ophistories.Options) error {
	draw := rapid.Custom(func(rt *rapid.T) []operationtest.Op {
		return ophistories.Draw(rt, newManual(), o)
	})
	for seed := range maxHistories {
		subject := fresh()
		breaks(subject)
		if err := operationtest.InStep(ctx, newManual(), subject, draw.Example(seed)); err != nil {
			return err
		}
	}
	return nil
}

// TestInStepCatchesOnAClockThatRuns demands the same of histories that stay away from every instant.
func TestInStepCatchesOnAClockThatRuns(t *testing.T) {
	caught := map[string]bool{
		"completion is unconditional": false, "an expired attempt is taken for one that was not sent": false, "order is ignored": false, "a number repeats": false, "the window is ignored": false,
		"cancelling while an attempt is at work succeeds": false, "a retry is not put off": false, "what is due is not held": false, "a listing shows bodies": false,
	}
	for _, broken := range twins() {
		if _, ok := caught[broken.fault]; ok {
			err := caughtInStep(t.Context(), broken.breaks, newHarness, ophistories.Options{Steps: 60, Away: time.Second})
			caught[broken.fault] = err != nil
		}
	}
	for fault, ok := range caught {
		if !ok {
			t.Errorf("%d histories did not catch: %s", maxHistories, fault)
		}
	}
}

// TestInStepTells demands that a failure tells the history and both replies.
func TestInStepTells(t *testing.T) {
	subject := newManual()
	w := replace(subject)
	w.cancel = w.lost
	req := operation.SubmitRequest{ID: "o", Kind: "charge", Fingerprint: operation.FingerprintOf("charge", nil)}
	ops := []operationtest.Op{{Submit: &req}, {Advance: time.Second}, {Cancel: "o"}}
	err := operationtest.InStep(t.Context(), newManual(), subject, ops)
	if err == nil {
		t.Fatal("the difference was not found")
	}
	for _, part := range []string{"in this history:", "submit \"o\" of kind \"charge\"", "advance by 1s", "step 2, cancel \"o\"", "State:cancelled", "State:pending"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the failure does not say %q:\n%v", part, err)
		}
	}
}

// lost is a cancel that is not recorded.
func (w *wrap) lost(ctx context.Context, id, _ string) (operation.Record, error) {
	return w.inner.Get(ctx, id)
}
