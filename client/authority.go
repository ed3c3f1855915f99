package client

import (
	"context"

	"connectrpc.com/connect"

	"github.com/tenure-go/tenure/internal/gen/tenure/v1/tenurev1connect"
	"github.com/tenure-go/tenure/internal/wire"
)

// meant says in each call which authority it is for, so that a server that has come back with another store refuses it. Only the question which one it serves is for any.
type meant struct{ client *Client }

// WrapUnary is part of [connect.Interceptor].
func (m meant) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().Procedure != tenurev1connect.LeaseServiceGetAuthorityProcedure {
			req.Header().Set(wire.HeaderAuthority, wire.ID(m.client.authority))
		}
		return next(ctx, req)
	}
}

// WrapStreamingClient is part of [connect.Interceptor].
func (m meant) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set(wire.HeaderAuthority, wire.ID(m.client.authority))
		return conn
	}
}

// WrapStreamingHandler is part of [connect.Interceptor].
func (m meant) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
