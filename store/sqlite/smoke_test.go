package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func open(t testing.TB) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "t.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	return s
}

func BenchmarkCycle(b *testing.B) {
	for _, n := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := open(b)
			ctx := context.Background()
			var ids lease.IDs
			sess := ids.New()
			if _, err := s.Open(ctx, lease.OpenRequest{ID: sess, TTL: time.Hour}); err != nil {
				b.Fatal(err)
			}
			var mu sync.Mutex
			flight := map[fence.ID]bool{}
			below := func() fence.ID {
				low := fence.ID{255}
				for id := range flight {
					if id.Less(low) {
						low = id
					}
				}
				return low
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			each := b.N/n + 1
			for g := range n {
				wg.Go(func() {
					name := fmt.Sprintf("name/%d", g)
					for range each {
						mu.Lock()
						id := ids.New()
						flight[id] = true
						low := below()
						mu.Unlock()
						_, err := s.Acquire(ctx, lease.AcquireRequest{Session: sess, ID: id, Names: []string{name}, ClosedBelow: low})
						mu.Lock()
						delete(flight, id)
						low = ids.New()
						if len(flight) > 0 {
							low = below()
						}
						mu.Unlock()
						if err != nil {
							b.Error(err)
							return
						}
						if _, err := s.Release(ctx, lease.ReleaseRequest{Session: sess, ID: id, Names: []string{name}, ClosedBelow: low}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(each*n)/b.Elapsed().Seconds(), "cycles/s")
		})
	}
}
