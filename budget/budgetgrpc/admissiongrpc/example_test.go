package admissiongrpc_test

import (
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/tenure-go/tenure/budget/admission"
	"github.com/tenure-go/tenure/budget/budgetgrpc"
	"github.com/tenure-go/tenure/budget/budgetgrpc/admissiongrpc"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// A service whose calls first get what their callers still wait for, and are then let in: questions about what became of an order go before new ones.
func Example() {
	door, err := budgetgrpc.NewServer(budgethttp.Limits{Most: 10 * time.Second, Reserve: 100 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := admission.New(admission.Options{First: 50})
	if err != nil {
		fmt.Println(err)
		return
	}
	let := admissiongrpc.New(limiter, func(method string) admission.Priority {
		if method == "/shop.Orders/Find" {
			return admission.Status
		}
		return admission.Work
	})
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(door.Unary, let.Unary), grpc.ChainStreamInterceptor(door.Stream, let.Stream))
	defer server.Stop()
	fmt.Println(limiter.Numbers().Limit, "at a time")
	// Output: 50 at a time
}
