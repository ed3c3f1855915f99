package outboxhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/internal/keyed"
)

const (
	defaultConcurrency = 16
	maxConcurrency     = 1024
	defaultTimeout     = 10 * time.Second
	maxAnswer          = 16 << 10 // bytes of an answer that are read, so that its connection can be used again; what they say is not looked at
)

// Options of a sink.
type Options struct {
	URL         string   // http or https, without a user; a secret in it is in nobody's errors, but a path or query is seen by proxies
	Secrets     [][]byte // 1 to 8, each of 24 to 64 bytes; every one signs: while a secret is exchanged, the old one and the new. See [Secret]
	Concurrency int      // requests at once; 0: 16, at most 1,024. Those of one ordered key are sent one after the other
	// Timeout is how long a request may take; 0: 10 s. A tenth of it is kept for saying what became of it.
	Timeout     time.Duration
	ContentType string            // 0: application/json
	Transport   http.RoundTripper // nil: http.DefaultTransport. It does not follow redirections, nor does the sink
	Now         func() time.Time  // nil: time.Now; the time that is signed
}

// Sink is an [outbox.Sink] over HTTP. It is safe for concurrent use.
type Sink struct {
	o    Options
	host string
	http *budgethttp.Transport
}

var _ outbox.Sink = (*Sink)(nil)

// New returns a sink, or an error matching [ErrInvalid] for options that make no sense.
func New(o Options) (*Sink, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, &InvalidError{"URL", "want http or https, a host and no user"}
	}
	if err := checkSecrets(o.Secrets); err != nil {
		return nil, err
	}
	o.Secrets = slices.Clone(o.Secrets)
	if o.Concurrency == 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.ContentType == "" {
		o.ContentType = "application/json"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Concurrency < 1 || o.Concurrency > maxConcurrency {
		return nil, &InvalidError{"concurrency", fmt.Sprintf("%d; want 1 to %d", o.Concurrency, maxConcurrency)}
	}
	if o.Timeout < 10*time.Millisecond || o.Timeout > outbox.MaxTTL {
		return nil, &InvalidError{"timeout", fmt.Sprintf("%v; want 10ms to %v", o.Timeout, outbox.MaxTTL)}
	}
	return &Sink{o, u.Host, &budgethttp.Transport{Base: o.Transport}}, nil
}

// Publish implements [outbox.Sink]. Each message is one POST, repeated by the relay alone. An answer 2xx acknowledges it. The body is the payload; topic, key, position and headers of the message do not travel, because nothing of them would be signed: what the
// receiver needs of them belongs into the payload.
//
//   - [outbox.ErrOutage]: what was certainly not sent; 429, and 503 with Retry-After, which [outbox.RestOf] tells the relay; and what says that the address or the credential is wrong, for every message: 401, 403, 404, 405, 407 and redirections, which are not followed.
//   - [outbox.ErrRefused]: 400, 410, 413, 415 and 422.
//   - Everything else may have been done, and counts against the message: a timeout, a connection that broke, other answers of 5xx and 4xx.
//
// Errors tell neither the URL nor what the service has answered.
func (s *Sink) Publish(ctx context.Context, messages []outbox.Delivery) []error {
	return keyed.Publish(ctx, messages, s.o.Concurrency, s.one)
}

func (s *Sink) one(ctx context.Context, d *outbox.Delivery) error {
	b, err := budget.Start(ctx, s.o.Timeout, budget.Reserve(s.o.Timeout/10), budget.Named("webhook"))
	if err != nil {
		return outbox.Outage(err)
	}
	defer b.End()
	var code int
	err = budget.Do(b.Context(), budget.Policy{Try: budget.Try{Name: s.host}, Attempts: 1}, func(ctx context.Context) (err error) {
		code, err = s.post(ctx, d)
		return err
	})
	return classify(code, err)
}

// post sends one request, and returns the status of its answer, if any.
func (s *Sink) post(ctx context.Context, d *outbox.Delivery) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.o.URL, bytes.NewReader(d.Payload))
	if err != nil {
		return 0, &budget.Error{Class: budget.NotSent, Err: &InvalidError{"URL", "no request can be made of it"}}
	}
	req.GetBody = nil // net/http itself does not send it again
	req.Header.Set("Content-Type", s.o.ContentType)
	sign(req.Header, s.o.Secrets, d.ID.String(), s.o.Now(), d.Payload)
	resp, err := s.http.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // the status was read, and is all that counts
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return resp.StatusCode, &redirectError{resp.StatusCode}
	}
	return resp.StatusCode, budgethttp.ErrorOf(resp)
}

// classify says what the answer means for the message.
func classify(code int, err error) error {
	var known *budget.Error
	switch {
	case err == nil:
		return nil
	case budget.ClassOf(err) == budget.NotSent:
		return outbox.Outage(err)
	case errors.As(err, &known) && known.Class == budget.Refused && (known.Again || known.RetryAfter > 0):
		return outbox.OutageFor(err, known.RetryAfter)
	}
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired:
		return outbox.Outage(err)
	case http.StatusBadRequest, http.StatusGone, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return outbox.Refused(err)
	}
	if code >= 300 && code < 400 {
		return outbox.Outage(err)
	}
	return err
}
