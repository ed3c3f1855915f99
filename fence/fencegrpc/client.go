package fencegrpc

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencehttp"
)

// Client sends claims along a connection. Its field must not be changed once it is in use; then it is safe for concurrent use.
// It belongs to the connections to services that may see the claims.
type Client struct {
	// Claim finds the claim for a call's context; nil: [fencehttp.ClaimToSend].
	Claim func(ctx context.Context) (fence.Claim, bool)
}

// Unary is the interceptor of unary calls. A refusal is an error that matches the kinds of package fence and fencehttp, by errors.As a
// [*fence.RefusedError], and is still the status it came as. An invalid claim is not sent: an error matching [fence.ErrInvalid].
func (c *Client) Unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, claim, err := c.present(ctx)
	if err != nil {
		return err
	}
	return refusalOf(claim, invoke(ctx, method, req, reply, conn, opts...))
}

// Stream is the interceptor of streams. A refusal comes with the first message that is received, as gRPC has it.
func (c *Client) Stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, claim, err := c.present(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, refusalOf(claim, err)
	}
	return &sent{ClientStream: stream, claim: claim}, nil
}

// present puts the claim into the metadata, in place of any that stands there.
func (c *Client) present(ctx context.Context) (context.Context, fence.Claim, error) {
	find := c.Claim
	if find == nil {
		find = fencehttp.ClaimToSend
	}
	claim, ok := find(ctx)
	if !ok {
		return ctx, claim, nil
	}
	if err := claim.Check(); err != nil {
		return ctx, claim, err
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	md = metadata.Join(md) // a copy
	md.Set(ClaimKey, claim.String())
	return metadata.NewOutgoingContext(ctx, md), claim, nil
}

// sent is a stream under a claim.
type sent struct {
	grpc.ClientStream
	claim fence.Claim
}

// RecvMsg tells a refusal as what it is.
func (s *sent) RecvMsg(m any) error { return refusalOf(s.claim, s.ClientStream.RecvMsg(m)) }

// refusalOf is err, and if it is the status of a refusal also what was refused.
func refusalOf(claim fence.Claim, err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	var info *errdetails.ErrorInfo
	var after time.Duration
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			after = d.GetRetryDelay().AsDuration()
		}
	}
	p, ok := fencehttp.ProblemFrom(info.GetDomain(), info.GetReason(), st.Message(), info.GetMetadata(), after)
	if !ok {
		return err
	}
	return &refusalError{status: st, err: p.Err(claim)}
}
