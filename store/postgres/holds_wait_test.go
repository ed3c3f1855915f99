package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/hold"
)

// openSale is a counter with a sale that does not end: of one unit of each item, of which there is enough.
type openSale struct {
	*counter
	x     *hand
	store *Store // that the callers use; its pool has 8 connections
	held  []hold.Hold
}

const (
	saleItems   = 8
	saleCallers = 50
)

func newOpenSale(ctx context.Context, r *rig) *openSale {
	r.t.Helper()
	s := &openSale{counter: counterIn(r), store: openStore(r.t, r.url(), Options{})}
	s.stock("another")
	items := make([]hold.Item, saleItems)
	for i := range items {
		items[i] = hold.Item{Name: fmt.Sprint("item", i), Quantity: 100}
	}
	if err := s.holds.Stock(ctx, items); err != nil {
		r.t.Fatal(err)
	}
	sold := make([]hold.Hold, saleItems)
	for i := range sold {
		sold[i] = s.place("ann", time.Hour, items[i].Name)
	}
	for i := range saleCallers {
		s.held = append(s.held, s.place(fmt.Sprint("buyer", i), time.Hour, items[i%saleItems].Name))
	}
	s.x = r.begin(ctx, pgx.ReadCommitted)
	for _, h := range sold {
		if _, err := s.holds.ConfirmTx(ctx, s.x, paid(h)); err != nil {
			r.t.Fatal(err)
		}
	}
	return s
}

// call is what the i-th caller asks for, of an item that is being sold.
func (s *openSale) call(ctx context.Context, i int) (err error) {
	holds, h, item := s.store.Holds(), s.held[i%saleCallers], fmt.Sprint("item", i%saleItems)
	switch req := s.want("new", time.Hour, item); i % 6 {
	case 0:
		_, err = holds.Place(ctx, req)
	case 1:
		req.MaxHolds = 1000
		_, err = holds.Place(ctx, req)
	case 2:
		_, err = holds.Confirm(ctx, paid(h))
	case 3:
		_, err = holds.Extend(ctx, h.ID, h.Actor, 2*time.Hour)
	case 4:
		_, err = holds.Release(ctx, h.ID, h.Actor)
	default:
		err = holds.Stock(ctx, []hold.Item{{Name: item, Quantity: 200}})
	}
	if err == nil {
		return broken("caller %d was served with %s, which is being sold", i, item)
	}
	if !errors.Is(err, hold.ErrUnavailable) || !strings.Contains(err.Error(), fmt.Sprintf("in the middle of a sale of item %q", item)) {
		return broken("caller %d is told: %v", i, err)
	}
	return nil
}

// callersAreAnswered: every one of many callers on a pool of 8 is told within a bound that somebody is in the middle of a sale, of which item, and that nothing was changed.
func callersAreAnswered(ctx context.Context, r *rig) error {
	s := newOpenSale(ctx, r)
	bounded, cancel := context.WithTimeout(ctx, 8*time.Second) // a call without a bound of its own waits so long
	defer cancel()
	errs := make(chan error, saleCallers)
	began := time.Now()
	for i := range saleCallers {
		go func() { errs <- s.call(bounded, i) }()
	}
	var all error
	for range saleCallers {
		all = errors.Join(all, <-errs)
	}
	r.t.Logf("%d callers were answered after %v", saleCallers, time.Since(began))
	short, stop := context.WithTimeout(ctx, 200*time.Millisecond)
	defer stop()
	all = errors.Join(all, s.call(short, 2)) // whose context ends sooner
	s.x.rollback(ctx)
	if all != nil {
		return all
	}
	for _, h := range s.held {
		s.is(h.ID, hold.Held)
	}
	if n := len(s.store.holds.turns.keys) + len(s.store.holds.turns.half); n != 0 {
		return broken("%d turns are left", n)
	}
	_, err := s.store.Holds().Confirm(ctx, paid(s.held[2])) // the sale has ended
	return err
}

