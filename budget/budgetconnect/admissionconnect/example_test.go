package admissionconnect_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tenure-go/tenure/budget/admission"
	"github.com/tenure-go/tenure/budget/budgetconnect"
	"github.com/tenure-go/tenure/budget/budgetconnect/admissionconnect"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// A service whose calls first get what their callers still wait for, and are then let in: questions about what became of an order go before new ones.
func Example() {
	door, err := budgetconnect.NewServer(budgethttp.Limits{Most: 10 * time.Second, Reserve: 100 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := admission.New(admission.Options{First: 50})
	if err != nil {
		fmt.Println(err)
		return
	}
	let := admissionconnect.New(limiter, func(procedure string) admission.Priority {
		if procedure == "/shop.Orders/Find" {
			return admission.Status
		}
		return admission.Work
	})
	mux := http.NewServeMux()
	mux.Handle("/shop.Orders/Cancel", connect.NewUnaryHandler("/shop.Orders/Cancel", func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(&emptypb.Empty{}), nil
	}, connect.WithInterceptors(door, let)))
	fmt.Println(limiter.Numbers().Limit, "at a time")
	// Output: 50 at a time
}
