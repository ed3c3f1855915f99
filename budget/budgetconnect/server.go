package budgetconnect

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
	"github.com/tenure-go/tenure/budget/internal/rpc"
)

// NewServer returns an interceptor that gives handlers a budget: what the caller still waits for, and at most what the limits allow. A caller that has sent no timeout gets the most. One whose time
// has expired, or does not hold the reserve, is answered deadline_exceeded with an ErrorInfo that says that nothing was started; a timeout that is no number Connect itself refuses. Handlers find the
// budget by [budget.From], and which attempt of its caller a call is by [budgethttp.CallersAttempt]; the context of a call that came with the mark of [budget.NoRetry] carries it. Attempt numbers and
// marks that are none are taken for absent. Calls of clients it leaves alone. Safe for concurrent use.
//
// It returns an error matching [budget.ErrInvalid] for limits that make no sense.
func NewServer(l budgethttp.Limits) (connect.Interceptor, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	return server{l}, nil
}

type server struct{ limits budgethttp.Limits }

// WrapUnary is part of [connect.Interceptor].
func (s server) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		within, b, err := rpc.Start(ctx, s.limits, req.Spec().Procedure, carried(req.Header()))
		if err != nil {
			return nil, tell(rpc.Refusal(err))
		}
		defer b.End()
		return next(within, req)
	}
}

// WrapStreamingClient is part of [connect.Interceptor].
func (s server) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is part of [connect.Interceptor]: the budget is that of the whole stream.
func (s server) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		within, b, err := rpc.Start(ctx, s.limits, conn.Spec().Procedure, carried(conn.RequestHeader()))
		if err != nil {
			return tell(rpc.Refusal(err))
		}
		defer b.End()
		return next(within, conn)
	}
}

// carried is what a call came with.
func carried(h http.Header) rpc.Carried {
	return rpc.Carried{Attempt: h.Get(budget.HeaderAttempt), NoRetry: h.Get(budget.HeaderNoRetry)}
}

// Fail is how a handler answers a call whose work failed with err: an error that says what is known of it, with a RetryInfo where the caller may ask again, and the mark that it must not where the
// failure was repeated here already, so that layers do not multiply. What another attempt may find otherwise is unavailable, another refusal failed_precondition, what was not started for want of
// time deadline_exceeded with an ErrorInfo that says so; what is unknown is deadline_exceeded,
// canceled or unknown. The text of err is not told.
//
// err is taken for what is known of the whole call. A handler that had done something before, and then found no time or no connection for the rest, says so by a [budget.Error] with the class [budget.Unknown] around it.
func Fail(err error) error {
	if err == nil {
		return nil
	}
	return tell(rpc.Tell(err))
}

func tell(t rpc.Told) error {
	e := connect.NewError(connect.Code(t.Code), errors.New(t.Text))
	if t.NoRetry {
		e.Meta().Set(budget.HeaderNoRetry, "1")
	}
	var details []proto.Message
	if t.Hint {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(t.RetryAfter)})
	}
	if t.NotStarted {
		details = append(details, &errdetails.ErrorInfo{Domain: rpc.Domain, Reason: rpc.NotStarted})
	}
	for _, detail := range details {
		if d, err := connect.NewErrorDetail(detail); err == nil { // else the answer stands without it
			e.AddDetail(d)
		}
	}
	return e
}
