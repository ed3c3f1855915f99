package postgres

import (
	"testing"

	"github.com/tenure-go/tenure/lease/leasetest"
)

// run plays each case on a fresh database.
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

func TestDurableConformance(t *testing.T) { run(t, leasetest.DurableCases(), newOwnHarness) }

func TestResourceConformance(t *testing.T) { run(t, leasetest.ResourceCases(), newHarness) }

func TestDurableResourceConformance(t *testing.T) {
	run(t, leasetest.DurableResourceCases(), newOwnHarness)
}

func TestRepairConformance(t *testing.T) { run(t, leasetest.RepairCases(), newHarness) }
