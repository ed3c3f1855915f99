package sqlite

import (
	"testing"

	"github.com/tenure-go/tenure/hold/holdtest"
)

// runHolds plays each case on a fresh file.
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
	runHolds(t, holdtest.DurableCases(), newHoldHarness)
}

// TestEqualityHoldConformance meets instants to the nanosecond, on a kernel clock that moves by hand.
func TestEqualityHoldConformance(t *testing.T) {
	runHolds(t, holdtest.EqualityCases(), newManualHoldHarness)
}

// TestBrokenHoldFiles demands that a file whose triggers break a rule behind the store's back is caught by the case that is named for the rule.
func TestBrokenHoldFiles(t *testing.T) {
	t.Parallel()
	const ended = `AFTER UPDATE OF state ON tenure_hold WHEN NEW.state = `
	for name, breaks := range map[string]string{
		"H70-of-a-hundred-holds-on-one-unit-one-wins":                        `AFTER INSERT ON tenure_line BEGIN UPDATE tenure_item SET held = 0; END`,
		"a-hold-has-all-its-lines-or-none":                                   `AFTER INSERT ON tenure_line WHEN NEW.item <> (SELECT min(item) FROM tenure_line WHERE hold = NEW.hold) BEGIN DELETE FROM tenure_line WHERE hold = NEW.hold AND item = NEW.item; END`,
		"an-extension-never-shortens":                                        `AFTER UPDATE OF at ON tenure_hold WHEN OLD.state = 1 AND NEW.state = 1 BEGIN UPDATE tenure_hold SET at = OLD.at WHERE id = NEW.id; END`,
		"what-is-sold-stays-sold-when-its-hold-is-forgotten":                 `AFTER DELETE ON tenure_hold WHEN OLD.state = 2 BEGIN UPDATE tenure_item SET sold = 0; END`,
		"H73-a-payment-after-the-hold-expired-is-recorded-and-sells-nothing": ended + `5 BEGIN UPDATE tenure_hold SET state = 4, reference = '' WHERE id = NEW.id; END`,
		"H73-a-late-payment-takes-nothing-from-who-came-next":                ended + `5 BEGIN UPDATE tenure_hold SET state = 2 WHERE id = NEW.id; END`,
		"releasing-frees-what-is-held-once":                                  ended + `3 BEGIN UPDATE tenure_item SET held = held + 1; END`,
		"an-id-that-is-over-is-never-a-new-hold":                             ended + `3 BEGIN DELETE FROM tenure_line WHERE hold = NEW.id; DELETE FROM tenure_hold WHERE id = NEW.id; END`,
		"F33-confirming-under-another-reference-is-refused":                  ended + `2 BEGIN UPDATE tenure_hold SET reference = 'S' WHERE id = NEW.id; END`,
		"an-id-is-not-used-for-anything-else":                                `AFTER INSERT ON tenure_hold BEGIN UPDATE tenure_hold SET ttl = ttl + 1 WHERE id = NEW.id; END`,
	} {
		h := newHoldHarness(t)
		plainExec(t, h.store.Path(), `CREATE TRIGGER twin `+breaks)
		ran := false
		for _, c := range holdtest.Cases() {
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
