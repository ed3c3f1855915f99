package postgres

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// Holds keeps items and holds in the database of a [Store], by the functions hold_* of its schema. Places and confirmations that many goroutines ask for at once are coalesced into calls
// for many: whatever is waiting, never for a time; one that cannot be handled with the others, because a row of its own is locked, say, is handled by itself. Safe for concurrent use.
//
// Nothing sweeps: what has expired is freed by whoever next locks the item. A hold is kept by no lock and no open transaction; only [Holds.ConfirmTx] and [Holds.PlaceTx] lock items until the caller's
// transaction ends, and then a call that needs one of them waits: for a second, or for three quarters of what its context has left, whichever is sooner (for a hold of several items, for each of them). Then it
// returns an error that matches [hold.ErrUnavailable] and names the item: nothing was changed. Those who wait have half of the pool's connections at most, so calls for other items are not held up.
type Holds struct {
	store    *Store
	turns    *opTurns      // of items that somebody has locked for longer
	glance   time.Duration // how long a call waits for a lock before it takes its turn
	patience time.Duration // how long it waits in all
	places   opLane[*placing]
	confirms opLane[*confirming]
}

var (
	_ hold.Store  = (*Holds)(nil)
	_ hold.Office = (*Holds)(nil)
)

// Holds are the holds of the store's database: always the same value. They end with the store.
func (s *Store) Holds() *Holds { return s.holds }

func newHolds(s *Store) *Holds {
	h := &Holds{store: s, turns: newOpTurns(int(s.pool.Config().MaxConns)), glance: glance, patience: maxWait}
	h.places = opLane[*placing]{store: s, op: "place", own: func(p *placing) *placing { return p }, many: h.placeMany}
	h.confirms = opLane[*confirming]{store: s, op: "confirm", own: func(c *confirming) *confirming { return c }, many: h.confirmMany}
	return h
}

// Guarantees is part of [hold.Store]. What was told survives a failover as far as commits do: with a standby that is not synchronous, the last sales and their holds may be lost together.
func (h *Holds) Guarantees() hold.Guarantees {
	return hold.Guarantees{Store: "postgres", Durable: true, Exclusive: true}
}

// The functions that a caller's transaction may run too, whose waits are its own business, and the same with a bound. The casts are for connections that send no types.
const (
	placeText     = `SELECT ` + holdColumns + ` FROM tenure.hold_place($1::uuid` + placeRest
	placeWithin   = `SELECT ` + holdColumns + ` FROM tenure.hold_place(tenure.hold_within($1::uuid, $8::int)` + placeRest
	placeRest     = `, $2, $3::text[], $4::bigint[], $5::interval, $6::bigint, $7::bigint)`
	confirmText   = `SELECT ` + holdColumns + ` FROM tenure.hold_confirm($1::uuid` + confirmRest
	confirmWithin = `SELECT ` + holdColumns + ` FROM tenure.hold_confirm(tenure.hold_within($1::uuid, $5::int)` + confirmRest
	confirmRest   = `, $2, $3, $4::interval)`
	extendWithin  = `SELECT ` + holdColumns + ` FROM tenure.hold_extend(tenure.hold_within($1::uuid, $4::int), $2, $3::interval)`
	releaseWithin = `SELECT ` + holdColumns + ` FROM tenure.hold_release(tenure.hold_within($1::uuid, $3::int), $2)`
	stockWithin   = `SELECT tenure.item_stock(tenure.hold_within($1::text[], $3::int), $2::bigint[])`
)

func placeArgs(req *hold.PlaceRequest, lines []hold.Line) []any {
	items, quantities := columns(lines)
	return []any{uuid(req.ID), req.Actor, items, quantities, interval0(req.TTL), req.MaxHolds, req.MaxUnits}
}

func confirmArgs(req *hold.ConfirmRequest) []any {
	return []any{uuid(req.ID), req.Actor, req.Reference, interval0(req.Grace)}
}

// columns are lines as arrays.
func columns(lines []hold.Line) (items []string, quantities []int64) {
	items, quantities = make([]string, len(lines)), make([]int64, len(lines))
	for i, l := range lines {
		items[i], quantities[i] = l.Item, l.Quantity
	}
	return items, quantities
}

// Stock is part of [hold.Store].
func (h *Holds) Stock(ctx context.Context, items []hold.Item) error {
	if err := hold.CheckItems(items); err != nil {
		return err
	}
	names, quantities := make([]string, len(items)), make([]int64, len(items))
	for i, item := range items {
		names[i], quantities[i] = item.Name, item.Quantity
	}
	if err := h.store.enter("stock"); err != nil {
		return h.store.holdFailed("stock", fence.ID{}, "", false, err)
	}
	defer h.store.leave()
	return h.store.holdFailed("stock", fence.ID{}, "", true, h.bounded(ctx, &holdCall{op: "stock", items: names, dest: []any{nil}, text: stockWithin, args: []any{names, quantities}}))
}

