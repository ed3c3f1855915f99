package postgres

import (
	"testing"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/operation/operationtest"
)

// runOps plays each case on a fresh database.
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
	runOps(t, operationtest.DurableCases(), newOwnOpHarness)
}

// TestOperationEqualityConformance meets instants exactly.
func TestOperationEqualityConformance(t *testing.T) {
	server := testdb.Start(t, testdb.Options{})
	for _, c := range operationtest.EqualityCases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(t.Context(), newManualOpHarness(t, server)); err != nil {
				t.Fatal(err)
			}
		})
	}
}
