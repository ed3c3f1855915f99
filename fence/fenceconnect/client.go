package fenceconnect

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencehttp"
)

// NewClient returns an interceptor that sends the claim which find finds for a call's context; nil: [fencehttp.ClaimToSend]. It belongs
// to the clients of services that may see the claims. Calls that are served it leaves alone.
//
// A refusal is an error that matches the kinds of package fence and fencehttp, by errors.As a [*fence.RefusedError], and is still the
// [*connect.Error] it came as; of a stream it comes with the first message that is received. A claim that is none is not sent: an error
// matching [fence.ErrInvalid], which a stream returns from its first Send and Receive. Safe for concurrent use.
func NewClient(find func(ctx context.Context) (fence.Claim, bool)) connect.Interceptor {
	if find == nil {
		find = fencehttp.ClaimToSend
	}
	return &client{find: find}
}

type client struct {
	find func(ctx context.Context) (fence.Claim, bool)
}

// WrapUnary is part of [connect.Interceptor].
func (c *client) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if !req.Spec().IsClient {
			return next(ctx, req)
		}
		claim, ok := c.find(ctx)
		if ok {
			if err := claim.Check(); err != nil {
				return nil, err
			}
			req.Header().Set(fencehttp.ClaimHeader, claim.String())
		}
		reply, err := next(ctx, req)
		return reply, refusalOf(claim, err)
	}
}

// WrapStreamingClient is part of [connect.Interceptor].
func (c *client) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := &sent{StreamingClientConn: next(ctx, spec)}
		claim, ok := c.find(ctx)
		if !ok {
			return conn
		}
		if conn.claim, conn.bad = claim, claim.Check(); conn.bad == nil {
			conn.RequestHeader().Set(fencehttp.ClaimHeader, claim.String())
		}
		return conn
	}
}

// WrapStreamingHandler is part of [connect.Interceptor].
func (c *client) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// sent is a stream under a claim.
type sent struct {
	connect.StreamingClientConn
	claim fence.Claim
	bad   error // why it must not be sent
}

// Send sends nothing under a claim that is none.
func (s *sent) Send(message any) error {
	if s.bad != nil {
		return s.bad
	}
	return refusalOf(s.claim, s.StreamingClientConn.Send(message))
}

// Receive tells a refusal as what it is.
func (s *sent) Receive(message any) error {
	if s.bad != nil {
		return s.bad
	}
	return refusalOf(s.claim, s.StreamingClientConn.Receive(message))
}

// refusalOf is err, and if it tells a refusal also what was refused.
func refusalOf(claim fence.Claim, err error) error {
	var failed *connect.Error
	if !errors.As(err, &failed) {
		return err
	}
	var info *errdetails.ErrorInfo
	var after time.Duration
	for _, detail := range failed.Details() {
		value, err := detail.Value()
		if err != nil {
			continue // of a type that is not known here
		}
		switch d := value.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			after = d.GetRetryDelay().AsDuration()
		}
	}
	p, ok := fencehttp.ProblemFrom(info.GetDomain(), info.GetReason(), failed.Message(), info.GetMetadata(), after)
	if !ok {
		return err
	}
	return &refusalError{as: failed, err: p.Err(claim)}
}
