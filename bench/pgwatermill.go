package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/relay"
)

const watermillVersion = "4.1.2"

// The sides, of which those of Watermill differ in their batch.
const (
	consumedPeer   = "Watermill-SQL"
	consumedPeer1k = "Watermill-SQL, batches of 1,000"
	consumedTenure = "Tenure"
)

// consume measures all sides, each with messages of its own.
func (o *outboxSide) consume(ctx context.Context, round, n int, found rounds) error {
	sides := []string{consumedPeer, consumedPeer1k, consumedTenure}
	if round%2 == 1 {
		slices.Reverse(sides)
	}
	for at, side := range sides {
		var took time.Duration
		var err error
		switch topic := fmt.Sprintf("bench_%d_%d", round, at); side {
		case consumedTenure:
			took, err = o.consumeTenure(ctx, n)
		case consumedPeer1k:
			took, err = o.consumeWatermill(ctx, topic, n, watermillsql.DefaultPostgreSQLSchema{SubscribeBatchSize: outboxBatch})
		default:
			took, err = o.consumeWatermill(ctx, topic, n, watermillsql.DefaultPostgreSQLSchema{})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", side, err)
		}
		found[side] = append(found[side], float64(n)/took.Seconds())
	}
	return nil
}

func tellConsumed(r *report.Report, found rounds) {
	t := report.Table{Title: "Messages consumed a second:", Columns: []string{"one process"}}
	for _, side := range []string{consumedPeer, consumedPeer1k, consumedTenure} {
		t.Rows = append(t.Rows, report.Row{Label: side, Cells: []report.Cell{report.Rounds(found[side])}})
	}
	r.Tables = append(r.Tables, t)
	r.Targets = append(r.Targets, report.AtLeast("messages consumed a second to Watermill-SQL's subscriber", 5, "x", stats.Ratios(found[consumedTenure], found[consumedPeer])))
}

// consumeWatermill has one subscriber take what was published to a topic of its own, until its offset says that it has.
func (o *outboxSide) consumeWatermill(ctx context.Context, topic string, n int, schema watermillsql.DefaultPostgreSQLSchema) (took time.Duration, err error) {
	db, logger := watermillsql.BeginnerFromPgx(o.peer), watermill.NopLogger{}
	publisher, err := watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, logger)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, publisher.Close()) }()
	for from := 0; from < n; from += outbox.MaxAppend {
		some := make([]*message.Message, min(outbox.MaxAppend, n-from))
		for i := range some {
			id := lease.NewID()
			some[i] = message.NewMessage(hex.EncodeToString(id[:]), o.payload)
		}
		if err := publisher.Publish(topic, some...); err != nil {
			return 0, err
		}
	}
	subscriber, err := watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{SchemaAdapter: schema, OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true}, logger)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, subscriber.Close()) }()
	if err := subscriber.SubscribeInitialize(topic); err != nil {
		return 0, err
	}
	if err := o.settled(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	messages, err := subscriber.Subscribe(ctx, topic)
	if err != nil {
		return 0, err
	}
	for range n {
		select {
		case m := <-messages:
			m.Ack()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	err = o.until(ctx, `SELECT offset_acked >= `+strconv.Itoa(n)+` FROM "watermill_offsets_`+topic+`"`)
	return time.Since(start), err
}

// ackSink acknowledges everything.
type ackSink struct {
	left int
	done chan struct{} // closed when the last one was acknowledged
}

// Publish implements [outbox.Sink].
func (s *ackSink) Publish(_ context.Context, messages []outbox.Delivery) []error {
	if s.left -= len(messages); s.left == 0 {
		close(s.done)
	}
	return make([]error, len(messages))
}

// consumeTenure has one relay carry what was appended, until the database says that all is recorded.
func (o *outboxSide) consumeTenure(ctx context.Context, n int) (time.Duration, error) {
	if err := o.fill(ctx, n, 0); err != nil {
		return 0, err
	}
	if err := o.settled(ctx); err != nil {
		return 0, err
	}
	sink := &ackSink{left: n, done: make(chan struct{})}
	carrier, err := relay.New(o.mail, sink, relay.Options{Name: "bench"})
	if err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- carrier.Run(running) }()
	select {
	case <-sink.done:
		err = o.until(ctx, `SELECT NOT EXISTS (SELECT FROM tenure.outbox_claim)`)
	case <-ctx.Done():
		err = ctx.Err()
	}
	took := time.Since(start)
	stop()
	return took, errors.Join(err, <-ended)
}

// until asks the database until it says true.
func (o *outboxSide) until(ctx context.Context, query string) error {
	for {
		var all bool
		if err := o.admin.QueryRow(ctx, query).Scan(&all); err != nil || all {
			return err
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}
