package holdtest_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// twin is a store that is right but for one fault, and the cases that must catch it.
type twin struct {
	fault    string
	caughtBy []string
}

// by names the cases that must catch a fault.
func by(names ...string) []string { return names }

func twins() []twin {
	all := []twin{}
	for _, some := range [][]twin{placeTwins(), limitTwins(), timeTwins(), confirmTwins(), releaseTwins(), stockTwins(), officeTwins()} {
		all = append(all, some...)
	}
	return all
}

func placeTwins() []twin {
	return []twin{
		{"what is free is read before the lock", by("H70-of-a-hundred-holds-on-one-unit-one-wins", "all-or-none-with-many-callers-in-opposite-orders", "F34-two-hundred-callers-for-the-last-unit-with-lost-replies")},
		{"demand is not summed", by("H71-demand-for-one-item-is-summed", "placing-again-under-one-id-is-one-hold")},
		{"a hold has what it can get", by("a-hold-has-all-its-lines-or-none", "a-refused-place-leaves-nothing-behind")},
		{"a refused place uses up its id", by("a-refused-place-leaves-nothing-behind")},
		{"an unknown item is taken for one that is sold out", by("an-item-that-was-never-stocked-is-not-found")},
		{"an id is used again for anything", by("an-id-is-not-used-for-anything-else", "placing-again-under-one-id-is-one-hold")},
		{"an id that is over is used again", by("an-id-that-is-over-is-never-a-new-hold")},
		{"a hold that is over is told as placed", by("an-id-that-is-over-is-never-a-new-hold")},
		{"an id is compared without its actor", by("an-id-is-not-used-for-anything-else")},
		{"an id is compared without its lines", by("an-id-is-not-used-for-anything-else")},
		{"an id is compared without its TTL", by("an-id-is-not-used-for-anything-else")},
		{"an id is looked up before the lock", by("a-hundred-places-under-one-id-are-one-hold")},
		{"placing again is refused", by("placing-again-under-one-id-is-one-hold", "F34-two-hundred-callers-for-the-last-unit-with-lost-replies")},
		{"placing again prolongs it", by("what-is-told-are-durations-by-the-stores-clock")},
		{"a place is not checked", by("a-place-that-makes-no-sense-is-refused")},
		{"the last to expire is told as the next", by("who-is-refused-is-told-of-the-first-item-and-when-it-may-be-free")},
		{"the caller's lines are sorted in place", by("what-is-asked-and-told-is-the-callers-own")},
		{"replies share their lines", by("what-is-asked-and-told-is-the-callers-own")},
		{"the TTL told is what is left", by("what-is-told-are-durations-by-the-stores-clock")},
		{"an ended context is ignored", by("a-call-whose-context-has-ended-changes-nothing")},
		{"the store has no name", by("the-store-says-what-it-keeps")},
	}
}

func limitTwins() []twin {
	return []twin{
		{"limits are ignored", by("an-actor-has-as-many-holds-as-it-may", "an-actor-has-as-many-units-as-it-may")},
		{"limits are read before the lock", by("limits-are-kept-however-many-ask-at-once")},
		{"limits count what has expired", by("an-actor-has-as-many-holds-as-it-may")},
		{"limits count what is sold", by("an-actor-has-as-many-holds-as-it-may", "an-actor-has-as-many-units-as-it-may")},
		{"limits are everybody's together", by("an-actor-has-as-many-holds-as-it-may")},
		{"a limit of units counts lines", by("an-actor-has-as-many-units-as-it-may")},
		{"a limit is passed by one", by("an-actor-has-as-many-holds-as-it-may")},
	}
}

