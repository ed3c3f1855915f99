package server

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/hold"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
)

type holds struct{ store hold.Store }

// StockItems is [hold.Store.Stock].
func (s *holds) StockItems(ctx context.Context, m *v1.StockItemsRequest) (*v1.StockItemsResponse, error) {
	items := wire.All(m.GetItems(), func(i *v1.Item) hold.Item { return wire.GetItem(i).Item })
	if err := s.store.Stock(ctx, items); err != nil {
		return nil, wire.HoldErrorOf(err)
	}
	return &v1.StockItemsResponse{}, nil
}

// PlaceHold is [hold.Store.Place].
func (s *holds) PlaceHold(ctx context.Context, m *v1.PlaceHoldRequest) (*v1.PlaceHoldResponse, error) {
	req, err := wire.GetPlace(m)
	return one(ctx, req, err, s.store.Place, func(h hold.Hold) *v1.PlaceHoldResponse { return &v1.PlaceHoldResponse{Hold: wire.PutHold(h)} }, wire.HoldErrorOf)
}

// ExtendHold is [hold.Store.Extend].
func (s *holds) ExtendHold(ctx context.Context, m *v1.ExtendHoldRequest) (*v1.ExtendHoldResponse, error) {
	req, err := wire.GetExtend(m)
	return one(ctx, req, err, func(ctx context.Context, r hold.PlaceRequest) (hold.Hold, error) {
		return s.store.Extend(ctx, r.ID, r.Actor, r.TTL)
	},
		func(h hold.Hold) *v1.ExtendHoldResponse { return &v1.ExtendHoldResponse{Hold: wire.PutHold(h)} }, wire.HoldErrorOf)
}

// ConfirmHold is [hold.Store.Confirm].
func (s *holds) ConfirmHold(ctx context.Context, m *v1.ConfirmHoldRequest) (*v1.ConfirmHoldResponse, error) {
	req, err := wire.GetConfirm(m)
	return one(ctx, req, err, s.store.Confirm, func(h hold.Hold) *v1.ConfirmHoldResponse { return &v1.ConfirmHoldResponse{Hold: wire.PutHold(h)} }, wire.HoldErrorOf)
}

// ReleaseHold is [hold.Store.Release].
func (s *holds) ReleaseHold(ctx context.Context, m *v1.ReleaseHoldRequest) (*v1.ReleaseHoldResponse, error) {
	id, err := wire.GetHoldID(m.GetId())
	if err != nil {
		return nil, wire.HoldErrorOf(err)
	}
	h, err := s.store.Release(ctx, id, m.GetActor())
	if err != nil {
		return nil, wire.HoldErrorOf(err)
	}
	return &v1.ReleaseHoldResponse{Hold: wire.PutHold(h)}, nil
}

// GetHold is [hold.Store.Get].
func (s *holds) GetHold(ctx context.Context, m *v1.GetHoldRequest) (*v1.GetHoldResponse, error) {
	id, err := wire.GetHoldID(m.GetId())
	return one(ctx, id, err, s.store.Get, func(h hold.Hold) *v1.GetHoldResponse { return &v1.GetHoldResponse{Hold: wire.PutHold(h)} }, wire.HoldErrorOf)
}

// ListHolds is [hold.Office.List].
func (s *holds) ListHolds(ctx context.Context, m *v1.ListHoldsRequest) (*v1.ListHoldsResponse, error) {
	office, ok := s.store.(hold.Office)
	if !ok {
		return nil, unimplemented("list holds")
	}
	req, err := wire.GetHoldList(m)
	return one(ctx, req, err, office.List, func(all []hold.Hold) *v1.ListHoldsResponse {
		return &v1.ListHoldsResponse{Holds: wire.All(all, wire.PutHold)}
	}, wire.HoldErrorOf)
}

// ListItems is [hold.Office.Items].
func (s *holds) ListItems(ctx context.Context, m *v1.ListItemsRequest) (*v1.ListItemsResponse, error) {
	office, ok := s.store.(hold.Office)
	if !ok {
		return nil, unimplemented("list items")
	}
	all, err := office.Items(ctx, m.GetPrefix(), m.GetAfter(), limit(m.GetLimit()))
	if err != nil {
		return nil, wire.HoldErrorOf(err)
	}
	return &v1.ListItemsResponse{Items: wire.All(all, wire.PutItem)}, nil
}

// PruneHolds is [hold.Office.Prune].
func (s *holds) PruneHolds(ctx context.Context, m *v1.PruneHoldsRequest) (*v1.PruneHoldsResponse, error) {
	office, ok := s.store.(hold.Office)
	if !ok {
		return nil, unimplemented("prune holds")
	}
	age, err := wire.GetHoldPrune(m)
	return one(ctx, age, err, func(ctx context.Context, age time.Duration) (int, error) {
		return office.Prune(ctx, age, int(m.GetLimit()))
	},
		func(n int) *v1.PruneHoldsResponse { return &v1.PruneHoldsResponse{Pruned: int32(n)} }, wire.HoldErrorOf)
}
