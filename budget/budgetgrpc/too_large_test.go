package budgetgrpc

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/budget"
)

// TestAnAnswerTooLargeToSend: the server's own library answers with the code of an overloaded service, after the handler has done its work.
func TestAnAnswerTooLargeToSend(t *testing.T) {
	s := &service{work: func(context.Context) error { return nil }}
	server := grpc.NewServer(grpc.MaxSendMsgSize(1))
	grpc_health_v1.RegisterHealthServer(server, s)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(listener.Addr().String(), append(DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if status.Code(err) != codes.ResourceExhausted || budget.ClassOf(err) != budget.Unknown || s.calls.Load() != 1 {
		t.Errorf("%v, %d served", err, s.calls.Load())
	}
}
