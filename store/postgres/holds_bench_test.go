package postgres

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// seatsPerRound is how many seats one round of the benchmark sells.
const seatsPerRound = 20_000

// BenchmarkHolds sells seats in one process, each placed and then confirmed by one of 64 goroutines. Everything is durable. The settings are the server's defaults, but for room for the log.
func BenchmarkHolds(b *testing.B) {
	server := testdb.Start(b, testdb.Options{Durable: true, Settings: map[string]string{"max_wal_size": "4GB", "shared_buffers": "256MB"}})
	holds := openStore(b, server.URL(server.Template(b, install)), Options{}).Holds()
	var selling time.Duration
	for round := 0; b.Loop(); round++ {
		b.StopTimer()
		seats := seatsOf(fmt.Sprintf("%04d-", round), seatsPerRound)
		for from := 0; from < len(seats); from += hold.MaxItems {
			if err := holds.Stock(b.Context(), seats[from:min(from+hold.MaxItems, len(seats))]); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		took := elapsed(func() { sellAll(b, holds, seats) })
		b.Logf("round %d: placed and confirmed %.0f/s", round, seatsPerRound/took.Seconds())
		selling += took
	}
	b.ReportMetric(float64(b.N)*seatsPerRound/selling.Seconds(), "sold/s")
	b.ReportMetric(0, "ns/op")
}

// seatsOf are n single items.
func seatsOf(prefix string, n int) []hold.Item {
	seats := make([]hold.Item, n)
	for i := range seats {
		seats[i] = hold.Item{Name: fmt.Sprintf("%s%06d", prefix, i), Quantity: 1}
	}
	return seats
}

func sellAll(b *testing.B, holds *Holds, seats []hold.Item) {
	b.Helper()
	const buyers = 64
	var wg sync.WaitGroup
	for n := range buyers {
		wg.Go(func() {
			var ids lease.IDs
			actor := fmt.Sprintf("buyer-%d", n)
			for i := n; i < len(seats); i += buyers {
				id := ids.New()
				if _, err := holds.Place(b.Context(), hold.PlaceRequest{ID: id, Actor: actor, Lines: []hold.Line{{Item: seats[i].Name, Quantity: 1}}, TTL: time.Minute}); err != nil {
					b.Error(err)
					return
				}
				if sold, err := holds.Confirm(b.Context(), hold.ConfirmRequest{ID: id, Actor: actor, Reference: "paid"}); err != nil || sold.State != hold.Confirmed {
					b.Error(sold, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
