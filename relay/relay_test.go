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

func TestCarries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := memory.NewOutbox(memory.Options{}), &sink{}
		post(t, store, false, "a", "b")
		r := start(t, store, s, relay.Options{})
		synctest.Wait()
		want(t, "published", sorted(s.keys()), "[a b]")
		post(t, store, false, "c") // the store hints: it is published before the next look would be
		synctest.Wait()
		want(t, "published", sorted(s.keys()), "[a b c]")
		want(t, "states", states(t, store), "map[delivered:3]")
		want(t, "stopping", r.stop(), "<nil>")
		want(t, "counts", r.Stats().Published, 3)
	})
}

// deaf is a store that gives no hints.
type deaf struct{ outbox.Store }

func TestLooksWithoutHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, s := memory.NewOutbox(memory.Options{}), &sink{}
		r := start(t, deaf{mem}, s, relay.Options{Poll: time.Second})
		synctest.Wait()
		post(t, mem, false, "a")
		synctest.Wait()
		want(t, "before the next look", len(s.keys()), 0)
		<-time.After(1100 * time.Millisecond)
		synctest.Wait()
		want(t, "after it", s.keys(), "[a]")
		post(t, mem, false, "b")
		r.Wake()
		synctest.Wait()
		want(t, "woken", s.keys(), "[a b]")
	})
}

// A failure is held against its own message, which is tried again, and given up in the end; a refusal is at once.
func TestPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		var dead []string
		s := &sink{answer: func(_ context.Context, d outbox.Delivery) error {
			switch d.Key {
			case "bad":
				return errors.New("no")
			case "never":
				return outbox.Refused(errors.New("too old"))
			}
			return nil
		}}
		post(t, store, false, "bad", "never", "a", "b")
		start(t, store, s, relay.Options{MaxAttempts: 3, OnEvent: func(e relay.Event) {
			if e.Kind == relay.GivenUp {
				dead = append(dead, e.Message.Key)
			}
		}})
		synctest.Wait()
		want(t, "at once", states(t, store), "map[pending:1 delivered:2 dead:1]")
		<-time.After(time.Minute)
		synctest.Wait()
		want(t, "in the end", states(t, store), "map[delivered:2 dead:2]")
		want(t, "told", dead, "[never bad]")
		infos, err := store.List(t.Context(), outbox.ListRequest{States: []outbox.State{outbox.Dead}, Limit: 10})
		if err != nil || len(infos[0].Errors) != 3 || len(infos[1].Errors) != 1 || infos[1].Errors[0].Text != "too old" {
			t.Errorf("dead letters: %+v, %v", infos, err)
		}
	})
}

// An outage is held against no message, and the relay asks with one message until it is over.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &calls{Outbox: memory.NewOutbox(memory.Options{})}
		var up atomic.Bool
		var told []relay.Kind
		s := &sink{answer: func(context.Context, outbox.Delivery) error {
			if !up.Load() {
				return outbox.Outage(errors.New("connection refused"))
			}
			return nil
		}}
		post(t, store, false, "a", "b", "c")
		r := start(t, store, s, relay.Options{MaxAttempts: 2, OnEvent: func(e relay.Event) { told = append(told, e.Kind) }})
		<-time.After(10 * time.Minute)
		synctest.Wait()
		want(t, "in the outage", states(t, store), "map[pending:3]")
		if n := r.Stats().Outages; n < 10 || n > 200 {
			t.Errorf("%d probes in ten minutes", n)
		}
		store.mu.Lock()
		for _, limit := range store.limits[1:] {
			want(t, "messages of a probe", limit, 1)
		}
		store.mu.Unlock()
		up.Store(true)
		<-time.After(2 * time.Minute)
		synctest.Wait()
		want(t, "after it", states(t, store), "map[delivered:3]")
		want(t, "told", told, "[outage recovered]")
	})
}

// A sink that panics over one message has not panicked over the others.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		s := &sink{answer: func(_ context.Context, d outbox.Delivery) error {
			if d.Key == "bad" {
				panic("a nil map")
			}
			return nil
		}}
		post(t, store, false, "a", "bad", "b")
		start(t, store, s, relay.Options{MaxAttempts: 2})
		<-time.After(time.Minute)
		synctest.Wait()
		want(t, "states", states(t, store), "map[delivered:2 dead:1]")
	})
}

// What is behind an ordered message that failed is not handed over before it, also where the sink panics.
func TestPanicKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		seen, bad := []string{}, true
		s := &sink{answer: func(_ context.Context, d outbox.Delivery) error {
			if string(d.Payload) == "1" && bad {
				bad = len(seen) == 0
				seen = append(seen, "panic")
				panic("once")
			}
			seen = append(seen, string(d.Payload))
			return nil
		}}
		var all []outbox.Message
		for _, text := range []string{"1", "2"} {
			all = append(all, outbox.Message{Topic: "t", Key: "k", Ordered: true, Payload: []byte(text)})
		}
		if _, err := store.Append(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		start(t, store, s, relay.Options{})
		<-time.After(time.Minute)
		synctest.Wait()
		want(t, "seen", seen, "[panic panic 1 2]")
	})
}

