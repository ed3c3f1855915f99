package budgetconnect

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
	"github.com/tenure-go/tenure/budget/internal/rpc"
)

// NewClient returns an interceptor for clients. A call sends the number of its attempt, and the mark of [budget.NoRetry] where its context carries it, and fails with a [*budget.Error] that still is the [*connect.Error] it came
// as. It belongs innermost: behind other interceptors. Calls that are served it leaves alone. Safe for concurrent use.
//
// A call with less than a millisecond left is not sent, with an error matching [budget.ErrNoTime]. What a [budgethttp.Transport] below says of the request counts, then the service's own answer: codes by which
// handlers refuse are a refusal; resource_exhausted and unavailable with a RetryInfo are one that another attempt may find otherwise, and without it prove nothing. Whatever Connect's client made up is
// [budget.Unknown], and so is everything after a message of the answer. Errors of a stream come classified from each of its methods; those that are io.EOF stay what they are.
func NewClient() connect.Interceptor { return client{} }

type client struct{}

// WrapUnary is part of [connect.Interceptor].
func (client) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if !req.Spec().IsClient {
			return next(ctx, req)
		}
		carried, err := outgoing(ctx)
		if err != nil {
			return nil, err
		}
		put(req.Header(), budget.HeaderAttempt, carried.Attempt)
		put(req.Header(), budget.HeaderNoRetry, carried.NoRetry)
		ctx, seen := budgethttp.Observe(ctx)
		reply, err := next(ctx, req)
		return reply, failed(err, seen, false)
	}
}

// WrapStreamingClient is part of [connect.Interceptor].
func (client) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		carried, err := outgoing(ctx)
		ctx, seen := budgethttp.Observe(ctx)
		conn := &sent{StreamingClientConn: next(ctx, spec), unsent: err, seen: seen} // nothing leaves before the first Send or CloseRequest
		put(conn.RequestHeader(), budget.HeaderAttempt, carried.Attempt)
		put(conn.RequestHeader(), budget.HeaderNoRetry, carried.NoRetry)
		return conn
	}
}

// WrapStreamingHandler is part of [connect.Interceptor].
func (client) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// put sets what is sent in place of whatever is there; "" is not sent.
func put(h http.Header, name, text string) {
	h.Del(name)
	if text != "" {
		h.Set(name, text)
	}
}

// outgoing is what travels with a call under ctx, or why the call must not be sent.
func outgoing(ctx context.Context) (rpc.Carried, error) {
	carried, err := rpc.Outgoing(ctx)
	var refused *budget.Error
	if errors.As(err, &refused) {
		code := connect.CodeCanceled
		if errors.Is(err, budget.ErrNoTime) || errors.Is(err, context.DeadlineExceeded) {
			code = connect.CodeDeadlineExceeded
		}
		refused.Err = connect.NewError(code, refused.Err)
		return rpc.Carried{}, refused
	}
	return carried, err
}

// failed is what is known of a call that ended with err; begun is whether a message of its answer was read. Where the call's context ends, Connect's client does not wait for
// its transport, and returns an error without the transport's.
func failed(err error, seen *budgethttp.Observation, begun bool) error {
	if err == nil {
		return nil
	}
	if connect.CodeOf(err) == connect.CodeDeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		err = rpc.Late(err)
	}
	e := &budget.Error{Class: budget.Unknown, Err: err}
	var below *budget.Error
	var answered *connect.Error
	switch {
	case errors.As(err, &below):
		e.Class, e.Phase = below.Class, below.Phase
	case connect.IsWireError(err) && errors.As(err, &answered):
		e = answer(answered).Proves(err)
	case !begun && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		e.Class, e.Phase = seen.Known()
	}
	if begun {
		e.Class, e.Again = budget.Unknown, false
	}
	return e
}

func answer(err *connect.Error) rpc.Answer {
	a := rpc.Answer{Code: rpc.Code(err.Code()), NoRetry: budget.ParseNoRetry(err.Meta().Get(budget.HeaderNoRetry))}
	for _, detail := range err.Details() {
		value, err := detail.Value()
		if err != nil {
			continue // of a type that is not known here
		}
		switch d := value.(type) {
		case *errdetails.RetryInfo:
			a.Hint, a.RetryAfter = true, d.GetRetryDelay().AsDuration()
		case *errdetails.ErrorInfo:
			a.NotStarted = a.NotStarted || d.GetDomain() == rpc.Domain && d.GetReason() == rpc.NotStarted
		}
	}
	return a
}

// sent is a stream whose errors are classified.
type sent struct {
	connect.StreamingClientConn
	unsent error // why nothing of it must be sent
	seen   *budgethttp.Observation
	begun  atomic.Bool
}

func (s *sent) classify(err error) error {
	if errors.Is(err, io.EOF) { // the end, or of Send: Receive knows more
		return err
	}
	return failed(err, s.seen, s.begun.Load())
}

// Send is part of [connect.StreamingClientConn].
func (s *sent) Send(message any) error {
	if s.unsent != nil {
		return s.unsent
	}
	return s.classify(s.StreamingClientConn.Send(message))
}

// CloseRequest is part of [connect.StreamingClientConn].
func (s *sent) CloseRequest() error {
	if s.unsent == nil { // else there is nothing to end
		return s.classify(s.StreamingClientConn.CloseRequest())
	}
	return nil
}

// Receive is part of [connect.StreamingClientConn].
func (s *sent) Receive(message any) error {
	if s.unsent != nil {
		return s.unsent
	}
	err := s.StreamingClientConn.Receive(message)
	if err == nil {
		s.begun.Store(true)
	}
	return s.classify(err)
}

// CloseResponse is part of [connect.StreamingClientConn].
func (s *sent) CloseResponse() error {
	if s.unsent == nil { // else there is none
		return s.classify(s.StreamingClientConn.CloseResponse())
	}
	return nil
}
