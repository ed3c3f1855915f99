package outboxwatermill_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxwatermill"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// publisher notes what it is given, in the order in which it has acknowledged it.
type publisher struct {
	mu     sync.Mutex
	got    []*message.Message
	topics []string
	most   int // at once
	now    int
	answer func(m *message.Message) error
}

func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	p.mu.Lock()
	p.now++
	p.most = max(p.most, p.now)
	p.mu.Unlock()
	var err error
	if p.answer != nil {
		defer func() { p.mu.Lock(); p.now--; p.mu.Unlock() }()
		err = p.answer(messages[0])
		if err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.got, p.topics = append(p.got, messages...), append(p.topics, topic)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now--
	p.got, p.topics = append(p.got, messages...), append(p.topics, topic)
	return nil
}

func (p *publisher) Close() error { return nil }

func (p *publisher) payloads() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.got {
		all = append(all, string(m.Payload))
	}
	return all
}

// deliveries are ordered messages of a key each: "a1" is the first one of a.
func deliveries(texts ...string) (all []outbox.Delivery) {
	for i, text := range texts {
		all = append(all, outbox.Delivery{Message: outbox.Message{ID: lease.NewID(), Topic: "t", Key: text[:1], Ordered: true, Payload: []byte(text)}, Position: int64(i + 1)})
	}
	return all
}

type build func(to message.Publisher) outbox.Sink

func sound(to message.Publisher) outbox.Sink {
	s, err := outboxwatermill.New(to, outboxwatermill.Options{})
	if err != nil {
		panic(err)
	}
	return s
}

// sinkCases are what a sink is held to; twins of it are each caught by one.
func sinkCases() map[string]func(build) error {
	return map[string]func(build) error{"identity": identity, "order": order, "behind": behind, "deadline": deadline, "panic": panics}
}

// identity: the id is the same on each delivery, and key, position and headers are told.
func identity(fresh build) error {
	p := &publisher{}
	all := deliveries("a1")
	all[0].Headers = map[string]string{"kind": "ticket", outboxwatermill.MetadataKey: "not this"}
	s := fresh(p)
	for range 2 {
		if errs := s.Publish(context.Background(), all); errs[0] != nil {
			return errs[0]
		}
	}
	for i, m := range p.got {
		if m.UUID != all[0].ID.String() || m.Metadata["kind"] != "ticket" || m.Metadata[outboxwatermill.MetadataKey] != "a" || m.Metadata[outboxwatermill.MetadataPosition] != "1" || p.topics[i] != "t" {
			return fmt.Errorf("%s on %s with %v", m.UUID, p.topics[i], m.Metadata)
		}
	}
	return nil
}

// order: a message of a key is not sent before the one before it was acknowledged, although keys go on beside each other.
func order(fresh build) error {
	both := &sync.WaitGroup{}
	both.Add(2)
	p := &publisher{answer: func(m *message.Message) error {
		if m.Payload[1] == '1' { // the first of each key waits for the other's: they are under way at once
			both.Done()
			both.Wait()
		}
		return nil
	}}
	if err := errors.Join(fresh(p).Publish(context.Background(), deliveries("a1", "a2", "b1", "a3", "b2"))...); err != nil {
		return err
	}
	for _, key := range []string{"a", "b"} {
		got := slices.DeleteFunc(p.payloads(), func(s string) bool { return !strings.HasPrefix(s, key) })
		if !slices.IsSorted(got) {
			return fmt.Errorf("acknowledged: %v", got)
		}
	}
	return nil
}

// behind: what is behind one that failed is not sent, and that is held against none of it; what is not ordered is.
func behind(fresh build) error {
	bad := errors.New("too large")
	p := &publisher{answer: func(m *message.Message) error {
		if string(m.Payload) == "a1" {
			return bad
		}
		return nil
	}}
	all := append(deliveries("a1", "a2", "b1", "a3"), outbox.Delivery{Message: outbox.Message{ID: lease.NewID(), Topic: "t", Key: "a", Payload: []byte("a9")}})
	errs := fresh(p).Publish(context.Background(), all)
	sent := p.payloads()
	slices.Sort(sent)
	switch {
	case len(errs) != 5 || !errors.Is(errs[0], bad) || errors.Is(errs[0], outbox.ErrOutage) || errors.Is(errs[0], outbox.ErrRefused):
		return fmt.Errorf("of the failed one: %v", errs)
	case !errors.Is(errs[1], outbox.ErrOutage) || !errors.Is(errs[3], outbox.ErrOutage) || errs[2] != nil || errs[4] != nil || fmt.Sprint(sent) != "[a9 b1]":
		return fmt.Errorf("of the others: %v; sent %v", errs, sent)
	}
	return nil
}

// stopped is a context whose deadline is past and whose timer has not fired.
type stopped struct{ context.Context }

func (stopped) Deadline() (time.Time, bool) { return time.Now(), true }

