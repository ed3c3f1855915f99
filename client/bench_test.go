package client_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// BenchmarkCycle is an acquire and a release of a name of one's own on one session, by 64 goroutines, through a server over the oracle: what the wire costs.
func BenchmarkCycle(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(map[int]string{1: "1", 64: "64"}[goroutines], func(b *testing.B) {
			w := newWorld(b)
			s, err := lease.Start(b.Context(), w.client.Leases(), lease.Options{Owner: "b", TTL: 30 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			var next atomic.Int64
			b.SetParallelism(max(1, goroutines/2)) // of GOMAXPROCS
			if goroutines == 1 {
				for b.Loop() {
					cycle(b, s, "one")
				}
			} else {
				b.RunParallel(func(p *testing.PB) {
					name := fmt.Sprint("n", next.Add(1))
					for p.Next() {
						cycle(b, s, name)
					}
				})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
			if err := s.Close(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
}

func cycle(b *testing.B, s *lease.Session, name string) {
	b.Helper()
	held, err := s.Acquire(b.Context(), lease.Want{Names: []string{name}})
	if err != nil {
		b.Error(err)
		return
	}
	if err := held.Release(b.Context()); err != nil {
		b.Error(err)
	}
}
