package postgres

import (
	"testing"

	"github.com/tenure-go/tenure/hold/holdtest"
	"github.com/tenure-go/tenure/internal/testdb"
)

// runHolds plays each case on a fresh database.
func runHolds[H any](t *testing.T, cases []holdtest.Case[H], fresh func(testing.TB) *holdHarness) {
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

func TestHoldConformance(t *testing.T) { runHolds(t, holdtest.Cases(), newHoldHarness) }

func TestDurableHoldConformance(t *testing.T) {
	runHolds(t, holdtest.DurableCases(), newOwnHoldHarness)
}

// TestHoldEqualityConformance meets instants exactly.
func TestHoldEqualityConformance(t *testing.T) {
	server := testdb.Start(t, testdb.Options{})
	for _, c := range holdtest.EqualityCases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(t.Context(), newManualHoldHarness(t, server)); err != nil {
				t.Fatal(err)
			}
		})
	}
}
