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

// TestBrokenOperationFiles demands that a file whose triggers break a rule behind the store's back is caught by the case that is named for the rule.
func TestBrokenOperationFiles(t *testing.T) {
	t.Parallel()
	const after = ` ON tenure_operation BEGIN UPDATE tenure_operation SET `
	for name, breaks := range map[string]string{
		"of-one-order-each-begins-when-the-one-before-is-decided":      `AFTER INSERT` + after + `blocked = 0 WHERE n = NEW.n; END`,
		"whatever-decides-lets-the-next-of-its-order-begin":            `BEFORE UPDATE ON tenure_operation WHEN OLD.blocked = 1 AND NEW.blocked = 0 AND NEW.state = 1 BEGIN SELECT RAISE(IGNORE); END`,
		"every-attempt-is-kept-whatever-follows-it":                    `AFTER INSERT ON tenure_attempt BEGIN DELETE FROM tenure_attempt WHERE n = NEW.n; END`,
		"what-is-due-is-put-off-by-the-hold":                           `AFTER UPDATE OF inquiries ON tenure_operation WHEN NEW.inquiries > OLD.inquiries BEGIN UPDATE tenure_operation SET due = OLD.due WHERE n = NEW.n; END`,
		"what-is-forgotten-but-for-its-verdict-is-still-compared":      `AFTER UPDATE OF kept` + after + `fingerprint = x'00' WHERE n = NEW.n; END`,
		"O10-a-claim-is-not-renewed-beyond-the-timeout-of-its-attempt": `AFTER UPDATE OF until` + after + `until = until + 3600000000000 WHERE n = NEW.n; END`,
		"O41-a-late-success-decides-what-is-uncertain":                 `AFTER UPDATE OF state ON tenure_operation WHEN OLD.state = 3 AND NEW.state = 4 BEGIN UPDATE tenure_operation SET state = 3, step = 4, decided = 0 WHERE n = NEW.n; END`,
		"an-attempt-whose-claim-expired-is-unknown-and-never-not-done": `AFTER UPDATE OF known ON tenure_operation WHEN NEW.known = 4 BEGIN UPDATE tenure_operation SET known = 1, state = 1, step = 2 WHERE n = NEW.n; END`,
		"cancelling-while-an-attempt-may-have-an-effect-is-a-wish":     `AFTER UPDATE OF wished ON tenure_operation WHEN NEW.wished = 1 BEGIN UPDATE tenure_operation SET state = 6, step = 1 WHERE n = NEW.n; END`,
	} {
		h := newOpHarness(t)
		plainExec(t, h.store.Path(), `CREATE TRIGGER twin `+breaks)
		ran := false
		for _, c := range operationtest.Cases() {
			if c.Name != name {
				continue
			}
			ran = true
			if err := c.Run(t.Context(), h); err == nil {
				t.Errorf("the broken file is not caught by %s", name)
			} else {
				t.Logf("%s: %v", name, err)
			}
		}
		if !ran {
			t.Errorf("no case %s", name)
		}
	}
}
