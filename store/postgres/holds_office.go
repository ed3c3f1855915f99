package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// List is part of [hold.Office]. Asked for live holds alone, it reads what has not expired, and sold holds do not slow it; otherwise it reads the actor's, the item's, or all, from the given id on, until enough match.
func (h *Holds) List(ctx context.Context, req hold.ListRequest) ([]hold.Hold, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := h.store.enter("list"); err != nil {
		return nil, h.store.holdFailed("list", fence.ID{}, "", false, err)
	}
	defer h.store.leave()
	all, err := h.list(ctx, &req)
	if err != nil {
		return nil, h.store.holdFailed("list", fence.ID{}, "", true, err)
	}
	return all, nil
}

func (h *Holds) list(ctx context.Context, req *hold.ListRequest) ([]hold.Hold, error) {
	states := make([]string, len(req.States))
	for i, s := range req.States {
		states[i] = s.String()
	}
	conn, err := h.store.conn(ctx, "list")
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, `SELECT `+holdColumns+` FROM tenure.hold_list($1, $2, $3::text[], $4::uuid, $5::int)`, req.Actor, req.Item, states, uuid(req.After), req.Limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []hold.Hold{}
	for rows.Next() {
		var rec holdRecord
		if err := rows.Scan(rec.dest()...); err != nil {
			return nil, err
		}
		if err := rec.read(); err != nil {
			return nil, err
		}
		all = append(all, rec.Hold)
	}
	return all, rows.Err()
}

// Items is part of [hold.Office].
func (h *Holds) Items(ctx context.Context, prefix, after string, limit int) ([]hold.ItemInfo, error) {
	if err := hold.CheckPage(prefix, after, limit); err != nil {
		return nil, err
	}
	var names []string
	var quantities, sold, held []int64
	err := h.one(ctx, "items", []any{&names, &quantities, &sold, &held}, `SELECT coalesce(array_agg(name ORDER BY o), '{}'), coalesce(array_agg(quantity ORDER BY o), '{}'),
		coalesce(array_agg(sold ORDER BY o), '{}'), coalesce(array_agg(held ORDER BY o), '{}') FROM tenure.items($1, $2, $3::int) WITH ORDINALITY x (name, quantity, sold, held, o)`, prefix, after, limit)
	if err != nil {
		return nil, err
	}
	all := make([]hold.ItemInfo, len(names))
	for i, name := range names {
		all[i] = hold.ItemInfo{Item: hold.Item{Name: name, Quantity: quantities[i]}, Sold: sold[i], Held: held[i]}
	}
	return all, nil
}

// Prune is part of [hold.Office]. It takes a member of tenure_operator. Holds whose items are locked at this moment are left for the next call.
func (h *Holds) Prune(ctx context.Context, age time.Duration, limit int) (n int, err error) {
	if err := hold.CheckPrune(age, limit); err != nil {
		return 0, err
	}
	err = h.one(ctx, opPrune, []any{&n}, `SELECT tenure.hold_prune($1::interval, $2::int)`, pgtype.Interval{Microseconds: age.Microseconds(), Valid: true}, limit)
	return n, err
}
