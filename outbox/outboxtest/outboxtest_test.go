package outboxtest_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/outbox/outboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMemoryConformance demands that the memory store passes every case.
func TestMemoryConformance(t *testing.T) {
	for _, c := range allCases() {
		if c.transactions {
			continue // a transaction in memory is its own
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := c.Run(t.Context(), c.harness()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// anyCase is a case of whatever kind, run on a harness that is of every kind.
type anyCase struct {
	outboxtest.Case[*harness]
	manual, transactions bool
}

func (c anyCase) harness() *harness {
	if c.manual {
		return newManual()
	}
	return newHarness()
}

func allCases() []anyCase {
	var all []anyCase
	add(&all, outboxtest.Cases(), anyCase{})
	add(&all, outboxtest.DurableCases(), anyCase{})
	add(&all, outboxtest.WakerCases(), anyCase{})
	add(&all, outboxtest.EqualityCases(), anyCase{manual: true})
	add(&all, outboxtest.TransactionCases(), anyCase{transactions: true})
	add(&all, outboxtest.OpenTransactionCases(), anyCase{transactions: true})
	return all
}

func add[H any](all *[]anyCase, cases []outboxtest.Case[H], kind anyCase) {
	for _, c := range cases {
		kind.Case = outboxtest.Case[*harness]{Name: c.Name, Run: func(ctx context.Context, h *harness) error { return c.Run(ctx, any(h).(H)) }}
		*all = append(*all, kind)
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
