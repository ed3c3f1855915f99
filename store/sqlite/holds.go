package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// Holds keeps items and the holds on them in the store's file, beside the leases, the operations and the tables of an application: a sale and the confirmation of its hold can
// share one commit, see [Holds.ConfirmTx]. What it tells is durable, and time is the authority's: no clock of a client, and no step of the machine's wall clock, extends or shortens a hold.
//
// Its writes go through the store's writer, together with whatever else is waiting, and wait for its turn among processes. Each call is one transaction, but for [Holds.Prune], and for a call
// that has to free very many expired holds first. A hold whose time has passed is noticed by whoever needs what it held: there is no sweeper, and none is needed.
//
// What was sold after a copy of the file was made is not in the copy: a file that was restored from one must be compared with what was paid. Safe for concurrent use.
type Holds struct{ store *Store }

var (
	_ hold.Store  = (*Holds)(nil)
	_ hold.Office = (*Holds)(nil)
)

// Holds returns the items and holds that the store's file keeps. They end with the store.
func (s *Store) Holds() *Holds { return &Holds{store: s} }

// Guarantees implements [hold.Store].
func (h *Holds) Guarantees() hold.Guarantees {
	return hold.Guarantees{Store: "sqlite", Durable: true, Exclusive: true}
}

// write runs f in the writer's next transaction, with weight lines to handle at most, and again as long as expired holds are left to be freed first.
func (h *Holds) write(ctx context.Context, op string, id fence.ID, weight int, f func(*holdBatch) error) error {
	for {
		err := h.store.writer.do(ctx, &request{op: op, id: id, weight: weight, do: func(b *batch) error {
			hb := &holdBatch{txWork: b.work(), extra: &b.extra}
			err := f(hb)
			if hb.err != nil {
				return b.fail(hb.err)
			}
			b.wrote = b.wrote || hb.wrote
			return err
		}}, false)
		if !errors.Is(err, errAgain) {
			return asHoldError(id, err)
		}
	}
}

// read runs f on one state of the file, without any lock.
func (h *Holds) read(ctx context.Context, op string, f func(*holdBatch) error) error {
	prepared, err := h.statements(ctx)
	if err != nil {
		return &hold.UnavailableError{Op: op, Err: h.store.describe(err)}
	}
	return asHoldError(fence.ID{}, h.store.readWork(ctx, op, prepared, func(w *txWork) error { return f(&holdBatch{txWork: w}) }))
}

// statements are prepared for readers when they are first needed, so that a process without holds pays for none.
func (h *Holds) statements(ctx context.Context) (*Prepared, error) {
	s := h.store
	s.ofReaders.Lock()
	defer s.ofReaders.Unlock()
	if err := s.writer.why(); err != nil || s.holdStmts != nil {
		return s.holdStmts, err
	}
	prepared, err := prepareTexts(ctx, s.readDB, []string{readClock, hintHold, selectHold, selectItem, expiredOf, nextExpiry, heldByActor})
	if err == nil {
		s.holdStmts = prepared
	}
	return prepared, err
}

// change runs a call about one hold.
func (h *Holds) change(ctx context.Context, op string, id fence.ID, weight int, f func(*holdBatch) (hold.Hold, error)) (hold.Hold, error) {
	var told hold.Hold
	err := h.write(ctx, op, id, weight, func(b *holdBatch) (err error) {
		told, err = f(b)
		return err
	})
	if err != nil {
		return hold.Hold{}, err // the writer may still be at work on it: not even read
	}
	return told, nil
}

// Stock implements [hold.Store].
func (h *Holds) Stock(ctx context.Context, items []hold.Item) error {
	if err := hold.CheckItems(items); err != nil {
		return err
	}
	items = byName(items)
	return h.write(ctx, "stock", fence.ID{}, len(items), func(b *holdBatch) error { return b.stock(items) })
}

// Place implements [hold.Store]. One that is refused has only read, without any lock.
func (h *Holds) Place(ctx context.Context, req hold.PlaceRequest) (hold.Hold, error) {
	lines, err := checkPlace(&req)
	if err != nil {
		return hold.Hold{}, err
	}
	short, err := h.looksShort(ctx, lines)
	if err != nil {
		return hold.Hold{}, err
	}
	if short {
		var known *hold.Hold
		err := h.read(ctx, "place", func(b *holdBatch) error {
			r, err := b.decide(&req, lines)
			if err == nil && r != nil {
				told := b.tell(r)
				known = &told
			}
			return err
		})
		if err != nil {
			return hold.Hold{}, err
		}
		if known != nil {
			return *known, nil
		}
	}
	return h.change(ctx, "place", req.ID, len(lines), func(b *holdBatch) (hold.Hold, error) { return b.place(&req, lines) })
}

// checkPlace returns the lines, summed, in a slice that the caller of Place does not have.
func checkPlace(req *hold.PlaceRequest) ([]hold.Line, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	lines, err := hold.Sum(req.Lines)
	req.Lines = nil
	return lines, err
}

// looksShort reports whether the items' rows alone do not show that there is room for all lines. It is a hint: whatever it says may be over by the time it is read.
func (h *Holds) looksShort(ctx context.Context, lines []hold.Line) (short bool, err error) {
	pairs := make([][2]any, len(lines))
	for i, l := range lines {
		pairs[i] = [2]any{l.Item, l.Quantity}
	}
	list, err := json.Marshal(pairs)
	var prepared *Prepared
	if err == nil {
		prepared, err = h.statements(ctx)
	}
	if err == nil {
		err = prepared.byText[hintHold].QueryRowContext(ctx, string(list)).Scan(&short)
	}
	if err != nil {
		return false, &hold.UnavailableError{Op: "place", Err: h.store.describe(err)}
	}
	return short, nil
}

// Extend implements [hold.Store].
func (h *Holds) Extend(ctx context.Context, id fence.ID, actor string, ttl time.Duration) (hold.Hold, error) {
	if err := hold.CheckExtend(id, actor, ttl); err != nil {
		return hold.Hold{}, err
	}
	return h.change(ctx, "extend", id, 1, func(b *holdBatch) (hold.Hold, error) { return b.extend(id, actor, ttl) })
}

// Confirm implements [hold.Store].
func (h *Holds) Confirm(ctx context.Context, req hold.ConfirmRequest) (hold.Hold, error) {
	if err := req.Check(); err != nil {
		return hold.Hold{}, err
	}
	return h.change(ctx, "confirm", req.ID, 1, func(b *holdBatch) (hold.Hold, error) { return b.confirm(&req) })
}

// Release implements [hold.Store].
func (h *Holds) Release(ctx context.Context, id fence.ID, actor string) (hold.Hold, error) {
	if err := hold.CheckRelease(id, actor); err != nil {
		return hold.Hold{}, err
	}
	return h.change(ctx, "release", id, 1, func(b *holdBatch) (hold.Hold, error) { return b.release(id, actor) })
}

// Get implements [hold.Store].
func (h *Holds) Get(ctx context.Context, id fence.ID) (hold.Hold, error) {
	var told hold.Hold
	err := h.read(ctx, "get", func(b *holdBatch) error {
		r, err := b.find(id)
		if err != nil {
			return err
		}
		if r == nil {
			return &hold.NotFoundError{What: "hold", Name: id.String()}
		}
		told = b.tell(r)
		return nil
	})
	return told, err
}
