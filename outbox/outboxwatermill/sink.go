package outboxwatermill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/internal/keyed"
)

// What a message's metadata says beside its headers. A header of the same name is not sent.
const (
	MetadataKey = "tenure_key" // the key, where there is one: what a publisher may partition by
	// MetadataPosition is the store's number of the message, as decimal digits. Within an ordered key it rises: a consumer without an inbox that remembers the highest one knows an old message that comes after a newer one.
	MetadataPosition = "tenure_position"
)

const (
	defaultConcurrency = 8
	maxConcurrency     = 1024
)

// Options of a sink. The zero value of each is its default.
type Options struct {
	Concurrency int // messages that are published at once; 8, at most 1,024
	// Topic is the publisher's name of an outbox topic; nil: the same.
	Topic func(topic string) string
	// Classify says what an error of the publisher means, by [outbox.Outage] and [outbox.Refused]; what it returns as it was may or may not have been published. nil: [Classify]. Most publishers have errors of their own for a
	// broker that is away, and without a Classify that knows these an outage is held against the messages.
	Classify func(error) error
}

// Sink is an [outbox.Sink] over a publisher. It is safe for concurrent use, as publishers are.
type Sink struct {
	to message.Publisher
	o  Options
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a sink. It returns an error matching [ErrInvalid] for options that make no sense. The publisher stays the caller's to close, after the relay has ended.
//
// What Publish of the publisher returns is believed: one that returns before the broker has acknowledged, as one with an asynchronous producer may, loses what the broker never gets.
func New(to message.Publisher, o Options) (*Sink, error) {
	if to == nil {
		return nil, &InvalidError{"publisher", "nil"}
	}
	if o.Concurrency == 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.Concurrency < 1 || o.Concurrency > maxConcurrency {
		return nil, &InvalidError{"concurrency", fmt.Sprintf("%d; want 1 to %d", o.Concurrency, maxConcurrency)}
	}
	if o.Topic == nil {
		o.Topic = func(topic string) string { return topic }
	}
	if o.Classify == nil {
		o.Classify = Classify
	}
	return &Sink{to, o}, nil
}

// Classify takes what could not connect, or not look up a host, for an outage, and leaves everything else as it is.
func Classify(err error) error {
	var op *net.OpError
	var dns *net.DNSError
	if errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) {
		return outbox.Outage(err)
	}
	return err
}

// Publish implements [outbox.Sink]. Each message is a call of the publisher, with ctx as the message's context. Those of an ordered key are published one after the other. Before each call it looks at ctx and at its deadline; what is not
// published for that is said to be untried. A publisher that does not heed the context keeps Publish waiting.
func (s *Sink) Publish(ctx context.Context, messages []outbox.Delivery) []error {
	return keyed.Publish(ctx, messages, s.o.Concurrency, s.one)
}

func (s *Sink) one(ctx context.Context, d *outbox.Delivery) error {
	m := message.NewMessageWithContext(ctx, d.ID.String(), d.Payload)
	maps.Copy(m.Metadata, d.Headers)
	delete(m.Metadata, MetadataKey)
	if d.Key != "" {
		m.Metadata.Set(MetadataKey, d.Key)
	}
	m.Metadata.Set(MetadataPosition, strconv.FormatInt(d.Position, 10))
	if err := s.to.Publish(s.o.Topic(d.Topic), m); err != nil {
		return s.o.Classify(err)
	}
	return nil
}
