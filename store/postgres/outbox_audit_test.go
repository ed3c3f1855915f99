package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
)

const (
	relayURL   = "TENURE_TEST_OUTBOX_RELAY"
	auditLasts = 4 * time.Second
	mostLost   = 40
	callBound  = 300 * time.Millisecond // an answer that is lost never comes
)

// courier claims, makes each message's effect in a consumer's transaction, and settles, until ctx ends. Its claims are short, so that others take over what a killed one has left.
type courier struct {
	store *Store
	inbox *Inbox
}

func newCourier(t testing.TB, url string) *courier {
	t.Helper()
	s := openStore(t, url, Options{})
	i, err := s.Inbox(inbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &courier{s, i}
}

// once makes a message's effect: a row, with the number that the message has under its key.
func (c *courier) once(ctx context.Context, d *outbox.Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	return pgx.BeginFunc(ctx, c.store.pool, func(tx pgx.Tx) error {
		_, err := c.inbox.Once(ctx, tx, "ledger", d.ID.String(), func(ctx context.Context) error {
			_, err := tx.Exec(ctx, `INSERT INTO effect (message, key) VALUES ($1, $2)`, string(d.Payload), d.Key)
			return err
		})
		return err
	})
}

// run returns when ctx ends. Errors are what the faults make of calls; the audit looks at what has become of it all.
func (c *courier) run(ctx context.Context) {
	o := c.store.Outbox()
	for ctx.Err() == nil {
		id := lease.NewID()
		bound, cancel := context.WithTimeout(ctx, callBound)
		b, err := o.Claim(bound, outbox.ClaimRequest{Claim: id, Limit: 1 + rand.IntN(20), Bytes: 1 << 20, TTL: 300 * time.Millisecond, MaxAttempts: outbox.MaxAttempts}) //nolint:gosec // a test
		cancel()
		if err != nil || len(b.Deliveries) == 0 {
			_, _ = o.Await(ctx, 20*time.Millisecond)
			continue
		}
		req := outbox.SettleRequest{Claim: id}
		failed := map[string]bool{}
		for i := range b.Deliveries {
			d := &b.Deliveries[i]
			v := outbox.Verdict{Position: d.Position, Outcome: outbox.Published}
			if failed[d.Key] && d.Ordered {
				v.Outcome = outbox.Returned
			} else if err := c.once(ctx, d); err != nil {
				v.Outcome, v.Error = outbox.Failed, err.Error()
				failed[d.Key] = true
			}
			req.Verdicts = append(req.Verdicts, v)
		}
		bound, cancel = context.WithTimeout(ctx, callBound)
		_, _ = o.Settle(bound, req) // an answer that is lost: the claim expires
		cancel()
	}
}

// TestOutboxAudit: appenders write rows and messages in one transaction, and relays in two processes carry them to a consumer with an inbox, while answers are lost, the other process is killed, and the server is killed and starts again.
// Every row that was committed has its effect once, those of rolled back ones have none, and those of a key come in order.
func TestOutboxAudit(t *testing.T) {
	if url := os.Getenv(relayURL); url != "" {
		newCourier(t, url).run(t.Context())
		return
	}
	r := newOwnRig(t, map[string]string{"max_connections": "60"}, Options{})
	if _, err := r.own.Exec(t.Context(), `CREATE TABLE told (message text PRIMARY KEY); CREATE TABLE effect (at bigserial PRIMARY KEY, message text NOT NULL, key text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	proxy := testdb.StartProxy(t, r.server.Addr())
	near := newCourier(t, proxy.URL(r.server, r.database))
	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOutboxAudit$", "-test.timeout=60s")
	other.Env = append(os.Environ(), relayURL+"="+r.url())
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), auditLasts)
	defer cancel()
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() { r.tell(ctx, n) })
	}
	relays, stop := context.WithCancel(t.Context())
	defer stop()
	var relayed sync.WaitGroup
	for range 2 {
		relayed.Go(func() { near.run(relays) })
	}
	lost := loseAnswers(proxy)
	wait := func(d time.Duration) { <-time.After(d) }
	wait(auditLasts / 3)
	r.server.Crash(t)
	r.server.Restart(t)
	wait(auditLasts / 3)
	if err := other.Process.Kill(); err != nil { // kill -9, in the middle of something
		t.Error(err)
	}
	_ = other.Wait()
	wg.Wait()
	t.Logf("%d answers were lost", lost.Load())
	r.audit(t)
	stop()
	relayed.Wait()
}

// loseAnswers swallows the answer to one call of each kind after the other.
func loseAnswers(proxy *testdb.Proxy) *atomic.Int64 {
	lost := new(atomic.Int64)
	kinds := []string{"tenure.outbox_settle", "tenure.outbox_claim_many", "commit", "tenure.inbox_take"}
	var again func()
	again = func() {
		if n := int(lost.Add(1)); n < mostLost {
			proxy.AfterNext([]byte(kinds[n%len(kinds)]), again)
		}
	}
	proxy.AfterNext([]byte(kinds[0]), again)
	return lost
}

// tell writes rows and messages of them in one transaction, some of which it rolls back.
func (r *rig) tell(ctx context.Context, n int) {
	o := r.store.Outbox()
	for i := 0; ctx.Err() == nil; i++ {
		key := fmt.Sprintf("key-%d", i%3)
		text := fmt.Sprintf("%d-%06d", n, i)
		_ = pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error { // what is unknown is told by the table
			if _, err := tx.Exec(ctx, `INSERT INTO told (message) VALUES ($1)`, text); err != nil {
				return err
			}
			m := outbox.Message{Topic: "orders", Key: key, Ordered: i%4 > 0, Payload: []byte(text)}
			if _, err := o.AppendTx(ctx, tx, m); err != nil {
				return err
			}
			if i%7 == 6 {
				return errors.New("rolled back on purpose")
			}
			return nil
		})
	}
}

// audit waits until everything is delivered, and looks at what has become of it.
func (r *rig) audit(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for pending := -1; pending != 0; {
		if err := r.own.QueryRow(ctx, `SELECT count(*) FROM tenure.outbox_message WHERE state = 1`).Scan(&pending); err != nil {
			t.Fatalf("%d are pending still: %v", pending, err)
		}
		<-tick.C
	}
	for what, query := range map[string]string{
		"told without effect":        `SELECT string_agg(message, ',') FROM told WHERE message NOT IN (SELECT message FROM effect)`,
		"effect of what is not told": `SELECT string_agg(message, ',') FROM effect WHERE message NOT IN (SELECT message FROM told)`,
		"effect twice":               `SELECT string_agg(message, ',') FROM (SELECT message FROM effect GROUP BY message HAVING count(*) > 1) x`,
		"out of order": `SELECT string_agg(x.message, ',') FROM (SELECT e.message, m.position, max(m.position) OVER (PARTITION BY e.key ORDER BY e.at) AS highest
			FROM effect e JOIN tenure.outbox_message m ON convert_from(m.payload, 'UTF8') = e.message WHERE m.ordered) x WHERE x.position < x.highest`,
		"dead": `SELECT string_agg(position::text, ',') FROM tenure.outbox_dead`,
	} {
		var found *string
		if err := r.own.QueryRow(ctx, query).Scan(&found); err != nil || found != nil {
			t.Errorf("%s: %s, %v", what, text(found), err)
		}
	}
	var told, effects, again int
	err := r.own.QueryRow(ctx, `SELECT (SELECT count(*) FROM told), (SELECT count(*) FROM effect), (SELECT count(*) FROM tenure.outbox_message WHERE attempts > 1)`).Scan(&told, &effects, &again)
	t.Logf("%d told, %d effects, %d delivered more than once, %v", told, effects, again, err)
	if told < 100 {
		t.Errorf("only %d were told", told)
	}
	if err := (&outboxHarness{r.harness}).checkOutbox(ctx); err != nil {
		t.Error(err)
	}
}
