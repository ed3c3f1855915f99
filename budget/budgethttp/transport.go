package budgethttp

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/tenure-go/tenure/budget"
)

// Transport sends with each request what is left of its context, which attempt it is, and the mark of [budget.NoRetry] where its context carries it, and classifies failures: an error of RoundTrip, or of reading the
// body, is a [*budget.Error]. Answers are passed on as they are; see [ErrorOf]. What is left is counted before a connection is looked for: a service may believe that its
// caller waits longer than it does, by the time that took.
//
// A request that got no connection was certainly not sent. One that got one may have been done, however little of it was written: [budget.Unknown]; so may one
// whose Base says nothing to package httptrace, and one that follows a redirection (other than 307 and 308), because the service that redirected has had its request. net/http
// itself sends a request again where it finds that a kept connection was closed before anything was written, and, if the request is idempotent by its method or an Idempotency-Key header, after that
// too. A request with less than a millisecond left is not sent, with an error matching [budget.ErrNoTime].
//
// http.Client.Timeout hides what is known of a timeout, which is then Unknown: use a context's deadline. Safe for concurrent use, as its Base is.
type Transport struct {
	Base http.RoundTripper // nil: http.DefaultTransport
}

// RoundTrip is part of http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	over := observe(req.Context())
	resp, failed := t.roundTrip(req)
	over(failed)
	if failed != nil { // a nil *budget.Error is no nil error
		return nil, failed
	}
	return resp, nil
}

func (t *Transport) roundTrip(req *http.Request) (*http.Response, *budget.Error) {
	wire, err := budget.Outgoing(req.Context())
	if err != nil {
		closeBody(req)
		unsent := &budget.Error{Class: budget.NotSent, Err: err}
		var ended *budget.Error
		if errors.As(err, &ended) {
			unsent.Err = ended.Err
		}
		if redirected(req) {
			unsent.Class = budget.Unknown
		}
		return nil, unsent
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	p := &progress{}
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), p.trace()))
	out.Header = headers(req.Header, wire)
	resp, err := base.RoundTrip(out)
	if err != nil {
		return nil, p.failed(req, err)
	}
	if resp.Body != nil && resp.StatusCode != http.StatusSwitchingProtocols { // its body is a connection, to be written too
		resp.Body = body{resp.Body}
	}
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
	put(out, budget.HeaderRemaining, wire.Millis())
	put(out, budget.HeaderAttempt, wire.Number())
	put(out, budget.HeaderNoRetry, wire.Mark())
	return out
}

// put sets what is sent in place of whatever is there; "" is not sent.
func put(h http.Header, name, text string) {
	if text == "" {
		h.Del(name)
		return
	}
	h.Set(name, text)
}

// stage is how far a request has come.
type stage int32

const (
	atNothing stage = iota // nothing is known: who sends it may not tell
	atConnection
	atDNS
	atConnect
	atTLS
	atSending
	atAnswer
	atReading
)

func (s stage) phase() budget.Phase {
	return [...]budget.Phase{"", budget.PhaseConnection, budget.PhaseDNS, budget.PhaseConnect, budget.PhaseTLS, budget.PhaseSending, budget.PhaseAnswer, budget.PhaseReading}[s]
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
		GetConn:              func(string) { p.reach(atConnection) },
		DNSStart:             func(httptrace.DNSStartInfo) { p.reach(atDNS) },
		ConnectStart:         func(string, string) { p.reach(atConnect) },
		TLSHandshakeStart:    func() { p.reach(atTLS) },
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

// failed says what is known by how far this request has come, and by nothing that err itself says: it may be the error of another call, such as the one whose
// answer is this request's body.
func (p *progress) failed(req *http.Request, err error) *budget.Error {
	s := stage(p.at.Load())
	class := budget.Unknown
	if s != atNothing && s < atSending && !redirected(req) {
		class = budget.NotSent
	}
	return &budget.Error{Class: class, Phase: s.phase(), Err: err}
}

// body says of a failure to read it that the outcome is unknown: the answer had begun.
type body struct{ io.ReadCloser }

// Read is part of io.Reader.
func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &budget.Error{Class: budget.Unknown, Phase: budget.PhaseReading, Err: err}
	}
	return n, err
}
