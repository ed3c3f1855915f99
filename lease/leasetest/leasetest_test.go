package leasetest_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/lease/leasetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMemoryConformance demands that the memory store passes every case.
func TestMemoryConformance(t *testing.T) {
	for _, c := range allCases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			h := newHarness()
			if c.manual {
				h = newManual()
			}
			if err := c.Run(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// anyCase is a case of whatever kind, run on a harness that is of every kind.
type anyCase struct {
	leasetest.Case[*harness]
	manual bool
}

func allCases() []anyCase {
	var all []anyCase
	add(&all, leasetest.Cases())
	add(&all, leasetest.OperatorCases())
	add(&all, leasetest.DurableCases())
	add(&all, leasetest.ResourceCases())
	add(&all, leasetest.DurableResourceCases())
	add(&all, leasetest.RepairCases())
	plain := len(all)
	add(&all, leasetest.EqualityCases())
	for i := range all[plain:] {
		all[plain+i].manual = true
	}
	return all
}

func add[H any](all *[]anyCase, cases []leasetest.Case[H]) {
	for _, c := range cases {
		run := func(ctx context.Context, h *harness) error { return c.Run(ctx, any(h).(H)) }
		*all = append(*all, anyCase{Case: leasetest.Case[*harness]{Name: c.Name, Run: run}})
	}
}

// TestNames demands that a case is known by its name alone, in one form.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range allCases() {
		if seen[c.Name] {
			t.Errorf("two cases are named %q", c.Name)
		}
		seen[c.Name] = true
		if c.Name == "" || strings.ContainsAny(c.Name, " /_") {
			t.Errorf("%q is no name for a case: want words joined by '-'", c.Name)
		}
	}
}
