package relay_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/relay"
	"github.com/tenure-go/tenure/store/memory"
)

// eager is a store whose hints say nothing: there may always be something.
type eager struct{ *calls }

func (eager) Await(context.Context, time.Duration) (bool, error) { return true, nil }

// cut is a store whose claim's reply takes a second, and is lost where nobody waits for it any more.
type cut struct{ *memory.Outbox }

func (s cut) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Batch, error) {
	batch, err := s.Outbox.Claim(ctx, req)
	select {
	case <-time.After(time.Second):
		return batch, err
	case <-ctx.Done():
		return outbox.Batch{}, &outbox.UnknownError{Op: "claim", Err: ctx.Err()}
	}
}

// TestHintsInVain: a store that hints all the time, here at what is another relay's topic, makes no loop hot, and what comes then is published within Poll.
func TestHintsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &calls{Outbox: memory.NewOutbox(memory.Options{})}
		post(t, store, false, "a")
		s := &sink{}
		start(t, eager{store}, s, relay.Options{Topics: []string{"mine"}, Poll: time.Second})
		<-time.After(time.Minute)
		synctest.Wait()
		if n := store.looks(); n < 30 || n > 100 {
			t.Errorf("%d looks in a minute", n)
		}
		if _, err := store.Append(t.Context(), []outbox.Message{{Topic: "mine", Key: "b"}}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		synctest.Wait()
		want(t, "published", s.keys(), "[b]")
	})
}

// TestWakeInAnOutage: whoever wakes the relay all the time does not make it ask a destination that is away more often.
func TestWakeInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &calls{Outbox: memory.NewOutbox(memory.Options{})}
		post(t, store, false, "a")
		s := &sink{answer: func(context.Context, outbox.Delivery) error { return outbox.Outage(errors.New("connection refused")) }}
		r := start(t, store, s, relay.Options{})
		for range 6000 {
			r.Wake()
			<-time.After(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := r.Stats().Outages; n < 3 || n > 60 {
			t.Errorf("%d looks at the destination in a minute", n)
		}
	})
}

// TestGivesBackWhatIsBeingClaimed: a claim that is on its way when the relay is stopped is waited for, and what it brings is given back.
func TestGivesBackWhatIsBeingClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cut{memory.NewOutbox(memory.Options{})}
		post(t, store, false, "a")
		s := &sink{}
		r := start(t, store, s, relay.Options{})
		synctest.Wait()
		want(t, "stopping", r.stop(), "<nil>")
		want(t, "handed over", len(s.keys()), 0)
		all, err := store.List(t.Context(), outbox.ListRequest{Limit: 1})
		if err != nil || all[0].Claimed != 0 || all[0].Attempts != 0 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestLateIsNotGivenUp: of a message that is another claim's by now nobody is told that it was given up.
func TestLateIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		post(t, store, false, "a")
		var gaveUp atomic.Int32
		hung := &sink{answer: func(context.Context, outbox.Delivery) error {
			<-time.After(time.Minute)
			return outbox.Refused(errors.New("too old"))
		}}
		start(t, store, hung, relay.Options{TTL: 10 * time.Second, OnEvent: func(e relay.Event) {
			if e.Kind == relay.GivenUp {
				gaveUp.Add(1)
			}
		}})
		<-time.After(time.Second)
		start(t, store, &sink{}, relay.Options{TTL: 10 * time.Second})
		<-time.After(2 * time.Minute)
		synctest.Wait()
		want(t, "states", states(t, store), "map[delivered:1]")
		want(t, "told that it was given up", gaveUp.Load(), 0)
	})
}
