package admissionconnect

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/admission"
	"github.com/tenure-go/tenure/budget/budgetconnect"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// New returns an interceptor that lets calls in as l allows. It stands behind that of [budgetconnect.NewServer], so that a call waits no longer than the service allows. priority says what a call is by its procedure,
// such as "/shop.Orders/Cancel"; nil: all is Work. One limiter may stand in several interceptors and middlewares: its places are then those of all of them. Calls of clients it leaves alone. Safe for concurrent use.
//
// What is shed fails with unavailable, a RetryInfo and Retry-After, and its handler is not called; see [budgetconnect.Fail]. The code internal is for a priority that is none.
//
// A unary call holds its place until its handler returns. One without an error counts as [admission.Succeeded], one whose context's time has ended as [admission.TimedOut], any other and a panic as
// [admission.Failed]. A stream holds its place as long as it lasts, and the limiter learns nothing from how long that is: a stream that somebody follows for an hour is no sign of a service that is busy. A service
// with many such streams gives them a limiter of their own.
func New(l *admission.Limiter, priority func(procedure string) admission.Priority) connect.Interceptor {
	return &server{l, priority}
}

type server struct {
	l        *admission.Limiter
	priority func(procedure string) admission.Priority
}

// WrapUnary is part of [connect.Interceptor].
func (s *server) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (reply connect.AnyResponse, err error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		release, err := s.acquire(ctx, req.Spec().Procedure, req.Header())
		if err != nil {
			return nil, err
		}
		outcome := admission.Failed // also if the handler panics
		defer func() { release(outcome) }()
		reply, err = next(ctx, req)
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			outcome = admission.TimedOut
		case err == nil:
			outcome = admission.Succeeded
		}
		return reply, err
	}
}

// WrapStreamingClient is part of [connect.Interceptor].
func (s *server) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is part of [connect.Interceptor].
func (s *server) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		release, err := s.acquire(ctx, conn.Spec().Procedure, conn.RequestHeader())
		if err != nil {
			return err
		}
		defer release(admission.Failed)
		return next(ctx, conn)
	}
}

// acquire is a place for a call, or how it is answered.
func (s *server) acquire(ctx context.Context, procedure string, header http.Header) (func(admission.Outcome), error) {
	p := admission.Work
	if s.priority != nil {
		p = s.priority(procedure)
	}
	release, err := s.l.Acquire(budgethttp.WithCallersAttempt(ctx, header.Get(budget.HeaderAttempt)), p)
	if errors.Is(err, budget.ErrInvalid) {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	if err == nil {
		return release, nil
	}
	told := budgetconnect.Fail(err)
	var known *budget.Error
	var answer *connect.Error
	if errors.As(err, &known) && known.RetryAfter > 0 && errors.As(told, &answer) {
		answer.Meta().Set("Retry-After", strconv.FormatInt(int64((known.RetryAfter+time.Second-1)/time.Second), 10))
	}
	return nil, told
}
