package outboxtest_test

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
	all := claimTwins()
	all = append(all, orderTwins()...)
	all = append(all, deadTwins()...)
	all = append(all, appendTwins()...)
	all = append(all, officeTwins()...)
	return append(all, otherTwins()...)
}

func claimTwins() []twin {
	return []twin{
		{"a claim is not exclusive", by("what-is-appended-is-handed-out-once", "F27-a-claim-is-over-at-its-deadline-and-not-earlier", "of-many-claims-at-once-each-message-is-in-one")},
		{"what is free is read before the lock", by("of-many-claims-at-once-each-message-is-in-one", "B28-two-relays-and-ten-messages-of-one-key-keep-its-order")},
		{"a claim ends early", by("F27-a-claim-is-over-at-its-deadline-and-not-earlier", "a-claim-expires-at-equality-and-not-before")},
		{"a claim never ends", by("F27-a-claim-is-over-at-its-deadline-and-not-earlier")},
		{"equality is missed", by("a-claim-expires-at-equality-and-not-before", "what-is-old-enough-is-forgotten-at-equality")},
		{"the TTL is ignored", by("a-claim-lasts-as-long-as-it-asked")},
		{"attempts are not counted", by("F27-a-claim-is-over-at-its-deadline-and-not-earlier", "F31-what-fails-is-given-up-after-so-many-attempts")},
		{"what is returned is counted", by("what-is-returned-untried-is-not-counted", "the-last-attempt-may-be-returned-and-had-again")},
		{"what was lost is not recorded", by("F27-a-claim-is-over-at-its-deadline-and-not-earlier", "F31-what-its-relays-do-not-survive-is-given-up-too")},
		{"a verdict is taken by position alone", by("F28-a-late-verdict-changes-nothing-and-is-told")},
		{"a verdict is refused after the deadline", by("B55-a-verdict-after-the-deadline-counts-while-nobody-else-has-claimed")},
		{"a verdict that is repeated is late", by("a-verdict-may-be-said-again")},
		{"a second verdict replaces the first", by("a-verdict-may-be-said-again", "what-is-given-up-is-dead-until-somebody-retries-it")},
		{"a verdict is checked before the lock", by("of-verdicts-said-at-once-one-counts")},
		{"what is late is not told", by("F28-a-late-verdict-changes-nothing-and-is-told", "verdicts-about-nothing-known-are-late")},
		{"back-off is ignored", by("what-has-failed-is-handed-out-after-its-back-off")},
		{"what backs off is due too early", by("what-has-failed-is-handed-out-after-its-back-off", "what-backs-off-is-due-at-equality-and-not-before")},
		{"the limit is ignored", by("a-claim-gets-no-more-than-its-limit")},
		{"bytes are ignored", by("a-claim-gets-no-more-bytes-than-its-limit")},
		{"what is too large never fits", by("one-message-always-fits")},
		{"topics are ignored", by("a-claim-gets-the-topics-that-it-names")},
		{"a batch is in any order", by("what-is-appended-is-handed-out-once", "an-ordered-key-is-handed-out-in-order")},
		{"every delivery has an id of its own", by("F29-every-delivery-of-a-message-has-the-same-id")},
		{"who comes first comes first each time", by("what-is-returned-each-time-keeps-nobody-waiting", "a-key-that-is-returned-each-time-keeps-nobody-waiting", "what-was-lost-twice-does-not-wait-for-what-is-returned-each-time")},
		{"a claim is not checked", by("a-claim-that-makes-no-sense-is-refused")},
		{"a settlement is not checked", by("a-settlement-that-makes-no-sense-is-refused-whole")},
	}
}

func orderTwins() []twin {
	return []twin{
		{"the order of a key is ignored", by("a-live-claim-holds-up-its-key-and-no-other", "what-backs-off-holds-up-its-key-and-no-other", "B28-two-relays-and-ten-messages-of-one-key-keep-its-order")},
		{"a live claim does not hold up its key", by("a-live-claim-holds-up-its-key-and-no-other", "what-is-retried-goes-before-what-is-behind-it")},
		{"what backs off does not hold up its key", by("what-backs-off-holds-up-its-key-and-no-other")},
		{"a key holds up every key", by("a-live-claim-holds-up-its-key-and-no-other", "what-backs-off-holds-up-its-key-and-no-other")},
		{"a key is one in every topic", by("a-live-claim-holds-up-its-key-and-no-other")},
		{"unordered messages wait for their key", by("unordered-messages-of-a-key-do-not-wait")},
		{"a failing head leaves those behind in the claim", by("what-fails-or-is-returned-takes-those-behind-with-it")},
		{"what is dead holds up its key for ever", by("what-is-dead-lets-its-key-go-on")},
		{"what is retried goes to the end", by("what-is-retried-goes-before-what-is-behind-it")},
		{"what is moved waits for what was put off", by("what-is-replayed-of-a-key-does-not-wait-for-what-was-put-off-behind-it", "what-is-retried-of-a-key-does-not-wait-for-what-was-put-off-behind-it")},
	}
}

func deadTwins() []twin {
	return []twin{
		{"poison is never dead", by("F31-what-fails-is-given-up-after-so-many-attempts", "F31-what-its-relays-do-not-survive-is-given-up-too", "B40-one-that-always-fails-among-a-thousand-is-given-up-alone")},
		{"nobody is given up at once", by("what-is-given-up-is-dead-until-somebody-retries-it", "what-is-dead-lets-its-key-go-on")},
		{"suspects are not alone", by("what-was-lost-twice-is-handed-out-alone")},
		{"a verdict does not end what was lost in a row", by("a-verdict-ends-what-was-lost-in-a-row")},
		{"errors are kept without end", by("the-newest-errors-are-kept-and-cut")},
		{"errors are not cut", by("the-newest-errors-are-kept-and-cut")},
		{"the oldest errors are kept", by("the-newest-errors-are-kept-and-cut")},
	}
}

