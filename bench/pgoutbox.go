package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tenure-go/tenure/bench/handwritten"
	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/store/postgres"
)

const pgOutboxMethod = "An outbox on one server, and what it is compared with: a table as it is written by hand (bigserial, unique id, topic, key, headers, payload, state, claim and its end, a partial index over what is pending). Payloads are 100 bytes, and there are no headers. *Append*: a transaction that " +
	"writes one message, and one that writes a row of the application's first, on one connection, sides in turn in blocks of 20; p50 of a round. *Claim and settle*: %s messages appended before are claimed and recorded as published in batches of 1,000 by relays that publish nothing, with `Claim` and `Settle` of the store, and by hand with " +
	"UPDATE ... FOR UPDATE SKIP LOCKED ... RETURNING and an UPDATE of these positions under that claim: two durable statements a batch. *Consumed*: %s messages appended before, by one process, until the last is recorded. Tenure is `relay.Relay` with defaults, and a sink that " +
	"acknowledges. The peer is the subscriber of Watermill-SQL %s as its documentation sets it up: DefaultPostgreSQLSchema, DefaultPostgreSQLOffsetsAdapter, InitializeSchema, on a pool of %d connections of pgx; payloads are JSON of 100 bytes; each message is acknowledged as it comes. It promises " +
	"an order over a topic, which Tenure does by key. Its batch is 100 unless set; the other row has 1,000, which is the relay's. *In the order of keys*: 200 keys with %s ordered messages each, claimed and settled by one relay."

const (
	outboxTopic = "orders"
	outboxBatch = 1000
	outboxKeys  = 200
	appendBlock = 20
)

// The sides.
const (
	outboxHand      = "written by hand"
	outboxUnordered = "Tenure"
	outboxOrdered   = "Tenure, ordered"
)

// outboxPayload is 100 bytes of JSON: the peer's column is one of JSON.
func outboxPayload() []byte {
	payload := slices.Repeat([]byte{'x'}, 100)
	payload[0], payload[99] = '"', '"'
	return payload
}

type outboxSide struct {
	*pgSide
	payload []byte
	mail    *postgres.Outbox
	alone   *pgxpool.Pool // of one connection, for appends
	hand    *pgxpool.Pool // of as many as relays
	peer    *pgxpool.Pool
}

func runPGOutbox(ctx context.Context, p *plan, r *report.Report) (err error) {
	messages, consumed, each := p.pick(100_000, 2000), p.pick(20_000, 300), p.pick(1000, 5)
	r.Method = fmt.Sprintf(pgOutboxMethod, report.Format(float64(messages)), report.Format(float64(consumed)), watermillVersion, storePool, report.Format(float64(each)))
	o, err := openOutbox(ctx, r, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close(context.WithoutCancel(ctx))) }()
	appends, relays, peers, keys := newOutboxAppends(), outboxRelays{}, rounds{}, outboxClaims{}
	err = p.eachRound(ctx, func(round int) error {
		if err := appends.round(ctx, o, p.cell); err != nil {
			return err
		}
		if err := relays.round(ctx, o, round, messages); err != nil {
			return err
		}
		if err := o.consume(ctx, round, consumed, peers); err != nil {
			return err
		}
		return keys.round(ctx, o, each)
	})
	if err != nil {
		return err
	}
	appends.tell(r)
	relays.tell(r)
	tellConsumed(r, peers)
	keys.tell(r)
	r.Notes = append(r.Notes,
		"An append writes two rows where the table written by hand has one: the message, and its place in a queue, so that relays read and take away places and leave messages alone that were published long ago. Beside these it looks for the topic and for a relay that waits. Both transactions flush once. What the calls take on the server is in the profile below.",
		"The subscriber records a batch in one row, the offset of its last message, in a transaction that is open while its handlers run; a message of its own costs little but the reading, and a batch that is ten times as large costs few flushes. Tenure records of each message what became of it, and has no transaction open meanwhile. "+
			"Five times were asked for when 470 messages a second had been published for the subscriber, from another machine. On this one it is tens of thousands, and with batches as large as the relay's it can be faster than the relay: there is no factor of five left below what the server does at all.")
	return nil
}

