package fresh

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/internal/clock"
)

// agesInABubble holds the clock of a cache to a bubble's time.
func agesInABubble(t *testing.T, source func() time.Duration) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c, failed := New(options{TTL: 10 * time.Second, Clock: source, Load: func(context.Context, string) (int, error) { n++; return n, nil }})
		if failed != nil {
			t.Fatal(failed)
		}
		for want := 1; want <= 3; want++ {
			v, failed := c.Get(t.Context(), "a")
			if failed != nil || v.V != want || v.Age != 0 {
				err = fmt.Errorf("load %d: %+v, %w", want, v, failed)
			}
			<-time.After(10 * time.Second)
		}
	})
	return err
}

// TestTheUsualClockAgesInABubble: a cache that is given no clock goes by the bubble's where it is made in one.
func TestTheUsualClockAgesInABubble(t *testing.T) {
	if err := agesInABubble(t, nil); err != nil {
		t.Error(err)
	}
}

// TestAClockThatLeavesTheBubbleIsCaught: it does not pass [TestTheUsualClockAgesInABubble].
func TestAClockThatLeavesTheBubbleIsCaught(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // there is none
	}
	if err := agesInABubble(t, clock.Boot()); err == nil {
		t.Error("it passes")
	}
}

// TestALoadIsNobodysAttempt: what a load sends does not claim to be its first caller's second attempt, and may be repeated by the load although that caller must not repeat: others wait for it too.
func TestALoadIsNobodysAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := budget.Start(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer b.End()
		sent, calls := []budget.Wire{}, 0
		c := open(t, options{TTL: time.Minute, Load: func(ctx context.Context, _ string) (int, error) {
			w, err := budget.Outgoing(ctx)
			if err != nil {
				return 0, err
			}
			sent = append(sent, w)
			return 1, budget.Do(ctx, budget.Policy{Base: 1, Most: 1}, func(context.Context) error {
				if calls++; calls < 3 {
					return &budget.Error{Class: budget.NotSent, Err: errTest}
				}
				return nil
			})
		}})
		err = budget.Do(b.Context(), budget.Policy{NoRetryBelow: true, Base: 1, Most: 1}, func(ctx context.Context) error {
			if budget.AttemptNumber(ctx) == 1 {
				return &budget.Error{Class: budget.NotSent, Err: errTest}
			}
			_, err := c.Get(ctx, "a")
			return err
		})
		if err != nil || len(sent) != 1 || sent[0].Attempt != 0 || sent[0].NoRetry || sent[0].Remaining != 10*time.Second || calls != 3 {
			t.Errorf("%v; sent %+v, %d calls", err, sent, calls)
		}
	})
}