// deadline: nothing is sent once it is past, whatever timers have done.
func deadline(fresh build) error {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, ctx := range []context.Context{stopped{context.Background()}, over} {
		p := &publisher{}
		errs := fresh(p).Publish(ctx, deliveries("a1", "b1"))
		if len(p.payloads()) > 0 || !errors.Is(errs[0], outbox.ErrOutage) || !errors.Is(errs[1], outbox.ErrOutage) {
			return fmt.Errorf("sent %v, %v", p.payloads(), errs)
		}
	}
	return nil
}

// panics: a publisher that panics over one message has not panicked over the others.
func panics(fresh build) error {
	p := &publisher{answer: func(m *message.Message) error {
		if string(m.Payload) == "a1" {
			panic("a nil map")
		}
		return nil
	}}
	errs := fresh(p).Publish(context.Background(), deliveries("a1", "b1"))
	if errs[0] == nil || errors.Is(errs[0], outbox.ErrOutage) || errs[1] != nil {
		return fmt.Errorf("%v", errs)
	}
	return nil
}

func TestSink(t *testing.T) {
	for name, run := range sinkCases() {
		t.Run(name, func(t *testing.T) {
			if err := run(sound); err != nil {
				t.Error(err)
			}
		})
	}
}

// twin is a sink with one thing wrong.
type twin func(ctx context.Context, all []outbox.Delivery) []error

func (s twin) Publish(ctx context.Context, all []outbox.Delivery) []error { return s(ctx, all) }

// TestBrokenSinksAreCaught: each by the case that is named.
func TestBrokenSinksAreCaught(t *testing.T) {
	for name, c := range map[string]struct {
		by     string
		broken build
	}{
		"a new id on each delivery": {"identity", func(to message.Publisher) outbox.Sink {
			return twin(func(ctx context.Context, all []outbox.Delivery) []error {
				all = slices.Clone(all)
				for i := range all {
					all[i].ID = lease.NewID()
				}
				return sound(to).Publish(ctx, all)
			})
		}},
		"it goes on behind a failed one": {"behind", func(to message.Publisher) outbox.Sink {
			return twin(func(ctx context.Context, all []outbox.Delivery) (errs []error) {
				for i := range all {
					errs = append(errs, sound(to).Publish(ctx, all[i:i+1])...)
				}
				return errs
			})
		}},
		"it does not look at the deadline": {"deadline", func(to message.Publisher) outbox.Sink {
			return twin(func(_ context.Context, all []outbox.Delivery) []error {
				return sound(to).Publish(context.Background(), all)
			})
		}},
	} {
		if err := sinkCases()[c.by](c.broken); err == nil {
			t.Errorf("%s: not caught by %s", name, c.by)
		}
	}
	if err := order(func(to message.Publisher) outbox.Sink { // each message by itself, the first one last
		return twin(func(ctx context.Context, all []outbox.Delivery) []error {
			all = slices.Clone(all)
			slices.Reverse(all)
			return sound(to).Publish(ctx, all)
		})
	}); err == nil {
		t.Error("a sink that turns the order round is not caught by order")
	}
}

// TestConcurrency: no more at once than was said.
func TestConcurrency(t *testing.T) {
	p := &publisher{answer: func(*message.Message) error { return nil }}
	s, err := outboxwatermill.New(p, outboxwatermill.Options{Concurrency: 2, Topic: func(topic string) string { return "prod." + topic }})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Publish(t.Context(), deliveries("a1", "b1", "c1", "d1", "e1"))...); err != nil || p.most > 2 || p.topics[0] != "prod.t" {
		t.Errorf("%v, %d at once, to %v", err, p.most, p.topics)
	}
	if errs := s.Publish(t.Context(), nil); len(errs) != 0 {
		t.Errorf("of nothing: %v", errs)
	}
}

// TestClassify: nothing listens there; and what an application says of its broker's errors goes before.
func TestClassify(t *testing.T) {
	var free net.ListenConfig
	l, err := free.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	var dialer net.Dialer
	p := &publisher{answer: func(m *message.Message) error {
		conn, err := dialer.DialContext(m.Context(), "tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	}}
	if errs := sound(p).Publish(t.Context(), deliveries("a1")); !errors.Is(errs[0], outbox.ErrOutage) {
		t.Errorf("a refused connection: %v", errs)
	}
	s, err := outboxwatermill.New(p, outboxwatermill.Options{Classify: outbox.Refused})
	if err != nil {
		t.Fatal(err)
	}
	if errs := s.Publish(t.Context(), deliveries("a1")); !errors.Is(errs[0], outbox.ErrRefused) {
		t.Errorf("by the application's own: %v", errs)
	}
	for _, o := range []outboxwatermill.Options{{Concurrency: -1}, {Concurrency: 1025}} {
		if _, err := outboxwatermill.New(p, o); !errors.Is(err, outboxwatermill.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := outboxwatermill.New(nil, outboxwatermill.Options{}); !errors.Is(err, outboxwatermill.ErrInvalid) {
		t.Errorf("no publisher: %v", err)
	}
}
