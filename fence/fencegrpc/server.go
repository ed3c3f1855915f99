package fencegrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tenure-go/tenure/fence/fencehttp"
)

// ClaimKey is the metadata that carry a claim.
const ClaimKey = "tenure-claim"

// Options say how a service is protected.
type Options struct {
	fencehttp.GateOptions

	// Resource says what a call is about and whether it is protected. method is the full one, "/shop.Orders/Cancel"; message is nil
	// for a stream. An error refuses the call; one matching [fencehttp.ErrResource] is told, of others only that they occurred. Required.
	Resource func(ctx context.Context, method string, message any) (resource string, protected bool, err error)
	// Log hears of refusals at level Warn, and of checks that could not be made at level Error; nil: nobody.
	Log *slog.Logger
}

// Server is the door of a service. Safe for concurrent use.
type Server struct {
	gate *fencehttp.Gate
	o    Options
}

// NewServer returns an error matching [fencehttp.ErrOption] for options without a Check or a Resource.
func NewServer(o Options) (*Server, error) {
	if o.Resource == nil {
		return nil, fmt.Errorf("%w: what a call is about must be told by Resource", fencehttp.ErrOption)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	gate, err := fencehttp.NewGate(o.GateOptions)
	return &Server{gate: gate, o: o}, err
}

// Unary is the interceptor of unary calls. The handler finds the claim by [fencehttp.ClaimFrom].
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
	err = s.do(ctx, info.FullMethod, req, func(ctx context.Context) error {
		var err error
		reply, err = handler(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// Stream is the interceptor of streams.
func (s *Server) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return s.do(stream.Context(), info.FullMethod, nil, func(ctx context.Context) error {
		return handler(srv, &served{ServerStream: stream, ctx: ctx})
	})
}

// served is a stream that was let in.
type served struct {
	grpc.ServerStream
	ctx context.Context // a stream hands its context out by a method
}

// Context carries the claim.
func (s *served) Context() context.Context { return s.ctx }

func (s *Server) do(ctx context.Context, method string, message any, serve func(ctx context.Context) error) error {
	call := fencehttp.Call{Claims: metadata.ValueFromIncomingContext(ctx, ClaimKey)}
	var err error
	if call.Resource, call.Protected, err = s.o.Resource(ctx, method, message); err != nil {
		if !errors.Is(err, fencehttp.ErrResource) {
			s.o.Log.ErrorContext(ctx, "a call's resource is not clear", "method", method, "error", err)
			err = &fencehttp.ResourceError{Problem: "it could not be found out"}
		}
		return s.refuse(ctx, method, call, err)
	}
	var own error // of the handler
	served, err := s.gate.Do(ctx, call, func(ctx context.Context) error {
		own = serve(ctx)
		return own
	})
	switch {
	case !served:
		return s.refuse(ctx, method, call, err)
	case own != nil || err == nil:
		return own
	}
	s.o.Log.WarnContext(ctx, "a call outlived its lease", "method", method, "resource", call.Resource, "error", err)
	return status.Error(codes.Unknown, "the call was served and outlived its lease: its successor may have been let in before it ended; look at the resource")
}

func (s *Server) refuse(ctx context.Context, method string, call fencehttp.Call, err error) error {
	p := fencehttp.ProblemOf(call.Resource, err)
	level := slog.LevelWarn
	if p.Code == fencehttp.CodeUnavailable && ctx.Err() == nil {
		level = slog.LevelError
	}
	s.o.Log.Log(ctx, level, "refused a call", "code", string(p.Code), "method", method, "resource", call.Resource, "name", p.Name,
		"seen", p.Seen.String(), "newer", p.Newer.String(), "error", err)
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	refusal := status.New(codeOf(p.Code), p.Detail)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: p.Code.Reason(), Domain: fencehttp.ReasonDomain, Metadata: p.Facts()}}
	if p.After() > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(p.After())})
	}
	detailed, err := refusal.WithDetails(details...)
	if err != nil { // of a detail that cannot be encoded: the refusal stands without it
		s.o.Log.ErrorContext(ctx, "the details of a refusal", "error", err)
		return refusal.Err()
	}
	return detailed.Err()
}

// codeOf is the gRPC code of a refusal.
func codeOf(code fencehttp.Code) codes.Code {
	switch code {
	case fencehttp.CodeRefused, fencehttp.CodeMissing, fencehttp.CodeForeign, fencehttp.CodeAhead:
		return codes.FailedPrecondition
	case fencehttp.CodeInvalid, fencehttp.CodeResource:
		return codes.InvalidArgument
	default:
		return codes.Unavailable
	}
}
