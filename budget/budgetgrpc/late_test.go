package budgetgrpc

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/budget"
)

// TestRealErrorIsKept: an attempt that ends with its time is one of gRPC's statuses. It hides no real error of an attempt before it, and a repetition after it takes what one after a timeout takes.
func TestRealErrorIsKept(t *testing.T) {
	calls := 0
	w := start(t, anyTime(), func(ctx context.Context) error {
		if calls++; calls == 1 {
			return withRetryInfo(codes.Unavailable, time.Millisecond)
		}
		<-ctx.Done()
		return ctx.Err()
	})
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	throttle, err := budget.NewThrottle(budget.ThrottleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	policy := budget.Policy{Try: budget.Try{Name: "orders", Timeout: 200 * time.Millisecond}, Idempotent: true, Base: 1, Most: 1, Throttle: throttle}
	err = budget.Do(b.Context(), policy, func(ctx context.Context) error { return w.check(ctx) })
	var gave *budget.GaveUpError
	if !errors.As(err, &gave) || status.Code(gave.Real) != codes.Unavailable || status.Code(gave.Last) != codes.DeadlineExceeded || !errors.Is(gave.Last, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	if left := throttle.Left("orders"); left != 500-5-10 {
		t.Errorf("%d left", left)
	}
}