func timeTwins() []twin {
	return []twin{
		{"equality is missed", by("a-hold-expires-at-equality-and-not-before", "at-equality-a-confirmation-is-late", "at-equality-a-hold-is-not-extended-nor-released", "at-equality-what-is-held-is-free")},
		{"a hold expires early", by("a-hold-expires-at-equality-and-not-before", "at-equality-a-confirmation-is-late")},
		{"what has expired still holds", by("H78-an-expired-hold-is-free-without-a-sweeper", "expired-holds-of-many-items-free-all-of-them", "at-equality-what-is-held-is-free")},
		{"an extension revives what has expired", by("what-is-over-is-not-extended", "at-equality-a-hold-is-not-extended-nor-released")},
		{"an extension shortens", by("an-extension-never-shortens")},
		{"an extension is added to what is left", by("an-extension-never-shortens")},
		{"an extension is lost", by("an-extension-never-shortens", "a-call-that-was-cut-off-is-settled-by-repeating-it")},
		{"extend by anybody", by("only-its-actor-extends-a-hold")},
		{"actors know no case", by("only-its-actor-extends-a-hold", "F33-only-its-actor-confirms-a-hold")},
	}
}

func confirmTwins() []twin {
	return []twin{
		{"what has expired is confirmed", by("H73-a-payment-after-the-hold-expired-is-recorded-and-sells-nothing", "H73-a-late-payment-takes-nothing-from-who-came-next", "F32-a-confirmation-and-an-expiry-at-once-agree")},
		{"what has expired is confirmed while it is free", by("H73-a-payment-after-the-hold-expired-is-recorded-and-sells-nothing", "H74-grace-is-off-unless-asked-for-and-ends")},
		{"a late payment is refused", by("H73-a-payment-after-the-hold-expired-is-recorded-and-sells-nothing")},
		{"a late payment is not recorded", by("H73-a-payment-after-the-hold-expired-is-recorded-and-sells-nothing")},
		{"a late payment sells", by("H73-a-payment-after-the-hold-expired-is-recorded-and-sells-nothing", "H73-a-late-payment-takes-nothing-from-who-came-next")},
		{"a late payment is sold when it is told again", by("H73-a-late-payment-is-late-for-ever")},
		{"confirm by anybody", by("F33-only-its-actor-confirms-a-hold")},
		{"confirming twice sells twice", by("F33-confirming-twice-sells-once", "of-many-confirmations-at-once-one-reference-counts")},
		{"references are not compared", by("F33-confirming-under-another-reference-is-refused")},
		{"another reference replaces the first", by("F33-confirming-under-another-reference-is-refused", "of-many-confirmations-at-once-one-reference-counts")},
		{"what was released is sold", by("F33-what-was-released-is-not-confirmed")},
		{"a confirmation reads, then writes", by("F33-a-confirmation-and-a-release-at-once-agree", "of-many-confirmations-at-once-one-reference-counts")},
		{"a confirmation sells the first line", by("H71-demand-for-one-item-is-summed")},
		{"grace never ends", by("H74-grace-is-off-unless-asked-for-and-ends")},
		{"grace takes what others have", by("H74-grace-takes-nothing-from-who-came-next")},
		{"grace looks at the first line", by("H74-grace-takes-nothing-from-who-came-next")},
		{"equality of grace is missed", by("grace-ends-at-equality")},
	}
}

func releaseTwins() []twin {
	return []twin{
		{"release by anybody", by("only-its-actor-releases-a-hold")},
		{"a release is lost", by("releasing-frees-what-is-held-once")},
		{"a release reads, then writes", by("F33-a-confirmation-and-a-release-at-once-agree")},
		{"releasing what is sold frees it", by("F33-what-is-confirmed-or-late-is-not-released")},
		{"what is late is released", by("F33-what-is-confirmed-or-late-is-not-released")},
		{"what has expired is released", by("releasing-what-has-expired-is-success-and-says-so")},
		{"releasing twice is refused", by("releasing-frees-what-is-held-once")},
		{"releasing twice frees twice", by("releasing-frees-what-is-held-once")},
	}
}

func stockTwins() []twin {
	return []twin{
		{"stock is lowered below what is sold", by("stock-is-raised-and-lowered-to-what-is-sold-and-held")},
		{"stock is lowered below what is held", by("stock-is-raised-and-lowered-to-what-is-sold-and-held")},
		{"stock is checked before the lock", by("stock-lowered-and-holds-placed-at-once-agree")},
		{"several items are stocked one by one", by("several-items-are-stocked-all-or-none")},
		{"stocking again forgets what was sold", by("stock-is-raised-and-lowered-to-what-is-sold-and-held")},
		{"the caller's items are sorted in place", by("what-is-asked-and-told-is-the-callers-own")},
		{"items tell nothing as held", by("what-is-held-is-not-free-and-what-is-sold-never-again")},
	}
}

