package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// shape is a way to send a one-row update, in so many round trips; check, if any, is what fences it.
type shape struct {
	trips int
	run   func(ctx context.Context, b *bencher, check string) error
}

type bencher struct {
	store *Store // every form takes its connection from the store's pool
	claim fence.Claim
	row   int
}

const benchUpdate = `UPDATE work SET n = n + 1 WHERE id = $1`

// BenchmarkFencedWrites compares the p50 of a fenced one-row update with that of its unfenced twin in the same number of round
// trips. All forms take turns transaction by transaction, so that what else the machine does meets them alike. The server flushes its
// log; the results are ratios: mark/4 is Enter in four round trips (begin, check, update, commit), whose twin selects a constant.
func BenchmarkFencedWrites(b *testing.B) {
	for _, goroutines := range []int{1, 8} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) { benchFenced(b, goroutines) })
	}
}

func shapes() []shape {
	inTx := func(ctx context.Context, tx pgx.Tx, b *bencher, check string, batched bool) error {
		if !batched {
			if _, err := tx.Exec(ctx, check, b.args(check)...); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, benchUpdate, b.row)
			return err
		}
		batch := &pgx.Batch{}
		b.queue(batch, check)
		return tx.SendBatch(ctx, batch).Close()
	}
	return []shape{
		{1, func(ctx context.Context, b *bencher, check string) error {
			batch := &pgx.Batch{}
			b.queue(batch, check)
			return b.store.pool.SendBatch(ctx, batch).Close()
		}},
		{3, func(ctx context.Context, b *bencher, check string) error {
			if check == boundedText {
				return b.store.Fenced(ctx, b.claim, func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, benchUpdate, b.row)
					return err
				})
			}
			return pgx.BeginFunc(ctx, b.store.pool, func(tx pgx.Tx) error { return inTx(ctx, tx, b, check, true) })
		}},
		{4, func(ctx context.Context, b *bencher, check string) error {
			return pgx.BeginFunc(ctx, b.store.pool, func(tx pgx.Tx) error { return inTx(ctx, tx, b, check, false) })
		}},
	}
}

const benchNothing = `SELECT 1 WHERE $1::text = ''`

func (b *bencher) args(check string) []any {
	switch check {
	case enterText:
		return raiseArgs(b.claim.Name, b.claim)
	case verifyText:
		return verifyArgs(b.claim)
	}
	return []any{b.claim.Name}
}

func (b *bencher) queue(batch *pgx.Batch, check string) {
	if check != benchNothing {
		batch.Queue(check, b.args(check)...)
	}
	batch.Queue(benchUpdate, b.row)
}

func benchFenced(b *testing.B, goroutines int) {
	b.Helper()
	h := newHarnessOn(b, testdb.Start(b, testdb.Options{Durable: true}), Options{})
	r := &rig{t: b, harness: h}
	ctx := b.Context()
	if _, err := h.own.Exec(ctx, `CREATE TABLE work (id int PRIMARY KEY, n int NOT NULL) WITH (fillfactor = 50); INSERT INTO work SELECT i, 0 FROM generate_series(0, 63) i`); err != nil {
		b.Fatal(err)
	}
	type key struct {
		check string
		trips int
	}
	var mu sync.Mutex
	took := map[key][]time.Duration{}
	var wg sync.WaitGroup
	b.ResetTimer()
	for row := range goroutines {
		bench := &bencher{store: h.store, claim: r.acquire(ctx, r.open(ctx, time.Hour), lease.NewID().String()), row: row}
		wg.Go(func() {
			own := map[key][]time.Duration{}
			for range b.N {
				for _, s := range shapes() {
					for _, check := range []string{benchNothing, enterText, verifyText, boundedText} {
						if check == boundedText && s.trips != 3 {
							continue
						}
						start := time.Now()
						if err := s.run(ctx, bench, check); err != nil {
							b.Error(err)
							return
						}
						own[key{check, s.trips}] = append(own[key{check, s.trips}], time.Since(start))
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for k, d := range own {
				took[k] = append(took[k], d...)
			}
		})
	}
	wg.Wait()
	median := func(check string, trips int) float64 {
		d := took[key{check, trips}]
		if len(d) == 0 {
			return 0
		}
		slices.Sort(d)
		return float64(d[len(d)/2].Nanoseconds())
	}
	b.ReportMetric(0, "ns/op")
	for _, s := range shapes() {
		twin := median(benchNothing, s.trips)
		b.ReportMetric(twin/1000, fmt.Sprintf("us-unfenced/%d", s.trips))
		for name, check := range map[string]string{"mark": enterText, "strict": verifyText, "Fenced": boundedText} {
			if m := median(check, s.trips); m > 0 {
				b.ReportMetric(m/twin, fmt.Sprintf("%s/%d", name, s.trips))
			}
		}
	}
}