// TestNobodyWaitsForASaleForEver: the bound on waiting for an item that an open transaction has locked, and the form without it.
func TestNobodyWaitsForASaleForEver(t *testing.T) {
	play := func(t *testing.T, edits ...edit) error {
		t.Helper()
		ctx := t.Context()
		r := &rig{t: t, harness: newHarness(t)}
		for _, e := range edits {
			if err := r.edit(ctx, e); err != nil {
				t.Fatal(err)
			}
		}
		return callersAreAnswered(ctx, r)
	}
	t.Run("as it is", func(t *testing.T) {
		t.Parallel()
		if err := play(t); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("without a bound", func(t *testing.T) {
		t.Parallel()
		var lost *ruleError
		if err := play(t, edit{"hold_within", "IF p_wait_ms > 0", "IF false"}); !errors.As(err, &lost) {
			t.Fatalf("a wait without a bound was not caught: %v", err)
		}
	})
}

// strangersGoOn: while many wait for items that are being sold, as many as the pool has connections, somebody else buys another one. turns are those that the waiters take.
func strangersGoOn(ctx context.Context, r *rig, turns *opTurns) error {
	s := newOpenSale(ctx, r)
	holds := s.store.Holds()
	holds.patience = 20 * time.Second
	if turns != nil {
		holds.turns = turns
	}
	waiting, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	var answered atomic.Int64
	for i := range saleCallers {
		all.Go(func() { _ = s.call(waiting, i); answered.Add(1) })
	}
	defer all.Wait()
	defer stop()
	most := min(cap(holds.turns.half), saleItems)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(holds.turns.half) < most || turns == nil && holds.turns.asking() < saleCallers {
		if <-tick.C; answered.Load() > 0 {
			return errors.New("somebody was answered before all were waiting")
		}
	}
	if !r.blocked(ctx, most, make(chan error, 1)) {
		return errors.New("nobody waits")
	}
	before := s.store.pool.Stat().AcquireCount()
	for i := range saleCallers { // who comes later, and names an item for which others wait
		all.Go(func() { _ = s.call(waiting, i*6+1); answered.Add(1) })
	}
	for turns == nil && holds.turns.asking() < 2*saleCallers {
		if <-tick.C; answered.Load() > 0 {
			return errors.New("somebody was answered before all were waiting")
		}
	}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var took []time.Duration
	for range 10 {
		began := time.Now()
		req := s.want("stranger", time.Hour, "another")
		h, err := holds.Place(bounded, req)
		if err == nil {
			_, err = holds.Extend(bounded, h.ID, h.Actor, 2*time.Hour)
		}
		if err == nil {
			_, err = holds.Release(bounded, h.ID, h.Actor)
		}
		if err != nil {
			return broken("a stranger waits for a connection: %v", err)
		}
		took = append(took, time.Since(began))
	}
	if n := s.store.pool.Stat().AcquireCount() - before - 3*int64(len(took)); n > saleCallers/2 && turns == nil {
		return broken("%d connections were taken by %d callers who name an item for which others wait", n, saleCallers)
	}
	if n := answered.Load(); n != 0 {
		return fmt.Errorf("%d callers were answered meanwhile", n)
	}
	slices.Sort(took)
	r.t.Logf("a stranger's place, extension and release took %v at most, beside %d callers that wait", took[len(took)-1], saleCallers)
	return nil
}

// asking is how many have a turn, or wait for one.
func (t *opTurns) asking() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, turn := range t.keys {
		n += turn.asking
	}
	return n
}

// TestASaleHoldsUpNoStranger: and with a connection for everybody who waits, it does.
func TestASaleHoldsUpNoStranger(t *testing.T) {
	t.Parallel()
	if err := strangersGoOn(t.Context(), &rig{t: t, harness: newHarness(t)}, nil); err != nil {
		t.Fatal(err)
	}
	var lost *ruleError
	if err := strangersGoOn(t.Context(), &rig{t: t, harness: newHarness(t)}, newOpTurns(2*saleCallers)); !errors.As(err, &lost) {
		t.Fatalf("a pool full of waiters was not caught: %v", err)
	}
}
