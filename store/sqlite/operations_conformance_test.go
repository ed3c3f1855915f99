package sqlite

import (
	"testing"

	"github.com/tenure-go/tenure/operation/operationtest"
)

// runOps plays each case on a fresh file.
func runOps[H any](t *testing.T, cases []operationtest.Case[H], fresh func(testing.TB) *opHarness) {
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

func TestOperationConformance(t *testing.T) { runOps(t, operationtest.Cases(), newOpHarness) }

func TestDurableOperationConformance(t *testing.T) {
	runOps(t, operationtest.DurableCases(), newOpHarness)
}

// TestEqualityOperationConformance meets instants to the nanosecond, on a kernel clock that moves by hand.
func TestEqualityOperationConformance(t *testing.T) {
	runOps(t, operationtest.EqualityCases(), newManualOpHarness)
}
