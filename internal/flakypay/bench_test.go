package flakypay

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
)

// BenchmarkCharge is a charge of a key of its own, by one client a processor; bytes/key is what the ledger keeps of it.
func BenchmarkCharge(b *testing.B) {
	for name, file := range map[string]bool{"memory": false, "file": true} {
		b.Run(name, func(b *testing.B) {
			var c Config
			if file {
				c.File = b.TempDir() + "/ledger"
			}
			g := begin(b, c, rules{})
			var n atomic.Int64
			before := heap()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if out := g.charge(b.Context(), fmt.Sprintf("key-%d", n.Add(1)), 5); out.status != 201 {
						b.Errorf("%+v", out)
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(heap()-before)/float64(b.N), "bytes/key")
			runtime.KeepAlive(g)
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkTallies is a snapshot of 100,000 keys.
func BenchmarkTallies(b *testing.B) {
	l := newLedger()
	l.mu.Lock()
	for i := range int64(100_000) {
		key := fmt.Sprintf("key-%d", i)
		for _, f := range []*fact{
			{Fact: factRequest, Op: Charge, Key: key, Number: i + 1, Verb: Make, Nth: 1},
			{Fact: factEffect, Op: Charge, Key: key, Number: i + 1, Amount: 1, Kept: true},
			{Fact: factAnswer, Op: Charge, Key: key, Number: i + 1, Request: i + 1, Means: MeansEffect, Way: Connection, Delivery: Written},
		} {
			if err := l.recordLocked(f); err != nil {
				b.Fatal(err)
			}
		}
	}
	l.mu.Unlock()
	for b.Loop() {
		if n := len(l.Tallies()); n != 100_000 {
			b.Fatal(n)
		}
	}
}
