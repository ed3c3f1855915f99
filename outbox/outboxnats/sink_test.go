package outboxnats_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxnats"
	"github.com/tenure-go/tenure/relay"
	"github.com/tenure-go/tenure/store/memory"
)

// broker is an embedded server on a port of its own, which can be stopped and started again over the same folder.
type broker struct {
	t      *testing.T
	folder string
	port   int
	s      *server.Server
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{t: t, folder: t.TempDir(), port: server.RANDOM_PORT}
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *broker) start() {
	b.t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: b.port, JetStream: true, StoreDir: b.folder, NoLog: true, NoSigs: true, MaxPayload: 64 << 10})
	if err != nil {
		b.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		b.t.Fatal("the server did not start")
	}
	b.s = s
	if _, port, ok := strings.Cut(s.Addr().String(), ":"); ok {
		_, _ = fmt.Sscan(port, &b.port)
	}
}

func (b *broker) stop() {
	b.s.Shutdown()
	b.s.WaitForShutdown()
}

func (b *broker) connect(options ...nats.Option) *nats.Conn {
	b.t.Helper()
	all := append([]nats.Option{nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0)}, options...)
	conn, err := nats.Connect(b.s.ClientURL(), all...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(conn.Close)
	return conn
}

// stream makes one that takes orders.> and returns it.
func (b *broker) stream(conn *nats.Conn, c jetstream.StreamConfig) jetstream.Stream {
	b.t.Helper()
	js, err := jetstream.New(conn)
	if err != nil {
		b.t.Fatal(err)
	}
	c.Name, c.Subjects = "ORDERS", []string{"orders.>"}
	stream, err := js.CreateStream(b.t.Context(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	return stream
}

// stored is the payloads in the stream's order.
func (b *broker) stored(stream jetstream.Stream) (all []string) {
	b.t.Helper()
	info, err := stream.Info(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for n := info.State.FirstSeq; n > 0 && n <= info.State.LastSeq; n++ {
		m, err := stream.GetMsg(b.t.Context(), n)
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, string(m.Data))
	}
	return all
}

func deliveries(texts ...string) (all []outbox.Delivery) {
	for i, text := range texts {
		all = append(all, outbox.Delivery{Message: outbox.Message{ID: lease.NewID(), Topic: "orders.new", Key: text[:1], Ordered: true, Payload: []byte(text)}, Position: int64(i + 1)})
	}
	return all
}

func newSink(t *testing.T, conn *nats.Conn, o outboxnats.Options) *outboxnats.Sink {
	t.Helper()
	s, err := outboxnats.New(conn, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestStoresOnce: what is published twice under one id is stored once, with its headers, and the order of keys is kept.
func TestStoresOnce(t *testing.T) {
	b := newBroker(t)
	conn := b.connect()
	stream := b.stream(conn, jetstream.StreamConfig{})
	s := newSink(t, conn, outboxnats.Options{})
	all := deliveries("a1", "b1", "a2", "a3", "b2")
	all[0].Headers = map[string]string{"kind": "ticket, printed", "Empty": ""}
	for range 2 {
		if err := errors.Join(s.Publish(within(t), all)...); err != nil {
			t.Fatal(err)
		}
	}
	got := b.stored(stream)
	if len(got) != 5 {
		t.Errorf("stored: %v", got)
	}
	for _, key := range []string{"a", "b"} {
		of := slices.DeleteFunc(slices.Clone(got), func(text string) bool { return !strings.HasPrefix(text, key) })
		if !slices.IsSorted(of) {
			t.Errorf("of %s: %v", key, of)
		}
	}
	m, err := stream.GetMsg(t.Context(), uint64(1+slices.Index(got, "a1")))
	if err != nil {
		t.Fatal(err)
	}
	empty, there := m.Header["Empty"]
	if m.Header.Get(jetstream.MsgIDHeader) != all[0].ID.String() || m.Header.Get(outboxnats.HeaderKey) != "a" || m.Header.Get(outboxnats.HeaderPosition) != "1" || m.Header["kind"][0] != "ticket, printed" || !there || empty[0] != "" {
		t.Errorf("headers: %v", m.Header)
	}
}

// TestNewIDIsStoredTwice: the broken twin of [TestStoresOnce]: with a new id on each delivery the stream cannot know the second one.
func TestNewIDIsStoredTwice(t *testing.T) {
	b := newBroker(t)
	conn := b.connect()
	stream := b.stream(conn, jetstream.StreamConfig{})
	s := newSink(t, conn, outboxnats.Options{})
	for range 2 {
		if err := errors.Join(s.Publish(within(t), deliveries("a1"))...); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.stored(stream); len(got) != 2 {
		t.Errorf("stored: %v", got)
	}
}

// TestNoStream: an outage that says what to do, held against no message.
func TestNoStream(t *testing.T) {
	b := newBroker(t)
	errs := newSink(t, b.connect(), outboxnats.Options{}).Publish(within(t), deliveries("a1"))
	if !errors.Is(errs[0], outbox.ErrOutage) || !strings.Contains(errs[0].Error(), `"orders.new": create one`) {
		t.Errorf("%v", errs)
	}
}

// TestRefused: what JetStream has no place for is never sent, and what is too large is not sent again.
func TestRefused(t *testing.T) {
	b := newBroker(t)
	conn := b.connect()
	stream := b.stream(conn, jetstream.StreamConfig{MaxMsgSize: 1 << 10})
	for name, change := range map[string]func(d *outbox.Delivery){
		"too large for the stream": func(d *outbox.Delivery) { d.Payload = bytes.Repeat([]byte{1}, 2<<10) },
		"too large for the server": func(d *outbox.Delivery) { d.Payload = bytes.Repeat([]byte{1}, 65<<10) },
		"the server's subject":     func(d *outbox.Delivery) { d.Topic = "$JS.API.STREAM.DELETE.ORDERS" },
		"a wildcard":               func(d *outbox.Delivery) { d.Topic = "orders.*" },
		"an empty part":            func(d *outbox.Delivery) { d.Topic = "orders..new" },
		"a space":                  func(d *outbox.Delivery) { d.Topic = "orders.a b" },
		"an order to the server":   func(d *outbox.Delivery) { d.Headers = map[string]string{"nats-rollup": "all"} },
		"our own header":           func(d *outbox.Delivery) { d.Headers = map[string]string{"tenure-key": "x"} },
		"a name with a colon":      func(d *outbox.Delivery) { d.Headers = map[string]string{"a:b": "x"} },
		"lines":                    func(d *outbox.Delivery) { d.Headers = map[string]string{"a": "x\r\nNats-Rollup: all"} },
		"a space that is lost":     func(d *outbox.Delivery) { d.Headers = map[string]string{"a": "x "} },
		"a key's space":            func(d *outbox.Delivery) { d.Key = " a" },
	} {
		all := deliveries("a1")
		change(&all[0])
		if errs := newSink(t, conn, outboxnats.Options{}).Publish(within(t), all); !errors.Is(errs[0], outbox.ErrRefused) {
			t.Errorf("%s: %v", name, errs)
		}
	}
	if got := b.stored(stream); len(got) > 0 {
		t.Errorf("stored: %d", len(got))
	}
}

// TestFull: a stream that takes no more is an outage.
func TestFull(t *testing.T) {
	b := newBroker(t)
	conn := b.connect()
	stream := b.stream(conn, jetstream.StreamConfig{MaxMsgs: 1, Discard: jetstream.DiscardNew})
	errs := newSink(t, conn, outboxnats.Options{}).Publish(within(t), deliveries("a1", "a2", "a3"))
	if got := b.stored(stream); errs[0] != nil || !errors.Is(errs[1], outbox.ErrOutage) || !errors.Is(errs[2], outbox.ErrOutage) || len(got) != 1 {
		t.Errorf("%v; stored %v", errs, got)
	}
}

// TestStoppedServer: with the server away nothing is sent nor kept by the client, a relay holds it against no message, and goes on when it is back.
func TestStoppedServer(t *testing.T) {
	b := newBroker(t)
	away := make(chan struct{}, 10)
	conn := b.connect(nats.DisconnectErrHandler(func(*nats.Conn, error) { away <- struct{}{} }))
	stream := b.stream(conn, jetstream.StreamConfig{Storage: jetstream.FileStorage})
	s := newSink(t, conn, outboxnats.Options{})
	b.stop()
	<-away
	if errs := s.Publish(within(t), deliveries("x1", "x2")); !errors.Is(errs[0], outbox.ErrOutage) || !errors.Is(errs[1], outbox.ErrOutage) {
		t.Errorf("in the outage: %v", errs)
	}

	store := memory.NewOutbox(memory.Options{})
	var messages []outbox.Message
	for i := range 200 {
		messages = append(messages, outbox.Message{Topic: "orders.new", Key: fmt.Sprint(i % 10), Ordered: true, Payload: fmt.Appendf(nil, "%d %03d", i%10, i)})
	}
	if _, err := store.Append(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
	out, back := make(chan struct{}), make(chan struct{})
	r, err := relay.New(store, s, relay.Options{RetryFirst: 20 * time.Millisecond, RestMost: 50 * time.Millisecond, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), OnEvent: func(e relay.Event) {
		switch e.Kind {
		case relay.Outage:
			close(out)
		case relay.Recovered:
			close(back)
		case relay.GivenUp, relay.Late, relay.Hanging:
			t.Errorf("%v", e)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	<-out
	b.start()
	<-back
	for tick := time.NewTicker(5 * time.Millisecond); r.Stats().Published < 200; <-tick.C {
		if within(t).Err() != nil {
			t.Fatalf("%+v", r.Stats())
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	all, err := store.List(t.Context(), outbox.ListRequest{Limit: outbox.MaxList})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.State != outbox.Delivered || i.Attempts != 1 {
			t.Fatalf("%s is %v after %d attempts", i.Payload, i.State, i.Attempts)
		}
	}
	last := map[byte]string{}
	got := b.stored(stream)
	for _, text := range got {
		if text < last[text[0]] {
			t.Errorf("%s after %s", text, last[text[0]])
		}
		last[text[0]] = text
	}
	if len(got) != 200 {
		t.Errorf("%d stored; those of the outage must not be among them", len(got))
	}
}

// TestUnanswered: a server that has gone while an acknowledgement was awaited may have stored the message.
func TestUnanswered(t *testing.T) {
	b := newBroker(t)
	conn := b.connect()
	sub, err := conn.SubscribeSync("orders.new") // somebody takes the request, and answers nothing
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		_, _ = sub.NextMsg(20 * time.Second)
		cancel()
	}()
	if errs := newSink(t, conn, outboxnats.Options{}).Publish(ctx, deliveries("a1")); errs[0] == nil || errors.Is(errs[0], outbox.ErrOutage) || errors.Is(errs[0], outbox.ErrRefused) {
		t.Errorf("%v", errs)
	}
}

// TestNew refuses a connection that would send late, or give up.
func TestNew(t *testing.T) {
	b := newBroker(t)
	for name, options := range map[string][]nats.Option{
		"it keeps what is published":   {nats.ReconnectBufSize(1 << 20)},
		"it gives up":                  {nats.MaxReconnects(5)},
		"it does not reconnect at all": {nats.NoReconnect()},
	} {
		if _, err := outboxnats.New(b.connect(options...), outboxnats.Options{}); !errors.Is(err, outboxnats.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := outboxnats.New(nil, outboxnats.Options{}); !errors.Is(err, outboxnats.ErrInvalid) {
		t.Errorf("no connection: %v", err)
	}
	if _, err := outboxnats.New(b.connect(), outboxnats.Options{Concurrency: -1}); !errors.Is(err, outboxnats.ErrInvalid) {
		t.Errorf("concurrency: %v", err)
	}
}
