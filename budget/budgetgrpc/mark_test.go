package budgetgrpc

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// bottomWork is the work at the bottom of three layers on real sockets, which make three attempts each of what the bottom refuses for now; marked is whether the topmost marks its calls. The layers between
// answer without saying that they have repeated anything: what keeps them from it is the mark on the call. dial may change what is sent.
func bottomWork(t *testing.T, marked bool, dial ...grpc.DialOption) (bottom int32, failed error) {
	t.Helper()
	below := start(t, anyTime(), func(context.Context) error { return withRetryInfo(codes.Unavailable, 0) }, dial...)
	policy := budget.Policy{Try: budget.Try{Timeout: 20 * time.Second, Minimum: time.Millisecond}, Base: 1, Most: 1}
	top := below
	for range 2 {
		next := top
		top = start(t, anyTime(), func(ctx context.Context) error {
			if budget.Do(ctx, policy, func(ctx context.Context) error { return next.check(ctx) }) != nil {
				return withRetryInfo(codes.Unavailable, 0)
			}
			return nil
		}, dial...)
	}
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	policy.NoRetryBelow = marked
	err = budget.Do(b.Context(), policy, func(ctx context.Context) error { return top.check(ctx) })
	return below.calls.Load(), err
}

// carries holds connections to the mark: three layers that it goes through make three attempts in all.
func carries(t *testing.T, dial ...grpc.DialOption) error {
	t.Helper()
	bottom, err := bottomWork(t, true, dial...)
	if bottom != 3 || !errors.Is(err, budget.ErrAttempts) {
		return fmt.Errorf("%d at the bottom, %w", bottom, err)
	}
	return nil
}

// TestTheMarkTravelsThroughThreeLayers: work at the bottom is that of one layer; without the mark it is 27-fold.
func TestTheMarkTravelsThroughThreeLayers(t *testing.T) {
	if err := carries(t); err != nil {
		t.Error(err)
	}
	if bottom, err := bottomWork(t, false); bottom != 27 || !errors.Is(err, budget.ErrAttempts) {
		t.Errorf("unmarked: %d at the bottom, %v", bottom, err)
	}
}

// TestAnInterceptorThatDropsTheMarkIsCaught: it does not pass [TestTheMarkTravelsThroughThreeLayers].
func TestAnInterceptorThatDropsTheMarkIsCaught(t *testing.T) {
	drops := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoke(budget.WithoutAttempt(ctx), method, req, reply, conn, opts...)
	})
	if err := carries(t, drops); err == nil {
		t.Error("it passes")
	} else {
		t.Log(err)
	}
}

// TestMarksOfCallers: of unary calls and streams; only the mark itself is one, garbage is absent, as it is of attempt numbers, and no reason to refuse a call.
func TestMarksOfCallers(t *testing.T) {
	got := make(chan string, 1)
	w := start(t, anyTime(), func(ctx context.Context) error {
		got <- fmt.Sprint(budget.ForbidsRetry(ctx), budgethttp.CallersAttempt(ctx))
		return nil
	})
	door, err := NewServer(anyTime())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		values []string
		want   string
	}{
		"absent": {nil, "false 2"}, "marked": {[]string{"1"}, "true 2"}, "empty": {[]string{""}, "false 2"}, "zero": {[]string{"0"}, "false 2"}, "negative": {[]string{"-1"}, "false 2"}, "true": {[]string{"true"}, "false 2"},
		"huge": {[]string{"99999999999999999999"}, "false 2"}, "garbage": {[]string{"\x00"}, "false 2"}, "twice": {[]string{"1", "1"}, "false 2"},
	} {
		md := metadata.MD{attemptKey: {"2"}}
		if c.values != nil {
			md[noRetryKey] = c.values
		}
		_, err := door.Unary(metadata.NewIncomingContext(t.Context(), md), nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
			if seen := fmt.Sprint(budget.ForbidsRetry(ctx), budgethttp.CallersAttempt(ctx)); seen != c.want {
				t.Errorf("%s: %s", name, seen)
			}
			return struct{}{}, nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	own := metadata.AppendToOutgoingContext(t.Context(), noRetryKey, "1", noRetryKey, "0") // what is sent by hand is replaced
	for want, ctx := range map[string]context.Context{"true 0": budget.NoRetry(own), "false 0": own} {
		for kind, call := range map[string]func(context.Context) error{"unary": func(ctx context.Context) error { return w.check(ctx) }, "stream": w.watch} {
			if err := call(ctx); err != nil && err.Error() != "EOF" {
				t.Errorf("%s: %v", kind, err)
			} else if seen := <-got; seen != want {
				t.Errorf("%s: %s, want %s", kind, seen, want)
			}
		}
	}
}