func officeTwins() []twin {
	return []twin{
		{"a list goes by the state as written", by("a-list-holds-what-matches-all-that-is-set")},
		{"a list begins at the id", by("a-list-goes-on-after-an-id")},
		{"a list is of any actor", by("a-list-holds-what-matches-all-that-is-set")},
		{"a list is of any item", by("a-list-holds-what-matches-all-that-is-set")},
		{"a list takes any limit", by("whatever-else-makes-no-sense-is-refused")},
		{"a prefix knows no case", by("items-are-listed-by-prefix-byte-by-byte")},
		{"prune gives back what is sold", by("what-is-sold-stays-sold-when-its-hold-is-forgotten")},
		{"the age counts from the placing", by("what-is-old-enough-is-forgotten-at-equality")},
		{"what is live is forgotten with its time since it was placed", by("only-what-has-been-over-for-so-long-is-forgotten")},
		{"what has expired is never forgotten", by("only-what-has-been-over-for-so-long-is-forgotten")},
		{"what is forgotten is chosen before the lock", by("F35-two-who-forget-at-once-give-back-nothing-twice")},
		{"forgetting knows no limit", by("forgetting-stops-at-its-limit")},
	}
}

// frailHarness is a fresh store with the fault; "" is none.
func frailHarness(fault string, stands bool) *harness {
	h := &harness{}
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) }
	if stands {
		h.clock = &manual{}
		clock = h.clock.read
	}
	s := newFrail(fault, clock)
	h.store, h.office, h.advance = s, s, s.Advance
	return h
}

// TestFrailIsRight demands that the store which the twins are made of passes every case.
func TestFrailIsRight(t *testing.T) {
	for _, c := range allCases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := c.Run(t.Context(), frailHarness("", c.manual)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestBrokenStores demands that the named cases catch each fault.
func TestBrokenStores(t *testing.T) {
	cases := map[string]anyCase{}
	for _, c := range allCases() {
		cases[c.Name] = c
	}
	for _, broken := range twins() {
		t.Run(broken.fault, func(t *testing.T) {
			t.Parallel()
			if len(broken.caughtBy) == 0 {
				t.Error("no case is named that must catch it")
			}
			for _, name := range broken.caughtBy {
				c, ok := cases[name]
				if !ok {
					t.Errorf("no case is named %q", name)
					continue
				}
				if !catches(t.Context(), c, broken) {
					t.Errorf("%q did not catch it", name)
				}
			}
		})
	}
}

// catches runs the case on the broken store. Where calls of several goroutines meet by chance alone, they may need some runs.
func catches(ctx context.Context, c anyCase, broken twin) bool {
	runs := 1
	if strings.Contains(broken.fault, "before the lock") || strings.Contains(broken.fault, "reads, then writes") || strings.Contains(c.Name, "-at-once-") {
		runs = 30
	}
	for range runs {
		if err := c.Run(ctx, frailHarness(broken.fault, c.manual)); err != nil {
			return true
		}
	}
	return false
}

// TestEveryFaultIsCaught demands that no fault of the store is left out of the table, nor one in the table out of the store.
func TestEveryFaultIsCaught(t *testing.T) {
	var source strings.Builder
	for _, file := range []string{"frail_test.go", "frail_hold_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	faults := map[string]bool{"extend by anybody": true, "confirm by anybody": true, "release by anybody": true}
	for _, m := range regexp.MustCompile(`s\.is\("([^"]+)"\)`).FindAllStringSubmatch(source.String(), -1) {
		faults[m[1]] = true
	}
	for _, broken := range twins() {
		if !faults[broken.fault] {
			t.Errorf("the store has no fault %q", broken.fault)
		}
		delete(faults, broken.fault)
	}
	for fault := range faults {
		t.Errorf("no case is named that must catch %q", fault)
	}
}
