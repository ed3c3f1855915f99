package seats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/worker"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// patience bounds each wait of a test for something that must happen.
const patience = 60 * time.Second

// bank is a provider that loses the first answer to each key.
type bank struct {
	mu                sync.Mutex
	charged, refunded map[string]int // effects by key, and by the charge
	heard             map[string]bool
	slow              chan struct{} // a charge waits until it is closed, if it is not nil
}

var errReset = errors.New("connection reset by peer")

func (b *bank) answer(key string) error {
	if b.heard[key] {
		return nil
	}
	b.heard[key] = true
	return errReset
}

// Charge is part of [Provider].
func (b *bank) Charge(ctx context.Context, key string, _ Charge) (Paid, error) {
	if b.slow != nil {
		<-b.slow
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charged[key] = 1
	return Paid{Number: "ch-" + key}, errors.Join(ctx.Err(), b.answer(key))
}

// Refund is part of [Provider].
func (b *bank) Refund(ctx context.Context, key, of string) (Refunded, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refunded[of] = 1
	return Refunded{Number: "re-" + key}, errors.Join(ctx.Err(), b.answer(key))
}

// world is a shop with its bank, a worker and a reconciler.
type world struct {
	*Shop
	t    *testing.T
	bank *bank
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx := t.Context()
	server := testdb.Shared(t)
	pool, err := pgxpool.New(ctx, server.URL(server.Database(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	err = pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := postgres.Migrate(ctx, c.Conn(), postgres.MigrateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, Schema); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.New(ctx, pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Shop: &Shop{Pool: pool, Store: store, PayIn: 10 * time.Minute}, t: t, bank: &bank{charged: map[string]int{}, refunded: map[string]int{}, heard: map[string]bool{}}}
	if err := store.Holds().Stock(ctx, []hold.Item{{Name: "A-1", Quantity: 1}, {Name: "A-2", Quantity: 1}}); err != nil {
		t.Fatal(err)
	}
	w.work()
	return w
}

// work runs a worker and a reconciler until the test ends.
func (w *world) work() {
	ops := w.Store.Operations()
	works, err := worker.New(ops, worker.Options{Poll: 20 * time.Millisecond}, Handlers(w.bank)...)
	if err != nil {
		w.t.Fatal(err)
	}
	reconciles, err := worker.NewReconciler(ops, worker.ReconcilerOptions{}, Handlers(w.bank)...)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- works.Run(ctx) }()
	go func() { ended <- reconciles.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended, w.Store.Shutdown(context.Background())); err != nil {
			w.t.Error(err)
		}
	})
}

// chosen holds seats, which must be free.
func (w *world) chosen(buyer string, seats ...string) fence.ID {
	w.t.Helper()
	id := lease.NewID()
	if _, err := w.Choose(w.t.Context(), id, buyer, seats...); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// expired waits until the time of a hold has passed.
func (w *world) expired(id fence.ID) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for {
		h, err := w.Store.Holds().Get(ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		if h.State == hold.Expired {
			return
		}
		if _, err := w.Pool.Exec(ctx, `SELECT pg_sleep($1)`, h.Left.Seconds()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// audit looks at the tables and the bank's books: each charge has its tickets or its refund, and not both; a seat has one ticket, of a hold that is confirmed for that charge.
func (w *world) audit() error {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	var problems []string
	w.bank.mu.Lock()
	var charges []string
	for key := range w.bank.charged {
		charges = append(charges, key)
	}
	w.bank.mu.Unlock()
	for _, charge := range charges {
		var tickets, wrong int
		err := w.Pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE NOT EXISTS (SELECT FROM tenure.hold_get(t.hold) h WHERE h.state = 'confirmed' AND h.reference = t.charge AND t.seat = ANY (h.items)))
			FROM ticket t WHERE charge = $1`, charge).Scan(&tickets, &wrong)
		if err != nil {
			return err
		}
		refunded, err := w.refunded(ctx, charge)
		if err != nil {
			return err
		}
		if (tickets > 0) == refunded || wrong > 0 {
			problems = append(problems, fmt.Sprintf("%s has %d tickets, %d of them without their hold, and is given back: %v", charge, tickets, wrong, refunded))
		}
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// refunded waits until the refund of a charge is done, if one was asked for.
func (w *world) refunded(ctx context.Context, charge string) (bool, error) {
	out, err := Refunds().Wait(ctx, w.Store.Operations(), "refund/"+strings.TrimPrefix(charge, "charge/"))
	if errors.Is(err, operation.ErrNotFound) {
		return false, nil
	}
	if err == nil && out.State != operation.Succeeded {
		err = fmt.Errorf("the refund of %s is %v", charge, out.State)
	}
	w.bank.mu.Lock()
	defer w.bank.mu.Unlock()
	return w.bank.refunded[charge] == 1, err
}

// TestSale: two seats are chosen, charged, although the bank's answer is lost, and sold; selling again changes nothing, and others are refused.
func TestSale(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWorld(t)
	id := w.chosen("ann", "A-1", "A-2")
	if _, err := w.Choose(ctx, lease.NewID(), "bob", "A-2"); !errors.Is(err, hold.ErrTaken) {
		t.Errorf("bob chooses what ann has: %v", err)
	}
	for range 2 {
		if sold, err := w.Pay(ctx, id, "ann", 9000); err != nil || sold.State != hold.Confirmed {
			t.Fatal(sold, err)
		}
	}
	if _, err := w.Choose(ctx, lease.NewID(), "bob", "A-2"); !errors.Is(err, hold.ErrTaken) {
		t.Errorf("bob chooses what ann has bought: %v", err)
	}
	if err := w.audit(); err != nil {
		t.Error(err)
	}
}

// TestALongPaymentLocksNothing: while ann's bank takes its time no transaction is open and nothing is locked, and somebody else buys the seat beside hers (H77).
func TestALongPaymentLocksNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWorld(t)
	w.bank.slow = make(chan struct{})
	id := w.chosen("ann", "A-1")
	paying := make(chan error, 1)
	go func() {
		sold, err := w.Pay(ctx, id, "ann", 4500)
		if err == nil && sold.State != hold.Confirmed {
			err = fmt.Errorf("ann's hold is %v", sold.State)
		}
		paying <- err
	}()
	bob := w.chosen("bob", "A-2")
	for _, call := range []func() error{
		func() error { _, err := w.Store.Holds().Extend(ctx, id, "ann", time.Hour); return err },
		func() error { _, err := w.Store.Holds().Release(ctx, bob, "bob"); return err },
	} {
		if err := call(); err != nil {
			t.Errorf("while ann pays: %v", err)
		}
	}
	var locked int
	err := w.Pool.QueryRow(ctx, `SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE c.relname IN ('item', 'hold', 'hold_line', 'ticket') AND l.mode <> 'AccessShareLock'`).Scan(&locked)
	if err != nil || locked > 0 {
		t.Errorf("while ann pays there are %d locks, %v", locked, err)
	}
	close(w.bank.slow)
	if err := errors.Join(<-paying, w.audit()); err != nil {
		t.Error(err)
	}
}

// late has ann choose and pay for A-1; her hold expires before the bank has charged. If taken, bob buys the seat meanwhile.
func (w *world) late(taken bool) fence.ID {
	w.t.Helper()
	ctx := w.t.Context()
	w.PayIn = 200 * time.Millisecond
	id := w.chosen("ann", "A-1")
	w.PayIn = 10 * time.Minute
	w.expired(id)
	if taken {
		bob := w.chosen("bob", "A-1")
		if sold, err := w.Pay(ctx, bob, "bob", 4500); err != nil || sold.State != hold.Confirmed {
			w.t.Fatal(sold, err)
		}
	}
	ops := w.Store.Operations()
	_, err := Charges().Submit(ctx, ops, chargeOf(id), Charge{Buyer: "ann", Cents: 4500})
	if err == nil {
		_, err = Charges().Wait(ctx, ops, chargeOf(id))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// TestLatePaymentIsGivenBack: the hold has expired and the seat is sold to somebody else. The charge is known, buys no ticket, and is refunded, once, however often it is asked for (H73).
func TestLatePaymentIsGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.late(true)
	for range 2 {
		if sold, err := w.Pay(t.Context(), id, "ann", 4500); err != nil || sold.State != hold.Late || sold.Reference != chargeOf(id) {
			t.Errorf("%+v, %v", sold, err)
		}
	}
	if err := w.audit(); err != nil {
		t.Error(err)
	}
}

// TestGrace: with a grace a late payment buys what is still free, and nothing else; without one it buys nothing (H74).
func TestGrace(t *testing.T) {
	for _, c := range []struct {
		name  string
		grace time.Duration
		taken bool
		want  hold.State
	}{{"off", 0, false, hold.Late}, {"free", time.Hour, false, hold.Confirmed}, {"taken", time.Hour, true, hold.Late}, {"too late", time.Millisecond, false, hold.Late}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.late(c.taken)
			w.Grace = c.grace
			if sold, err := w.Sell(t.Context(), id, "ann"); err != nil || sold.State != c.want {
				t.Errorf("%v, %v; want %v", sold.State, err, c.want)
			}
			if err := w.audit(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestShopsThatGetItWrong: the audit sees each of them.
func TestShopsThatGetItWrong(t *testing.T) {
	for name, sell := range map[string]func(ctx context.Context, w *world, id fence.ID) error{
		"it does not look at the state": func(ctx context.Context, w *world, id fence.ID) error {
			return pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error {
				sold, err := w.Store.Holds().ConfirmTx(ctx, tx, hold.ConfirmRequest{ID: id, Actor: "ann", Reference: chargeOf(id)})
				if err != nil {
					return err
				}
				return writeTickets(ctx, tx, sold)
			})
		},
		"late is an error, and what it records rolls back": func(ctx context.Context, w *world, id fence.ID) error {
			_ = pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error {
				sold, err := w.Store.Holds().ConfirmTx(ctx, tx, hold.ConfirmRequest{ID: id, Actor: "ann", Reference: chargeOf(id)})
				if err == nil && sold.State != hold.Confirmed {
					err = errors.New("late")
				}
				return err
			})
			return nil
		},
		"the confirmation has a transaction of its own, and the process ends after it": func(ctx context.Context, w *world, id fence.ID) error {
			_, err := w.Store.Holds().Confirm(ctx, hold.ConfirmRequest{ID: id, Actor: "ann", Reference: chargeOf(id)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.late(true)
			if err := sell(t.Context(), w, id); err != nil {
				t.Fatal(err)
			}
			if err := w.audit(); err == nil {
				t.Error("the audit has seen nothing")
			} else {
				t.Log(err)
			}
		})
	}
}

// TestTheSameInSQL: what the page shows for other languages, and the bound of a wait that a caller sets.
func TestTheSameInSQL(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWorld(t)
	id := lease.NewID().String()
	var outcome, state string
	var left *time.Duration
	if err := w.Pool.QueryRow(ctx, `SELECT outcome, state, remaining FROM tenure.hold_place($1, 'ann', ARRAY['A-1', 'A-2'], ARRAY[1, 1], '15 minutes')`, id).Scan(&outcome, &state, &left); err != nil || outcome != "placed" || state != "held" {
		t.Fatal(outcome, state, err)
	}
	confirm := func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '100ms'`); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT state FROM tenure.hold_confirm($1, 'ann', 'charge-7')`, id).Scan(&state)
	}
	err := pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error {
		if err := confirm(tx); err != nil || state != "confirmed" {
			return fmt.Errorf("%s: %w", state, err)
		}
		err := pgx.BeginFunc(ctx, w.Pool, confirm) // another one, while the first is not committed
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55P03" {
			t.Errorf("beside a sale: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
