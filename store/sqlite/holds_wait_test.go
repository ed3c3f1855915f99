package sqlite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/hold"
)

// TestASaleThatStaysOpen: a sale that is not ended has the file's only writer lock. Whoever writes is told when their context ends, and what they asked for is settled by asking again; whoever reads, or is refused, goes on.
func TestASaleThatStaysOpen(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newShop(t, "immediate")
	o := &office{t, w.s.Holds()}
	o.stock(1, "sold", "other")
	o.place(1, time.Hour, "sold")
	o.place(2, time.Hour, "other")
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := o.holds.ConfirmTx(ctx, tx, payment(1)); err != nil || h.State != hold.Confirmed {
		t.Fatal(h, err)
	}
	for taken := false; !taken; { // the writer is at work on a call, and takes no other meanwhile
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		_, err := o.holds.Confirm(short, payment(2))
		cancel()
		if taken = errors.Is(err, hold.ErrUnknown); !taken && !errors.Is(err, hold.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	const callers = 50
	bounded, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	told := make(chan error, callers)
	began := time.Now()
	for range callers {
		go func() {
			_, err := o.holds.Confirm(bounded, payment(2))
			told <- err
		}()
	}
	if h := o.get(2); h.State != hold.Held {
		t.Errorf("%v while a sale is open", h.State)
	}
	line := []hold.Line{{Item: "sold", Quantity: 1}}
	if _, err := o.holds.Place(bounded, hold.PlaceRequest{ID: holdID(3), Actor: "bob", Lines: line, TTL: time.Minute}); !errors.Is(err, hold.ErrTaken) {
		t.Errorf("a place of what is held, while its sale is open: %v", err)
	}
	unavailable := 0
	for range callers {
		switch err := <-told; {
		case errors.Is(err, hold.ErrUnavailable):
			unavailable++
		case !errors.Is(err, hold.ErrUnknown): // of those that the writer had taken
			t.Errorf("a caller is told %v", err)
		}
	}
	if took := time.Since(began); unavailable == 0 || took > retryFor {
		t.Errorf("%d of %d were told that nothing was done, after %v", unavailable, callers, took)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if h, err := o.holds.Confirm(ctx, payment(2)); err != nil || h.State != hold.Confirmed {
		t.Errorf("asking again: %v, %v", h.State, err)
	}
	if h := o.get(1); h.State != hold.Held {
		t.Errorf("%v after its sale was rolled back", h.State)
	}
}
