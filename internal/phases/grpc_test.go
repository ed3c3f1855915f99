//go:build unix

package phases

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgetgrpc"
)

// shop is a gRPC service of well-known types, behind a proxy.
type shop struct {
	*proxy
	calls   atomic.Int32
	held    chan struct{}
	release chan struct{}
}

func (s *shop) count() int { return int(s.calls.Load()) }

// do answers by the request: of one byte a long answer, of two it holds the call.
func (s *shop) do(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // gRPC's own order
	var req wrapperspb.BytesValue
	if err := decode(&req); err != nil {
		return nil, err
	}
	switch len(req.GetValue()) {
	case 1:
		s.calls.Add(1)
		return wrapperspb.Bytes(make([]byte, long)), nil
	case 2:
		s.held <- struct{}{}
		select {
		case <-s.release:
		case <-ctx.Done():
		}
		return wrapperspb.Bytes(nil), nil
	}
	s.calls.Add(1)
	return wrapperspb.Bytes(nil), nil
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{held: make(chan struct{}, 1), release: make(chan struct{})}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(2*large), grpc.MaxConcurrentStreams(1))
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "t.T", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Do", Handler: s.do}}}, s)
	listener := listen(t)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		close(s.release)
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s.proxy = newProxy(t, listener.Addr().String())
	return s
}

func dial(t *testing.T, target string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append(budgetgrpc.DialOptions(), grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig())...) // its look-up cannot be cancelled
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func overGRPC(ctx context.Context, conn *grpc.ClientConn, kind string) error {
	value := map[string][]byte{"long": {1}, "hold": {1, 2}, "large": make([]byte, large)}[kind]
	return conn.Invoke(ctx, "/t.T/Do", wrapperspb.Bytes(value), &wrapperspb.BytesValue{})
}

// grpcAt is a scene at a target, before any connection is there.
func grpcAt(target func(t *testing.T) string, creds credentials.TransportCredentials) player {
	return func(t *testing.T, slow patience) (func() int, error) {
		t.Helper()
		s, conn := newShop(t), dial(t, target(t), creds)
		ctx, cancel := context.WithTimeout(t.Context(), slow.times(soon))
		defer cancel()
		return s.count, overGRPC(ctx, conn, "work")
	}
}

// grpcThrough is a scene on a connection through a proxy that does something.
func grpcThrough(kind, stream, what string) player {
	return func(t *testing.T, slow patience) (func() int, error) {
		t.Helper()
		s, conn := connectedShop(t)
		s.does(stream, what)
		ctx, cancel := context.WithTimeout(t.Context(), slow.times(late))
		defer cancel()
		return s.count, overGRPC(ctx, conn, kind)
	}
}

// connectedShop is a shop with a connection on which a call has been made.
func connectedShop(t *testing.T) (*shop, *grpc.ClientConn) {
	t.Helper()
	s := newShop(t)
	conn := dial(t, s.Listen, insecure.NewCredentials())
	if err := overGRPC(t.Context(), conn, "work"); err != nil {
		t.Fatal(err)
	}
	s.calls.Store(0)
	return s, conn
}

// noStream is a call that waits for the only stream that the service allows, which another call has.
func noStream(t *testing.T, slow patience) (count func() int, err error) {
	t.Helper()
	s, conn := connectedShop(t)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = overGRPC(t.Context(), conn, "hold") // how it ends is another scene's business
	}()
	t.Cleanup(func() { <-over })
	<-s.held
	ctx, cancel := context.WithTimeout(t.Context(), slow.times(soon))
	defer cancel()
	return s.count, overGRPC(ctx, conn, "work")
}

// drained is a call on a connection that has failed before, while no new one is to be had.
func drained(t *testing.T, slow patience) (count func() int, err error) {
	t.Helper()
	s, conn := connectedShop(t)
	s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), slow.times(10*time.Second))
	defer cancel()
	for state := conn.GetState(); state == connectivity.Ready; state = conn.GetState() {
		conn.WaitForStateChange(ctx, state)
	}
	return s.count, overGRPC(ctx, conn, "work")
}

func grpcScenes() []scene {
	plain, secret := insecure.NewCredentials(), credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: "service.test"})
	silentName := func(t *testing.T) string { t.Helper(); return "dns://" + silentDNS(t) + "/service.test:80" }
	noServer := func(t *testing.T) string { t.Helper(); return "dns://" + closedUDP(t) + "/service.test:80" }
	waiting := budget.PhaseConnection // gRPC looks up, connects and shakes hands for its channel, not for a call
	return []scene{
		{"the name server is silent", budget.NotSent, in(waiting), false, grpcAt(silentName, plain)},
		{"there is no name server", budget.NotSent, in(waiting), false, grpcAt(noServer, plain)},
		{"connecting gets no answer", budget.NotSent, in(waiting), false, grpcAt(full, plain)},
		{"connecting is refused", budget.NotSent, in(waiting), false, grpcAt(nobody, plain)},
		{"the handshake gets no answer", budget.NotSent, in(waiting), false, grpcAt(silent, secret)},
		{"the handshake is reset", budget.NotSent, in(waiting), false, grpcAt(resetting, secret)},
		{"the service says nothing", budget.NotSent, in(waiting), false, grpcAt(silent, plain)},
		{"no stream is free", budget.NotSent, in(waiting), false, noStream},
		{"the connection is lost before", budget.NotSent, in(waiting), false, drained},
		// gRPC takes a whole message into its own memory: how much of it has left is not told.
		{"sending does not come to its end", budget.Unknown, in(budget.PhaseSending, budget.PhaseAnswer), false, grpcThrough("large", "upstream", stall)},
		{"sending is reset", budget.Unknown, in(budget.PhaseSending, budget.PhaseAnswer), false, grpcThrough("large", "upstream", reset)},
		{"the request is lost", budget.Unknown, in(budget.PhaseAnswer), false, grpcThrough("work", "upstream", swallow)},
		{"the answer is lost", budget.Unknown, in(budget.PhaseAnswer), true, grpcThrough("work", "downstream", swallow)},
		{"the answer is a reset", budget.Unknown, in(budget.PhaseAnswer), true, grpcThrough("work", "downstream", reset)},
		{"the answer does not come to its end", budget.Unknown, in(budget.PhaseReading), true, grpcThrough("long", "downstream", stall)},
		{"the answer is cut short", budget.Unknown, in(budget.PhaseReading), true, grpcThrough("long", "downstream", cutShort)},
	}
}

// closedUDP is an address where no name server listens.
func closedUDP(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0") //nolint:noctx // it returns at once
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	return conn.LocalAddr().String()
}

func deafGRPC(t *testing.T) (call func(context.Context) error, count func() int) {
	t.Helper()
	s, conn := connectedShop(t)
	s.does("downstream", swallow)
	return func(ctx context.Context) error { return overGRPC(ctx, conn, "work") }, s.count
}
