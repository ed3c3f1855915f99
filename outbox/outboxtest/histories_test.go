package outboxtest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/outboxhistories"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxtest"
	"github.com/tenure-go/tenure/store/memory"
)

var (
	_ outboxtest.StepHarness = (*harness)(nil)
	_ outboxtest.Oracle      = (*harness)(nil)
)

// Tolerance is none where the clock stands still.
func (h *harness) Tolerance() time.Duration {
	if h.clock != nil {
		return 0
	}
	return 500 * time.Millisecond
}

// Follow makes another store's choice.
func (h *harness) Follow(ctx context.Context, req outbox.ClaimRequest, handed, dead []fence.ID) (outbox.Batch, error) {
	return h.store.(*memory.Outbox).Follow(ctx, req, handed, dead)
}

// TestInStep runs random histories on the oracle and on the store that the twins are made of, and on the oracle whose clock runs.
func TestInStep(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := outboxhistories.Draw(rt, newManual(), outboxhistories.Options{Steps: 50})
		if err := outboxtest.InStep(t.Context(), newManual(), frailHarness("", true), ops); err != nil {
			rt.Fatal(err)
		}
		ops = outboxhistories.Draw(rt, newManual(), outboxhistories.Options{Steps: 50, Away: time.Second})
		if err := outboxtest.InStep(t.Context(), newManual(), newHarness(), ops); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestInStepCatches demands that random histories catch these faults, without a case written for each.
func TestInStepCatches(t *testing.T) {
	for _, fault := range []string{
		"a claim is not exclusive", "a claim ends early", "a claim never ends", "equality is missed", "the TTL is ignored", "attempts are not counted", "what is returned is counted", "what was lost is not recorded",
		"a verdict is taken by position alone", "a verdict is refused after the deadline", "a verdict that is repeated is late", "a second verdict replaces the first", "what is late is not told", "back-off is ignored",
		"what backs off is due too early", "the limit is ignored", "bytes are ignored", "topics are ignored", "a batch is in any order", "the order of a key is ignored", "a live claim does not hold up its key",
		"what backs off does not hold up its key", "a key holds up every key", "a key is one in every topic", "unordered messages wait for their key", "a failing head leaves those behind in the claim",
		"what is dead holds up its key for ever", "what is retried goes to the end", "poison is never dead", "nobody is given up at once", "suspects are not alone", "a verdict does not end what was lost in a row",
		"one id twice is written twice", "a mismatch is missed", "headers are not compared", "an append is written one by one", "a paused topic is claimed", "a pause loses what is appended", "a pause ends claims",
		"the pause of every topic is of none", "the first reason stays", "prune takes what is pending", "dead letters are not kept", "the age counts from the append", "replay takes what is dead",
		"replay takes what is pending", "retry takes what is delivered", "replay changes the id", "retry keeps the attempts", "an old claim outlives a move", "a topic is not looked at", "a key is not looked at",
		"a range is not looked at", "ids are not looked at", "when it ended is not looked at", "a list is of any state", "a list begins at the position", "what is claimed is not counted as pending",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			if caughtInStep(t.Context(), func() *harness { return frailHarness(fault, true) }, outboxhistories.Options{Steps: 50}) == nil {
				t.Errorf("%d histories did not catch it", maxHistories)
			}
		})
	}
}

const maxHistories = 1500

// caughtInStep returns the first difference that a drawn history shows between the oracle and the broken store.
func caughtInStep(ctx context.Context, fresh func() *harness, o outboxhistories.Options) error {
	draw := rapid.Custom(func(rt *rapid.T) []outboxtest.Op { return outboxhistories.Draw(rt, newManual(), o) })
	for seed := range maxHistories {
		if err := outboxtest.InStep(ctx, newManual(), fresh(), draw.Example(seed)); err != nil {
			return err
		}
	}
	return nil
}

// TestInStepTells demands that a failure tells the history and both replies.
func TestInStepTells(t *testing.T) {
	claim := func(n byte) *outbox.ClaimRequest {
		return &outbox.ClaimRequest{Claim: fence.ID{'c', n}, Limit: 1, Bytes: 1, TTL: time.Second, MaxAttempts: 1}
	}
	ops := []outboxtest.Op{{Append: []outbox.Message{{ID: fence.ID{1}, Topic: "mail"}}}, {Claim: claim(1)}, {Advance: time.Millisecond}, {Claim: claim(2)}}
	err := outboxtest.InStep(t.Context(), newManual(), frailHarness("a claim never ends", true), ops)
	if err != nil {
		t.Fatalf("one millisecond is not past the deadline: %v", err)
	}
	err = outboxtest.InStep(t.Context(), newManual(), frailHarness("a claim is not exclusive", true), ops)
	if err == nil {
		t.Fatal("the difference was not found")
	}
	for _, part := range []string{"in this history:", "append [{ID:01", "advance by 1ms", "step 3, claim ", "was given up, and was not to be", "the store \"done\""} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the failure does not say %q:\n%v", part, err)
		}
	}
}
