package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

const (
	auditFull = "TENURE_POSTGRES_HOLDS_AUDIT"     // set: 2,000 buyers, 500 seats, 10 s; otherwise a tenth of it for 2 s
	auditURL  = "TENURE_POSTGRES_HOLDS_AUDIT_URL" // the other process gets it
)

// audit is many buyers and few seats.
type audit struct {
	buyers, seats int
	lasts         time.Duration
	holds         *Holds
	db            *pgxpool.Pool // for sales in a transaction

	mu     sync.Mutex
	sold   []hold.Hold // told to be confirmed
	taken  atomic.Int64
	late   atomic.Int64
	places atomic.Int64
}

func newAudit(t *testing.T, url string, s *Store) *audit {
	t.Helper()
	a := &audit{buyers: 100, seats: 50, lasts: 2 * time.Second, holds: s.Holds()} // buyers of each of two processes
	if os.Getenv(auditFull) != "" {
		a.buyers, a.seats, a.lasts = 1000, 500, 10*time.Second
	}
	db, err := pgxpool.New(t.Context(), with(t, url, "pool_max_conns", "8"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	a.db = db
	return a
}

func auditSeat(i int) string { return fmt.Sprintf("seat-%03d", i) }

// settled repeats a call until its outcome is known.
func settled(call func() (hold.Hold, error)) (hold.Hold, error) {
	const most = 20_000
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range most {
		told, err := call()
		if !errors.Is(err, hold.ErrUnknown) && !errors.Is(err, hold.ErrUnavailable) {
			return told, err
		}
		<-tick.C
	}
	return hold.Hold{}, errTooMany
}

// run lets all buyers buy. What is under way when the time is over is settled.
func (a *audit) run(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, a.lasts)
	defer cancel()
	var wg sync.WaitGroup
	for n := range a.buyers {
		wg.Go(func() {
			var ids lease.IDs
			actor := fmt.Sprintf("buyer-%d-%d", os.Getpid(), n)
			for ctx.Err() == nil {
				if err := a.buy(context.WithoutCancel(ctx), ids.New(), actor); err != nil {
					t.Errorf("%s: %v", actor, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// buy holds one or two seats, for so short a time that many expire on the way, and confirms, gives back or forgets them.
func (a *audit) buy(ctx context.Context, id fence.ID, actor string) error {
	req := hold.PlaceRequest{ID: id, Actor: actor, TTL: time.Duration(20+rand.IntN(400)) * time.Millisecond}
	for range 1 + rand.IntN(2) {
		req.Lines = append(req.Lines, hold.Line{Item: auditSeat(rand.IntN(a.seats)), Quantity: 1})
	}
	a.places.Add(1)
	_, err := settled(func() (hold.Hold, error) { return a.holds.Place(ctx, req) })
	if errors.Is(err, hold.ErrTaken) || errors.Is(err, hold.ErrOver) { // over: it had expired before the repetition
		a.taken.Add(1)
		return nil
	}
	if err != nil {
		return fmt.Errorf("place: %w", err)
	}
	confirm := hold.ConfirmRequest{ID: id, Actor: actor}
	var told hold.Hold
	choice := rand.IntN(100)
	if choice < 12 { // the payment takes its time, and sometimes too long
		<-time.After(rand.N(req.TTL * 5 / 4))
	}
	switch {
	case choice < 4:
		confirm.Reference = "call"
		told, err = settled(func() (hold.Hold, error) { return a.holds.Confirm(ctx, confirm) })
	case choice < 12:
		confirm.Reference = "tx"
		slow := time.Duration(rand.IntN(30)) * time.Millisecond
		told, err = settled(func() (hold.Hold, error) { return a.sell(ctx, confirm, slow) })
	case choice < 40:
		_, err = settled(func() (hold.Hold, error) { return a.holds.Release(ctx, id, actor) })
	}
	switch {
	case err != nil:
		return fmt.Errorf("after the place: %w", err)
	case told.State == hold.Late:
		a.late.Add(1)
	case told.State == hold.Confirmed:
		a.mu.Lock()
		a.sold = append(a.sold, told)
		a.mu.Unlock()
	}
	return nil
}

// sell confirms and writes the sale in one transaction, which goes on for a while. A sale is written once for a hold, so that it may be repeated; nothing keeps two holds from having one seat.
func (a *audit) sell(ctx context.Context, req hold.ConfirmRequest, slow time.Duration) (told hold.Hold, err error) {
	err = pgx.BeginFunc(ctx, a.db, func(tx pgx.Tx) error {
		if told, err = a.holds.ConfirmTx(ctx, tx, req); err != nil || told.State != hold.Confirmed {
			return err
		}
		for _, l := range told.Lines {
			if _, err := tx.Exec(ctx, `INSERT INTO sale VALUES ($1, $2) ON CONFLICT DO NOTHING`, uuid(told.ID), l.Item); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, slow.Seconds())
		return err
	})
	if errors.Is(err, hold.ErrOver) || errors.Is(err, hold.ErrActor) || errors.Is(err, hold.ErrMismatch) || errors.Is(err, hold.ErrNotFound) {
		return told, err
	}
	if err != nil {
		err = &hold.UnknownError{Op: "sale", ID: req.ID, Err: err} // or rolled back: either way it is repeated
	}
	return told, err
}

// TestHoldAudit: many buyers in two processes want few seats, for short times, while answers are lost, the other process is killed and the server is killed and starts again. No seat is sold twice, no sale that was told
// is lost, and every seat that was not sold is free in the end.
func TestHoldAudit(t *testing.T) {
	if url := os.Getenv(auditURL); url != "" {
		newAudit(t, url, openStore(t, url, Options{})).run(t.Context(), t)
		return
	}
	ctx := t.Context()
	r := newOwnRig(t, map[string]string{"max_connections": "60"}, Options{})
	proxy := testdb.StartProxy(t, r.server.Addr())
	near := proxy.URL(r.server, r.database)
	a := newAudit(t, near, openStore(t, near, Options{}))
	f := counterIn(r)
	seats := make([]string, a.seats)
	for i := range seats {
		seats[i] = auditSeat(i)
	}
	f.stock(seats...)
	if _, err := r.own.Exec(ctx, `CREATE TABLE sale (hold uuid, seat text, PRIMARY KEY (hold, seat))`); err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestHoldAudit$")
	other.Env = append(os.Environ(), auditURL+"="+r.url())
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	lost := loseSome(proxy)
	faults := make(chan struct{})
	go func() {
		defer close(faults)
		<-time.After(a.lasts * 4 / 10)
		r.server.Crash(t)
		r.server.Restart(t)
		<-time.After(a.lasts * 3 / 10)
		if err := other.Process.Kill(); err != nil {
			t.Error(err)
		}
	}()
	a.run(ctx, t)
	<-faults
	_ = other.Wait() // it was killed
	r.own.Reset()
	t.Logf("%d places, %d refused, %d sales told, %d late, %d answers lost", a.places.Load(), a.taken.Load(), len(a.sold), a.late.Load(), lost.Load())
	if len(a.sold) == 0 || a.taken.Load() == 0 || lost.Load() == 0 {
		t.Error("nothing was put to the test")
	}
	a.judge(ctx, t, f)
}

// loseSome loses the answers to calls of some kind, one at a time, and counts them.
func loseSome(proxy *testdb.Proxy) *atomic.Int64 {
	lost := new(atomic.Int64)
	kinds := []string{"tenure.hold_place_many", "tenure.hold_confirm", "commit", "tenure.hold_release", "tenure.hold_place("}
	var again func()
	again = func() { proxy.AfterNext([]byte(kinds[int(lost.Add(1))%len(kinds)]), again) }
	proxy.AfterNext([]byte(kinds[0]), again)
	return lost
}

// judge looks at what was sold, and then holds whatever was not.
func (a *audit) judge(ctx context.Context, t *testing.T, f *counter) {
	t.Helper()
	if err := f.patientlyHold(ctx, func() error { return (&holdHarness{f.harness}).Check(ctx) }); err != nil {
		t.Fatal(err)
	}
	for what, query := range map[string]string{
		"seats sold twice":             `SELECT l.item FROM tenure.hold_line l JOIN tenure.hold h ON h.id = l.hold WHERE h.state = 2 GROUP BY l.item HAVING count(*) > 1`,
		"seats with two sales":         `SELECT seat FROM sale GROUP BY seat HAVING count(*) > 1`,
		"sales without their hold":     `SELECT s.seat FROM sale s LEFT JOIN tenure.hold h ON h.id = s.hold AND h.state = 2 AND h.reference = 'tx' WHERE h.id IS NULL`,
		"holds without their sale":     `SELECT l.item FROM tenure.hold h JOIN tenure.hold_line l ON l.hold = h.id LEFT JOIN sale s ON s.hold = h.id AND s.seat = l.item WHERE h.state = 2 AND h.reference = 'tx' AND s.seat IS NULL`,
		"seats that are sold and not":  `SELECT i.name FROM tenure.item i WHERE i.sold <> (SELECT count(*) FROM tenure.hold_line l JOIN tenure.hold h ON h.id = l.hold WHERE h.state = 2 AND l.item = i.name)`,
		"deadlocks among single seats": `SELECT 'some' FROM pg_stat_database WHERE datname = current_database() AND deadlocks > 0`,
	} {
		rows, err := f.own.Query(ctx, query)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(found) > 0 {
			t.Errorf("%s: %q, %v", what, found, err)
		}
	}
	for _, h := range a.sold {
		if now, err := f.holds.Get(ctx, h.ID); err != nil || now.State != hold.Confirmed || !slices.Equal(now.Lines, h.Lines) {
			t.Errorf("%v was told to be sold, and is %v, %v", h.ID, now.State, err)
		}
	}
	if err := (&holdHarness{f.harness}).Advance(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	items, err := f.holds.Items(ctx, "", "", hold.MaxList)
	if err != nil || len(items) != a.seats {
		t.Fatal(len(items), err)
	}
	sold := 0
	for _, i := range items {
		_, err := f.holds.Place(ctx, f.want("auditor", time.Hour, i.Name))
		if i.Held != 0 || i.Sold == 0 && err != nil || i.Sold == 1 && !errors.Is(err, hold.ErrTaken) {
			t.Errorf("%+v: %v", i, err)
		}
		sold += int(i.Sold)
	}
	t.Logf("%d of %d seats are sold", sold, a.seats)
}

// patientlyHold repeats a call while connections from the server's last life come out of the pool.
func (r *rig) patientlyHold(ctx context.Context, call func() error) (err error) {
	r.t.Helper()
	for range 50 {
		if err = call(); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}
