package holdtest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/hold/holdtest"
	"github.com/tenure-go/tenure/internal/holdhistories"
)

var _ holdtest.StepHarness = (*harness)(nil)

// Tolerance is none where the clock stands still.
func (h *harness) Tolerance() time.Duration {
	if h.clock != nil {
		return 0
	}
	return 500 * time.Millisecond
}

// TestInStep runs random histories on the oracle and on the store that the twins are made of, and on the oracle whose clock runs.
func TestInStep(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := holdhistories.Draw(rt, newManual(), holdhistories.Options{Steps: 60})
		if err := holdtest.InStep(t.Context(), newManual(), frailHarness("", true), ops); err != nil {
			rt.Fatal(err)
		}
		ops = holdhistories.Draw(rt, newManual(), holdhistories.Options{Steps: 60, Away: time.Second})
		if err := holdtest.InStep(t.Context(), newManual(), newHarness(), ops); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestInStepCatches demands that random histories catch these faults, without a case written for each.
func TestInStepCatches(t *testing.T) {
	for _, fault := range []string{
		"demand is not summed", "a hold has what it can get", "an unknown item is taken for one that is sold out", "an id that is over is used again", "an id is compared without its actor",
		"an id is compared without its lines", "an id is compared without its TTL", "placing again prolongs it", "the last to expire is told as the next", "limits are ignored",
		"limits count what has expired", "limits count what is sold", "a limit is passed by one", "equality is missed", "what has expired still holds", "an extension revives what has expired",
		"an extension shortens", "an extension is lost", "extend by anybody", "what has expired is confirmed", "what has expired is confirmed while it is free", "a late payment is refused",
		"a late payment is not recorded", "a late payment sells", "a late payment is sold when it is told again", "confirm by anybody", "confirming twice sells twice", "references are not compared",
		"another reference replaces the first", "what was released is sold", "a confirmation sells the first line", "grace never ends", "grace takes what others have", "grace looks at the first line",
		"equality of grace is missed", "release by anybody", "releasing what is sold frees it", "what is late is released", "what has expired is released", "releasing twice frees twice",
		"stock is lowered below what is sold", "stock is lowered below what is held", "several items are stocked one by one", "stocking again forgets what was sold", "a list goes by the state as written",
		"a list begins at the id", "prune gives back what is sold", "the age counts from the placing", "what has expired is never forgotten", "the TTL told is what is left",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			fresh := func() *harness { return frailHarness(fault, true) }
			if err := caughtInStep(t.Context(), fresh, holdhistories.Options{Steps: 60}); err == nil {
				t.Errorf("%d histories did not catch it", maxHistories)
			}
		})
	}
}

const maxHistories = 400

// caughtInStep returns the first difference that a drawn history shows between the oracle and the broken store.
func caughtInStep(ctx context.Context, fresh func() *harness, o holdhistories.Options) error {
	draw := rapid.Custom(func(rt *rapid.T) []holdtest.Op { return holdhistories.Draw(rt, newManual(), o) })
	for seed := range maxHistories {
		if err := holdtest.InStep(ctx, newManual(), fresh(), draw.Example(seed)); err != nil {
			return err
		}
	}
	return nil
}

// TestInStepCatchesOnAClockThatRuns demands the same of histories that stay away from every instant.
func TestInStepCatchesOnAClockThatRuns(t *testing.T) {
	for _, fault := range []string{
		"what has expired still holds", "an extension shortens", "what has expired is confirmed", "a late payment sells", "grace never ends", "limits are ignored", "prune gives back what is sold",
	} {
		fresh := func() *harness { return frailHarness(fault, false) }
		if err := caughtInStep(t.Context(), fresh, holdhistories.Options{Steps: 60, Away: time.Second}); err == nil {
			t.Errorf("%d histories did not catch: %s", maxHistories, fault)
		}
	}
}

// TestInStepTells demands that a failure tells the history and both replies.
func TestInStepTells(t *testing.T) {
	id := fence.ID{1}
	ops := []holdtest.Op{
		{Stock: []hold.Item{{Name: "seat", Quantity: 1}}}, {Place: &hold.PlaceRequest{ID: id, Actor: "ann", Lines: []hold.Line{{Item: "seat", Quantity: 1}}, TTL: time.Second}},
		{Advance: time.Minute}, {Confirm: &hold.ConfirmRequest{ID: id, Actor: "ann", Reference: "r"}},
	}
	err := holdtest.InStep(t.Context(), newManual(), frailHarness("what has expired is confirmed", true), ops)
	if err == nil {
		t.Fatal("the difference was not found")
	}
	for _, part := range []string{"in this history:", "stock [{Name:seat Quantity:1}]", "advance by 1m0s", "step 3, confirm ", "State:late", "State:confirmed"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the failure does not say %q:\n%v", part, err)
		}
	}
}
