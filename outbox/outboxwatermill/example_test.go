package outboxwatermill_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxwatermill"
	"github.com/tenure-go/tenure/relay"
	"github.com/tenure-go/tenure/store/sqlite"
)

type tx struct{} // the key of the transaction in a context

// inTx is the inbox of the ticket printer: the note and the handler's work are one transaction.
func inTx(db *sql.DB, in *sqlite.Inbox) outboxwatermill.Inbox {
	return func(ctx context.Context, id string, fn func(context.Context) error) (inbox.Result, error) {
		t, err := db.BeginTx(ctx, nil)
		if err != nil {
			return inbox.Result{}, err
		}
		defer func() { _ = t.Rollback() }()
		result, err := in.Once(ctx, t, "ticket printer", id, func(ctx context.Context) error { return fn(context.WithValue(ctx, tx{}, t)) })
		if err != nil {
			return result, err
		}
		return result, t.Commit()
	}
}

// An order's message goes from SQLite to a subscriber, which gets it twice and prints one ticket.
func Example() {
	if err := shop(); err != nil {
		log.Fatal(err)
	}
	// Output: delivered 2 times; tickets: 1
}

func shop() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	folder, err := os.MkdirTemp("", "shop")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "shop.db")
	store, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	defer func() { _ = store.Shutdown(context.WithoutCancel(ctx)) }()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE tickets (n INTEGER)`); err != nil {
		return err
	}
	notes, err := store.Inbox(inbox.Options{})
	if err != nil {
		return err
	}

	bus := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil) // Publish returns once the consumer has it
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(outboxwatermill.Once(inTx(db, notes)))
	router.AddConsumerHandler("tickets", "orders", bus, func(m *message.Message) error {
		_, err := m.Context().Value(tx{}).(*sql.Tx).ExecContext(m.Context(), `INSERT INTO tickets VALUES (?)`, string(m.Payload))
		return err
	})
	routed := make(chan error, 1)
	go func() { routed <- router.Run(ctx) }()
	<-router.Running()

	ids, err := store.Outbox().Append(ctx, []outbox.Message{{Topic: "orders", Payload: []byte("1001")}})
	if err != nil {
		return err
	}
	sink, err := outboxwatermill.New(bus, outboxwatermill.Options{})
	if err != nil {
		return err
	}
	for n := range 2 {
		if n > 0 { // an operator has the message published again
			if _, err := store.Outbox().Replay(ctx, outbox.MoveRequest{IDs: ids, Limit: 1}); err != nil {
				return err
			}
		}
		if err := deliver(ctx, store, sink); err != nil {
			return err
		}
	}
	var tickets int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM tickets`).Scan(&tickets); err != nil {
		return err
	}
	fmt.Printf("delivered %d times; tickets: %d\n", notes.Stats().First+notes.Stats().Repeated, tickets)
	cancel()
	return <-routed
}

// deliver runs a relay until it has published a message.
func deliver(ctx context.Context, store *sqlite.Store, sink outbox.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := relay.New(store.Outbox(), once{sink, cancel}, relay.Options{Name: "example"})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// once ends a relay when it has published.
type once struct {
	outbox.Sink
	end func()
}

func (o once) Publish(ctx context.Context, messages []outbox.Delivery) []error {
	defer o.end()
	return o.Sink.Publish(ctx, messages)
}
