package budgetconnect

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"
)

// TestLateIsLate: a service that noticed the end of the time first answers with a code. That too is the end of an attempt's time, by which [budget.Do] tells it from a real error.
func TestLateIsLate(t *testing.T) {
	for protocol, options := range protocols() {
		w := start(t, anyTime(), func(context.Context, http.Header) error {
			return connect.NewError(connect.CodeDeadlineExceeded, errors.New("x"))
		}, options...)
		for _, err := range []error{w.unary(t.Context()), w.stream(t.Context())} {
			var known *connect.Error
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &known) || connect.CodeOf(err) != connect.CodeDeadlineExceeded {
				t.Errorf("%s: %v", protocol, err)
			}
		}
	}
}
