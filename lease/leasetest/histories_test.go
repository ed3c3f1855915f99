package leasetest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/internal/histories"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
)

var _ leasetest.StepHarness = (*harness)(nil)

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
		ops := histories.Draw(rt, newManual(), histories.Options{Steps: 60, Operator: true})
		if err := leasetest.InStep(t.Context(), newManual(), newManual(), ops); err != nil {
			rt.Fatal(err)
		}
		ops = histories.Draw(rt, newManual(), histories.Options{Steps: 60, Away: time.Second, Operator: true})
		if err := leasetest.InStep(t.Context(), newManual(), newHarness(), ops); err != nil {
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
		"token restarts after release", "token taken from a session id", "release by name only", "release by owner label",
		"renewal accepted at equality", "a session lives at the equality of its expiry", "same id granted twice after its end",
		"release of an unknown id forgotten", "all-or-none broken", "renewal that creates", "held refusal that draws and writes a token",
		"expiry computed by the client", "closed-below is ignored", "MaxHold is not kept", "a revocation is not told",
		"TTLs are cut to whole seconds", "release never says how it was over", "a renewal forgets the releases in it",
		"token restarts when its row was pruned", "the first held name is told in the order of the request",
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
	draw := rapid.Custom(func(rt *rapid.T) []leasetest.Op {
		return histories.Draw(rt, newManual(), histories.Options{Steps: 60, Operator: true})
	})
	for seed := range maxHistories {
		subject := newManual()
		breaks(subject)
		if err := leasetest.InStep(ctx, newManual(), subject, draw.Example(seed)); err != nil {
			return err
		}
	}
	return nil
}

// TestInStepTells demands that a failure tells the history and both replies.
func TestInStepTells(t *testing.T) {
	id, req := lease.NewID(), lease.OpenRequest{Owner: "w", TTL: time.Minute}
	req.ID = id
	subject := newManual()
	openRenews(subject)
	ops := []leasetest.Op{{Open: &req}, {Advance: time.Second}, {Open: &req}}
	err := leasetest.InStep(t.Context(), newManual(), subject, ops)
	if err == nil {
		t.Fatal("the difference was not found")
	}
	for _, part := range []string{"in this history:", "advance by 1s", "step 2", "what is left: 59s on the oracle, 1m0s on the store"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the failure does not say %q:\n%v", part, err)
		}
	}
}

// TestPlayerWithoutOperator demands that a harness without operator functions says so.
func TestPlayerWithoutOperator(t *testing.T) {
	p := leasetest.NewPlayer(bare{newManual()})
	if r := p.Play(t.Context(), leasetest.Op{Raise: true}); !errors.Is(r.Err, lease.ErrInvalid) {
		t.Errorf("got %v; want ErrInvalid", r.Err)
	}
}

// bare hides what the harness offers beyond the least.
type bare struct{ leasetest.Harness }
