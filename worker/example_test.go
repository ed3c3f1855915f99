package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
	"github.com/tenure-go/tenure/worker"
)

// bank stands for a payment provider that knows a charge by its key.
type bank struct {
	mu      sync.Mutex
	charges map[string]int
}

var errReset = errors.New("connection reset by peer")

// charge has its effect, and its response is lost.
func (b *bank) charge(_ context.Context, key string, cents int) (number string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charges[key] = cents
	return "", errReset
}

func (b *bank) look(_ context.Context, key string) (number string, ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok = b.charges[key]
	return "ch-" + key, ok, nil
}

// A charge done right: the response is lost, so that the worker does not know; the reconciler asks; the caller waits for as long as it likes, and asks again.
func Example() {
	type order struct {
		Cents int `json:"cents"`
	}
	type paid struct {
		Charge string `json:"charge"`
	}
	provider := &bank{charges: map[string]int{}}
	charge := worker.Handle(worker.Handler[order, paid]{
		Kind:    "charge",
		Timeout: 10 * time.Second, // protects the wait, not the effect
		Perform: func(ctx context.Context, a *worker.Attempt, o order) (paid, error) {
			if o.Cents <= 0 {
				return paid{}, worker.Final(&budget.Error{Class: budget.NotSent, Err: errors.New("nothing to charge")})
			}
			number, err := provider.charge(ctx, a.Key(), o.Cents) // the key protects the effect
			return paid{number}, err                              // an error without a class says that nobody knows
		},
		Inquire: func(ctx context.Context, rec *operation.Record, _ order) (worker.Finding[paid], error) {
			number, ok, err := provider.look(ctx, rec.ID)
			switch {
			case err != nil:
				return worker.Finding[paid]{}, err
			case ok:
				return worker.Finding[paid]{What: operation.Found, Result: paid{number}}, nil
			}
			return worker.Finding[paid]{What: operation.NotObserved}, nil // it may be on its way
		},
	})

	store := memory.NewOperations(memory.Options{})
	w, err := worker.New(store, worker.Options{Label: "till-1"}, charge)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := worker.NewReconciler(store, worker.ReconcilerOptions{}, charge)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	running.Go(func() { _ = r.Run(ctx) })

	orders := operation.Kind[order, paid]{Name: "charge"}
	if _, err := orders.Submit(ctx, store, "order-17", order{Cents: 4200}); err != nil {
		fmt.Println(err)
		return
	}
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := orders.Wait(wait, store, "order-17")
	if err != nil {
		fmt.Println(err) // not decided yet; ask again
		return
	}
	fmt.Println(out.State, out.Value.Charge, "after", len(out.Attempts), "attempt, which ended with", out.Attempts[0].Known)

	stop()
	running.Wait()
	// Output: succeeded ch-order-17 after 1 attempt, which ended with no answer
}

// Two hosts with this schedule make one report a day.
func ExampleSchedule() {
	reports := operation.Kind[string, struct{}]{Name: "report"}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = worker.NewScheduler(memory.NewOperations(memory.Options{}), worker.SchedulerOptions{}, worker.Schedule{
		Name: "daily-report", Cron: "15 3 * * *", Zone: berlin,
		Make: func(at time.Time) (operation.SubmitRequest, error) {
			return reports.Request("", at.Format(time.DateOnly))
		},
	})
	fmt.Println(err, worker.OccurrenceID("daily-report", time.Date(2026, 11, 30, 3, 15, 0, 0, berlin)))
	// Output: <nil> daily-report@2026-11-30T02:15Z
}
