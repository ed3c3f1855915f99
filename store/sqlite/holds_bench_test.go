package sqlite

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/hold"
)

// BenchmarkHolds places and confirms holds on seats of their own, from many goroutines: both are durable before they are told.
func BenchmarkHolds(b *testing.B) {
	for _, goroutines := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			holds := openPath(b, newPath(b)).Holds()
			seats(b, holds, b.N)
			b.ResetTimer()
			each(b, goroutines, b.N, func(i int) error { return sellSeat(b, holds, i) })
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sales/s")
		})
	}
}

// BenchmarkHoldsAmongSeats is the same among many seats.
func BenchmarkHoldsAmongSeats(b *testing.B) {
	const many = 100_000
	holds := openPath(b, newPath(b)).Holds()
	seats(b, holds, max(b.N, many))
	b.ResetTimer()
	each(b, 64, b.N, func(i int) error { return sellSeat(b, holds, i) })
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sales/s")
}

// BenchmarkHoldsOfOneItem is the same on one item of which many are sold and held already.
func BenchmarkHoldsOfOneItem(b *testing.B) {
	for _, stored := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("stored=%d", stored), func(b *testing.B) {
			path := newPath(b)
			o := &office{b, openPath(b, path).Holds()}
			o.stock(1<<30, "item")
			storeHolds(b, path, stored)
			b.ResetTimer()
			each(b, 64, b.N, func(i int) error {
				if _, err := o.holds.Place(b.Context(), placement(i, time.Hour, "item")); err != nil {
					return err
				}
				_, err := o.holds.Confirm(b.Context(), payment(i))
				return err
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sales/s")
		})
	}
}

// BenchmarkRefusedHolds is a crowd at what is sold out.
func BenchmarkRefusedHolds(b *testing.B) {
	o := &office{b, openPath(b, newPath(b)).Holds()}
	o.stock(1, "seat")
	o.place(0, time.Hour, "seat")
	o.confirm(0, hold.Confirmed)
	b.ResetTimer()
	each(b, 64, b.N, func(i int) error {
		if _, err := o.holds.Place(b.Context(), placement(1+i, time.Hour, "seat")); !errors.Is(err, hold.ErrTaken) {
			return fmt.Errorf("placed on what is sold: %w", err)
		}
		return nil
	})
}

func seat(i int) string { return fmt.Sprint("seat/", i) }

func sellSeat(tb testing.TB, holds *Holds, i int) error {
	tb.Helper()
	if _, err := holds.Place(tb.Context(), placement(i, time.Hour, seat(i))); err != nil {
		return err
	}
	_, err := holds.Confirm(tb.Context(), payment(i))
	return err
}

// seats makes n items of which there is one.
func seats(tb testing.TB, holds *Holds, n int) {
	tb.Helper()
	for from := 0; from < n; from += hold.MaxItems {
		var some []hold.Item
		for i := from; i < min(n, from+hold.MaxItems); i++ {
			some = append(some, hold.Item{Name: seat(i), Quantity: 1})
		}
		if err := holds.Stock(tb.Context(), some); err != nil {
			tb.Fatal(err)
		}
	}
}

// each calls do for the numbers below n, from so many goroutines.
func each(tb testing.TB, goroutines, n int, do func(i int) error) {
	tb.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// storeHolds stores n holds on "item", by a statement: a third each are confirmed, released, and held, and half of the last have expired unnoticed.
func storeHolds(tb testing.TB, path string, n int) {
	tb.Helper()
	plainExec(tb, path, fmt.Sprintf(`CREATE TEMP TABLE made AS WITH RECURSIVE i(v) AS (SELECT 0 UNION ALL SELECT v + 1 FROM i WHERE v < %d - 1)
		SELECT unhex(printf('%%032x', v + 1)) id, 1 + v %% 3 state, mark + iif(v %% 2, 0, 3600000000000) at FROM i, tenure_authority;
		INSERT INTO tenure_hold (id, actor, ttl, placed, at, state, units, reference) SELECT id, 'bob', 1, 0, at, state, 1, iif(state = 2, 'r', '') FROM made;
		INSERT INTO tenure_line (hold, item, quantity, until, state) SELECT id, 'item', 1, at, state FROM made;
		UPDATE tenure_item SET sold = (SELECT count(*) FROM made WHERE state = 2), held = (SELECT count(*) FROM made WHERE state = 1) WHERE name = 'item';`, n))
}
