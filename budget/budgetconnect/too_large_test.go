package budgetconnect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tenure-go/tenure/budget"
)

// TestAnAnswerTooLargeToSend: the server's own library answers with the code of an overloaded service, after the handler has done its work.
func TestAnAnswerTooLargeToSend(t *testing.T) {
	var calls atomic.Int32
	mux := http.NewServeMux()
	mux.Handle(unaryPath, connect.NewUnaryHandler(unaryPath, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[wrapperspb.StringValue], error) {
		calls.Add(1)
		return connect.NewResponse(wrapperspb.String("a long answer")), nil
	}, connect.WithSendMaxBytes(1)))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for protocol, options := range protocols() {
		before := calls.Load()
		client := connect.NewClient[emptypb.Empty, wrapperspb.StringValue](server.Client(), server.URL+unaryPath, append(options, connect.WithInterceptors(NewClient()))...)
		_, err := client.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{}))
		if connect.CodeOf(err) != connect.CodeResourceExhausted || budget.ClassOf(err) != budget.Unknown || calls.Load() != before+1 {
			t.Errorf("%s: %v, %d served", protocol, err, calls.Load()-before)
		}
	}
}