func appendTwins() []twin {
	return []twin{
		{"one id twice is written twice", by("the-same-message-again-is-not-written-again", "many-appends-of-one-message-at-once-are-one")},
		{"an id is looked up before the lock", by("many-appends-of-one-message-at-once-are-one")},
		{"a mismatch is missed", by("an-id-is-not-used-for-another-message", "an-append-is-all-or-none", "a-mismatch-in-a-transaction-leaves-nothing-of-it")},
		{"headers are not compared", by("an-id-is-not-used-for-another-message")},
		{"an append is written one by one", by("an-append-is-all-or-none", "an-id-is-not-used-for-another-message")},
		{"an append is not checked", by("a-message-that-makes-no-sense-is-refused")},
		{"chosen ids are the same", by("a-message-without-an-id-gets-one")},
		{"what is given is shared", by("what-is-told-and-given-is-the-callers-own")},
		{"replies share what is kept", by("what-is-told-and-given-is-the-callers-own")},
		{"what was rolled back is delivered", by("F30-what-was-rolled-back-was-never-there")},
		{"what was committed is lost", by("what-was-committed-is-there")},
		{"what is in an open transaction is delivered", by("an-open-transaction-shows-nothing-and-holds-up-nobody", "B26-what-commits-late-is-not-passed-over")},
		{"who appends to a key waits for nobody", by("those-who-append-to-one-key-wait-for-each-other")},
		{"a cursor goes by the highest position", by("B26-what-commits-late-is-not-passed-over", "B31-a-transaction-of-ten-minutes-holds-up-no-other-key")},
	}
}

func officeTwins() []twin {
	const which = "a-retry-and-a-replay-are-of-what-matches-all-that-is-set"
	return []twin{
		{"a paused topic is claimed", by("a-paused-topic-is-not-claimed-and-loses-nothing")},
		{"a pause loses what is appended", by("a-paused-topic-is-not-claimed-and-loses-nothing")},
		{"a pause ends claims", by("what-is-claimed-when-its-topic-is-paused-is-settled")},
		{"the pause of every topic is of none", by("a-pause-of-every-topic-is-apart-from-that-of-one")},
		{"the first reason stays", by("a-paused-topic-is-not-claimed-and-loses-nothing")},
		{"prune takes what is pending", by("B52-what-is-over-for-long-enough-is-forgotten-and-nothing-else")},
		{"dead letters are not kept", by("B52-what-is-over-for-long-enough-is-forgotten-and-nothing-else")},
		{"the age counts from the append", by("B52-what-is-over-for-long-enough-is-forgotten-and-nothing-else")},
		{"prune knows no limit", by("forgetting-stops-at-its-limit")},
		{"replay takes what is dead", by("only-what-is-dead-is-retried-and-only-what-is-delivered-replayed")},
		{"replay takes what is pending", by("only-what-is-dead-is-retried-and-only-what-is-delivered-replayed")},
		{"retry takes what is delivered", by("only-what-is-dead-is-retried-and-only-what-is-delivered-replayed")},
		{"replay changes the id", by("what-is-replayed-is-pending-as-new-with-its-id")},
		{"retry keeps the attempts", by("what-is-retried-is-pending-with-no-attempts")},
		{"an old claim outlives a move", by("a-verdict-from-before-a-retry-or-a-replay-is-late")},
		{"a topic is not looked at", by(which, "a-list-holds-what-matches-all-that-is-set")},
		{"a key is not looked at", by(which, "a-list-holds-what-matches-all-that-is-set")},
		{"a range is not looked at", by(which)},
		{"ids are not looked at", by(which)},
		{"when it ended is not looked at", by(which)},
		{"moves know no limit", by("a-retry-and-a-replay-stop-at-their-limit")},
		{"a list is of any state", by("a-list-holds-what-matches-all-that-is-set")},
		{"a list begins at the position", by("a-list-goes-on-after-a-position")},
		{"bodies are told unasked", by("bodies-are-told-when-asked-for")},
		{"what is claimed is not counted as pending", by("topics-are-counted-with-their-oldest")},
		{"an operator is not checked", by("what-an-operator-asks-that-makes-no-sense-is-refused")},
	}
}

func otherTwins() []twin {
	return []twin{
		{"an ended context is ignored", by("a-call-whose-context-has-ended-changes-nothing")},
		{"the store has no name", by("the-store-says-what-it-keeps")},
		{"an append wakes nobody", by("an-append-wakes-who-waits")},
		{"a wait never waits", by("who-waits-for-nothing-waits-as-long-as-it-said", "what-is-held-up-wakes-nobody-all-the-time", "what-is-of-anothers-topic-wakes-nobody-all-the-time")},
		{"a wait outlives its context", by("a-wait-ends-with-its-context")},
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
	h.store, h.office, h.waker, h.advance, h.begin = s, s, s, s.Advance, s.Begin
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
	if strings.Contains(broken.fault, "before the lock") || strings.Contains(c.Name, "at-once") || strings.Contains(c.Name, "-relays-") {
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
	for _, file := range []string{"frail_test.go", "frail_claim_test.go", "frail_office_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	faults := map[string]bool{}
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
