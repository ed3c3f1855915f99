package budgetconnect_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgetconnect"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// The interceptor of a service, and a client whose calls are classified. Nobody listens at the address: nothing was sent, and the call may be made again.
func Example() {
	door, err := budgetconnect.NewServer(budgethttp.Limits{Most: 10 * time.Second, Reserve: 100 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/shop.Orders/Cancel", connect.NewUnaryHandler("/shop.Orders/Cancel", func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(&emptypb.Empty{}), nil
	}, connect.WithInterceptors(door)))

	below := &http.Client{Transport: &budgethttp.Transport{}}
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](below, "http://127.0.0.1:1/shop.Orders/Cancel", connect.WithInterceptors(budgetconnect.NewClient()))
	b, err := budget.Start(context.Background(), time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.End()
	attempts := 0
	err = budget.Do(b.Context(), budget.Policy{Try: budget.Try{Name: "orders"}, Base: time.Millisecond}, func(ctx context.Context) error {
		attempts++
		_, err := client.CallUnary(ctx, connect.NewRequest(&emptypb.Empty{}))
		return err
	})
	fmt.Println(budget.ClassOf(err), "after", attempts, "attempts")
	// Output: not sent after 3 attempts
}