type short struct{ n int }

func (s *short) Publish(_ context.Context, all []outbox.Delivery) []error {
	s.n++
	return make([]error, len(all)-1)
}

func TestSinkThatMiscounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		post(t, store, false, "a", "b")
		start(t, store, &short{}, relay.Options{MaxAttempts: 2})
		<-time.After(time.Minute)
		synctest.Wait()
		want(t, "states", states(t, store), "map[dead:2]")
	})
}

// What became of a batch is said again until the store has heard it, and no longer than its claim.
func TestSettleIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &calls{Outbox: memory.NewOutbox(memory.Options{})}
		store.lose = func(n int) error {
			if n == 1 {
				return &outbox.UnknownError{Op: "settle", Err: errors.New("the connection broke")}
			}
			return nil
		}
		store.settle = func(n int, _ outbox.SettleRequest) error {
			if n == 2 {
				return &outbox.UnavailableError{Op: "settle", Err: errors.New("no connection")}
			}
			return nil
		}
		s := &sink{}
		post(t, store, false, "a")
		r := start(t, store, s, relay.Options{})
		<-time.After(time.Minute)
		synctest.Wait()
		want(t, "published", s.keys(), "[a]")
		want(t, "settlements", store.n, 3)
		want(t, "late", r.Stats().Late, 0)
	})
}

func TestSettleGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &calls{Outbox: memory.NewOutbox(memory.Options{})}
		var back atomic.Bool
		store.settle = func(int, outbox.SettleRequest) error {
			if !back.Load() {
				return &outbox.UnavailableError{Op: "settle", Err: errors.New("no connection")}
			}
			return nil
		}
		s := &sink{}
		post(t, store, false, "a")
		r := start(t, store, s, relay.Options{TTL: 10 * time.Second})
		<-time.After(9 * time.Second)
		synctest.Wait()
		want(t, "unsettled", r.Stats().Unsettled, 1)
		back.Store(true)
		<-time.After(5 * time.Second)
		synctest.Wait()
		want(t, "published again", s.keys(), "[a a]")
		want(t, "states", states(t, store), "map[delivered:1]")
	})
}

// A store that does not answer is asked less and less often.
func TestStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &calls{Outbox: memory.NewOutbox(memory.Options{})}
		var back atomic.Bool
		store.claim = func(int) error {
			if !back.Load() {
				return &outbox.UnavailableError{Op: "claim", Err: errors.New("no connection")}
			}
			return nil
		}
		s := &sink{}
		post(t, store, false, "a")
		start(t, store, s, relay.Options{})
		<-time.After(10 * time.Minute)
		if n := store.looks(); n < 10 || n > 400 {
			t.Errorf("%d looks in ten minutes", n)
		}
		back.Store(true)
		<-time.After(time.Minute)
		synctest.Wait()
		want(t, "published", s.keys(), "[a]")
	})
}

func TestNewRefuses(t *testing.T) {
	store := memory.NewOutbox(memory.Options{})
	for _, o := range []relay.Options{{Batch: 1001}, {Batch: -1}, {TTL: time.Millisecond}, {Margin: time.Minute}, {Margin: -1}, {MaxAttempts: -1}, {Topics: []string{""}}, {Poll: -1}, {Drain: -1}, {Keep: time.Second},
		{RetryFirst: time.Hour}, {Name: string(make([]byte, 300))}} {
		if _, err := relay.New(store, &sink{}, o); !errors.Is(err, relay.ErrInvalid) {
			t.Errorf("%+v: %v; want ErrInvalid", o, err)
		}
	}
	if _, err := relay.New(nil, &sink{}, relay.Options{}); !errors.Is(err, relay.ErrInvalid) {
		t.Errorf("no store: %v", err)
	}
	if _, err := relay.New(deaf{store}, &sink{}, relay.Options{Keep: time.Hour}); !errors.Is(err, relay.ErrInvalid) {
		t.Errorf("a store that cannot prune: %v", err)
	}
}

func TestPrunes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOutbox(memory.Options{})
		post(t, store, false, "a")
		start(t, store, &sink{}, relay.Options{Keep: 5 * time.Minute})
		<-time.After(4 * time.Minute)
		synctest.Wait()
		want(t, "kept", states(t, store), "map[delivered:1]")
		<-time.After(3 * time.Minute)
		synctest.Wait()
		want(t, "pruned", states(t, store), "map[]")
	})
}
