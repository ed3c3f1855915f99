package fenceconnect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tenure-go/tenure/fence/fencehttp"
)

// Options say how a service is protected.
type Options struct {
	fencehttp.GateOptions

	// Resource says what a call is about and whether it is protected. message is nil for a stream. spec.IdempotencyLevel is
	// what the schema promises of the method. An error refuses the call; one matching [fencehttp.ErrResource] is told, of others only that
	// they occurred. Required.
	Resource func(ctx context.Context, spec connect.Spec, header http.Header, message any) (resource string, protected bool, err error)
	// Log hears of refusals at level Warn, and of checks that could not be made at level Error; nil: nobody.
	Log *slog.Logger
}

// NewServer returns the door of a service, an interceptor for its handlers. Calls of clients it leaves alone. Handlers find the claim by
// [fencehttp.ClaimFrom]. It returns an error matching [fencehttp.ErrOption] for options without a Check or a Resource.
func NewServer(o Options) (connect.Interceptor, error) {
	if o.Resource == nil {
		return nil, fmt.Errorf("%w: what a call is about must be told by Resource", fencehttp.ErrOption)
	}
	gate, err := fencehttp.NewGate(o.GateOptions)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &server{gate: gate, o: o}, nil
}

type server struct {
	gate *fencehttp.Gate
	o    Options
}

// WrapUnary is part of [connect.Interceptor].
func (s *server) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (reply connect.AnyResponse, err error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		err = s.do(ctx, req.Spec(), req.Header(), req.Any(), func(ctx context.Context) error {
			var err error
			reply, err = next(ctx, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		return reply, nil
	}
}

// WrapStreamingClient is part of [connect.Interceptor].
func (s *server) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is part of [connect.Interceptor].
func (s *server) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return s.do(ctx, conn.Spec(), conn.RequestHeader(), nil, func(ctx context.Context) error { return next(ctx, conn) })
	}
}

func (s *server) do(ctx context.Context, spec connect.Spec, header http.Header, message any, serve func(ctx context.Context) error) error {
	call := fencehttp.Call{Claims: header.Values(fencehttp.ClaimHeader)}
	var err error
	if call.Resource, call.Protected, err = s.o.Resource(ctx, spec, header, message); err != nil {
		if !errors.Is(err, fencehttp.ErrResource) {
			s.o.Log.ErrorContext(ctx, "a call's resource is not clear", "method", spec.Procedure, "error", err)
			err = &fencehttp.ResourceError{Problem: "it could not be found out"}
		}
		return s.refuse(ctx, spec, call, err)
	}
	var own error // of the handler
	served, err := s.gate.Do(ctx, call, func(ctx context.Context) error {
		own = serve(ctx)
		return own
	})
	switch {
	case !served:
		return s.refuse(ctx, spec, call, err)
	case own != nil || err == nil:
		return own
	}
	s.o.Log.WarnContext(ctx, "a call outlived its lease", "method", spec.Procedure, "resource", call.Resource, "error", err)
	return connect.NewError(connect.CodeUnknown, errOutlived)
}

func (s *server) refuse(ctx context.Context, spec connect.Spec, call fencehttp.Call, err error) error {
	p := fencehttp.ProblemOf(call.Resource, err)
	level := slog.LevelWarn
	if p.Code == fencehttp.CodeUnavailable && ctx.Err() == nil {
		level = slog.LevelError
	}
	s.o.Log.Log(ctx, level, "refused a call", "code", string(p.Code), "method", spec.Procedure, "resource", call.Resource, "name", p.Name,
		"seen", p.Seen.String(), "newer", p.Newer.String(), "error", err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	case ctx.Err() != nil:
		return connect.NewError(connect.CodeCanceled, ctx.Err())
	}
	refusal := connect.NewError(codeOf(p.Code), errors.New(p.Detail))
	details := []proto.Message{&errdetails.ErrorInfo{Reason: p.Code.Reason(), Domain: fencehttp.ReasonDomain, Metadata: p.Facts()}}
	if p.After() > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(p.After())})
	}
	for _, detail := range details {
		d, err := connect.NewErrorDetail(detail)
		if err != nil { // the refusal stands without it
			s.o.Log.ErrorContext(ctx, "the details of a refusal", "error", err)
			continue
		}
		refusal.AddDetail(d)
	}
	return refusal
}

// codeOf is Connect's code of a refusal.
func codeOf(code fencehttp.Code) connect.Code {
	switch code {
	case fencehttp.CodeRefused, fencehttp.CodeMissing, fencehttp.CodeForeign, fencehttp.CodeAhead:
		return connect.CodeFailedPrecondition
	case fencehttp.CodeInvalid, fencehttp.CodeResource:
		return connect.CodeInvalidArgument
	default:
		return connect.CodeUnavailable
	}
}
