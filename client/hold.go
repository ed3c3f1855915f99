package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
)

// Holds is the authority's holds. A sale whose record is in the authority's own database confirms there, in its own transaction: through a server, the sale and the hold are two commits. It is safe for concurrent use.
type Holds struct{ client *Client }

var (
	_ hold.Store  = (*Holds)(nil)
	_ hold.Office = (*Holds)(nil)
)

// Holds returns the authority's holds.
func (c *Client) Holds() *Holds { return &Holds{c} }

func holdFailed(op string, id fence.ID, err error) error {
	if fault := wire.FaultOf(err); fault != nil {
		if told := wire.HoldError(fault); told != nil {
			return told
		}
	} else if !applied(err) {
		return &hold.UnavailableError{Op: op, Err: err}
	}
	return &hold.UnknownError{Op: op, ID: id, Err: err}
}

func holdUnread(op string, err error) error {
	if fault := wire.FaultOf(err); fault != nil {
		if told := wire.HoldError(fault); told != nil {
			return told
		}
	}
	return &hold.UnavailableError{Op: op, Err: err}
}

// told is the hold that a reply carries.
func told(op string, id fence.ID, m *v1.Hold) (hold.Hold, error) {
	h, err := wire.GetHold(m)
	if err != nil {
		return hold.Hold{}, &hold.UnknownError{Op: op, ID: id, Err: nonsense(err)}
	}
	return h, nil
}

// Stock implements [hold.Store].
func (h *Holds) Stock(ctx context.Context, items []hold.Item) error {
	if err := hold.CheckItems(items); err != nil {
		return err
	}
	req := &v1.StockItemsRequest{Items: wire.All(items, func(i hold.Item) *v1.Item { return wire.PutItem(hold.ItemInfo{Item: i}) })}
	if _, err := ask(ctx, h.client, func(ctx context.Context, e *endpoint) (*v1.StockItemsResponse, error) {
		return e.holds.StockItems(ctx, req)
	}); err != nil {
		return holdFailed("stock", fence.ID{}, err)
	}
	return nil
}

// Place implements [hold.Store].
func (h *Holds) Place(ctx context.Context, req hold.PlaceRequest) (hold.Hold, error) {
	if err := req.Check(); err != nil {
		return hold.Hold{}, err
	}
	m, err := ask(ctx, h.client, func(ctx context.Context, e *endpoint) (*v1.PlaceHoldResponse, error) {
		return e.holds.PlaceHold(ctx, wire.PutPlace(req))
	})
	if err != nil {
		return hold.Hold{}, holdFailed("place", req.ID, err)
	}
	return told("place", req.ID, m.GetHold())
}

// Extend implements [hold.Store].
func (h *Holds) Extend(ctx context.Context, id fence.ID, actor string, ttl time.Duration) (hold.Hold, error) {
	if err := hold.CheckExtend(id, actor, ttl); err != nil {
		return hold.Hold{}, err
	}
	req := &v1.ExtendHoldRequest{Id: wire.ID(id), Actor: actor, Ttl: durationpb.New(ttl)}
	m, err := ask(ctx, h.client, func(ctx context.Context, e *endpoint) (*v1.ExtendHoldResponse, error) {
		return e.holds.ExtendHold(ctx, req)
	})
	if err != nil {
		return hold.Hold{}, holdFailed("extend", id, err)
	}
	return told("extend", id, m.GetHold())
}

// Confirm implements [hold.Store].
func (h *Holds) Confirm(ctx context.Context, req hold.ConfirmRequest) (hold.Hold, error) {
	if err := req.Check(); err != nil {
		return hold.Hold{}, err
	}
	m, err := ask(ctx, h.client, func(ctx context.Context, e *endpoint) (*v1.ConfirmHoldResponse, error) {
		return e.holds.ConfirmHold(ctx, wire.PutConfirm(req))
	})
	if err != nil {
		return hold.Hold{}, holdFailed("confirm", req.ID, err)
	}
	return told("confirm", req.ID, m.GetHold())
}

// Release implements [hold.Store].
func (h *Holds) Release(ctx context.Context, id fence.ID, actor string) (hold.Hold, error) {
	if err := hold.CheckRelease(id, actor); err != nil {
		return hold.Hold{}, err
	}
	req := &v1.ReleaseHoldRequest{Id: wire.ID(id), Actor: actor}
	m, err := ask(ctx, h.client, func(ctx context.Context, e *endpoint) (*v1.ReleaseHoldResponse, error) {
		return e.holds.ReleaseHold(ctx, req)
	})
	if err != nil {
		return hold.Hold{}, holdFailed("release", id, err)
	}
	return told("release", id, m.GetHold())
}

// Get implements [hold.Store].
func (h *Holds) Get(ctx context.Context, id fence.ID) (hold.Hold, error) {
	m, err := ask(ctx, h.client, func(ctx context.Context, e *endpoint) (*v1.GetHoldResponse, error) {
		return e.holds.GetHold(ctx, &v1.GetHoldRequest{Id: wire.ID(id)})
	})
	if err != nil {
		return hold.Hold{}, holdUnread("get", err)
	}
	got, err := wire.GetHold(m.GetHold())
	if err != nil {
		return hold.Hold{}, &hold.UnavailableError{Op: "get", Err: nonsense(err)}
	}
	return got, nil
}

// Guarantees implements [hold.Store]: what the authority's store keeps.
func (h *Holds) Guarantees() hold.Guarantees { return h.client.holds }

// List implements [hold.Office].
func (h *Holds) List(ctx context.Context, req hold.ListRequest) ([]hold.Hold, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	m, err := ask(ctx, h.client, func(ctx context.Context, e *endpoint) (*v1.ListHoldsResponse, error) {
		return e.holds.ListHolds(ctx, wire.PutHoldList(req))
	})
	if err != nil {
		return nil, holdUnread("list", err)
	}
	all, err := wire.TryAll(m.GetHolds(), wire.GetHold)
	if err != nil {
		return nil, &hold.UnavailableError{Op: "list", Err: nonsense(err)}
	}
	return all, nil
}

// Items implements [hold.Office].
func (h *Holds) Items(ctx context.Context, prefix, after string, limit int) ([]hold.ItemInfo, error) {
	if err := hold.CheckPage(prefix, after, limit); err != nil {
		return nil, err
	}
	req := &v1.ListItemsRequest{Prefix: prefix, After: after, Limit: wire.Int32(limit)}
	m, err := ask(ctx, h.client, func(ctx context.Context, e *endpoint) (*v1.ListItemsResponse, error) {
		return e.holds.ListItems(ctx, req)
	})
	if err != nil {
		return nil, holdUnread("items", err)
	}
	return wire.All(m.GetItems(), wire.GetItem), nil
}

// Prune implements [hold.Office].
func (h *Holds) Prune(ctx context.Context, age time.Duration, limit int) (int, error) {
	if err := hold.CheckPrune(age, limit); err != nil {
		return 0, err
	}
	req := &v1.PruneHoldsRequest{Age: durationpb.New(age), Limit: wire.Int32(limit)}
	m, err := ask(ctx, h.client, func(ctx context.Context, e *endpoint) (*v1.PruneHoldsResponse, error) {
		return e.holds.PruneHolds(ctx, req)
	})
	if err != nil {
		return 0, holdFailed("prune", fence.ID{}, err)
	}
	return int(m.GetPruned()), nil
}
