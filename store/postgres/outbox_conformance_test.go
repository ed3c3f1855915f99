package postgres

import (
	"testing"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/outbox/outboxtest"
)

// runOutbox plays each case on a fresh database.
func runOutbox[H any](t *testing.T, cases []outboxtest.Case[H], fresh func(testing.TB) *outboxHarness) {
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

func TestOutboxConformance(t *testing.T) { runOutbox(t, outboxtest.Cases(), newOutboxHarness) }

func TestOutboxTransactionConformance(t *testing.T) {
	runOutbox(t, outboxtest.TransactionCases(), newOutboxHarness)
}

// TestOutboxOpenTransactionConformance has others at work beside a transaction that stays open.
func TestOutboxOpenTransactionConformance(t *testing.T) {
	runOutbox(t, outboxtest.OpenTransactionCases(), newOutboxHarness)
}

func TestOutboxWakerConformance(t *testing.T) {
	runOutbox(t, outboxtest.WakerCases(), newOutboxHarness)
}

func TestDurableOutboxConformance(t *testing.T) {
	runOutbox(t, outboxtest.DurableCases(), newOwnOutboxHarness)
}

// TestOutboxEqualityConformance meets instants exactly.
func TestOutboxEqualityConformance(t *testing.T) {
	server := testdb.Start(t, testdb.Options{})
	for _, c := range outboxtest.EqualityCases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(t.Context(), newManualOutboxHarness(t, server)); err != nil {
				t.Fatal(err)
			}
		})
	}
}
