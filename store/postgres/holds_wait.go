package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// glance is how long a call waits for what is locked before it asks which item that is. Whoever only passes has gone by then.
const glance = 20 * time.Millisecond

// holdCall is a call that locks items: those that it names, or those of its hold.
type holdCall struct {
	op    string
	id    fence.ID
	items []string
	dest  []any
	text  string // its last parameter is for how many milliseconds it waits for a lock
	args  []any
}

// bounded makes a call that waits for a second, or for three quarters of what ctx has left, and no longer: somebody's transaction that sells an item may stay open for ever. The first look takes any connection, for a
// moment. Who has met a locked item then waits for its turn at that: one call of each item, and half of the pool's connections in all, so that whoever wants another item finds a connection. Who names an item for
// which somebody waits already does not look before.
func (h *Holds) bounded(ctx context.Context, c *holdCall) (err error) {
	until := time.Now().Add(waitFor(ctx, h.patience))
	if item, waited := h.turns.waited(c.items); waited {
		err = h.inTurn(ctx, c, item, until)
	} else {
		err = h.wait(ctx, c, min(h.glance, time.Until(until)))
	}
	for range maxAttempts {
		if state(err) != stateLockTimeout || ctx.Err() != nil {
			return err
		}
		item, busy := h.busy(ctx, c)
		if busy != nil {
			return busy
		}
		if time.Until(until) <= 0 {
			return inSale(c.op, item)
		}
		err = h.inTurn(ctx, c, item, until)
	}
	return err
}

// inTurn waits for the item's turn, and then for the item.
func (h *Holds) inTurn(ctx context.Context, c *holdCall, item string, until time.Time) error {
	turn, cancel := context.WithDeadline(ctx, until)
	give, err := h.turns.take(turn, c.op, item)
	cancel()
	switch {
	case err == nil:
		defer give()
		return h.wait(ctx, c, time.Until(until))
	case ctx.Err() != nil:
		return err
	}
	return inSale(c.op, item)
}

// wait makes the call, again where it met others at the same rows. It waits for each lock for so long at most.
func (h *Holds) wait(ctx context.Context, c *holdCall, longest time.Duration) error {
	args := slices.Concat(c.args, []any{int32(max(longest.Milliseconds(), 1))}) //nolint:gosec // at most a second
	return h.store.operations.again(ctx, c.op, func() error { return h.store.row(ctx, c.op, c.dest, c.text, args...) })
}

// busy is the first item of the call that is locked, "" if it is none of them.
func (h *Holds) busy(ctx context.Context, c *holdCall) (string, error) {
	var item *string
	if err := h.store.row(ctx, c.op, []any{&item}, `SELECT tenure.hold_busy($1::uuid, $2::text[])`, uuid(c.id), c.items); err != nil {
		return "", &lease.UnavailableError{Op: c.op, Err: err} // the call itself was rolled back
	}
	return text(item), nil
}

// inSale says that nothing was done, because others were not done.
func inSale(op, item string) error {
	what := fmt.Errorf("%w of what it needs", errInSale)
	if item != "" {
		what = fmt.Errorf("%w of item %q", errInSale, item)
	}
	return &lease.UnavailableError{Op: op, Err: fmt.Errorf("%w, and has not ended; nothing was changed; ask again", what)}
}

// waited is the first of the keys at which somebody waits.
func (t *opTurns) waited(keys []string) (key string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		if t.keys[key] != nil {
			return key, true
		}
	}
	return "", false
}
