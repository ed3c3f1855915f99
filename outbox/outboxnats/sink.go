package outboxnats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/internal/keyed"
)

// What a message's headers say beside its own. A message whose own have such a name, or one that begins with "Nats-" in whatever case, is refused: the latter are orders to the server.
const (
	HeaderKey = "Tenure-Key" // the key, where there is one
	// HeaderPosition is the store's number of the message, as decimal digits. Within an ordered key it rises: a consumer that remembers the highest one knows an old message that comes after a newer one.
	HeaderPosition = "Tenure-Position"
)

const (
	defaultConcurrency = 256
	maxConcurrency     = 4096
)

// Options of a sink. The zero value of each is its default.
type Options struct {
	// Concurrency is how many messages wait for their acknowledgement at once; 256, at most 4,096. Those of one ordered key are sent one after the other.
	Concurrency int
	// Subject is where a message goes; nil: its topic. A subject that is none, that has wildcards, or begins with "$" (those command the server) is refused, and the message goes to the dead letters.
	Subject func(d *outbox.Delivery) string
}

// Sink is an [outbox.Sink] over JetStream. It is safe for concurrent use.
type Sink struct {
	conn *nats.Conn
	js   jetstream.JetStream
	o    Options
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a sink over a connection, which stays the caller's. It must have been made with nats.ReconnectBufSize(-1), or what is published while it is down would wait in its buffer and be sent long after the relay's claim has ended; and
// with nats.MaxReconnects(-1), or it gives up for ever after a minute or two. New returns an error matching [ErrInvalid] otherwise, and for options that make no sense.
func New(conn *nats.Conn, o Options) (*Sink, error) {
	switch {
	case conn == nil:
		return nil, &InvalidError{"connection", "nil"}
	case conn.Opts.ReconnectBufSize >= 0:
		return nil, &InvalidError{"connection", "it keeps what is published while it is down, and sends it late: connect with nats.ReconnectBufSize(-1)"}
	case conn.Opts.AllowReconnect && conn.Opts.MaxReconnect >= 0, !conn.Opts.AllowReconnect:
		return nil, &InvalidError{"connection", "it does not reconnect for ever: connect with nats.MaxReconnects(-1)"}
	}
	if o.Concurrency == 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.Concurrency < 1 || o.Concurrency > maxConcurrency {
		return nil, &InvalidError{"concurrency", fmt.Sprintf("%d; want 1 to %d", o.Concurrency, maxConcurrency)}
	}
	if o.Subject == nil {
		o.Subject = func(d *outbox.Delivery) string { return d.Topic }
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("outboxnats: %w", err)
	}
	return &Sink{conn, js, o}, nil
}

// Publish implements [outbox.Sink].
//
// An [outbox.ErrOutage] is a connection that is down, a subject for which no stream answers, and a server that says it cannot now. [outbox.ErrRefused] is what is too large for the server or the stream, and what cannot be carried: a subject or a
// header that NATS has no place for. Everything else may or may not have been stored, such as a connection that broke before the acknowledgement. A subject that this user may not publish to looks like the latter, because the server answers nothing: see the
// connection's error handler.
func (s *Sink) Publish(ctx context.Context, messages []outbox.Delivery) []error {
	return keyed.Publish(ctx, messages, s.o.Concurrency, s.one)
}

func (s *Sink) one(ctx context.Context, d *outbox.Delivery) error {
	m, err := s.message(d)
	if err != nil {
		return outbox.Refused(err)
	}
	if !s.conn.IsConnected() {
		return outbox.Outage(errAway)
	}
	_, err = s.js.PublishMsg(ctx, m, jetstream.WithMsgID(d.ID.String()), jetstream.WithRetryAttempts(0))
	return classify(m.Subject, err)
}

func (s *Sink) message(d *outbox.Delivery) (*nats.Msg, error) {
	subject := s.o.Subject(d)
	if problem := badSubject(subject); problem != "" {
		return nil, &unfitError{fmt.Sprintf("the subject %q %s", subject, problem)}
	}
	m := nats.NewMsg(subject)
	m.Data = d.Payload
	for name, value := range d.Headers {
		if problem := badHeader(name, value); problem != "" {
			return nil, &unfitError{fmt.Sprintf("the header %q %s", name, problem)}
		}
		m.Header[name] = []string{value}
	}
	if d.Key != "" {
		if d.Key != strings.TrimSpace(d.Key) {
			return nil, &unfitError{"the key begins or ends with a space, which a header loses"}
		}
		m.Header.Set(HeaderKey, d.Key)
	}
	m.Header.Set(HeaderPosition, strconv.FormatInt(d.Position, 10))
	return m, nil
}

func badSubject(subject string) string {
	if strings.HasPrefix(subject, "$") {
		return "belongs to the server"
	}
	if strings.ContainsFunc(subject, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return "has a space or a control character"
	}
	for token := range strings.SplitSeq(subject, ".") {
		switch token {
		case "":
			return "has an empty part"
		case "*", ">":
			return "has a wildcard"
		}
	}
	return ""
}

// badHeader is what a header would lose on its way, or do to the server.
func badHeader(name, value string) string {
	lower := strings.ToLower(name)
	switch {
	case strings.HasPrefix(lower, "nats-"), lower == strings.ToLower(HeaderKey), lower == strings.ToLower(HeaderPosition):
		return "has a name that is not the application's"
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == ':' || r >= 0x7f }):
		return "has a name that is not of ASCII without spaces and colons"
	case strings.ContainsAny(value, "\r\n"):
		return "has a value of several lines"
	case value != strings.TrimSpace(value):
		return "has a value that begins or ends with a space, which it loses"
	}
	return ""
}

const (
	codeTooMany = 429
	codeAway    = 503
)

// classify says what an error means for the message.
func classify(subject string, err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return outbox.Outage(&noStreamError{subject, err})
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionDraining):
		return outbox.Outage(fmt.Errorf("%w: %w", errAway, err))
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
		return outbox.Refused(err)
	case errors.As(err, &api) && (api.Code == codeAway || api.Code == codeTooMany):
		return outbox.Outage(err)
	}
	return err
}
