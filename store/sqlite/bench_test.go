package sqlite

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// BenchmarkCycle acquires and releases distinct names from many goroutines of one session, each operation durable by itself.
func BenchmarkCycle(b *testing.B) {
	for _, goroutines := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			h := newHarness(b)
			c := newCycler(b, h.store)
			each := b.N/goroutines + 1
			b.ResetTimer()
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() {
					for range each {
						if err := c.cycle(b, fmt.Sprintf("name/%d", g)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(each*goroutines)/b.Elapsed().Seconds(), "cycles/s")
		})
	}
}

// cycler is a session that keeps account of the acquires in flight, as lease.Session does.
type cycler struct {
	store   *Store
	session fence.ID

	mu     sync.Mutex
	ids    lease.IDs
	asking map[fence.ID]bool
}

func newCycler(b *testing.B, s *Store) *cycler {
	b.Helper()
	c := &cycler{store: s, session: lease.NewID(), asking: map[fence.ID]bool{}}
	if _, err := s.Open(b.Context(), lease.OpenRequest{ID: c.session, TTL: time.Hour}); err != nil {
		b.Fatal(err)
	}
	return c
}

func (c *cycler) cycle(b *testing.B, name string) error {
	b.Helper()
	c.mu.Lock()
	id := c.ids.New()
	c.asking[id] = true
	below := c.lowest()
	c.mu.Unlock()
	names := []string{name}
	_, err := c.store.Acquire(b.Context(), lease.AcquireRequest{Session: c.session, ID: id, Names: names, ClosedBelow: below})
	c.mu.Lock()
	delete(c.asking, id)
	below = c.lowest()
	c.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = c.store.Release(b.Context(), lease.ReleaseRequest{Session: c.session, ID: id, Names: names, ClosedBelow: below})
	return err
}

func (c *cycler) lowest() fence.ID {
	lowest := c.ids.New()
	for id := range c.asking {
		if id.Less(lowest) {
			lowest = id
		}
	}
	return lowest
}
