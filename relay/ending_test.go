package relay_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/relay"
	"github.com/tenure-go/tenure/store/memory"
)

// When a relay ends, what the destination has is waited for and recorded.
func TestDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		post(t, store, false, "a")
		s := &sink{answer: func(context.Context, outbox.Delivery) error {
			<-time.After(5 * time.Second)
			return nil
		}}
		r := start(t, store, s, relay.Options{})
		synctest.Wait()
		began := time.Now()
		want(t, "stopping", r.stop(), "<nil>")
		want(t, "it took", time.Since(began), "5s")
		want(t, "states", states(t, store), "map[delivered:1]")
	})
}

// A destination that does not return is left behind, and says so; the messages are somebody's again when the claim is over.
func TestLeavesBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		post(t, store, false, "a")
		hang := make(chan struct{})
		s := &sink{answer: func(context.Context, outbox.Delivery) error {
			<-hang
			return nil
		}}
		r := start(t, store, s, relay.Options{Drain: time.Second})
		synctest.Wait()
		var left *relay.DrainError
		if err := r.stop(); !errors.As(err, &left) || left.Messages != 1 {
			t.Errorf("stopping: %v; want a DrainError of one message", err)
		}
		close(hang)
		want(t, "states", states(t, store), "map[pending:1]")
	})
}

// A relay that hangs in its destination past its claim does not hand over anything more under it, and what it says late changes nothing.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		post(t, store, false, "a")
		var told []relay.Kind
		hung := &sink{answer: func(context.Context, outbox.Delivery) error { // it does not heed its context
			<-time.After(time.Minute)
			return errors.New("in the end it failed")
		}}
		slow := start(t, store, hung, relay.Options{Name: "slow", TTL: 10 * time.Second, OnEvent: func(e relay.Event) { told = append(told, e.Kind) }})
		<-time.After(5 * time.Second)
		s := &sink{}
		start(t, store, s, relay.Options{Name: "quick", TTL: 10 * time.Second})
		<-time.After(4 * time.Second)
		synctest.Wait()
		want(t, "before the deadline", len(s.keys()), 0)
		<-time.After(3 * time.Second)
		synctest.Wait()
		want(t, "after it", s.keys(), "[a]")
		<-time.After(time.Minute)
		synctest.Wait()
		want(t, "states", states(t, store), "map[delivered:1]")
		want(t, "told", told, "[hanging late]")
		want(t, "counted", slow.Stats().Late, 1)
		want(t, "counted as hanging", slow.Stats().Hanging, 1)
	})
}

// tardy is a store whose first reply takes longer than the claim that it tells of.
type tardy struct {
	*memory.Outbox
	d time.Duration
}

func (s *tardy) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Batch, error) {
	batch, err := s.Outbox.Claim(ctx, req)
	if len(batch.Deliveries) > 0 {
		<-time.After(s.d)
		s.d = 0
	}
	return batch, err
}

// A reply that comes when the claim may be over is handed over to nobody.
func TestLooksBeforeItHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tardy{memory.NewOutbox(memory.Options{}), 4 * time.Second}
		post(t, store, false, "a")
		s := &sink{}
		r := start(t, store, s, relay.Options{TTL: 4 * time.Second})
		<-time.After(4500 * time.Millisecond)
		synctest.Wait()
		want(t, "claims", r.Stats().Claimed > 1, true)
		want(t, "published", s.keys(), "[a]")
		want(t, "given back", r.Stats().Returned, 1)
		want(t, "attempt", s.got[0].Attempt, 1) // nobody had it before
	})
}

// Any number of relays hand out each message once, while all are well, and keep the order of a key.
func TestManyRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		s := &sink{}
		var keys []string
		for range 20 {
			keys = append(keys, "a", "b", "c")
		}
		for range 4 {
			start(t, store, s, relay.Options{Batch: 2})
		}
		post(t, store, true, keys...)
		<-time.After(time.Minute)
		synctest.Wait()
		want(t, "published", len(s.keys()), len(keys))
		last := map[string]int64{}
		for _, d := range s.got {
			if d.Position < last[d.Key] {
				t.Errorf("%d of %q came after %d", d.Position, d.Key, last[d.Key])
			}
			last[d.Key] = d.Position
		}
	})
}
