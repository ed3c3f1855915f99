package inboxtest_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/inbox/inboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func allCases() []inboxtest.Case[*frail] {
	var all []inboxtest.Case[*frail]
	for _, c := range inboxtest.Cases() {
		all = append(all, inboxtest.Case[*frail]{Name: c.Name, Run: func(ctx context.Context, h *frail) error { return c.Run(ctx, h) }})
	}
	for _, c := range inboxtest.LevelCases() {
		all = append(all, inboxtest.Case[*frail]{Name: c.Name, Run: func(ctx context.Context, h *frail) error { return c.Run(ctx, h) }})
	}
	return all
}

// twin is an inbox that is right but for one fault, and the cases that must catch it.
type twin struct {
	fault    string
	caughtBy []string
}

func by(names ...string) []string { return names }

func twins() []twin {
	const levels = "at-every-level-"
	return []twin{
		{"the note is of its own transaction", by("what-was-rolled-back-is-done-later", "of-two-at-once-the-second-waits-and-is-told-that-it-repeats", "of-two-at-once-the-second-does-what-the-first-rolled-back")},
		{"the note is written after the transaction", by("of-two-at-once-the-second-waits-and-is-told-that-it-repeats", "one-transaction-does-several-messages-each-once")},
		{"the effect stays when it is rolled back", by("what-was-rolled-back-is-done-later")},
		{"the note is kept when the work fails", by("work-that-fails-leaves-no-note-though-the-caller-commits")},
		{"the note is kept when the work panics", by("work-that-panics-leaves-no-note-though-the-caller-commits")},
		{"a panic is swallowed", by("work-that-panics-leaves-no-note-though-the-caller-commits")},
		{"an error is not returned as it is", by("work-that-fails-leaves-no-note-though-the-caller-commits")},
		{"what is repeated is done", by("B51-what-is-delivered-twice-is-done-once", "one-transaction-does-several-messages-each-once")},
		{"the consumer is ignored", by("consumers-are-apart")},
		{"consumer and id are put together", by("consumers-are-apart")},
		{"names know no case", by("consumers-are-apart")},
		{"names are not checked", by("names-are-checked-and-kept-as-they-are")},
		{"the second does it too", by("of-two-at-once-the-second-waits-and-is-told-that-it-repeats", levels+"the-second-waits-and-is-told-that-it-repeats")},
		{"the second does not wait", by("of-two-at-once-the-second-does-what-the-first-rolled-back", levels+"the-second-does-what-the-first-rolled-back")},
		{"a snapshot does it again", by(levels + "what-was-done-after-a-transaction-began-is-not-done-again")},
		{"what is late is not told", by("B52-what-comes-later-than-the-window-is-counted-and-not-done")},
		{"what is late is not counted", by("B52-what-comes-later-than-the-window-is-counted-and-not-done")},
		{"what is repeated is not counted", by("B51-what-is-delivered-twice-is-done-once")},
		{"a redelivery renews the note", by("B52-what-comes-later-than-the-window-is-counted-and-not-done")},
		{"the age is not told", by("B51-what-is-delivered-twice-is-done-once")},
		{"any prune is done", by("nothing-is-forgotten-within-the-window")},
		{"prune takes what is fresh", by("B52-what-is-older-than-asked-is-forgotten-and-nothing-else", "nothing-is-forgotten-within-the-window")},
		{"prune takes what is being done", by("an-open-transaction-holds-up-only-its-own-message")},
		{"prune knows no limit", by("forgetting-stops-at-its-limit")},
	}
}

// TestFrailIsRight demands that the inbox which the twins are made of passes every case.
func TestFrailIsRight(t *testing.T) {
	for _, c := range allCases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := c.Run(t.Context(), newFrail("")); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestBrokenInboxes demands that the named cases catch each fault.
func TestBrokenInboxes(t *testing.T) {
	cases := map[string]inboxtest.Case[*frail]{}
	for _, c := range allCases() {
		if _, twice := cases[c.Name]; twice || c.Name == "" || strings.ContainsAny(c.Name, " /_") {
			t.Errorf("%q is no name for a case: want words joined by '-', and one case", c.Name)
		}
		cases[c.Name] = c
	}
	for _, broken := range twins() {
		t.Run(broken.fault, func(t *testing.T) {
			t.Parallel()
			for _, name := range broken.caughtBy {
				c, ok := cases[name]
				if !ok {
					t.Errorf("no case is named %q", name)
				} else if err := c.Run(t.Context(), newFrail(broken.fault)); err == nil {
					t.Errorf("%q did not catch it", name)
				}
			}
		})
	}
}

// TestEveryFaultIsCaught demands that no fault of the inbox is left out of the table, nor one in the table out of the inbox.
func TestEveryFaultIsCaught(t *testing.T) {
	source, err := os.ReadFile("frail_test.go")
	if err != nil {
		t.Fatal(err)
	}
	faults := map[string]bool{}
	for _, m := range regexp.MustCompile(`f\.is\("([^"]+)"\)`).FindAllSubmatch(source, -1) {
		faults[string(m[1])] = true
	}
	for _, broken := range twins() {
		if !faults[broken.fault] || len(broken.caughtBy) == 0 {
			t.Errorf("the inbox has no fault %q, or no case is named that must catch it", broken.fault)
		}
		delete(faults, broken.fault)
	}
	for fault := range faults {
		t.Errorf("no case is named that must catch %q", fault)
	}
}
