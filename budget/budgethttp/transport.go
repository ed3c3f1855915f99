package budgethttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// Transport sends with each request what is left of its context, and which attempt it is, and classifies failures: an error of RoundTrip, or of reading the
// body, is a [*budget.Error]. Answers are passed on as they are; see [ErrorOf].
//
// A request that got no connection was certainly not sent. One that got one may have been done, however little of it was written: [budget.Unknown]. net/http
// itself sends a request again where it finds that a kept connection was closed before anything was written, and, if the request is idempotent by its method or an Idempotency-Key header, after that
// too. A request with less than a millisecond left is not sent, with an error matching [budget.ErrNoTime]. Safe for concurrent use, as its Base is.
type Transport struct {
	Base http.RoundTripper // nil: http.DefaultTransport
}

// RoundTrip is part of http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	wire, err := budget.Outgoing(req.Context())
	if err != nil {
		closeBody(req)
		return nil, &budget.Error{Class: budget.NotSent, Err: err}
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	p := &progress{}
	p.at.Store(int32(atConnection))
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), p.trace()))
	out.Header = headers(req.Header, wire)
	resp, err := base.RoundTrip(out)
	if err != nil {
		return nil, p.failed(err)
	}
	resp.Body = &body{resp.Body, req.Context()}
	return resp, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // nothing was read of it
	}
}

// headers are the request's and what travels with it. The request's own are not changed.
func headers(of http.Header, wire budget.Wire) http.Header {
	out := of.Clone()
	if out == nil {
		out = http.Header{}
	}
	out.Del(budget.HeaderRemaining)
	out.Del(budget.HeaderAttempt)
	if millis := wire.Millis(); millis != "" {
		out.Set(budget.HeaderRemaining, millis)
	}
	if wire.Attempt > 0 {
		out.Set(budget.HeaderAttempt, strconv.Itoa(wire.Attempt))
	}
	return out
}

// stage is how far a request has come.
type stage int32

const (
	atConnection stage = iota
	atDNS
	atConnect
	atTLS
	atSending
	atAnswer
	atReading
)

func (s stage) phase() budget.Phase {
	return [...]budget.Phase{budget.PhaseConnection, budget.PhaseDNS, budget.PhaseConnect, budget.PhaseTLS, budget.PhaseSending, budget.PhaseAnswer, budget.PhaseReading}[s]
}

// progress is told by net/http how far a request has come. Connections are also made for other requests, so that dialling may go on after one was got: the stage is never
// set back.
type progress struct{ at atomic.Int32 }

// reach moves on to s, unless it is there already.
func (p *progress) reach(s stage) {
	for {
		now := p.at.Load()
		if now >= int32(s) || p.at.CompareAndSwap(now, int32(s)) {
			return
		}
	}
}

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSStart:             func(httptrace.DNSStartInfo) { p.reach(atDNS) },
		ConnectStart:         func(string, string) { p.reach(atConnect) },
		TLSHandshakeStart:    func() { p.reach(atTLS) },
		TLSHandshakeDone:     func(tls.ConnectionState, error) {},
		GotConn:              func(httptrace.GotConnInfo) { p.reach(atSending) },
		WroteRequest:         func(info httptrace.WroteRequestInfo) { p.wrote(info.Err) },
		GotFirstResponseByte: func() { p.reach(atReading) },
	}
}

func (p *progress) wrote(err error) {
	if err == nil {
		p.reach(atAnswer)
	}
}

func (p *progress) failed(err error) error {
	var known *budget.Error
	if errors.As(err, &known) {
		return err
	}
	s := stage(p.at.Load())
	class := budget.Unknown
	if s < atSending {
		class = budget.NotSent
	}
	return &budget.Error{Class: class, Phase: s.phase(), Err: err}
}

// body says of a failure to read it that the outcome is unknown: the answer had begun.
type body struct {
	io.ReadCloser
	ctx context.Context
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &budget.Error{Class: budget.Unknown, Phase: budget.PhaseReading, Err: err}
	}
	return n, err
}

// ErrorOf is what an answer says of its request: nil for one below 400; a [*budget.Error] otherwise. 429 and 503 are a refusal that another
// attempt may find otherwise; other answers 4xx are a refusal; 5xx prove nothing, because the service, or what it called, may have done it. Retry-After is
// heeded in both its forms, and so is the mark that asks for no repetition. The body is not touched.
func ErrorOf(resp *http.Response) error {
	if resp.StatusCode < 400 {
		return nil
	}
	e := &budget.Error{Class: budget.Unknown, Phase: budget.PhaseReading, Err: &StatusError{resp.StatusCode},
		NoRetry: resp.Header.Get(budget.HeaderNoRetry) == "1", RetryAfter: retryAfter(resp.Header)}
	switch {
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
		e.Class, e.Again = budget.Refused, true
	case resp.StatusCode < 500:
		e.Class = budget.Refused
	}
	return e
}

const maxRetryAfter = 24 * time.Hour

// retryAfter reads seconds, or a date by the service's own Date, so that no two clocks are compared.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	until, err := http.ParseTime(text)
	now, errNow := http.ParseTime(h.Get("Date"))
	if err != nil || errNow != nil {
		return 0
	}
	return min(max(0, until.Sub(now)), maxRetryAfter)
}
