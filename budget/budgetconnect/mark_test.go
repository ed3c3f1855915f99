package budgetconnect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// bottomWork is the work at the bottom of three layers on real sockets, which make three attempts each of what the bottom refuses for now; marked is whether the topmost marks its calls. The layers between
// answer without saying that they have repeated anything: what keeps them from it is the mark on the call.
func bottomWork(t *testing.T, marked bool, options ...connect.ClientOption) (bottom int32, failed error) {
	t.Helper()
	below := start(t, anyTime(), func(context.Context, http.Header) error { return withRetryInfo(connect.CodeUnavailable, 0) }, options...)
	policy := budget.Policy{Try: budget.Try{Timeout: 20 * time.Second, Minimum: time.Millisecond}, Base: 1, Most: 1}
	top := below
	for range 2 {
		next := top
		top = start(t, anyTime(), func(ctx context.Context, _ http.Header) error {
			if budget.Do(ctx, policy, next.unary) != nil {
				return withRetryInfo(connect.CodeUnavailable, 0)
			}
			return nil
		}, options...)
	}
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	policy.NoRetryBelow = marked
	err = budget.Do(b.Context(), policy, top.unary)
	return below.calls.Load(), err
}

// carries holds clients to the mark: three layers that it goes through make three attempts in all.
func carries(t *testing.T, options ...connect.ClientOption) error {
	t.Helper()
	bottom, err := bottomWork(t, true, options...)
	if bottom != 3 || !errors.Is(err, budget.ErrAttempts) {
		return fmt.Errorf("%d at the bottom, %w", bottom, err)
	}
	return nil
}

// TestTheMarkTravelsThroughThreeLayers: work at the bottom is that of one layer, in each protocol; without the mark it is 27-fold.
func TestTheMarkTravelsThroughThreeLayers(t *testing.T) {
	for protocol, options := range protocols() {
		if err := carries(t, options...); err != nil {
			t.Errorf("%s: %v", protocol, err)
		}
		if bottom, err := bottomWork(t, false, options...); bottom != 27 || !errors.Is(err, budget.ErrAttempts) {
			t.Errorf("unmarked, %s: %d at the bottom, %v", protocol, bottom, err)
		}
	}
}

// TestAnInterceptorThatDropsTheMarkIsCaught: it does not pass [TestTheMarkTravelsThroughThreeLayers].
func TestAnInterceptorThatDropsTheMarkIsCaught(t *testing.T) {
	drops := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			req.Header().Del(budget.HeaderNoRetry)
			return next(budget.WithoutAttempt(ctx), req) // else the transport below would send it
		}
	})
	for protocol, options := range protocols() {
		if err := carries(t, append(options, connect.WithInterceptors(drops))...); err == nil {
			t.Errorf("%s: it passes", protocol)
		} else {
			t.Logf("%s: %v", protocol, err)
		}
	}
}

// TestMarksOfCallers: of unary calls and streams; only the mark itself is one, garbage is absent, as it is of attempt numbers, and no reason to refuse a call.
func TestMarksOfCallers(t *testing.T) {
	got := make(chan string, 1)
	for protocol, options := range protocols() {
		w := start(t, anyTime(), func(ctx context.Context, _ http.Header) error {
			got <- fmt.Sprint(budget.ForbidsRetry(ctx), budgethttp.CallersAttempt(ctx))
			return nil
		}, options...)
		for want, ctx := range map[string]context.Context{"true 0": budget.NoRetry(t.Context()), "false 0": t.Context()} {
			if err := w.unary(ctx); err != nil {
				t.Errorf("%s: %v", protocol, err)
			} else if seen := <-got; seen != want {
				t.Errorf("%s, unary: %s, want %s", protocol, seen, want)
			}
			if err := w.stream(ctx, budget.HeaderNoRetry); err != nil { // what is set by hand is replaced
				t.Errorf("%s: %v", protocol, err)
			} else if seen := <-got; seen != want {
				t.Errorf("%s, stream: %s, want %s", protocol, seen, want)
			}
			bare := connect.NewClient[emptypb.Empty, emptypb.Empty](w.server.Client(), w.server.URL+unaryPath, append(options, connect.WithInterceptors(NewClient()))...) // no transport of ours
			if _, err := bare.CallUnary(ctx, connect.NewRequest(&emptypb.Empty{})); err != nil {
				t.Errorf("%s: %v", protocol, err)
			} else if seen := <-got; seen != want {
				t.Errorf("%s, no transport: %s, want %s", protocol, seen, want)
			}
		}
	}
	w := start(t, anyTime(), func(ctx context.Context, _ http.Header) error {
		got <- fmt.Sprint(budget.ForbidsRetry(ctx), budgethttp.CallersAttempt(ctx))
		return nil
	})
	for name, c := range map[string]struct {
		values []string
		want   string
	}{
		"absent": {nil, "false 2"}, "marked": {[]string{"1"}, "true 2"}, "empty": {[]string{""}, "false 2"}, "zero": {[]string{"0"}, "false 2"}, "negative": {[]string{"-1"}, "false 2"}, "true": {[]string{"true"}, "false 2"},
		"huge": {[]string{"99999999999999999999"}, "false 2"}, "two in one": {[]string{"1,1"}, "false 2"}, "garbage first": {[]string{"x", "1"}, "false 2"},
	} {
		header := http.Header{"Content-Type": {"application/proto"}, budget.HeaderAttempt: {"2"}}
		if c.values != nil {
			header[budget.HeaderNoRetry] = c.values
		}
		post(t, w.server.Client(), w.server.URL+unaryPath, header)
		if seen := <-got; seen != c.want {
			t.Errorf("%s: %s", name, seen)
		}
	}
}
