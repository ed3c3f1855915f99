package admissiongrpc

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/admission"
	"github.com/tenure-go/tenure/budget/budgetgrpc"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

const (
	attemptKey  = "tenure-attempt"         // as package budgetgrpc sends it
	pushBackKey = "grpc-retry-pushback-ms" // gRPC's own
)

// Server lets calls in. Its interceptors stand behind those of [budgetgrpc.Server], so that a call waits no longer than the service allows. Safe for concurrent use.
type Server struct {
	l        *admission.Limiter
	priority func(fullMethod string) admission.Priority
}

// New lets calls in as l allows. priority says what a call is by its method, such as "/grpc.health.v1.Health/Check"; nil: all is Work. One limiter may stand in several interceptors and middlewares: its places
// are then those of all of them.
func New(l *admission.Limiter, priority func(fullMethod string) admission.Priority) *Server {
	return &Server{l, priority}
}

// Unary is the interceptor of unary calls. What is shed fails with UNAVAILABLE and a RetryInfo, and its handler is not called; see [budgetgrpc.Fail]. INTERNAL is for a priority that is none.
//
// A call holds its place until its handler returns. One without an error counts as [admission.Succeeded], one whose context's time has ended as [admission.TimedOut], any other and a panic as [admission.Failed].
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
	release, err := s.acquire(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	outcome := admission.Failed // also if the handler panics
	defer func() { release(outcome) }()
	reply, err = handler(ctx, req)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		outcome = admission.TimedOut
	case err == nil:
		outcome = admission.Succeeded
	}
	return reply, err
}

// Stream is the interceptor of streams. A stream holds its place as long as it lasts, and the limiter learns nothing from how long that is: a stream that somebody follows for an hour is no sign of a service that
// is busy. A service with many such streams gives them a limiter of their own.
func (s *Server) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	release, err := s.acquire(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer release(admission.Failed)
	return handler(srv, stream)
}

// acquire is a place for a call, or how it is answered.
func (s *Server) acquire(ctx context.Context, method string) (func(admission.Outcome), error) {
	p := admission.Work
	if s.priority != nil {
		p = s.priority(method)
	}
	counted := ctx
	if values := metadata.ValueFromIncomingContext(ctx, attemptKey); len(values) == 1 {
		counted = budgethttp.WithCallersAttempt(ctx, values[0])
	}
	release, err := s.l.Acquire(counted, p)
	if errors.Is(err, budget.ErrInvalid) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if err == nil {
		return release, nil
	}
	var known *budget.Error
	if errors.As(err, &known) && known.RetryAfter > 0 {
		millis := (known.RetryAfter + time.Millisecond - 1) / time.Millisecond
		// It fails where ctx is not of a call; the RetryInfo stands without it.
		_ = grpc.SetTrailer(ctx, metadata.Pairs(pushBackKey, strconv.FormatInt(int64(millis), 10)))
	}
	return nil, budgetgrpc.Fail(ctx, err)
}