func openOutbox(ctx context.Context, r *report.Report, settings map[string]string) (_ *outboxSide, err error) {
	pg, err := startPG(ctx, r, settings)
	if err != nil {
		return nil, err
	}
	o := &outboxSide{pgSide: pg, payload: outboxPayload()}
	if err := o.open(ctx); err != nil {
		return nil, errors.Join(err, pg.close(context.WithoutCancel(ctx)))
	}
	return o, nil
}

func (o *outboxSide) open(ctx context.Context) (err error) {
	url := o.server.URL(pgDatabase)
	if _, err = o.admin.Exec(ctx, handwritten.OutboxSchema); err != nil {
		return err
	}
	if _, err = o.admin.Exec(ctx, `CREATE TABLE hand_order (id bigserial PRIMARY KEY, what text NOT NULL)`); err != nil {
		return err
	}
	store, err := o.store(ctx, url, postgres.Options{})
	if err != nil {
		return err
	}
	o.mail = store.Outbox()
	if o.alone, err = o.pool(ctx, url, 1); err != nil {
		return err
	}
	if o.hand, err = o.pool(ctx, url, 4); err != nil {
		return err
	}
	o.peer, err = o.pool(ctx, url, storePool)
	return err
}

// settled leaves the tables as a server that has been up for a while has them.
func (o *outboxSide) settled(ctx context.Context) error {
	if _, err := o.admin.Exec(ctx, `VACUUM ANALYSE`); err != nil {
		return err
	}
	_, err := o.admin.Exec(ctx, `CHECKPOINT`)
	return err
}

// rounds has a figure of each round, by what was measured.
type rounds map[string][]float64

// outboxAppends is what appends took, by whether the transaction wrote a row of the application's and by side.
type outboxAppends [2]rounds

func newOutboxAppends() *outboxAppends { return &outboxAppends{{}, {}} }

func (a *outboxAppends) round(ctx context.Context, o *outboxSide, d time.Duration) error {
	if err := o.settled(ctx); err != nil {
		return err
	}
	for row := range a {
		took := rounds{}
		for n, end := 0, time.Now().Add(3*d); n == 0 || time.Now().Before(end); n++ {
			for _, side := range []string{outboxHand, outboxUnordered, outboxOrdered} {
				for range appendBlock {
					start := time.Now()
					if err := o.append(ctx, side, row == 1); err != nil {
						return fmt.Errorf("%s: %w", side, err)
					}
					took[side] = append(took[side], micros(time.Since(start)))
				}
			}
		}
		for side, all := range took {
			a[row][side] = append(a[row][side], stats.Percentile(all, 50))
		}
	}
	return o.clear(ctx)
}

