package main

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/bench/handwritten"
	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/twin"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

// TestPostgreSQL runs its parts on one server, which writes nothing of its own.
func TestPostgreSQL(t *testing.T) {
	side, err := startPG(t.Context(), &report.Report{}, losingSettings())
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, side.close)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *pgSide)
	}{
		{"the server is durable", testServerIsDurable},
		{"a pool is full", testPoolIsFull},
		{"the hand-written lease is one", testHandWrittenIsALease},
		{"advisory locks exclude", testAdvisoryLocksExclude},
		{"the log is counted", testLogIsCounted},
		{"a renewal's lease rows are seen", testRenewalCountSeesLeaseRows},
		{"every fenced side checks", testEverySideOfPGFencedChecks},
		{"only protected tables refuse", testOnlyProtectedTablesRefuse},
		{"the hand-written pair sells a seat once", testHandWrittenSeats},
		{"the hand-written outbox relays a message once", testHandWrittenOutbox},
		{"O2b: a stale completion", testO2b},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, side) })
	}
}

// testHandWrittenIsALease: what Tenure is compared with excludes, ends and rises; a comparison with something that does not would flatter it.
func testHandWrittenIsALease(t *testing.T, side *pgSide) {
	t.Helper()
	ctx := t.Context()
	pool := side.admin
	if err := handwritten.Fill(ctx, pool, []string{"old"}); err != nil {
		t.Fatal(err)
	}
	a, b := lease.NewID(), lease.NewID()
	for _, name := range []string{"old", "new"} {
		first, err := handwritten.Acquire(ctx, pool, name, a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := handwritten.Acquire(ctx, pool, name, b); !errors.Is(err, handwritten.ErrHeld) {
			t.Errorf("%s, held by another: %v, want ErrHeld", name, err)
		}
		if err := handwritten.Release(ctx, pool, name, b, first); err == nil {
			t.Errorf("%s: released by who does not hold it", name)
		}
		if err := handwritten.Release(ctx, pool, name, a, first); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		second, err := handwritten.Acquire(ctx, pool, name, b)
		if err != nil || second <= first {
			t.Errorf("%s after a release: token %d, %v, want one above %d", name, second, err, first)
		}
		if _, err := pool.Exec(ctx, `UPDATE hand_lease SET expires_at = clock_timestamp() WHERE name = $1`, name); err != nil {
			t.Fatal(err)
		}
		if _, err := handwritten.Acquire(ctx, pool, name, a); err != nil {
			t.Errorf("%s after its expiry: %v", name, err)
		}
	}
}

// testAdvisoryLocksExclude as far as they do: between connections.
func testAdvisoryLocksExclude(t *testing.T, side *pgSide) {
	t.Helper()
	ctx := t.Context()
	unlock, err := handwritten.Lock(ctx, side.admin, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handwritten.Lock(ctx, side.admin, "a"); !errors.Is(err, handwritten.ErrHeld) {
		t.Errorf("a second lock: %v, want ErrHeld", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = handwritten.LockWaiting(ctx, side.admin, "a"); err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

// testServerIsDurable: a benchmark of commits that are not flushed would show wonders.
func testServerIsDurable(t *testing.T, side *pgSide) {
	t.Helper()
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var value string
		if err := side.admin.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&value); err != nil || value != "on" {
			t.Errorf("%s is %q (%v), want on", name, value, err)
		}
	}
}

// testLogIsCounted: the count of what refused attempts write sees a granted one, and one row lock.
func testLogIsCounted(t *testing.T, side *pgSide) {
	t.Helper()
	s := &losingSide{pgSide: side}
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, work := range map[string]func(context.Context) error{
		"a grant": func(ctx context.Context) error {
			_, _, err := s.loser.acquire(ctx, "free")
			return err
		},
		"a lock": func(ctx context.Context) error { return s.handLoses(ctx, 1, 1) },
	} {
		row, _, err := s.count(t.Context(), name, work, 1)
		if err != nil {
			t.Fatal(err)
		}
		if *row.Cells[0].Median <= 0 || *row.Cells[1].Median <= 0 {
			t.Errorf("%s wrote %v bytes and took %v ids, want some", name, *row.Cells[0].Median, *row.Cells[1].Median)
		}
	}
	if err := s.storeLoses(t.Context(), 1, 1); err != nil {
		t.Error(err)
	}
	if err := wasRefused(nil, lease.ErrHeld); err == nil {
		t.Error("a grant counted as a refused attempt")
	}
}

// testRenewalCountSeesLeaseRows: a renewal that touched lease rows would show.
func testRenewalCountSeesLeaseRows(t *testing.T, side *pgSide) {
	t.Helper()
	s := &pgRenewalSide{pgSide: side, leases: 10}
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	const touching = `CREATE FUNCTION public.touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE tenure.lease SET over_at = over_at; RETURN NULL; END $$`
	for _, text := range []string{touching, `CREATE TRIGGER touch AFTER UPDATE ON tenure.session FOR EACH ROW EXECUTE FUNCTION public.touch()`} {
		if _, err := s.admin.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.count(t.Context(), s.many, 5)
	if err != nil {
		t.Fatal(err)
	}
	if got.sessions != 1 || got.leases < 10 || got.bytes <= 0 {
		t.Errorf("%+v, want 1 row of sessions and every row of leases a renewal", got)
	}
	if _, err := s.admin.Exec(t.Context(), `DROP FUNCTION public.touch CASCADE`); err != nil {
		t.Error(err)
	}
}

// testEverySideOfPGFencedChecks: a side whose check is not sent would be as fast as its twin.
func testEverySideOfPGFencedChecks(t *testing.T, side *pgSide) {
	t.Helper()
	f := &pgFencedSide{pgSide: side}
	if err := f.open(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	w, conn := f.writers[0], f.conns[0].Conn()
	good := w.claim
	for _, form := range fencedForms() {
		for _, check := range fencedChecks() {
			if !form.has(check) {
				continue
			}
			w.claim.Token = good.Token + 1000 // never issued
			err := form.run(t.Context(), conn, check, w)
			if (check.do == nil) != (err == nil) || check.do != nil && !errors.Is(err, fence.ErrAhead) {
				t.Errorf("%s: %s, under a token that was never issued: %v", form.name, check.name, err)
			}
			w.claim = good
			if err := form.run(t.Context(), conn, check, w); err != nil {
				t.Errorf("%s: %s, under the claim: %v", form.name, check.name, err)
			}
		}
	}
}

// testPoolIsFull: a side whose connections are still to be made would pay for them while it is measured.
func testPoolIsFull(t *testing.T, side *pgSide) {
	t.Helper()
	pool, err := side.pool(t.Context(), side.server.URL(pgDatabase), 5)
	if err != nil {
		t.Fatal(err)
	}
	if got := pool.Stat().TotalConns(); got != 5 {
		t.Errorf("%d connections, want 5", got)
	}
	if _, err := side.store(t.Context(), side.server.URL(pgDatabase), postgres.Options{}); err != nil {
		t.Error(err)
	}
}

// testHandWrittenSeats: what holds are compared with excludes others, and sells what is held, once.
func testHandWrittenSeats(t *testing.T, side *pgSide) {
	t.Helper()
	ctx := t.Context()
	if _, err := side.admin.Exec(ctx, handwritten.SeatSchema); err != nil {
		t.Fatal(err)
	}
	if err := handwritten.FillSeats(ctx, side.admin, "s", 2); err != nil {
		t.Fatal(err)
	}
	a, b := lease.NewID(), lease.NewID()
	for what, c := range map[string]struct{ got, want error }{
		"a places":         {handwritten.PlaceSeat(ctx, side.admin, "s0", a), nil},
		"b places":         {handwritten.PlaceSeat(ctx, side.admin, "s0", b), handwritten.ErrHeld},
		"b sells":          {handwritten.SellSeat(ctx, side.admin, "s0", b, "b"), handwritten.ErrHeld},
		"a sells":          {handwritten.SellSeat(ctx, side.admin, "s0", a, "a"), nil},
		"a sells again":    {handwritten.SellSeat(ctx, side.admin, "s0", a, "a"), handwritten.ErrHeld},
		"b places it sold": {handwritten.PlaceSeat(ctx, side.admin, "s0", b), handwritten.ErrHeld},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
}

// TestTheTwinSellsASeatOnce: the same on SQLite.
func TestTheTwinSellsASeatOnce(t *testing.T) {
	ctx := t.Context()
	seats, err := twin.OpenSeats(ctx, filepath.Join(t.TempDir(), "t.db"), "s", 2)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, seats.Close)
	a, b := []byte("a"), []byte("b")
	for i, c := range []struct{ got, want error }{
		{seats.Place(ctx, "s0", a), nil}, {seats.Place(ctx, "s0", b), twin.ErrTaken}, {seats.Sell(ctx, "s0", b, "b"), twin.ErrTaken},
		{seats.Sell(ctx, "s0", a, "a"), nil}, {seats.Sell(ctx, "s0", a, "a"), twin.ErrTaken}, {seats.Place(ctx, "s1", b), nil},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%d: %v, want %v", i, c.got, c.want)
		}
	}
}

// testHandWrittenOutbox: what an outbox is compared with hands a message to one claim, and an id is one message.
func testHandWrittenOutbox(t *testing.T, side *pgSide) {
	t.Helper()
	ctx := t.Context()
	if _, err := side.admin.Exec(ctx, handwritten.OutboxSchema); err != nil {
		t.Fatal(err)
	}
	id := lease.NewID()
	appended := func() error {
		return pgx.BeginFunc(ctx, side.admin, func(tx pgx.Tx) error {
			return handwritten.AppendMessage(ctx, tx, id, "topic", "", outboxPayload())
		})
	}
	if err := appended(); err != nil {
		t.Fatal(err)
	}
	if err := appended(); err == nil {
		t.Error("one id was written twice")
	}
	if err := handwritten.FillMessages(ctx, side.admin, "topic", outboxPayload(), 3); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{3, 1, 0} {
		if n, err := handwritten.RelayMessages(ctx, side.admin, lease.NewID(), 3); err != nil || n != want {
			t.Errorf("relayed %d, %v, want %d", n, err, want)
		}
	}
}
