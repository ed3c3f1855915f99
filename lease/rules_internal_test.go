package lease

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// twins runs a check on a rule and demands that it catches the rule's broken twin.
func twins[F any](t *testing.T, check func(F) error, rule, broken F) {
	t.Helper()
	if err := check(rule); err != nil {
		t.Error(err)
	}
	if check(broken) == nil {
		t.Error("the broken twin was not caught")
	}
}

// An authority that answered the moment the request left, and whose reply was slow, has expired the lease at
// sent + left. The belief must end a margin before that, whenever the reply came.
func TestSafeDeadlineCountsFromSending(t *testing.T) {
	type rule func(sent, received, left, margin time.Duration) time.Duration
	check := func(deadline rule) error {
		const left, margin = 15 * time.Second, 1500 * time.Millisecond
		for _, sent := range []time.Duration{0, time.Hour} {
			for _, delay := range []time.Duration{0, 1, time.Second, 14 * time.Second, time.Minute} {
				if got := deadline(sent, sent+delay, left, margin); got > sent+left-margin {
					return fmt.Errorf("sent at %v, answered after %v: believes until %v", sent, delay, got)
				}
			}
		}
		return nil
	}
	twins(t, check,
		func(sent, _, left, margin time.Duration) time.Duration { return safeDeadline(sent, left, margin) },
		func(_, received, left, margin time.Duration) time.Duration { return received + left - margin })
	twins(t, check,
		func(sent, _, left, margin time.Duration) time.Duration { return safeDeadline(sent, left, margin) },
		func(sent, _, left, _ time.Duration) time.Duration { return sent + left })
}

// A renewal whose request was lost leaves time for another one. The twin waits for the first until the deadline.
func TestRenewBoundLeavesTimeToAskAgain(t *testing.T) {
	check := func(bound func(ttl, left time.Duration) time.Duration) error {
		for _, ttl := range []time.Duration{time.Second, 15 * time.Second, time.Hour} {
			left := ttl - ttl/10 - ttl/3 // when the first renewal is sent
			if rest := left - bound(ttl, left); rest < ttl/10 {
				return fmt.Errorf("TTL %v: %v left after one lost renewal", ttl, rest)
			}
			if got := bound(ttl, time.Millisecond); got > time.Millisecond {
				return fmt.Errorf("TTL %v: waits %v past the deadline", ttl, got)
			}
		}
		return nil
	}
	twins(t, check, renewBound, func(_, left time.Duration) time.Duration { return left })
}

// L60: a waiter asks right after the holder's expiry. One twin keeps to its back-off, one waits a TTL of its own.
func TestL60PollAtHoldersExpiry(t *testing.T) {
	type rule func(wait, holderLeft time.Duration) time.Duration
	check := func(poll rule) error {
		for _, left := range []time.Duration{-time.Second, 0, time.Millisecond, 50 * time.Millisecond, 249 * time.Millisecond, time.Hour} {
			for range 100 {
				got := poll(pollMost, left)
				if got > pollMost || got > max(left, 0)+pollPast+pollHerd {
					return fmt.Errorf("%v left: polls after %v", left, got)
				}
				if got <= left && got != pollMost || got < pollPast {
					return fmt.Errorf("%v left: polls after %v, too early to succeed", left, got)
				}
			}
		}
		return nil
	}
	twins(t, check, pollDelay, func(wait, _ time.Duration) time.Duration { return wait })
	twins(t, check, pollDelay, func(_, left time.Duration) time.Duration { return max(left, 0) })
}

func TestDelaysStayInBounds(t *testing.T) {
	for _, ttl := range []time.Duration{MinTTL, 300 * time.Millisecond, 15 * time.Second, MaxTTL} {
		retry := renewRetry(ttl)
		for range 100 {
			if d := renewEvery(ttl); d > ttl/3 || d < ttl/3-ttl/30-1 {
				t.Errorf("TTL %v: renews every %v", ttl, d)
			}
			if d := retry.delay(); d <= 0 || d > max(ttl/6, time.Millisecond) || d > retryMost {
				t.Errorf("TTL %v: retries after %v", ttl, d)
			}
		}
		if got := askBound(ttl); got < boundLeast || got > boundMost {
			t.Errorf("TTL %v: asks for %v", ttl, got)
		}
		if got := endBound(ttl); got < boundLeast || got > boundMost {
			t.Errorf("TTL %v: releases for %v", ttl, got)
		}
	}
	if got := retryDelay(5*time.Second, 15*time.Second, 0); got != 250*time.Millisecond {
		t.Errorf("retries %v before the deadline", got)
	}
}

// What the contract does not name is unknown, never a refusal.
func TestSettled(t *testing.T) {
	for _, err := range []error{nil, &HeldError{}, &EndedError{}, &MismatchError{}, &InvalidError{}, &UnavailableError{}, &fence.AheadError{}} {
		if !settled(err) {
			t.Errorf("%v is not taken as settled", err)
		}
	}
	for _, err := range []error{&UnknownError{}, os.ErrDeadlineExceeded, errors.New("any"), &LostError{}, &UncertainError{}, &WaitEndedError{}} {
		if settled(err) {
			t.Errorf("%v is taken as settled", err)
		}
	}
}

// L65, F4: a step of the wall clock changes nothing for a client, because nothing but the ids reads it ...
func TestL65F4WallClockIsNotRead(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") || file.Name() == "id.go" {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if ok && pkg.Name == "time" && (sel.Sel.Name == "Now" || sel.Sel.Name == "Since" || sel.Sel.Name == "Until") {
				t.Errorf("%s reads time.%s; use the session's clock", file.Name(), sel.Sel.Name)
			}
			return true
		})
	}
}

// ... and ids rise although it steps back by an hour.
func TestL65IDsRiseWhenTheWallClockSteps(t *testing.T) {
	var ids IDs
	before := ids.New()
	ids.last += uint64(time.Hour.Milliseconds()) << 12 // as if the clock had been an hour ahead until now
	for range 10_000 {
		next := ids.New()
		if !before.Less(next) {
			t.Fatalf("%v was made after %v", next, before)
		}
		before = next
	}
}