// clear relays what is left, so that what is measured next begins with what it has appended.
func (o *outboxSide) clear(ctx context.Context) error {
	for _, one := range []func() (int, error){
		func() (int, error) { return handwritten.RelayMessages(ctx, o.hand, lease.NewID(), outboxBatch) },
		func() (int, error) { n, _, err := publish(ctx, o.mail, outboxBatch); return n, err },
	} {
		for {
			if n, err := one(); n == 0 || err != nil {
				if err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// append is one transaction.
func (o *outboxSide) append(ctx context.Context, side string, row bool) error {
	return pgx.BeginFunc(ctx, o.alone, func(tx pgx.Tx) error {
		if row {
			if _, err := tx.Exec(ctx, `INSERT INTO hand_order (what) VALUES ($1)`, "what the message tells"); err != nil {
				return err
			}
		}
		m := outbox.Message{Topic: outboxTopic, Payload: o.payload}
		switch side {
		case outboxHand:
			return handwritten.AppendMessage(ctx, tx, lease.NewID(), outboxTopic, "", o.payload)
		case outboxOrdered:
			m.Key, m.Ordered = "one", true
		}
		_, err := o.mail.AppendTx(ctx, tx, m)
		return err
	})
}

func (a *outboxAppends) tell(r *report.Report) {
	columns := []string{"the message alone", "with a row of the application"}
	took, ratio := report.Table{Title: "A transaction that appends one message, p50 in microseconds:", Columns: columns}, report.Table{Title: "Ratio to the insert written by hand:", Columns: columns}
	for _, side := range []string{outboxHand, outboxUnordered, outboxOrdered} {
		one, times := report.Row{Label: side}, report.Row{Label: side}
		for row := range a {
			one.Cells = append(one.Cells, report.Rounds(a[row][side]))
			times.Cells = append(times.Cells, report.Rounds(stats.Ratios(a[row][side], a[row][outboxHand])))
		}
		if took.Rows = append(took.Rows, one); side != outboxHand {
			ratio.Rows = append(ratio.Rows, times)
		}
	}
	r.Tables = append(r.Tables, took, ratio)
	for row, what := range columns {
		r.Targets = append(r.Targets, report.AtMost("append of one unordered message to an insert written by hand, "+what, 1.1, "x", stats.Ratios(a[row][outboxUnordered], a[row][outboxHand])))
	}
}

// outboxRelays has messages claimed and settled a second.
type outboxRelays map[int]rounds

func (a outboxRelays) round(ctx context.Context, o *outboxSide, round, messages int) error {
	for _, relays := range []int{1, 4} {
		if a[relays] == nil {
			a[relays] = rounds{}
		}
		if err := handwritten.FillMessages(ctx, o.admin, outboxTopic, o.payload, messages); err != nil {
			return err
		}
		if err := o.fill(ctx, messages, 0); err != nil {
			return err
		}
		if err := o.settled(ctx); err != nil {
			return err
		}
		sides := []string{outboxHand, outboxUnordered}
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			one := func(ctx context.Context) (int, error) {
				return handwritten.RelayMessages(ctx, o.hand, lease.NewID(), outboxBatch)
			}
			if side != outboxHand {
				one = func(ctx context.Context) (int, error) { n, _, err := publish(ctx, o.mail, outboxBatch); return n, err }
			}
			rate, err := drain(ctx, relays, messages, one)
			if err != nil {
				return fmt.Errorf("%s: %w", side, err)
			}
			a[relays][side] = append(a[relays][side], rate)
		}
	}
	return nil
}

func (a outboxRelays) tell(r *report.Report) {
	counts := []int{1, 4}
	r.AddTable("Messages claimed and settled a second, by relays:", counts, []string{outboxHand, outboxUnordered}, func(side string, n int) []float64 { return a[n][side] })
	r.Tables[len(r.Tables)-1].Label, r.Tables[len(r.Tables)-1].Chart = "relays", true
	for _, n := range counts {
		r.Targets = append(r.Targets, report.AtLeast("claim and settle to claim and update written by hand, relays: "+strconv.Itoa(n), 0.6, "x", stats.Ratios(a[n][outboxUnordered], a[n][outboxHand])))
	}
}

// fill appends n messages in batches, ordered ones of so many keys if there are any.
func (o *outboxSide) fill(ctx context.Context, n, keys int) error {
	return appendMessages(ctx, o.mail, o.payload, n, keys)
}

// appendMessages appends n messages, in as few calls as may be.
func appendMessages(ctx context.Context, mail outbox.Store, payload []byte, n, keys int) error {
	for from := 0; from < n; from += outbox.MaxAppend {
		some := make([]outbox.Message, min(outbox.MaxAppend, n-from))
		for i := range some {
			if some[i] = (outbox.Message{Topic: outboxTopic, Payload: payload}); keys > 0 {
				some[i].Key, some[i].Ordered = "key "+strconv.Itoa((from+i)%keys), true
			}
		}
		if _, err := mail.Append(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// publish claims a batch and says that all of it was published. It returns how many there were and how long the claim took.
func publish(ctx context.Context, mail outbox.Store, limit int) (int, time.Duration, error) {
	id := lease.NewID()
	start := time.Now()
	batch, err := mail.Claim(ctx, outbox.ClaimRequest{Claim: id, Limit: limit, Bytes: outbox.MaxBatchBytes, TTL: 30 * time.Second, MaxAttempts: 10})
	took := time.Since(start)
	if err != nil || len(batch.Deliveries) == 0 {
		return 0, took, err
	}
	verdicts := make([]outbox.Verdict, len(batch.Deliveries))
	for i, d := range batch.Deliveries {
		verdicts[i] = outbox.Verdict{Position: d.Position, Outcome: outbox.Published}
	}
	done, err := mail.Settle(ctx, outbox.SettleRequest{Claim: id, Verdicts: verdicts})
	if err == nil && done.Applied != len(verdicts) {
		err = fmt.Errorf("%d of %d were settled", done.Applied, len(verdicts))
	}
	return len(verdicts), took, err
}

// drain lets relays work until nothing is left, and returns how many messages they had in a second. It is an error if that is not all of them.
func drain(ctx context.Context, relays, messages int, one func(context.Context) (int, error)) (float64, error) {
	var total atomic.Int64
	working, all := errgroup.WithContext(ctx)
	start := time.Now()
	for range relays {
		working.Go(func() error {
			for {
				n, err := one(all)
				if n == 0 || err != nil {
					return err
				}
				total.Add(int64(n))
			}
		})
	}
	err := working.Wait()
	took := time.Since(start)
	if err == nil && total.Load() != int64(messages) {
		err = fmt.Errorf("%d of %d messages were relayed", total.Load(), messages)
	}
	return float64(total.Load()) / took.Seconds(), err
}

// outboxClaims has the milliseconds of claims in the order of keys, by the limit of a claim.
type outboxClaims map[int]*keyedClaims

type keyedClaims struct{ p50, p99, most, rate []float64 }

func (a outboxClaims) round(ctx context.Context, o *outboxSide, each int) error {
	for _, limit := range []int{100, outboxBatch} {
		if a[limit] == nil {
			a[limit] = &keyedClaims{}
		}
		if err := o.fill(ctx, outboxKeys*each, outboxKeys); err != nil {
			return err
		}
		if err := o.settled(ctx); err != nil {
			return err
		}
		var took []float64
		rate, err := drain(ctx, 1, outboxKeys*each, func(ctx context.Context) (int, error) {
			n, claiming, err := publish(ctx, o.mail, limit)
			took = append(took, millis(claiming))
			return n, err
		})
		if err != nil {
			return err
		}
		c := a[limit]
		c.p50, c.p99, c.most = append(c.p50, stats.Percentile(took, 50)), append(c.p99, stats.Percentile(took, 99)), append(c.most, slices.Max(took))
		c.rate = append(c.rate, rate)
	}
	return nil
}

func (a outboxClaims) tell(r *report.Report) {
	t := report.Table{Title: "In the order of 200 keys, claims in milliseconds:", Label: "messages of a claim", Columns: []string{"p50", "p99", "longest", "messages claimed and settled a second"}}
	for _, limit := range []int{100, outboxBatch} {
		c := a[limit]
		t.Rows = append(t.Rows, report.Row{Label: report.Format(float64(limit)), Cells: []report.Cell{report.Rounds(c.p50), report.Rounds(c.p99), report.Rounds(c.most), report.Rounds(c.rate)}})
		r.Targets = append(r.Targets, report.AtMost("a claim of "+report.Format(float64(limit))+" messages in the order of 200 keys, p99", 100, "ms", c.p99))
	}
	r.Tables = append(r.Tables, t)
}
