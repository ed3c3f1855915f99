package budgethttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

// A service that gives no more than a second, and a caller that makes another attempt because the first was refused for now.
func Example() {
	overloaded := true
	handler, err := budgethttp.Middleware(budgethttp.Limits{Most: time.Second, Reserve: 100 * time.Millisecond}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("attempt", budgethttp.CallersAttempt(r.Context()), "has at most a second:", budget.From(r.Context()).RemainingTotal() <= time.Second)
		if overloaded {
			overloaded = false
			budgethttp.Fail(w, &budget.Error{Class: budget.Refused, Again: true, Err: fmt.Errorf("too much to do")})
		}
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	service := httptest.NewServer(handler)
	defer service.Close()

	client := &http.Client{Transport: &budgethttp.Transport{}}
	defer client.CloseIdleConnections()
	b, err := budget.Start(context.Background(), time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.End()
	err = budget.Do(b.Context(), budget.Policy{Try: budget.Try{Name: "service"}, Base: time.Millisecond}, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, service.URL, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err // says what is known of it
		}
		defer func() { _ = resp.Body.Close() }()
		return budgethttp.ErrorOf(resp)
	})
	fmt.Println("failed:", err)
	// Output:
	// attempt 1 has at most a second: true
	// attempt 2 has at most a second: true
	// failed: <nil>
}
