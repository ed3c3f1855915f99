package budgetgrpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/internal/rpc"
)

// The metadata of a call, and of its end.
const (
	attemptKey  = "tenure-attempt"         // budget.HeaderAttempt, as gRPC spells it
	noRetryKey  = "tenure-no-retry"        // budget.HeaderNoRetry, of a call and of its end
	pushBackKey = "grpc-retry-pushback-ms" // gRPC's own: negative stops its retries
)

// DialOptions are what a connection needs so that its calls send their attempt number, and the mark of [budget.NoRetry] where their context carries it, and fail with a [*budget.Error], which still is the status it came as.
// They belong behind other interceptors: what they see is then what is sent.
//
// A call with less than a millisecond left is not sent, with an error matching [budget.ErrNoTime]. One whose headers were never handed to a connection was not sent. Of one
// that was, only the server's own answer proves anything: codes by which handlers refuse are a refusal; RESOURCE_EXHAUSTED and UNAVAILABLE with a RetryInfo are one that another attempt may find otherwise, and without it prove nothing; anything
// else is [budget.Unknown], and so is everything after gRPC has repeated an attempt by itself that may have been processed, and after a message of the answer. Errors of a stream come classified from each of its methods; io.EOF stays what it is.
//
// The mark binds the [budget.Do] of who serves the call. A retry policy of gRPC's own, on either side, does not know it: whoever uses the mark leaves such policies off.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithStatsHandler(observer{}), grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(stream)}
}

func unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, p, err := outgoing(ctx)
	if err != nil {
		return err
	}
	return p.failed(invoke(ctx, method, req, reply, conn, opts...))
}

func stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, p, err := outgoing(ctx)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, p.failed(err)
	}
	return &sent{s, p}, nil
}

// outgoing is the context of a call that may be sent.
func outgoing(ctx context.Context) (context.Context, *progress, error) {
	carried, err := rpc.Outgoing(ctx)
	var refused *budget.Error
	if errors.As(err, &refused) {
		refused.Err = &unsentError{refused.Err}
		return nil, nil, refused
	}
	p := &progress{}
	md, _ := metadata.FromOutgoingContext(ctx)
	md = metadata.Join(md) // a copy
	put(md, attemptKey, carried.Attempt)
	put(md, noRetryKey, carried.NoRetry)
	return metadata.NewOutgoingContext(context.WithValue(ctx, progressKey{}, p), md), p, nil
}

// put sets what is sent in place of whatever is there; "" is not sent.
func put(md metadata.MD, key, text string) {
	md.Delete(key)
	if text != "" {
		md.Set(key, text)
	}
}

// failed is what is known of a call that ended with err.
func (p *progress) failed(err error) error {
	if err == nil {
		return nil
	}
	earlier, now := p.look()
	if status.Code(err) == codes.DeadlineExceeded {
		err = rpc.Late(err)
	}
	e := &budget.Error{Class: budget.Unknown, Phase: now.phase(), Err: err}
	switch {
	case !now.headed:
		e.Class = budget.NotSent
	case now.answered:
		e = answer(err, now).Proves(err)
	}
	if earlier || now.message {
		e.Class, e.Again = budget.Unknown, false
	}
	return e
}

func answer(err error, now attempt) rpc.Answer {
	st, _ := status.FromError(err)
	a := rpc.Answer{Code: rpc.Code(st.Code()), Begun: now.begun, NoRetry: now.noRetry()}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
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
	grpc.ClientStream
	p *progress
}

func (s *sent) classify(err error) error {
	if errors.Is(err, io.EOF) { // the end, or of SendMsg: RecvMsg knows more
		return err
	}
	return s.p.failed(err)
}

// Header is part of grpc.ClientStream.
func (s *sent) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	return md, s.classify(err)
}

// CloseSend is part of grpc.ClientStream.
func (s *sent) CloseSend() error { return s.classify(s.ClientStream.CloseSend()) }

// SendMsg is part of grpc.ClientStream.
func (s *sent) SendMsg(m any) error { return s.classify(s.ClientStream.SendMsg(m)) }

// RecvMsg is part of grpc.ClientStream.
func (s *sent) RecvMsg(m any) error { return s.classify(s.ClientStream.RecvMsg(m)) }
