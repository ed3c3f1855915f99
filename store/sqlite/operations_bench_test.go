package sqlite

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// BenchmarkOperations claims operations in batches of 100 and completes each batch by one call, or each operation by a call of its own from many goroutines. Every
// attempt is recorded durably before its claim returns, and every completion before it is told. Submitting is not measured.
func BenchmarkOperations(b *testing.B) {
	for _, workers := range []int{1, 4} {
		b.Run(fmt.Sprintf("batches/workers=%d", workers), func(b *testing.B) {
			benchOperations(b, workers, func(ops *Operations, all []operation.Completion) error {
				_, err := ops.Complete(b.Context(), all)
				return err
			})
		})
	}
	b.Run("singly/goroutines=100", func(b *testing.B) {
		benchOperations(b, 1, func(ops *Operations, all []operation.Completion) error {
			var failed atomic.Value
			var wg sync.WaitGroup
			for i := range all {
				wg.Go(func() {
					if _, err := ops.Complete(b.Context(), all[i:i+1]); err != nil {
						failed.Store(err)
					}
				})
			}
			wg.Wait()
			err, _ := failed.Load().(error)
			return err
		})
	})
}

func benchOperations(b *testing.B, workers int, complete func(*Operations, []operation.Completion) error) {
	b.Helper()
	const atOnce = 100
	ops := openPath(b, newPath(b)).Operations()
	fill(b, ops, b.N)
	claim := operation.ClaimRequest{Worker: "w", TTL: time.Minute, Limit: atOnce, Kinds: []operation.KindClaim{{Kind: "k", Limit: atOnce, Timeout: time.Hour, MaxAttempts: 3, Asks: true}}}
	var done atomic.Int64
	b.ResetTimer()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for done.Load() < int64(b.N) {
				jobs, err := ops.Claim(b.Context(), claim)
				if err != nil {
					b.Error(err)
					return
				}
				all := make([]operation.Completion, len(jobs))
				for i, job := range jobs {
					all[i] = operation.Completion{Ref: job.Ref, Answer: operation.Answer{Known: operation.Effective}}
				}
				if err := complete(ops, all); err != nil {
					b.Error(err)
					return
				}
				done.Add(int64(len(jobs)))
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// fill submits n operations.
func fill(b *testing.B, ops *Operations, n int) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if _, err := ops.Submit(b.Context(), submission(fmt.Sprint("operation/", i))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkClaimAmongStored claims and completes one operation at a time among many that are stored, most of them decided.
func BenchmarkClaimAmongStored(b *testing.B) {
	for _, stored := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(stored), func(b *testing.B) {
			path := newPath(b)
			ops := openPath(b, path).Operations()
			fill(b, ops, b.N) // there is work for each round, whatever is stored
			store(b, path, stored)
			b.ResetTimer()
			for range b.N {
				jobs, err := ops.Claim(b.Context(), claimOf(1))
				if err != nil || len(jobs) != 1 {
					b.Fatal(jobs, err)
				}
				if errs, err := ops.Complete(b.Context(), []operation.Completion{done(jobs[0].Ref)}); err != nil || errs[0] != nil {
					b.Fatal(errs, err)
				}
			}
		})
	}
}

// store copies the one operation that there is: a tenth of the copies are due, the others are decided.
func store(b *testing.B, path string, n int) {
	b.Helper()
	const columns = `kind, fingerprint, priority, ord, blocked, compensates, created, kept`
	plainExec(b, path, fmt.Sprintf(`WITH RECURSIVE i(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM i WHERE v < %d)
		INSERT INTO tenure_operation (id, state, step, due, decided, attempts, number, known, `+columns+`)
		SELECT 'stored/' || v, iif(v %% 10 = 0, 1, 4), iif(v %% 10 = 0, 2, 1), due + v, iif(v %% 10 = 0, 0, due + v), v %% 10 > 0, iif(v %% 10 = 0, 0, v), 0, `+columns+` FROM i, tenure_operation o WHERE o.n = 1`, n))
}
