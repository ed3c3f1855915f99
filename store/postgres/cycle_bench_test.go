package postgres

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// BenchmarkCycle is a durable acquire and a release, of distinct names in one session. It reports how many names went in a batch, and the
// server's time for each name.
func BenchmarkCycle(b *testing.B) {
	server := testdb.Start(b, testdb.Options{Durable: true, Settings: map[string]string{"shared_buffers": "256MB", "track_functions": "all"}})
	for _, goroutines := range []int{1, 8, 64, 256, 1024} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			h := newHarnessOn(b, server, Options{})
			c := newBenchClient(b, h)
			c.warm(b, goroutines)
			if _, err := h.own.Exec(b.Context(), `VACUUM (ANALYSE) tenure.lease`); err != nil {
				b.Fatal(err)
			}
			if _, err := h.own.Exec(b.Context(), `SELECT pg_stat_reset()`); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			c.run(b, goroutines, b.N)
			b.StopTimer()
			c.report(b, h.own)
		})
	}
}

const namesEach = 50 // of each goroutine

// benchClient is the client of one session: it says with each call what it will not ask about again.
type benchClient struct {
	store   *Store
	session fence.ID
	mu      sync.Mutex
	ids     lease.IDs
	asked   []fence.ID // oldest first
	settled map[fence.ID]bool
}

func newBenchClient(b *testing.B, h *harness) *benchClient {
	b.Helper()
	c := &benchClient{store: h.store, session: lease.NewID(), settled: map[fence.ID]bool{}}
	if _, err := h.store.Open(b.Context(), lease.OpenRequest{ID: c.session, Owner: "bench", TTL: lease.MaxTTL}); err != nil {
		b.Fatal(err)
	}
	return c
}

func (c *benchClient) ask() (id, below fence.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id = c.ids.New()
	c.asked = append(c.asked, id)
	return id, c.asked[0]
}

func (c *benchClient) settle(id fence.ID) (below fence.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled[id] = true
	for len(c.asked) > 0 && c.settled[c.asked[0]] {
		delete(c.settled, c.asked[0])
		c.asked = c.asked[1:]
	}
	if len(c.asked) == 0 {
		return id
	}
	return c.asked[0]
}

func (c *benchClient) cycle(ctx context.Context, name string) error {
	id, below := c.ask()
	if _, err := c.store.Acquire(ctx, lease.AcquireRequest{Session: c.session, ID: id, Names: []string{name}, ClosedBelow: below}); err != nil {
		return err
	}
	below = c.settle(id)
	_, err := c.store.Release(ctx, lease.ReleaseRequest{Session: c.session, ID: id, Names: []string{name}, ClosedBelow: below})
	return err
}

// run makes n cycles.
func (c *benchClient) run(b *testing.B, goroutines, n int) {
	b.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for i := 0; next.Add(1) <= int64(n); i++ {
				if err := c.cycle(b.Context(), "n"+strconv.Itoa(g)+"-"+strconv.Itoa(i%namesEach)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

func (c *benchClient) warm(b *testing.B, goroutines int) {
	b.Helper()
	c.run(b, goroutines, goroutines*namesEach)
}

func (c *benchClient) report(b *testing.B, db querier) {
	b.Helper()
	for _, f := range []string{"acquire_many", "release_many"} {
		var calls, micros float64
		if err := db.QueryRow(b.Context(), `SELECT coalesce(sum(calls), 0), coalesce(sum(total_time), 0) * 1000 FROM pg_stat_user_functions WHERE funcname = $1`, f).Scan(&calls, &micros); err != nil {
			b.Fatal(err)
		}
		if calls > 0 {
			b.ReportMetric(float64(b.N)/calls, f+"-names/call")
			b.ReportMetric(micros/float64(b.N), f+"-us/name")
		}
	}
}
