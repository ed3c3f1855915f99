package postgres

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
)

// byHand is an outbox as it is written by hand.
const byHand = `CREATE TABLE by_hand (position bigserial PRIMARY KEY, id uuid NOT NULL UNIQUE, topic text NOT NULL, key text NOT NULL, headers jsonb, payload bytea NOT NULL, state smallint NOT NULL DEFAULT 1, claim uuid, until timestamptz);
	CREATE INDEX by_hand_pending ON by_hand (position) WHERE state = 1`

const (
	handInsert = `INSERT INTO by_hand (id, topic, key, headers, payload) VALUES ($1, $2, $3, $4, $5)`
	handClaim  = `UPDATE by_hand b SET state = 2, claim = $1, until = clock_timestamp() + interval '30 seconds'
		FROM (SELECT position FROM by_hand WHERE state = 1 ORDER BY position LIMIT $2 FOR UPDATE SKIP LOCKED) x WHERE b.position = x.position RETURNING b.position, b.id, b.topic, b.key, b.headers, b.payload`
	handSettle = `UPDATE by_hand SET state = 3 WHERE position = ANY ($1) AND claim = $2 AND state = 2`
)

func benchServer(b *testing.B) (*Outbox, *pgxpool.Pool) {
	b.Helper()
	server := testdb.Start(b, testdb.Options{Durable: true, Settings: map[string]string{"max_wal_size": "4GB", "shared_buffers": "512MB"}})
	url := server.URL(server.Template(b, install))
	pool, err := pgxpool.New(b.Context(), with(b, url, "pool_max_conns", "16"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := pool.Exec(b.Context(), byHand); err != nil {
		b.Fatal(err)
	}
	return openStore(b, with(b, url, "pool_max_conns", "16"), Options{}).Outbox(), pool
}

var payload100 = slices.Repeat([]byte{'x'}, 100)

// BenchmarkOutboxAppend is a transaction that writes a row and one message that tells of it, by hand and by AppendTx, in turn on one connection.
func BenchmarkOutboxAppend(b *testing.B) {
	o, pool := benchServer(b)
	conn, err := pool.Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	in := func(fn func(tx pgx.Tx) error) {
		tx, err := conn.Begin(b.Context())
		if err == nil {
			_, err = tx.Exec(b.Context(), `INSERT INTO content (value) VALUES ('what the message tells')`)
		}
		if err == nil {
			err = fn(tx)
		}
		if err == nil {
			err = tx.Commit(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	var hand, ours []time.Duration
	const share = 500
	for b.Loop() {
		hand = append(hand, elapsed(func() {
			for range share {
				in(func(tx pgx.Tx) error {
					_, err := tx.Exec(b.Context(), handInsert, uuid(lease.NewID()), "orders", "", nil, payload100)
					return err
				})
			}
		}))
		ours = append(ours, elapsed(func() {
			for range share {
				in(func(tx pgx.Tx) error {
					_, err := o.AppendTx(b.Context(), tx, outbox.Message{Topic: "orders", Payload: payload100})
					return err
				})
			}
		}))
	}
	slices.Sort(hand)
	slices.Sort(ours)
	b.ReportMetric(float64(hand[len(hand)/2].Microseconds())/share, "us/by-hand")
	b.ReportMetric(float64(ours[len(ours)/2].Microseconds())/share, "us/append")
	b.ReportMetric(float64(ours[len(ours)/2])/float64(hand[len(hand)/2]), "times")
	b.ReportMetric(0, "ns/op")
}

// appendAll appends n messages of 100 bytes, with as many keys as given; 0: not ordered.
func appendAll(b *testing.B, o *Outbox, n, keys int) {
	b.Helper()
	for from := 0; from < n; from += outbox.MaxAppend {
		messages := make([]outbox.Message, min(outbox.MaxAppend, n-from))
		for i := range messages {
			messages[i] = outbox.Message{Topic: "orders", Payload: payload100}
			if keys > 0 {
				messages[i].Key, messages[i].Ordered = fmt.Sprintf("key-%d", (from+i)%keys), true
			}
		}
		if _, err := o.Append(b.Context(), messages); err != nil {
			b.Fatal(err)
		}
	}
}

// publish claims and settles one batch, and returns how many it had.
func publish(ctx context.Context, o *Outbox, limit int) (n int, claiming time.Duration, err error) {
	id := lease.NewID()
	began := time.Now()
	batch, err := o.Claim(ctx, outbox.ClaimRequest{Claim: id, Limit: limit, Bytes: outbox.MaxBatchBytes, TTL: 30 * time.Second, MaxAttempts: 10})
	claiming = time.Since(began)
	if err != nil || len(batch.Deliveries) == 0 {
		return 0, claiming, err
	}
	req := outbox.SettleRequest{Claim: id}
	for _, d := range batch.Deliveries {
		req.Verdicts = append(req.Verdicts, outbox.Verdict{Position: d.Position, Outcome: outbox.Published})
	}
	done, err := o.Settle(ctx, req)
	if err == nil && done.Applied != len(batch.Deliveries) {
		err = fmt.Errorf("%d of %d were settled", done.Applied, len(batch.Deliveries))
	}
	return len(batch.Deliveries), claiming, err
}

func publishByHand(ctx context.Context, pool *pgxpool.Pool, limit int) (n int, err error) {
	id := uuid(lease.NewID())
	rows, err := pool.Query(ctx, handClaim, id, limit)
	if err != nil {
		return 0, err
	}
	var positions []int64
	for rows.Next() {
		var position int64
		var message pgtype.UUID
		var topic, key string
		var headers, payload []byte
		if err := rows.Scan(&position, &message, &topic, &key, &headers, &payload); err != nil {
			return 0, err
		}
		positions = append(positions, position)
	}
	if rows.Close(); rows.Err() != nil || len(positions) == 0 {
		return 0, rows.Err()
	}
	_, err = pool.Exec(ctx, handSettle, positions, id)
	return len(positions), err
}

// drain lets relays work until nothing is left, and returns how many messages they had in a second.
func drain(b *testing.B, relays int, one func() (int, error)) float64 {
	b.Helper()
	var total atomic.Int64
	took := elapsed(func() {
		var wg sync.WaitGroup
		for range relays {
			wg.Go(func() {
				for {
					n, err := one()
					if err != nil {
						b.Error(err)
					}
					if n == 0 || err != nil {
						return
					}
					total.Add(int64(n))
				}
			})
		}
		wg.Wait()
	})
	return float64(total.Load()) / took.Seconds()
}

// BenchmarkOutboxRelay claims and settles batches of 1,000, by hand and by the outbox, in turn.
func BenchmarkOutboxRelay(b *testing.B) {
	const count = 100_000
	for _, relays := range []int{1, 4} {
		b.Run(fmt.Sprintf("relays=%d", relays), func(b *testing.B) {
			o, pool := benchServer(b)
			var hand, ours []float64
			for b.Loop() {
				if _, err := pool.Exec(b.Context(), `INSERT INTO by_hand (id, topic, key, payload) SELECT gen_random_uuid(), 'orders', '', $1 FROM generate_series(1, $2)`, payload100, count); err != nil {
					b.Fatal(err)
				}
				appendAll(b, o, count, 0)
				hand = append(hand, drain(b, relays, func() (int, error) { return publishByHand(b.Context(), pool, 1000) }))
				ours = append(ours, drain(b, relays, func() (int, error) { n, _, err := publish(b.Context(), o, 1000); return n, err }))
			}
			slices.Sort(hand)
			slices.Sort(ours)
			b.ReportMetric(hand[len(hand)/2], "by-hand/s")
			b.ReportMetric(ours[len(ours)/2], "outbox/s")
			b.ReportMetric(ours[len(ours)/2]/hand[len(hand)/2], "times")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkOutboxKeys claims in the order of 200 keys with 1,000 messages each.
func BenchmarkOutboxKeys(b *testing.B) {
	o, _ := benchServer(b)
	for _, limit := range []int{100, 1000} {
		b.Run(fmt.Sprintf("limit=%d", limit), func(b *testing.B) {
			var claims []time.Duration
			var rate float64
			for b.Loop() {
				appendAll(b, o, 200_000, 200)
				rate = drain(b, 1, func() (int, error) {
					n, took, err := publish(b.Context(), o, limit)
					claims = append(claims, took)
					return n, err
				})
			}
			slices.Sort(claims)
			b.ReportMetric(float64(claims[len(claims)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(claims[len(claims)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(claims[len(claims)-1].Microseconds())/1000, "max-ms")
			b.ReportMetric(rate, "outbox/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkOutboxOldSnapshot has a transaction with a snapshot open while messages are appended and relayed, for as long as TENURE_OUTBOX_SNAPSHOT says, 20 s if it says nothing, and compares the last fifth of that with what was before.
func BenchmarkOutboxOldSnapshot(b *testing.B) {
	held := 20 * time.Second
	if text := os.Getenv("TENURE_OUTBOX_SNAPSHOT"); text != "" {
		var err error
		if held, err = time.ParseDuration(text); err != nil {
			b.Fatal(err)
		}
	}
	for _, keys := range []int{0, 200} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			for b.Loop() {
				snapshotRound(b, keys, held)
			}
		})
	}
}

func snapshotRound(b *testing.B, keys int, held time.Duration) {
	b.Helper()
	o, pool := benchServer(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var relayed, appended atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for ctx.Err() == nil {
			if appended.Load()-relayed.Load() > 20_000 { // the relay is measured, with something to do
				<-time.After(time.Millisecond)
				continue
			}
			messages := make([]outbox.Message, 200)
			for i := range messages {
				messages[i] = outbox.Message{Topic: "orders", Payload: payload100}
				if keys > 0 {
					messages[i].Key, messages[i].Ordered = fmt.Sprintf("key-%d", i%keys), true
				}
			}
			if _, err := o.Append(ctx, messages); err == nil {
				appended.Add(int64(len(messages)))
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if n, _, err := publish(ctx, o, 500); err == nil {
					relayed.Add(int64(n))
				}
			}
		})
	}
	rate := func(d time.Duration) float64 {
		before := relayed.Load()
		<-time.After(d)
		return float64(relayed.Load()-before) / d.Seconds()
	}
	rate(time.Second)
	before := rate(max(held/5, 3*time.Second))
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT count(*) FROM by_hand`).Scan(nil)
	}
	if err != nil {
		b.Fatal(err)
	}
	for range 4 {
		b.Logf("%.0f/s", rate(held/5))
	}
	with := rate(held / 5)
	if err := tx.Rollback(ctx); err != nil {
		b.Error(err)
	}
	b.ReportMetric(before, "before/s")
	b.ReportMetric(with, "with-old-snapshot/s")
	b.ReportMetric(with/before, "times")
	b.ReportMetric(0, "ns/op")
}