// Place is part of [hold.Store]. The TTL is kept to the microsecond. A call whose answer was lost may still be under way on the server when it is repeated: a repetition that is refused as taken
// says what was so then, and the first call may place the hold afterwards, for as long as its TTL at most.
func (h *Holds) Place(ctx context.Context, req hold.PlaceRequest) (hold.Hold, error) {
	if err := req.Check(); err != nil {
		return hold.Hold{}, err
	}
	lines, err := hold.Sum(req.Lines)
	if err != nil {
		return hold.Hold{}, err
	}
	if err := h.store.enter("place"); err != nil {
		return hold.Hold{}, h.store.holdFailed("place", req.ID, req.Actor, false, err)
	}
	defer h.store.leave()
	if req.MaxHolds == 0 && req.MaxUnits == 0 && len(lines) <= laneLines {
		p := &placing{id: req.ID, actor: req.Actor, lines: lines, ttl: req.TTL.Truncate(time.Microsecond)}
		g := p.group()
		if err := h.places.do(ctx, g); err != nil {
			return hold.Hold{}, h.store.holdFailed("place", req.ID, req.Actor, true, err)
		}
		if len(g.left) == 0 {
			return p.answer()
		}
	}
	items, _ := columns(lines)
	return h.record(ctx, &holdCall{op: "place", id: req.ID, items: items, text: placeWithin, args: placeArgs(&req, lines)}, req.Actor)
}

// Extend is part of [hold.Store].
func (h *Holds) Extend(ctx context.Context, id fence.ID, actor string, ttl time.Duration) (hold.Hold, error) {
	if err := hold.CheckExtend(id, actor, ttl); err != nil {
		return hold.Hold{}, err
	}
	told, err := h.call(ctx, &holdCall{op: "extend", id: id, text: extendWithin, args: []any{uuid(id), actor, interval0(ttl)}}, actor)
	if err == nil && told.State == hold.Expired { // the verdict is committed
		return hold.Hold{}, &hold.OverError{ID: id, State: told.State, What: "extending it"}
	}
	return told, err
}

// Confirm is part of [hold.Store], in a transaction of its own. [Holds.ConfirmTx] is in the sale's.
func (h *Holds) Confirm(ctx context.Context, req hold.ConfirmRequest) (hold.Hold, error) {
	if err := req.Check(); err != nil {
		return hold.Hold{}, err
	}
	if err := h.store.enter("confirm"); err != nil {
		return hold.Hold{}, h.store.holdFailed("confirm", req.ID, req.Actor, false, err)
	}
	defer h.store.leave()
	if req.Grace == 0 {
		c := &confirming{id: req.ID, actor: req.Actor, reference: req.Reference}
		g := c.group()
		if err := h.confirms.do(ctx, g); err != nil {
			return hold.Hold{}, h.store.holdFailed("confirm", req.ID, req.Actor, true, err)
		}
		if len(g.left) == 0 {
			return c.hold, nil
		}
	}
	return h.record(ctx, &holdCall{op: "confirm", id: req.ID, text: confirmWithin, args: confirmArgs(&req)}, req.Actor)
}

// Release is part of [hold.Store].
func (h *Holds) Release(ctx context.Context, id fence.ID, actor string) (hold.Hold, error) {
	if err := hold.CheckRelease(id, actor); err != nil {
		return hold.Hold{}, err
	}
	return h.call(ctx, &holdCall{op: "release", id: id, text: releaseWithin, args: []any{uuid(id), actor}}, actor)
}

// Get is part of [hold.Store].
func (h *Holds) Get(ctx context.Context, id fence.ID) (hold.Hold, error) {
	if id.IsZero() {
		return hold.Hold{}, &hold.NotFoundError{What: "hold", Name: id.String()}
	}
	if err := h.store.enter("get"); err != nil {
		return hold.Hold{}, h.store.holdFailed("get", id, "", false, err)
	}
	defer h.store.leave()
	var rec holdRecord
	err := h.store.row(ctx, "get", rec.dest(), `SELECT `+holdColumns+` FROM tenure.hold_get($1::uuid)`, uuid(id))
	if err == nil {
		err = rec.read()
	}
	if err != nil {
		return hold.Hold{}, h.store.holdFailed("get", id, "", true, err)
	}
	return rec.Hold, nil
}

// call runs a function that returns one hold, in a transaction of its own.
func (h *Holds) call(ctx context.Context, c *holdCall, actor string) (hold.Hold, error) {
	if err := h.store.enter(c.op); err != nil {
		return hold.Hold{}, h.store.holdFailed(c.op, c.id, actor, false, err)
	}
	defer h.store.leave()
	return h.record(ctx, c, actor)
}

// record is call for a caller that has entered.
func (h *Holds) record(ctx context.Context, c *holdCall, actor string) (hold.Hold, error) {
	var rec holdRecord
	c.dest = rec.dest()
	err := h.bounded(ctx, c)
	if err == nil {
		err = rec.read()
	}
	if err != nil {
		return hold.Hold{}, h.store.holdFailed(c.op, c.id, actor, true, err)
	}
	return rec.Hold, nil
}

// one runs a statement that returns one row, in a transaction of its own, again where it met others at the same rows.
func (h *Holds) one(ctx context.Context, op string, dest []any, text string, args ...any) error {
	if err := h.store.enter(op); err != nil {
		return h.store.holdFailed(op, fence.ID{}, "", false, err)
	}
	defer h.store.leave()
	return h.store.holdFailed(op, fence.ID{}, "", true, h.store.operations.again(ctx, op, func() error { return h.store.row(ctx, op, dest, text, args...) }))
}
