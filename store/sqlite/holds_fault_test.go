package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/hold"
)

// holdCalls are the calls that write, each about holds and items that prepareHolds has made ready for it. Repeating one is success.
func holdCalls(o *office) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"stock": func(ctx context.Context) error {
			return o.holds.Stock(ctx, []hold.Item{{Name: "stocked", Quantity: 7}, {Name: "new", Quantity: 1}})
		},
		"place": func(ctx context.Context) error {
			_, err := o.holds.Place(ctx, placement(1, time.Hour, "a", "b"))
			return err
		},
		"extend": func(ctx context.Context) error {
			_, err := o.holds.Extend(ctx, holdID(2), "ann", 2*time.Hour)
			return err
		},
		"confirm": func(ctx context.Context) error { _, err := o.holds.Confirm(ctx, payment(3)); return err },
		"late":    func(ctx context.Context) error { _, err := o.holds.Confirm(ctx, payment(4)); return err },
		"release": func(ctx context.Context) error { _, err := o.holds.Release(ctx, holdID(5), "ann"); return err },
		"prune":   func(ctx context.Context) error { _, err := o.holds.Prune(ctx, hold.MinPruneAge, 10); return err },
	}
}

func prepareHolds(t *testing.T, s *Store) *office {
	t.Helper()
	o := &office{t, s.Holds()}
	o.stock(1, "a", "b", "2", "3", "4", "5", "6", "stocked")
	for _, n := range []int{2, 3, 5} {
		o.place(n, time.Hour, fmt.Sprint(n))
	}
	o.place(4, time.Millisecond, "4")
	o.place(6, time.Millisecond, "6")
	wait(t, func() bool { return o.get(4).State == hold.Expired && o.get(6).State == hold.Expired })
	plainExec(t, s.path, `UPDATE tenure_line SET until = until - 7200000000000 WHERE item = '6'`,
		`UPDATE tenure_hold SET placed = placed - 7200000000000, at = at - 7200000000000 WHERE id = (SELECT hold FROM tenure_line WHERE item = '6')`)
	return o
}

