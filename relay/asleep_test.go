package relay_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/relay"
	"github.com/tenure-go/tenure/store/memory"
)

// TestMachineSleepsInAHandOver: a sink that looks at its context before each message sends nothing after the machine has slept past the claim, though no timer of Go's has run meanwhile, and what it derives from the context has ended too.
func TestMachineSleepsInAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		post(t, store, false, "a", "b")
		var slept atomic.Int64
		began := time.Now()
		var sent []string
		over := 0
		s := &sink{answer: func(ctx context.Context, d outbox.Delivery) error {
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			if err := ctx.Err(); err != nil {
				if derived.Err() == nil || !errors.Is(err, context.Cause(ctx)) {
					t.Errorf("%v: what is derived from it says %v, and its cause is %v", err, derived.Err(), context.Cause(ctx))
				}
				<-ctx.Done()
				over++
				return outbox.Outage(err)
			}
			sent = append(sent, d.Key)
			if d.Key == "a" {
				slept.Store(int64(time.Minute))
			}
			return nil
		}}
		r, err := relay.New(store, s, relay.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			t.Fatal(err)
		}
		r.SetClock(func() time.Duration { return time.Since(began) + time.Duration(slept.Load()) })
		stop := runs(t, genuine{r})
		synctest.Wait()
		stop()
		want(t, "sent", sent, "[a b]") // b under another claim
		want(t, "not sent, because the claim was over", over, 1)
		want(t, "in the end", states(t, store), "map[delivered:2]")
	})
}

// still is a store whose wait ends at once and tells nothing, as the contract allows.
type still struct{ *calls }

func (still) Await(context.Context, time.Duration) (bool, error) { return false, nil }

// lost is a store whose wait does not end when it should.
type lost struct{ *calls }

func (lost) Await(ctx context.Context, _ time.Duration) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

// TestWaitsThatAreNone: neither a wait that ends at once nor one that does not end makes the relay hot, or deaf.
func TestWaitsThatAreNone(t *testing.T) {
	for name, breaks := range map[string]func(*calls) outbox.Store{"ends at once": func(c *calls) outbox.Store { return still{c} }, "does not end": func(c *calls) outbox.Store { return lost{c} }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &calls{Outbox: memory.NewOutbox(memory.Options{})}
				s := &sink{}
				start(t, breaks(store), s, relay.Options{})
				<-time.After(time.Minute)
				post(t, store, false, "a")
				<-time.After(10 * time.Second)
				synctest.Wait()
				want(t, "published", s.keys(), "[a]")
				if n := store.looks(); n < 5 || n > 150 {
					t.Errorf("%d looks in 70 seconds", n)
				}
			})
		})
	}
}

// TestEndsWhileTheStoreIsAway: what cannot be recorded does not keep Run for longer than Drain, however long the claim is.
func TestEndsWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &calls{Outbox: memory.NewOutbox(memory.Options{}), settle: func(int, outbox.SettleRequest) error {
			return &outbox.UnavailableError{Op: "settle", Err: errors.New("no connection")}
		}}
		post(t, store, false, "a")
		r := start(t, store, &sink{}, relay.Options{TTL: time.Hour})
		<-time.After(5 * time.Minute)
		began := time.Now()
		want(t, "stopping", r.stop(), "<nil>")
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("it took %v", took)
		}
		want(t, "unsettled", r.Stats().Unsettled, 1)
	})
}

// TestLeavesAlone: a destination that asks for more than the relay would rest gets it, up to ten minutes.
func TestLeavesAlone(t *testing.T) {
	for asked, most := range map[time.Duration]int{2 * time.Minute: 30, 24 * time.Hour: 6, 0: 1000} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewOutbox(memory.Options{})
			post(t, store, false, "a")
			s := &sink{answer: func(context.Context, outbox.Delivery) error { return outbox.OutageFor(errors.New("too many"), asked) }}
			r := start(t, store, s, relay.Options{})
			<-time.After(59 * time.Minute)
			if n := r.Stats().Outages; n > int64(most) || n < int64(most)-1 && asked > 0 {
				t.Errorf("%v: asked %d times in an hour", asked, n)
			}
		})
	}
}

// TestTimeoutsInAnOutage: a destination that refuses connections and now and then only hangs is away all the time, and is told so once.
func TestTimeoutsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		post(t, store, false, "a", "b", "c")
		n := 0
		s := &sink{answer: func(context.Context, outbox.Delivery) error {
			if n++; n > 3 && n%4 == 0 {
				return errors.New("no answer in time")
			}
			return outbox.Outage(errors.New("connection refused"))
		}}
		var told []relay.Kind
		start(t, store, s, relay.Options{OnEvent: func(e relay.Event) { told = append(told, e.Kind) }})
		<-time.After(10 * time.Minute)
		synctest.Wait()
		want(t, "told", told, "[outage]")
	})
}

// TestPanicAtTheEnd: a sink that hangs past the claim and then panics has been handed the messages, which is held against them.
func TestPanicAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		post(t, store, false, "a", "b")
		s := &sink{answer: func(ctx context.Context, _ outbox.Delivery) error {
			<-ctx.Done()
			panic("in the end")
		}}
		start(t, store, s, relay.Options{TTL: time.Second, MaxAttempts: 3})
		<-time.After(time.Minute)
		synctest.Wait()
		want(t, "states", states(t, store), "map[dead:2]")
	})
}

// brief is a store whose claims are nearly over when they are told.
type brief struct{ *calls }

func (s brief) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Batch, error) {
	batch, err := s.calls.Claim(ctx, req)
	batch.Left = time.Millisecond
	return batch, err
}

// TestNoTimeLeft: claims that leave no time to hand anything over make the relay no hot loop, and attempts of no message.
func TestNoTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &calls{Outbox: memory.NewOutbox(memory.Options{})}
		post(t, store, false, "a")
		s := &sink{}
		start(t, brief{store}, s, relay.Options{})
		<-time.After(time.Minute)
		synctest.Wait()
		if n := store.looks(); n < 3 || n > 60 || len(s.keys()) > 0 {
			t.Errorf("%d looks in a minute, and %v were handed over", n, s.keys())
		}
		want(t, "states", states(t, store), "map[pending:1]")
	})
}
