package budget_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// Three attempts of 5 s do not fit in 10 s with a reserve of 1 s: the first runs, the second does not fit in the 4 s that are left and is not
// started, because nobody has said that less would do.
func ExampleBudget() { threeAttempts(os.Stdout, 0) }

// The same where an attempt is worth starting with 2 s: the second gets the 4 s that are left.
func ExampleBudget_minimum() { threeAttempts(os.Stdout, 2*time.Second) }

func threeAttempts(w io.Writer, minimum time.Duration) {
	b, err := budget.Start(context.Background(), 10*time.Second, budget.Reserve(time.Second), budget.Named("checkout"))
	if err != nil {
		fmt.Fprintln(w, err)
		return
	}
	defer b.End()
	err = budget.Do(b.Context(), budget.Policy{
		Try:        budget.Try{Name: "stock", Timeout: 5 * time.Second, Minimum: minimum},
		Idempotent: true, // a query
		Base:       time.Nanosecond, Most: time.Nanosecond,
	}, func(ctx context.Context) error {
		<-ctx.Done() // no answer
		return ctx.Err()
	})
	fmt.Fprintln(w, "no time for another:", errors.Is(err, budget.ErrNoTime))
	fmt.Fprintln(w, "left to answer and to ask:", b.RemainingTotal().Round(time.Second))
	fmt.Fprint(w, b.Explain())
}

// TestExamples runs the examples on a clock of their own.
func TestExamples(t *testing.T) {
	for name, example := range map[string]struct {
		minimum time.Duration
		want    string
	}{
		"no smaller minimum": {0, `no time for another: true
left to answer and to ask: 5s
checkout: 5s of 10s spent, 4s left before the reserve of 1s
  at 0s  attempt      stock  5s of 5s  context deadline exceeded
  at 5s  not started  stock  4s left   budget: another attempt of stock needs 5s and 4s are left before the reserve of 1s; it was not started
`},
		"a smaller minimum": {2 * time.Second, `no time for another: true
left to answer and to ask: 1s
checkout: 9s of 10s spent, 0s left before the reserve of 1s
  at 0s  attempt      stock  5s of 5s  context deadline exceeded
  at 5s  pause        stock  0s of 0s  ok
  at 5s  attempt      stock  4s of 4s  context deadline exceeded
  at 9s  not started  stock  0s left   budget: another attempt of stock needs 2s and 0s are left before the reserve of 1s; it was not started
`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got stringWriter
				threeAttempts(&got, example.minimum)
				if string(got) != example.want {
					t.Errorf("got\n%s\nwant\n%s", got, example.want)
				}
			})
		})
	}
}

type stringWriter string

func (s *stringWriter) Write(p []byte) (int, error) {
	*s += stringWriter(p)
	return len(p), nil
}

// A layer that is to be the only one that repeats: what it calls makes one attempt each time, also where that has a policy of its own.
func ExampleNoRetry() {
	b, err := budget.Start(context.Background(), time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.End()
	work := 0
	stock := func(ctx context.Context) error { // a library that would make three attempts
		return budget.Do(ctx, budget.Policy{Try: budget.Try{Name: "stock"}, Base: time.Nanosecond, Most: time.Nanosecond}, func(context.Context) error {
			work++
			return &budget.Error{Class: budget.NotSent, Err: errors.New("nobody listens")}
		})
	}
	err = stock(budget.NoRetry(b.Context()))
	fmt.Println("under the mark:", work, "attempt, left to a layer above:", errors.Is(err, budget.ErrNoRetry))

	work = 0
	err = budget.Do(b.Context(), budget.Policy{NoRetryBelow: true, Base: time.Nanosecond, Most: time.Nanosecond}, stock)
	fmt.Println("under a layer that sets it:", work, "attempts, all of that layer:", errors.Is(err, budget.ErrAttempts))
	// Output:
	// under the mark: 1 attempt, left to a layer above: true
	// under a layer that sets it: 3 attempts, all of that layer: true
}
