package budgetconnect

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tenure-go/tenure/budget"
)

// TestAnothersFailureIsNotThisOnes: where another call's failure has ended the context of one that was sent, net/http returns that failure. What it says is not known of this call, also where no Transport of ours is below.
func TestAnothersFailureIsNotThisOnes(t *testing.T) {
	for protocol, options := range protocols() {
		began := make(chan struct{}, 1)
		w := start(t, anyTime(), func(ctx context.Context, _ http.Header) error { began <- struct{}{}; <-ctx.Done(); return ctx.Err() }, options...)
		options = append([]connect.ClientOption{connect.WithInterceptors(NewClient())}, options...)
		bare := connect.NewClient[emptypb.Empty, emptypb.Empty](w.server.Client(), w.server.URL+unaryPath, options...)
		bareStream := connect.NewClient[emptypb.Empty, emptypb.Empty](w.server.Client(), w.server.URL+streamPath, options...)
		for name, call := range map[string]func(context.Context) error{
			"unary": w.unary, "stream": func(ctx context.Context) error { return w.stream(ctx) },
			"unary, bare": func(ctx context.Context) error {
				_, err := bare.CallUnary(ctx, connect.NewRequest(&emptypb.Empty{}))
				return err
			},
			"stream, bare": func(ctx context.Context) error {
				stream, err := bareStream.CallServerStream(ctx, connect.NewRequest(&emptypb.Empty{}))
				if err != nil {
					return err
				}
				defer stream.Close()
				stream.Receive()
				return stream.Err()
			},
		} {
			for _, class := range []budget.Class{budget.NotSent, budget.Refused} {
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					<-began
					cancel(&budget.Error{Class: class, Err: errors.New("another call's")})
				}()
				if err := call(ctx); budget.ClassOf(err) != budget.Unknown {
					t.Errorf("%s, %s: %v", protocol, name, err)
				}
			}
		}
	}
}
