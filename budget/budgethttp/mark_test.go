package budgethttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// layer is a service that calls the one below it, and answers a failure without saying that it has repeated anything, as a layer does that is not ours: what keeps it from repeating is the mark on the request.
func layer(t *testing.T, http2 bool, wrap middleware, policy budget.Policy, below *http.Client, url string) (*http.Client, string) {
	t.Helper()
	handler, err := wrap(Limits{Most: time.Minute}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if budget.Do(r.Context(), policy, func(ctx context.Context) error { return ask(ctx, below, url) }) != nil {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	return service(t, http2, handler)
}

// bottomWork is the work at the bottom of three layers on real sockets, which make three attempts each of what the bottom refuses for now; marked is whether the topmost marks its requests.
func bottomWork(t *testing.T, http2, marked bool, wrap middleware) (bottom int32, failed error) {
	t.Helper()
	var work atomic.Int32
	client, url := service(t, http2, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		work.Add(1)
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	policy := budget.Policy{Try: budget.Try{Timeout: 20 * time.Second, Minimum: time.Millisecond}, Base: 1, Most: 1}
	for range 2 {
		client, url = layer(t, http2, wrap, policy, client, url)
	}
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	policy.NoRetryBelow = marked
	err = budget.Do(b.Context(), policy, func(ctx context.Context) error { return ask(ctx, client, url) })
	return work.Load(), err
}

// carries holds a middleware to the mark: three layers that the mark goes through make three attempts in all.
func carries(t *testing.T, http2 bool, wrap middleware) error {
	t.Helper()
	bottom, err := bottomWork(t, http2, true, wrap)
	if bottom != 3 || !errors.Is(err, budget.ErrAttempts) {
		return fmt.Errorf("%d at the bottom, %w", bottom, err)
	}
	return nil
}

// TestTheMarkTravelsThroughThreeLayers: work at the bottom is that of one layer; without the mark it is 27-fold.
func TestTheMarkTravelsThroughThreeLayers(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		if err := carries(t, http2, Middleware); err != nil {
			t.Errorf("http2 %v: %v", http2, err)
		}
		if bottom, err := bottomWork(t, http2, false, Middleware); bottom != 27 || !errors.Is(err, budget.ErrAttempts) {
			t.Errorf("unmarked, http2 %v: %d at the bottom, %v", http2, bottom, err)
		}
	}
}

// TestAMiddlewareThatDropsTheMarkIsCaught: none of these passes [TestTheMarkTravelsThroughThreeLayers].
func TestAMiddlewareThatDropsTheMarkIsCaught(t *testing.T) {
	for name, twin := range map[string]middleware{
		"it is not read": func(l Limits, next http.Handler) (http.Handler, error) {
			sound, err := Middleware(l, next)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del(budget.HeaderNoRetry)
				sound.ServeHTTP(w, r)
			}), err
		},
		"it is not in the context": func(l Limits, next http.Handler) (http.Handler, error) {
			return Middleware(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r.WithContext(budget.WithoutAttempt(r.Context())))
			}))
		},
	} {
		if err := carries(t, false, twin); err == nil {
			t.Errorf("%s: it passes", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// TestMarksOfCallers: only the mark itself is one; garbage is absent, as it is of attempt numbers, and no reason to refuse a request.
func TestMarksOfCallers(t *testing.T) {
	served := 0
	for name, c := range map[string]struct {
		header []string
		want   bool
	}{
		"absent": {nil, false}, "marked": {[]string{"1"}, true}, "empty": {[]string{""}, false}, "zero": {[]string{"0"}, false}, "negative": {[]string{"-1"}, false}, "huge": {[]string{"99999999999999999999"}, false}, "true": {[]string{"true"}, false},
		"garbage": {[]string{"\x00\xff"}, false}, "a space": {[]string{"1 "}, false}, "two in one": {[]string{"1,1"}, false}, "garbage first": {[]string{"x", "1"}, false},
	} {
		handler, err := Middleware(Limits{Most: time.Minute}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served++
			if got := budget.ForbidsRetry(r.Context()); got != c.want || CallersAttempt(r.Context()) != 2 {
				t.Errorf("%s: marked %v, attempt %d", name, got, CallersAttempt(r.Context()))
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Header.Set(budget.HeaderAttempt, "2")
		r.Header[budget.HeaderNoRetry] = c.header
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	if served != 11 {
		t.Errorf("%d served", served)
	}
}

// TestTheMarkIsSent: under a marked context, in place of what the request's own headers say, which stay as they are.
func TestTheMarkIsSent(t *testing.T) {
	got := make(chan []string, 1)
	client, url := service(t, false, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Values(budget.HeaderNoRetry) }))
	for name, c := range map[string]struct {
		ctx  context.Context
		want string
	}{"marked": {budget.NoRetry(t.Context()), "[1]"}, "unmarked": {t.Context(), "[]"}, "taken off": {budget.WithoutAttempt(budget.NoRetry(t.Context())), "[]"}} {
		req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		own := http.Header{budget.HeaderNoRetry: {"1", "0"}}
		req.Header = own
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if sent := fmt.Sprint(<-got); sent != c.want || len(own[budget.HeaderNoRetry]) != 2 {
			t.Errorf("%s: %s; the request's own are %v", name, sent, own)
		}
	}
}

// TestAMarkedLayersAnswer: a service that did not repeat because of the mark does not ask its caller for the same.
func TestAMarkedLayersAnswer(t *testing.T) {
	b, err := budget.Start(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	err = budget.Do(budget.NoRetry(b.Context()), budget.Policy{}, func(context.Context) error {
		return &budget.Error{Class: budget.NotSent, Err: errors.New("test")}
	})
	w := httptest.NewRecorder()
	Fail(w, err)
	if !errors.Is(err, budget.ErrNoRetry) || w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "0" || w.Header().Get(budget.HeaderNoRetry) != "" {
		t.Errorf("%v: %d, %v", err, w.Code, w.Header())
	}
}
