package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/operation"
)

// opsPerRound is how many operations one round of the benchmark takes through its life.
const opsPerRound = 50_000

// BenchmarkOperations takes operations that do nothing through their lives in one process: submitted by 256 goroutines; then claimed, and completed one by one by 256 handlers. Attempts are recorded,
// and everything is durable. The settings are the server's defaults, but for room for the log.
func BenchmarkOperations(b *testing.B) {
	server := testdb.Start(b, testdb.Options{Durable: true, Settings: map[string]string{"max_wal_size": "4GB", "shared_buffers": "256MB"}})
	ops := openStore(b, server.URL(server.Template(b, install)), Options{}).Operations()
	var submitting, working time.Duration
	for round := 0; b.Loop(); round++ {
		s, w := elapsed(func() { submitAll(b, ops, fmt.Sprintf("%08d-", round), opsPerRound) }), elapsed(func() { workAll(b, ops, opsPerRound) })
		b.Logf("round %d: submitted %.0f/s, worked %.0f/s", round, opsPerRound/s.Seconds(), opsPerRound/w.Seconds())
		submitting, working = submitting+s, working+w
	}
	done := float64(b.N) * opsPerRound
	b.ReportMetric(done/submitting.Seconds(), "submitted/s")
	b.ReportMetric(done/working.Seconds(), "worked/s")
	b.ReportMetric(0, "ns/op")
}

func elapsed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// submitAll submits n operations.
func submitAll(b *testing.B, ops *Operations, prefix string, n int) {
	b.Helper()
	const callers = 256
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				if _, err := ops.Submit(b.Context(), noop(fmt.Sprintf("%s%07d", prefix, i))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func noop(id string) operation.SubmitRequest {
	return operation.SubmitRequest{ID: id, Kind: "noop", Request: []byte("{}"), Fingerprint: operation.FingerprintOf("noop", []byte("{}"))}
}

// claimNoops asks for n operations.
func claimNoops(n int) operation.ClaimRequest {
	return operation.ClaimRequest{Worker: "bench", TTL: 15 * time.Second, Limit: n, Kinds: []operation.KindClaim{{Kind: "noop", Limit: n, Timeout: time.Minute, MaxAttempts: 3, Asks: true}}}
}

// workAll claims and completes until n are done. The next claim is made while the handlers are busy.
func workAll(b *testing.B, ops *Operations, n int) {
	b.Helper()
	const handlers, batch = 256, 500
	jobs := make(chan operation.Job, 2*batch)
	var wg sync.WaitGroup
	for range handlers {
		wg.Go(func() {
			for j := range jobs {
				errs, err := ops.Complete(context.WithoutCancel(b.Context()), []operation.Completion{{Ref: j.Ref, Answer: operation.Answer{Known: operation.Effective}}})
				if err != nil || errs[0] != nil {
					b.Errorf("%v, %v", errs, err)
				}
			}
		})
	}
	for left := n; left > 0; {
		claimed, err := ops.Claim(b.Context(), claimNoops(batch))
		if err != nil {
			b.Error(err)
			break
		}
		left -= len(claimed)
		for _, j := range claimed {
			jobs <- j
		}
	}
	close(jobs)
	wg.Wait()
}

// BenchmarkClaimAmongStored is a durable claim of one operation, and of 100, with 10,000 and 1,000,000 operations in the table, all but 2,000 of them decided.
func BenchmarkClaimAmongStored(b *testing.B) {
	for _, stored := range []int{10_000, 1_000_000} {
		server := testdb.Start(b, testdb.Options{Durable: true, Settings: map[string]string{"max_wal_size": "4GB", "shared_buffers": "256MB"}})
		h := newHarnessOn(b, server, Options{})
		// As operations are after their lives, in the order of their submission; made in one statement.
		_, err := h.own.Exec(b.Context(), `INSERT INTO tenure.operation (id, kind, fingerprint, request, submission, created, due, number, began, ended, until, decided, attempts, state, step, known, worker, asks, own)
			SELECT lpad(g::text, 8, '0'), 'noop', sha256(int4send(g)), '\x7b7d', nextval('tenure.submission'), t.t - interval '1 day', t.t, nextval('tenure.token'), t.t, t.t + interval '1 second', t.t + interval '1 minute', t.t + g * interval '1 microsecond',
				1, 4, 1, 5, 'bench', true, true FROM generate_series(1, $1) g, (SELECT now()) t (t)`, stored-2000)
		if err == nil {
			_, err = h.own.Exec(b.Context(), `VACUUM (ANALYSE) tenure.operation`)
		}
		if err != nil {
			b.Fatal(err)
		}
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("stored=%d/claimed=%d", stored, n), func(b *testing.B) { claimAmong(b, h.store.Operations(), n) })
		}
	}
}

// claimAmong times claims alone; what they claim is completed, and as many are submitted as were.
func claimAmong(b *testing.B, ops *Operations, n int) {
	b.Helper()
	next := 0
	submitAll(b, ops, fmt.Sprintf("%s-%d-%d-", b.Name(), b.N, time.Now().UnixNano()), 2000)
	prefix := fmt.Sprintf("%s-%d-", b.Name(), time.Now().UnixNano())
	for b.Loop() {
		jobs, err := ops.Claim(b.Context(), claimNoops(n))
		if err != nil || len(jobs) != n {
			b.Fatal(jobs, err)
		}
		b.StopTimer()
		all := make([]operation.Completion, n)
		for i, j := range jobs {
			all[i] = operation.Completion{Ref: j.Ref, Answer: operation.Answer{Known: operation.Effective}}
			next++
			if _, err := ops.Submit(b.Context(), noop(fmt.Sprintf("%s%07d", prefix, next))); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := ops.Complete(b.Context(), all); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
