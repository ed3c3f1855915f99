package sqlite

import (
	"testing"

	"github.com/tenure-go/tenure/outbox/outboxtest"
)

// runMail plays each case on a fresh file.
func runMail[H any](t *testing.T, cases []outboxtest.Case[H], fresh func(testing.TB) *mailHarness) {
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

func TestOutboxConformance(t *testing.T) { runMail(t, outboxtest.Cases(), newMailHarness) }

func TestDurableOutboxConformance(t *testing.T) {
	runMail(t, outboxtest.DurableCases(), newMailHarness)
}

// TestEqualityOutboxConformance meets instants to the nanosecond, on a kernel clock that moves by hand.
func TestEqualityOutboxConformance(t *testing.T) {
	runMail(t, outboxtest.EqualityCases(), newManualMailHarness)
}

func TestOutboxWakerConformance(t *testing.T) { runMail(t, outboxtest.WakerCases(), newMailHarness) }

// TestOutboxTransactionConformance appends in transactions of a caller's own. Those of outboxtest.OpenTransactionCases are for stores in which others write meanwhile: here
// nobody does.
func TestOutboxTransactionConformance(t *testing.T) {
	runMail(t, outboxtest.TransactionCases(), newMailHarness)
}
