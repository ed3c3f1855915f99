package budgetgrpc_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgetgrpc"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// The interceptors of a service, and a connection whose calls are classified. Nobody listens at the address: nothing was sent, and the call may be made again.
func Example() {
	door, err := budgetgrpc.NewServer(budgethttp.Limits{Most: 10 * time.Second, Reserve: 100 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(door.Unary), grpc.ChainStreamInterceptor(door.Stream))
	defer server.Stop()

	conn, err := grpc.NewClient("127.0.0.1:1", append(budgetgrpc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	b, err := budget.Start(context.Background(), time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.End()
	attempts := 0
	err = budget.Do(b.Context(), budget.Policy{Try: budget.Try{Name: "health"}, Base: time.Millisecond}, func(ctx context.Context) error {
		attempts++
		_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	})
	fmt.Println(budget.ClassOf(err), "after", attempts, "attempts")
	// Output: not sent after 3 attempts
}
