package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/relay"
	"github.com/tenure-go/tenure/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink notes what it is given, and answers as a test says.
type sink struct {
	mu     sync.Mutex
	got    []outbox.Delivery
	calls  int
	answer func(ctx context.Context, d outbox.Delivery) error // nil: all are acknowledged
}

func (s *sink) Publish(ctx context.Context, all []outbox.Delivery) []error {
	s.mu.Lock()
	s.calls++
	s.got = append(s.got, all...)
	answer := s.answer
	s.mu.Unlock()
	results := make([]error, len(all))
	for i, d := range all {
		if answer != nil {
			results[i] = answer(ctx, d)
		}
	}
	return results
}

func (s *sink) keys() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.got {
		keys = append(keys, d.Key)
	}
	return keys
}

// post appends one message for each key.
func post(t testing.TB, store outbox.Store, ordered bool, keys ...string) {
	t.Helper()
	var all []outbox.Message
	for _, k := range keys {
		all = append(all, outbox.Message{ID: lease.NewID(), Topic: "t", Key: k, Ordered: ordered, Payload: []byte(k)})
	}
	if _, err := store.Append(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

// running is a relay at work until the test, or stop, ends it.
type running struct {
	*relay.Relay
	stop func() error
}

func start(t testing.TB, store outbox.Store, s outbox.Sink, o relay.Options) *running {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	r, err := relay.New(store, s, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		var left *relay.DrainError
		if err := stop(); err != nil && !errors.As(err, &left) {
			t.Error(err)
		}
	})
	return &running{r, stop}
}

// states counts the messages in each state.
func states(t testing.TB, office outbox.Office) map[outbox.State]int {
	t.Helper()
	all, err := office.List(t.Context(), outbox.ListRequest{Limit: outbox.MaxList})
	if err != nil {
		t.Fatal(err)
	}
	n := map[outbox.State]int{}
	for _, i := range all {
		n[i.State]++
	}
	return n
}

func want(t testing.TB, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v; want %v", what, got, want)
	}
}

// calls notes the store's calls, and breaks some.
type calls struct {
	*memory.Outbox
	mu     sync.Mutex
	claims []time.Time
	limits []int
	settle func(n int, req outbox.SettleRequest) error // before the call
	lose   func(n int) error                           // its reply
	claim  func(n int) error
	n      int
}

func (c *calls) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Batch, error) {
	c.mu.Lock()
	c.claims, c.limits = append(c.claims, time.Now()), append(c.limits, req.Limit)
	n := len(c.claims)
	c.mu.Unlock()
	if c.claim != nil {
		if err := c.claim(n); err != nil {
			return outbox.Batch{}, err
		}
	}
	return c.Outbox.Claim(ctx, req)
}

func (c *calls) Settle(ctx context.Context, req outbox.SettleRequest) (outbox.Settled, error) {
	c.mu.Lock()
	c.n++
	n := c.n
	c.mu.Unlock()
	if c.settle != nil {
		if err := c.settle(n, req); err != nil {
			return outbox.Settled{}, err
		}
	}
	done, err := c.Outbox.Settle(ctx, req)
	if c.lose != nil && err == nil {
		err = c.lose(n)
	}
	return done, err
}

func (c *calls) looks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.claims)
}

func sorted(keys []string) []string {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	return keys
}
