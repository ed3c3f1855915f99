package holdtest

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// Op is one call of a history: exactly one of its fields is set.
type Op struct {
	Stock   []hold.Item
	Place   *hold.PlaceRequest
	Extend  *Extension
	Confirm *hold.ConfirmRequest
	Release *Return
	Get     fence.ID
	List    *hold.ListRequest
	Items   *Page
	Prune   *Forgetting
	Advance time.Duration // not 0
}

// Extension lets a hold expire no earlier than TTL from now.
type Extension struct {
	ID    fence.ID
	Actor string
	TTL   time.Duration
}

// Return releases a hold.
type Return struct {
	ID    fence.ID
	Actor string
}

// Page asks for items.
type Page struct {
	Prefix, After string
	Limit         int
}

// Forgetting prunes.
type Forgetting struct {
	Age   time.Duration
	Limit int
}

// String says what the call is, for a failure.
func (o Op) String() string {
	switch {
	case o.Stock != nil:
		return fmt.Sprintf("stock %+v", o.Stock)
	case o.Place != nil:
		return fmt.Sprintf("place %+v", *o.Place)
	case o.Extend != nil:
		return fmt.Sprintf("extend %v by %q to %v from now", o.Extend.ID, o.Extend.Actor, o.Extend.TTL)
	case o.Confirm != nil:
		return fmt.Sprintf("confirm %+v", *o.Confirm)
	case o.Release != nil:
		return fmt.Sprintf("release %v by %q", o.Release.ID, o.Release.Actor)
	case !o.Get.IsZero():
		return fmt.Sprintf("get %v", o.Get)
	case o.List != nil:
		return fmt.Sprintf("list %+v", *o.List)
	case o.Items != nil:
		return fmt.Sprintf("items %+v", *o.Items)
	case o.Prune != nil:
		return fmt.Sprintf("prune %+v", *o.Prune)
	}
	return fmt.Sprintf("advance by %v", o.Advance)
}

// Reply is what a store answered to a call.
type Reply struct {
	Err   error
	Holds []hold.Hold // one, or those of List
	Items []hold.ItemInfo
	Count int // Prune
}

// Play runs one call on a harness.
func Play(ctx context.Context, h Harness, op Op) (r Reply) {
	store, office := h.Store(), h.Office()
	one := func(told hold.Hold, err error) Reply {
		if err != nil {
			return Reply{Err: err}
		}
		return Reply{Holds: []hold.Hold{told}}
	}
	switch {
	case op.Stock != nil:
		r.Err = store.Stock(ctx, op.Stock)
	case op.Place != nil:
		r = one(store.Place(ctx, *op.Place))
	case op.Extend != nil:
		r = one(store.Extend(ctx, op.Extend.ID, op.Extend.Actor, op.Extend.TTL))
	case op.Confirm != nil:
		r = one(store.Confirm(ctx, *op.Confirm))
	case op.Release != nil:
		r = one(store.Release(ctx, op.Release.ID, op.Release.Actor))
	case !op.Get.IsZero():
		r = one(store.Get(ctx, op.Get))
	case op.List != nil:
		r.Holds, r.Err = office.List(ctx, *op.List)
	case op.Items != nil:
		r.Items, r.Err = office.Items(ctx, op.Items.Prefix, op.Items.After, op.Items.Limit)
	case op.Prune != nil:
		r.Count, r.Err = office.Prune(ctx, op.Prune.Age, op.Prune.Limit)
	default:
		r.Err = h.Advance(ctx, op.Advance)
	}
	return r
}
