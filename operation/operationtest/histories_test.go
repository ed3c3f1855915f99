package operationtest_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/internal/ophistories"
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
			if err := caughtInStep(t.Context(), breaks); err == nil {
				t.Errorf("%d histories did not catch it", maxHistories)
			} else {
				t.Log(err)
			}
		})
	}
}

const maxHistories = 400

// caughtInStep returns the first difference that a drawn history shows between the oracle and the broken store.
func caughtInStep(ctx context.Context, breaks func(h *harness)) error {
	draw := rapid.Custom(func(rt *rapid.T) []operationtest.Op {
		return ophistories.Draw(rt, newManual(), ophistories.Options{Steps: 60})
	})
	for seed := range maxHistories {
		subject := newManual()
		breaks(subject)
		if err := operationtest.InStep(ctx, newManual(), subject, draw.Example(seed)); err != nil {
			return err
		}
	}
	return nil
}
