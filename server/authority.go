package server

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/wire"
	"github.com/tenure-go/tenure/lease"
)

// ours refuses calls that are meant for another authority: an address at which another store is served than the caller knows. A call that names none is meant for whoever is here.
type ours struct{ authority fence.ID }

func (o ours) check(named string) error {
	if named == "" || named == wire.ID(o.authority) {
		return nil
	}
	return wire.Error(&lease.UnavailableError{Op: "call", Err: fmt.Errorf("this server serves authority %v, and the call is for %q", o.authority, named)})
}

// WrapUnary is part of [connect.Interceptor].
func (o ours) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := o.check(req.Header().Get(wire.HeaderAuthority)); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// WrapStreamingClient is part of [connect.Interceptor].
func (o ours) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is part of [connect.Interceptor].
func (o ours) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := o.check(conn.RequestHeader().Get(wire.HeaderAuthority)); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}
