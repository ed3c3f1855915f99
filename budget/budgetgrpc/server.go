package budgetgrpc

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tenure-go/tenure/budget/budgethttp"
	"github.com/tenure-go/tenure/budget/internal/rpc"
)

// Server gives handlers a budget: what the caller still waits for, and at most what the limits allow. A caller without a deadline gets the most. One whose time has
// expired, or does not hold the reserve, is answered DEADLINE_EXCEEDED with an ErrorInfo that says that nothing was started. Handlers find the budget by
// [budget.From], and which attempt of its caller a call is by [budgethttp.CallersAttempt]; the context of a call that came with the mark of [budget.NoRetry] carries it. Attempt numbers and marks
// that are none, or are there twice, are taken for absent. Safe for concurrent use.
type Server struct{ limits budgethttp.Limits }

// NewServer returns an error matching [budget.ErrInvalid] for limits that make no sense.
func NewServer(l budgethttp.Limits) (*Server, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	return &Server{l}, nil
}

// Unary is the interceptor of unary calls.
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, end, err := s.start(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer end()
	return handler(ctx, req)
}

// Stream is the interceptor of streams: the budget is that of the whole stream.
func (s *Server) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, end, err := s.start(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer end()
	return handler(srv, &served{stream, ctx})
}

// served is a stream with a budget.
type served struct {
	grpc.ServerStream
	ctx context.Context // a stream hands its context out by a method
}

// Context carries the budget.
func (s *served) Context() context.Context { return s.ctx }

func (s *Server) start(ctx context.Context, method string) (context.Context, func(), error) {
	within, b, err := rpc.Start(ctx, s.limits, method, rpc.Carried{Attempt: only(ctx, attemptKey), NoRetry: only(ctx, noRetryKey)})
	if err != nil {
		return nil, nil, tell(ctx, rpc.Refusal(err))
	}
	return within, b.End, nil
}

// only is what a call came with under key, if it is there once.
func only(ctx context.Context, key string) string {
	if values := metadata.ValueFromIncomingContext(ctx, key); len(values) == 1 {
		return values[0]
	}
	return ""
}

// Fail is how a handler answers a call whose work failed with err: a status that says what is known of it, with a RetryInfo where the caller may ask again, and in the trailer the mark that it
// must not where the failure was repeated here already, so that layers do not multiply. What another attempt may find otherwise is UNAVAILABLE, another refusal FAILED_PRECONDITION, what was not
// started for want of time DEADLINE_EXCEEDED with an ErrorInfo that says so; what is unknown is DEADLINE_EXCEEDED, CANCELLED or UNKNOWN. The text of err is not told. ctx is the handler's.
//
// err is taken for what is known of the whole call. A handler that had done something before, and then found no time or no connection for the rest, says so by a [budget.Error] with the class [budget.Unknown] around it.
func Fail(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return tell(ctx, rpc.Tell(err))
}

func tell(ctx context.Context, t rpc.Told) error {
	if t.NoRetry {
		// It fails where ctx is not of a call or its headers are gone; the status stands without the mark.
		_ = grpc.SetTrailer(ctx, metadata.Pairs(noRetryKey, "1", pushBackKey, "-1"))
	}
	st := status.New(codes.Code(t.Code), t.Text)
	var details []protoadapt.MessageV1
	if t.Hint {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(t.RetryAfter)})
	}
	if t.NotStarted {
		details = append(details, &errdetails.ErrorInfo{Domain: rpc.Domain, Reason: rpc.NotStarted})
	}
	if len(details) == 0 {
		return st.Err()
	}
	detailed, err := st.WithDetails(details...)
	if err != nil { // of a detail that cannot be encoded: the answer stands without it
		return st.Err()
	}
	return detailed.Err()
}
