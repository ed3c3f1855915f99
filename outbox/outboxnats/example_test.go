package outboxnats_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxnats"
	"github.com/tenure-go/tenure/relay"
	"github.com/tenure-go/tenure/store/memory"
)

// A relay between an outbox and a stream. An application's outbox is in its database, as that of package sqlite or postgres; this one is in memory.
func Example() {
	if err := announce(); err != nil {
		log.Fatal(err)
	}
	// Output: order 1001, with its id: true
}

func announce() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	folder, err := os.MkdirTemp("", "jetstream")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: folder, NoLog: true, NoSigs: true})
	if err != nil {
		return err
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(20 * time.Second) {
		return fmt.Errorf("the server did not start")
	}

	conn, err := nats.Connect(s.ClientURL(), nats.ReconnectBufSize(-1), nats.MaxReconnects(-1)) // New asks for both, and says why
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	consumer, err := orders(ctx, js)
	if err != nil {
		return err
	}
	sink, err := outboxnats.New(conn, outboxnats.Options{})
	if err != nil {
		return err
	}

	messages := memory.NewOutbox(memory.Options{})
	ids, err := messages.Append(ctx, []outbox.Message{{Topic: "orders.new", Key: "1001", Ordered: true, Payload: []byte("1001")}})
	if err != nil {
		return err
	}
	r, err := relay.New(messages, sink, relay.Options{Name: "orders"})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	m, err := consumer.Next(jetstream.FetchContext(ctx))
	if err != nil {
		stop()
		return err
	}
	fmt.Printf("order %s, with its id: %v\n", m.Data(), m.Headers().Get(jetstream.MsgIDHeader) == ids[0].String())
	stop()
	return <-ended
}

// orders makes a stream that remembers ids for ten minutes, and a consumer.
func orders(ctx context.Context, js jetstream.JetStream) (jetstream.Consumer, error) {
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Duplicates: 10 * time.Minute}); err != nil {
		return nil, err
	}
	return js.CreateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{Durable: "printer", AckPolicy: jetstream.AckExplicitPolicy})
}
