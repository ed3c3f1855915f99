package fresh_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fresh"
)

// A seat map is served up to a minute old when its source is away, a sale is recorded to be asked about, and a price is refused.
func ExampleRoutes() {
	away, now := false, time.Duration(0)
	seats, err := fresh.New(fresh.Options[string, int]{
		Load: func(context.Context, string) (int, error) {
			if away {
				return 0, errors.New("no connection")
			}
			return 120, nil
		},
		TTL: 10 * time.Second, StaleIfError: time.Hour,
		Clock: func() time.Duration { return now }, // so that the example need not wait
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pending := func(_ context.Context, p fresh.Pending) (string, error) { return "sale-1", nil }
	_, err = fresh.NewRoutes(fresh.Route{Name: "sell", Kind: fresh.Write})
	fmt.Println(err)
	routes, err := fresh.NewRoutes(
		fresh.Route{Name: "seats", Kind: fresh.Read, Policy: fresh.ServeOld{Within: time.Minute}},
		fresh.Route{Name: "price", Kind: fresh.Read, Policy: fresh.Refuse{}},
		fresh.Route{Name: "sell", Kind: fresh.Write, Policy: fresh.LeavePending{Record: pending}},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	get := func(ctx context.Context) (fresh.Value[int], error) { return seats.Get(ctx, "hall 1") }
	_, _ = get(ctx)
	away, now = true, 30*time.Second
	v, err := fresh.Serve(ctx, routes, "seats", get)
	fmt.Println(v.V, v.State, v.Age, err)
	_, err = fresh.Serve(ctx, routes, "price", get)
	fmt.Println("refused:", errors.Is(err, fresh.ErrAway))
	err = routes.Write(ctx, "sell", "seat 7", func(context.Context) error { return errors.New("no connection") })
	fmt.Println("pending:", errors.Is(err, fresh.ErrPending))
	// Output:
	// fresh: invalid route sell: it writes, and does not say what happens when the source is away; want Refuse or LeavePending
	// 120 stale 30s <nil>
	// refused: true
	// pending: true
}
