package budget

import (
	"context"
	"testing"
	"time"
)

// BenchmarkDo compares a first attempt that succeeds with context.WithTimeout alone.
func BenchmarkDo(b *testing.B) {
	outer := start(b, time.Hour)
	ctx := outer.Context()
	work := func(context.Context) error { return nil }
	b.Run("WithTimeout", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			timed, cancel := context.WithTimeout(ctx, time.Second)
			if err := work(timed); err != nil {
				b.Fatal(err)
			}
			cancel()
		}
	})
	b.Run("Do", func(b *testing.B) {
		b.ReportAllocs()
		p := Policy{Try: Try{Name: "x", Timeout: time.Second}}
		for b.Loop() {
			if err := Do(ctx, p, work); err != nil {
				b.Fatal(err)
			}
		}
	})
}