func holdsByQuery(t *testing.T, s *Store) string {
	t.Helper()
	tx, err := s.readDB.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var all strings.Builder
	for _, table := range []string{"tenure_item", "tenure_hold", "tenure_line"} {
		if err := dumpTable(t.Context(), tx, table, &all); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// A call whose context ends while it waits is withdrawn: certainly not applied, then or later.
func TestWithdrawnHoldCallsAreNotApplied(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	o := prepareHolds(t, s)
	before := holdsByQuery(t, s)
	g := holdWriter(t, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	var waiting sync.WaitGroup
	calls := holdCalls(o)
	for name, call := range calls {
		waiting.Go(func() {
			err := call(ctx)
			if !errors.Is(err, hold.ErrUnavailable) || !strings.Contains(err.Error(), "changed my mind") {
				t.Errorf("%s: %v", name, err)
			}
			if err := call(ctx); !errors.Is(err, hold.ErrUnavailable) {
				t.Errorf("%s, with a context that had ended: %v", name, err)
			}
		})
	}
	waitQueued(t, s, len(calls))
	cancel(errors.New("changed my mind"))
	waiting.Wait() // while the writer is still held
	g.open()
	if after := holdsByQuery(t, s); after != before {
		t.Errorf("a withdrawn call was applied:\n%s\nbefore:\n%s", after, before)
	}
	for name, call := range calls {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
}

// A call that the writer has taken when its context ends may be applied: the caller is told so, with the hold's id, and repeating it settles it; what the writer reads by then is not the caller's any more.
func TestTakenHoldCallsAreUnknownAndSettle(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	o := prepareHolds(t, s)
	calls := holdCalls(o)
	req := placement(7, time.Hour, "a", "b")
	calls["place"] = func(ctx context.Context) error { _, err := o.holds.Place(ctx, req); return err }
	g := holdWriter(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	answers := map[string]chan error{}
	for name, call := range calls {
		answer := make(chan error, 1)
		answers[name] = answer
		go func() { answer <- call(ctx) }()
	}
	waitQueued(t, s, len(calls))
	second := queueGate(t, s)
	g.open()
	<-second.inside // the calls are in the same batch, before this one: they were taken
	cancel()
	for name, answer := range answers {
		err := <-answer
		wantKind(t, err, hold.ErrUnknown, "settles it")
		if unknown, ok := errors.AsType[*hold.UnknownError](err); name == "place" && (!ok || unknown.ID != req.ID) {
			t.Errorf("%s: %v", name, err)
		}
	}
	req.Lines[0].Item = "scribbled over"
	second.open()
	req = placement(7, time.Hour, "a", "b")
	for name, call := range calls {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s, the same again: %v", name, err)
		}
	}
	o.item("a", 1, 0, 1)
	o.item("3", 1, 1, 0)
	if err := checkHolds(t.Context(), s.readDB); err != nil {
		t.Error(err)
	}
}

// On a full disk every call that writes says so, and changes nothing, or finds room; those that share a batch with one that finds none do not share its fate; and all goes on when there is space again.
func TestHoldsOnAFullDisk(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	o := prepareHolds(t, s)
	big := make([]hold.Item, hold.MaxItems)
	for i := range big {
		big[i] = hold.Item{Name: fmt.Sprintf("%0250d", i), Quantity: 1}
	}
	limitPages(t, s, "(SELECT page_count + 4 FROM pragma_page_count)")
	calls := holdCalls(o)
	calls["big"] = func(ctx context.Context) error { return o.holds.Stock(ctx, big) }
	g := holdWriter(t, s)
	results := map[string]chan error{}
	for name, call := range calls {
		result := make(chan error, 1)
		results[name] = result
		go func() { result <- call(t.Context()) }()
	}
	waitQueued(t, s, len(calls))
	g.open()
	for name, result := range results {
		err := <-result
		if name == "big" {
			wantKind(t, err, hold.ErrUnavailable, "free some space")
			wantKind(t, err, ErrFull)
		} else if err != nil {
			t.Errorf("%s shared the fate of a call that found no space: %v", name, err)
		}
	}
	if n := plainValue(t, s.path, `SELECT count(*) FROM tenure_item WHERE length(name) = 250`); n != "0" {
		t.Errorf("%s items are left of a call that found no space", n)
	}
	limitPages(t, s, "1000000")
	if err := o.holds.Stock(t.Context(), big); err != nil {
		t.Errorf("the same when there is space again: %v", err)
	}
	if err := checkHolds(t.Context(), s.readDB); err != nil {
		t.Error(err)
	}
}

// Not one page is left: a hold is placed with all its lines or not at all.
func TestPlaceOnAFullDisk(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	o := &office{t, s.Holds()}
	items := make([]string, hold.MaxLines)
	for i := range items {
		items[i] = fmt.Sprintf("%0250d", i)
	}
	o.stock(1, items...)
	before := holdsByQuery(t, s)
	limitPages(t, s, "(SELECT page_count FROM pragma_page_count)")
	_, err := o.holds.Place(t.Context(), placement(1, time.Hour, items...))
	wantKind(t, err, hold.ErrUnavailable)
	wantKind(t, err, ErrFull)
	if after := holdsByQuery(t, s); after != before {
		t.Error("a hold that found no space has changed something")
	}
	limitPages(t, s, "1000000")
	o.place(1, time.Hour, items...)
	o.confirm(1, hold.Confirmed)
	if err := checkHolds(t.Context(), s.readDB); err != nil {
		t.Error(err)
	}
}

// A store that was shut down answers nothing, and says that nothing was applied.
func TestHoldsAfterShutdown(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	o := prepareHolds(t, s)
	shutDown(t, s)
	calls := holdCalls(o)
	calls["get"] = func(ctx context.Context) error { _, err := o.holds.Get(ctx, holdID(1)); return err }
	calls["list"] = func(ctx context.Context) error { _, err := o.holds.List(ctx, hold.ListRequest{Limit: 1}); return err }
	calls["items"] = func(ctx context.Context) error { _, err := o.holds.Items(ctx, "", "", 1); return err }
	for name, call := range calls {
		if err := call(t.Context()); !errors.Is(err, hold.ErrUnavailable) || !errors.Is(err, ErrShutDown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
