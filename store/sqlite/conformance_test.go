package sqlite

import (
	"testing"

	"github.com/tenure-go/tenure/lease/leasetest"
)

// run plays each case on a fresh file.
func run[H any](t *testing.T, cases []leasetest.Case[H], fresh func(testing.TB) *harness) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := c.Run(t.Context(), any(fresh(t)).(H)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestConformance(t *testing.T) { run(t, leasetest.Cases(), newHarness) }

func TestOperatorConformance(t *testing.T) { run(t, leasetest.OperatorCases(), newHarness) }

func TestDurableConformance(t *testing.T) { run(t, leasetest.DurableCases(), newHarness) }

func TestResourceConformance(t *testing.T) { run(t, leasetest.ResourceCases(), newHarness) }

func TestDurableResourceConformance(t *testing.T) {
	run(t, leasetest.DurableResourceCases(), newHarness)
}

func TestRepairConformance(t *testing.T) { run(t, leasetest.RepairCases(), newHarness) }

// TestEqualityConformance meets expiries to the nanosecond, on a kernel clock that moves by hand.
func TestEqualityConformance(t *testing.T) { run(t, leasetest.EqualityCases(), newManualHarness) }
