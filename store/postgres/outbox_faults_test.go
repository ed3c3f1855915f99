package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/outbox"
)

// TestAppendAtEveryLevel: a message is there if and only if its transaction commits, and a key's order is that of commits, at each level of isolation, by pgx and by database/sql.
func TestAppendAtEveryLevel(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			p := newPost(&rig{t: t, harness: newHarness(t)})
			p.append(ctx, p.note("k", "0"))
			first, second := p.begin(ctx, level), p.begin(ctx, level)
			second.do(ctx, `SELECT count(*) FROM content`) // its snapshot is from before
			if _, err := p.outbox.AppendTx(ctx, first, p.note("k", "1"), p.note("", "u")); err != nil {
				t.Fatal(err)
			}
			waits := start(func() error { _, err := p.outbox.AppendTx(ctx, second, p.note("k", "2")); return err })
			if !p.blocked(ctx, 1, waits) {
				t.Fatalf("it does not wait: %v", <-waits)
			}
			first.commit(ctx)
			if err := <-waits; err != nil {
				t.Fatal(err)
			}
			second.commit(ctx)
			gone := p.begin(ctx, level)
			if _, err := p.outbox.AppendTx(ctx, gone, p.note("k", "3")); err != nil {
				t.Fatal(err)
			}
			gone.rollback(ctx)
			p.take(ctx, "0", "1", "u", "2")
			if err := (&outboxHarness{p.harness}).checkOutbox(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAppendKnownSinceTheSnapshot: an id that another transaction has appended since the snapshot is begun again, and then known.
func TestAppendKnownSinceTheSnapshot(t *testing.T) {
	ctx := t.Context()
	p := newPost(&rig{t: t, harness: newHarness(t)})
	old := p.begin(ctx, pgx.RepeatableRead)
	old.do(ctx, `SELECT count(*) FROM content`)
	m := p.note("", "m")
	p.append(ctx, m)
	if _, err := p.outbox.AppendTx(ctx, old, m); !errors.Is(err, ErrBeginAgain) {
		t.Fatalf("%v, want one to begin again", err)
	}
	old.rollback(ctx)
	x := p.begin(ctx, pgx.RepeatableRead)
	if _, err := p.outbox.AppendTx(ctx, x, m); err != nil {
		t.Fatal(err)
	}
	x.commit(ctx)
	p.take(ctx, "m")
}

// TestAppendSQL is a transaction of database/sql.
func TestAppendSQL(t *testing.T) {
	ctx := t.Context()
	p := newPost(&rig{t: t, harness: newHarness(t)})
	db := stdlib.OpenDBFromPool(p.own)
	for _, messages := range [][]outbox.Message{{p.note("", "1")}, {p.note("k", "2"), p.note("k", "3")}} {
		messages[0].Headers = map[string]string{"a": "b"}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.outbox.AppendSQL(ctx, tx, messages...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if c := p.take(ctx, "1", "2", "3"); c.Deliveries[1].Headers["a"] != "b" {
		t.Errorf("%+v", c.Deliveries)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.outbox.AppendSQL(ctx, tx, outbox.Message{ID: p.ids.New(), Topic: "orders", Payload: make([]byte, outbox.MaxPayload+1)}); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("over the limit: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
}

// TestLostOutboxAnswers: a call whose answer is lost is unknown, and the same call again settles it; the messages of a claim whose answer was lost come again at its deadline.
func TestLostOutboxAnswers(t *testing.T) {
	l := newLossy(t, Options{})
	p := newPost(l.rig)
	unknown := func(match string, call func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lost := l.lose(match, cancel)
		if err := call(ctx); !errors.Is(err, outbox.ErrUnknown) {
			t.Fatalf("%s: %v, want unknown", match, err)
		}
		lost()
	}
	ctx := t.Context()
	m := p.note("k", "m")
	appending := func(ctx context.Context) error { _, err := p.outbox.Append(ctx, []outbox.Message{m}); return err }
	unknown("tenure.outbox_append(", appending)
	if err := appending(ctx); err != nil {
		t.Fatal(err)
	}
	unknown("tenure.outbox_claim_many", func(ctx context.Context) error { _, err := p.claim(ctx, 10); return err })
	p.take(ctx)
	p.expire(ctx)
	c := p.take(ctx, "m")
	if c.Deliveries[0].Attempt != 2 {
		t.Errorf("attempt %d", c.Deliveries[0].Attempt)
	}
	unknown("tenure.outbox_settle", func(ctx context.Context) error {
		_, err := p.outbox.Settle(ctx, c.verdicts(outbox.Verdict{Outcome: outbox.Published}))
		return err
	})
	p.publish(ctx, c)
	p.take(ctx)
}

// TestOutboxBehindBouncer: all calls work behind PgBouncer in transaction mode, and that it polls is said once (B39).
func TestOutboxBehindBouncer(t *testing.T) {
	b := startBouncer(t)
	for _, mode := range []string{"cache_describe", "exec"} {
		t.Run(mode, func(t *testing.T) {
			var said bytes.Buffer
			h := &harness{t: t, server: testdb.Shared(t), opts: Options{Logger: slog.New(slog.NewTextHandler(&said, nil))}}
			h.database = h.server.Template(t, install)
			h.storeURL = func(h *harness) string { return b.url(h.t, h.database, mode) }
			h.start()
			t.Cleanup(h.stop)
			p := newPost(&rig{t: t, harness: h})
			ctx := t.Context()
			for range 3 {
				if _, err := p.outbox.Await(ctx, time.Second); !errors.Is(err, outbox.ErrUnavailable) {
					t.Fatalf("awaiting through a pooler: %v", err)
				}
			}
			if n := strings.Count(said.String(), "polls"); n != 1 {
				t.Errorf("said %d times that it polls", n)
			}
			p.append(ctx, p.note("", "1"), p.note("k", "2"))
			if _, err := p.outbox.Append(ctx, []outbox.Message{p.note("k", "3"), p.note("l", "4")}); err != nil {
				t.Fatal(err)
			}
			c := p.take(ctx, "1", "2", "3", "4")
			if done, err := p.outbox.Settle(ctx, c.verdicts(outbox.Verdict{Outcome: outbox.Failed, Error: "down"})); err != nil || done.Applied != 4 {
				t.Fatalf("%+v, %v", done, err)
			}
			p.publish(ctx, p.take(ctx, "1", "2", "3", "4"))
			if n, err := p.outbox.Replay(ctx, outbox.MoveRequest{Topic: "orders", Limit: 10}); n != 4 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			if all, err := p.outbox.List(ctx, outbox.ListRequest{Limit: 10, Bodies: true}); len(all) != 4 || err != nil {
				t.Errorf("%+v, %v", all, err)
			}
			if all, err := p.outbox.Topics(ctx, ""); len(all) != 1 || err != nil {
				t.Errorf("%+v, %v", all, err)
			}
		})
	}
}

// TestBlackholedListener: while the connection for notifications is swallowed, waits end at their time and what is there is claimed; then the connection is made anew, and hints come again (B37).
func TestBlackholedListener(t *testing.T) {
	r := &rig{t: t, harness: newHarness(t)}
	proxy := testdb.StartProxy(t, r.server.Addr())
	far := openStore(t, with(t, proxy.URL(r.server, r.database), "pool_max_conns", "2"), Options{}).Outbox()
	far.listener.bound, far.listener.probe = 200*time.Millisecond, 50*time.Millisecond
	p := newPost(r)
	ctx := t.Context()
	hint := func(within time.Duration) bool {
		woken := start(func() error {
			ok, err := far.Await(ctx, within)
			if err == nil && !ok {
				err = errors.New("no hint")
			}
			return err
		})
		for waiting := 0; waiting == 0; { // until it has enrolled, or failed
			if err := r.own.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&waiting); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-woken:
				return err == nil
			case <-time.After(2 * time.Millisecond):
			}
		}
		p.append(ctx, p.note("", "x"))
		err := <-woken
		p.publish(ctx, p.take(ctx, "x"))
		return err == nil
	}
	if !hint(10 * time.Second) {
		t.Fatal("no hint of an append")
	}
	proxy.SetMode(testdb.Blackhole)
	began := time.Now()
	if ok, _ := far.Await(ctx, 400*time.Millisecond); ok || time.Since(began) > 5*time.Second {
		t.Errorf("a wait on a connection that is swallowed: %t after %v", ok, time.Since(began))
	}
	p.append(ctx, p.note("", "meanwhile"))
	p.publish(ctx, p.take(ctx, "meanwhile"))
	proxy.Cut()
	proxy.SetMode(testdb.Pass)
	for again := false; !again; again = hint(2 * time.Second) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("the connection for notifications is not made anew")
		}
	}
}

// TestShutdownEndsWaits: a store that is shut down does not wait for who waits for messages.
func TestShutdownEndsWaits(t *testing.T) {
	r := newHarness(t)
	s, err := Open(t.Context(), r.url(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	waits := start(func() error { _, err := s.Outbox().Await(t.Context(), outbox.MaxTTL); return err })
	for waiting := 0; waiting == 0; <-time.After(time.Millisecond) {
		if err := r.own.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%outbox_ready%' AND state = 'idle'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := errors.Join(s.Shutdown(ctx), <-waits); err != nil {
		t.Fatal(err)
	}
}

// TestOutboxRestored: what was dumped and restored into a new server goes on, with other transaction numbers (B30).
func TestOutboxRestored(t *testing.T) {
	ctx := t.Context()
	p := newPost(&rig{t: t, harness: newHarness(t)})
	p.append(ctx, p.note("k", "1"), p.note("k", "2"), p.note("", "3"), p.note("", "4"))
	c, err := p.claim(ctx, 3)
	if err != nil || len(c.texts) != 3 {
		t.Fatalf("%q, %v", c.texts, err)
	}
	one := c
	one.Deliveries = c.Deliveries[:1]
	one.texts = c.texts[:1]
	p.publish(ctx, one)
	dump, err := exec.CommandContext(ctx, "pg_dump", "--no-owner", "--no-privileges", "--dbname", p.url()).Output()
	if err != nil {
		t.Fatal(err)
	}
	server := testdb.Start(t, testdb.Options{})
	conn := connect(t, server.URL(server.Template(t, install))) // the roles are the server's
	fresh := server.Database(t)
	restore := exec.CommandContext(ctx, "psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", server.URL(fresh))
	restore.Stdin = bytes.NewReader(dump)
	if out, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_ = conn
	h := &harness{t: t, server: server, database: fresh}
	h.start()
	t.Cleanup(h.stop)
	q := newPost(&rig{t: t, harness: h})
	q.append(ctx, q.note("k", "5"))
	q.publish(ctx, q.take(ctx, "4"))
	q.expire(ctx)
	q.publish(ctx, q.take(ctx, "2", "3", "5"))
	q.take(ctx)
	if err := (&outboxHarness{h}).checkOutbox(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestOutboxRights: a user appends and relays, an operator does the rest, and nobody reads the tables.
func TestOutboxRights(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	p := newPost(r)
	p.append(ctx, p.note("", "1"))
	for _, role := range []string{roleUser, roleOperator} {
		x := r.begin(ctx, pgx.ReadCommitted)
		x.do(ctx, `SET LOCAL ROLE `+role)
		for call, want := range map[string]string{
			`SELECT tenure.outbox_append('t', '\x01')`: roleUser, `SELECT tenure.outbox_claim(tenure.new_id())`: roleUser, `SELECT tenure.outbox_list()`: roleUser, `SELECT tenure.inbox_once('c', 'm')`: roleUser,
			`SELECT tenure.outbox_pause('t')`: roleOperator, `SELECT tenure.outbox_retry()`: roleOperator, `SELECT tenure.outbox_replay()`: roleOperator, `SELECT tenure.outbox_prune('1 hour')`: roleOperator,
			`SELECT tenure.inbox_prune('1 hour')`: roleOperator, `SELECT * FROM tenure.outbox_message`: "", `SELECT * FROM tenure.inbox_note`: "", `SELECT tenure.outbox_move(2::smallint, NULL, '', '', 0, 0, NULL, 1)`: "",
		} {
			x.do(ctx, `SAVEPOINT here`)
			_, err := x.Exec(ctx, call)
			may := want == roleUser || want == roleOperator && role == roleOperator
			if (state(err) == stateNotAllowed) == may || may && err != nil {
				t.Errorf("%s: %s: %v", role, call, err)
			}
			x.do(ctx, `ROLLBACK TO here`)
		}
		x.rollback(ctx)
	}
}

// TestOutboxClaimReadsLittle: a claim reads no more pages for what was delivered, is dead, backs off, or waits behind a key that is claimed, on tables of which no statistics were gathered (B33).
func TestOutboxClaimReadsLittle(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	p := newPost(r)
	p.append(ctx, p.note("k", "0"))
	read := func() (pages int) {
		t.Helper()
		for range 6 {
			p.append(ctx, p.note("", "u"))
		}
		rows, err := r.own.Query(ctx, `EXPLAIN (ANALYSE, BUFFERS, FORMAT TEXT) SELECT * FROM tenure.outbox_claim($1, 'r', NULL, 5)`, uuid(p.ids.New()))
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, "Buffers: shared hit=") })
		if i < 0 {
			t.Fatalf("%q", lines)
		}
		if _, err := fmt.Sscanf(strings.TrimSpace(lines[i]), "Buffers: shared hit=%d", &pages); err != nil {
			t.Fatal(err)
		}
		return pages
	}
	read()
	few := read()
	if _, err := r.own.Exec(ctx, `
		SELECT tenure.outbox_append_many(array_fill('other'::text, ARRAY[1000]), array_fill('\x01'::bytea, ARRAY[1000])) FROM generate_series(1, 20);
		DO $$ BEGIN
			FOR i IN 1..20 LOOP
				PERFORM tenure.outbox_settle(c, positions, outcomes, NULL, retries, dead) FROM (SELECT c, array_agg(x."position") AS positions, array_agg((ARRAY['published', 'failed', 'failed'])[i % 3 + 1]) AS outcomes,
					array_agg(interval '1 hour') AS retries, array_agg(i % 3 = 2) AS dead FROM (SELECT tenure.new_id() AS c) n, tenure.outbox_claim(c, '', '{other}', 1000) x GROUP BY c) y;
			END LOOP;
		END $$;
		SELECT tenure.outbox_append_many(array_fill('orders'::text, ARRAY[1000]), array_fill('\x01'::bytea, ARRAY[1000]), array_fill('k'::text, ARRAY[1000]), array_fill(true, ARRAY[1000])) FROM generate_series(1, 10)`); err != nil {
		t.Fatal(err)
	}
	if _, err := r.own.Exec(ctx, `VACUUM tenure.outbox_queue`); err != nil { // as the server does by itself; without it a claim in Go begins its look where it knows that nothing is left before
		t.Fatal(err)
	}
	read() // meets the key's rows in the queue, once
	if many := read(); many > 2*few+60 {
		t.Errorf("a claim reads %d pages where few messages are, and %d beside many", few, many)
	} else {
		t.Logf("%d pages, %d beside many", few, many)
	}
}
