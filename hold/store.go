package hold

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// Limits that every store keeps.
const (
	MaxItem      = 256 // bytes of an item's name
	MaxActor     = 256 // bytes of an actor
	MaxReference = 512 // bytes of a reference
	MaxLines     = 128 // lines of one hold
	MaxItems     = 1000
	MaxQuantity  = 1 << 40
	MaxTTL       = 31 * 24 * time.Hour
	MinTTL       = time.Millisecond
	MaxGrace     = 31 * 24 * time.Hour
	MaxList      = 1000
	MaxPrune     = 10_000
	MinPruneAge  = time.Hour
)

// Every method of the interfaces below is safe for concurrent use, and every call may be repeated: ids are the caller's, chosen before the call. Errors common to all of them: one matching [ErrInvalid] for bad
// input, nothing changed; [ErrUnavailable] when the request was certainly not applied; [ErrUnknown] when it may or may not have been, which repeating it settles. A reply is given only once what it says is
// durable, as far as [Guarantees] go; in a caller's own transaction it is as durable as that. After a call the request's slices are the caller's alone again.

// Store keeps items and the holds on them.
type Store interface {
	// Stock sets how much there is of each item, all or none of them; an item that is new begins with nothing sold. It returns a [*TakenError] where more is sold, or held by live holds, than there would be: Wanted is
	// that much, and Free the new quantity.
	Stock(ctx context.Context, items []Item) error

	// Place holds all lines for req.Actor until req.TTL from now, or none. Lines of one item are summed.
	//
	// Repeating a request returns the hold as it stands while it is live or confirmed, and an [*OverError] afterwards: never a new hold under an id that is over. Place returns a [*TakenError] for the first item, by name, of which too little is
	// free, having written nothing but that holds have expired; a [*LimitError] where the actor's limits would be passed; a [*NotFoundError] for an item that was never stocked; and a [*MismatchError] if the id was used with another actor,
	// other lines or another TTL.
	//
	// Where several of these apply, the first of them is told: a mismatch (of the actor, of the lines, of the TTL), that it is over, an item that is not known, a limit, what is taken.
	Place(ctx context.Context, req PlaceRequest) (Hold, error)

	// Extend lets a live hold expire no earlier than ttl from now; it never shortens it. It returns an [*OverError] for one that is over, expired ones included, an [*ActorError] for another's, and a [*NotFoundError].
	Extend(ctx context.Context, id fence.ID, actor string, ttl time.Duration) (Hold, error)

	// Confirm sells what is held, under a reference of the caller's, such as a payment's: once. The result's state is [Confirmed], or [Late]: then the hold had expired, nothing is sold, and the reference is recorded so that what was
	// paid can be given back. Look at it: a late payment is a result, and no error, so that recording it does not roll back with the sale. Confirming again under the same reference returns the same.
	//
	// With req.Grace, a hold that has expired for less than that is confirmed all the same where all of it is still free. Default 0: never.
	//
	// Confirm returns a [*MismatchError] if the hold was confirmed, or was late, under another reference; an [*OverError] for one that was released; an [*ActorError] for another's; and a [*NotFoundError].
	Confirm(ctx context.Context, req ConfirmRequest) (Hold, error)

	// Release ends a live hold and frees what it holds. Releasing one that was released, or has expired, is success: the hold says how it ended. It returns an [*OverError] for one that was confirmed or was late.
	Release(ctx context.Context, id fence.ID, actor string) (Hold, error)

	// Get returns a hold as it stands. It reads only.
	Get(ctx context.Context, id fence.ID) (Hold, error)

	// Guarantees states what this store keeps.
	Guarantees() Guarantees
}

// Office is for operators and for pages that show what is free.
type Office interface {
	// List returns holds in the order of their ids.
	List(ctx context.Context, req ListRequest) ([]Hold, error)

	// Items returns what is known of items, in the order of their names, after the given one: with the prefix, at most limit of them.
	Items(ctx context.Context, prefix, after string, limit int) ([]ItemInfo, error)

	// Prune forgets at most limit holds that have been over for at least age, and returns how many. What is sold stays sold. An id that comes again afterwards is a new hold.
	Prune(ctx context.Context, age time.Duration, limit int) (int, error)
}

// State is how a hold stands. The zero value is none.
type State int

// The states. All but the first are final.
const (
	Held      State = iota + 1 // live
	Confirmed                  // sold
	Released                   // given back by its actor
	Expired                    // its time has passed
	Late                       // its time had passed when the payment came, which is recorded
)

// String is the state as texts, columns and JSON use it.
func (s State) String() string {
	if s < Held || s > Late {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return [...]string{"held", "confirmed", "released", "expired", "late"}[s-1]
}

// Over reports whether the state is final.
func (s State) Over() bool { return s > Held && s <= Late }

// Item is something of which there is a quantity: 1 for a seat.
type Item struct {
	Name     string // 1 to MaxItem bytes of UTF-8 without control characters
	Quantity int64  // 0 to MaxQuantity
}

// ItemInfo is what is known of an item. Free is Quantity less Sold less Held.
type ItemInfo struct {
	Item
	Sold, Held int64 // Held by holds that are live
}

// Line is a demand.
type Line struct {
	Item     string
	Quantity int64 // 1 to MaxQuantity
}

// PlaceRequest asks for a hold.
type PlaceRequest struct {
	ID    fence.ID
	Actor string        // who holds: 1 to MaxActor bytes, likewise. It is compared in every later call, and is no proof: whoever calls has authenticated it
	Lines []Line        // 1 to MaxLines; those of one item are summed
	TTL   time.Duration // a store may keep it to the microsecond, and compares a repetition as kept
	// MaxHolds and MaxUnits bound what the actor may hold live, this hold included; 0: no bound. Holds of one actor are placed one after the other where one is given.
	MaxHolds, MaxUnits int64
}

// ConfirmRequest sells what is held.
type ConfirmRequest struct {
	ID        fence.ID
	Actor     string
	Reference string        // 1 to MaxReference bytes: what pays for it
	Grace     time.Duration // 0 to MaxGrace
}

// Hold is a hold as a store tells it.
type Hold struct {
	ID        fence.ID
	Actor     string
	Lines     []Line        // summed, by name
	TTL       time.Duration // as it was placed: an extension does not change it
	State     State
	Left      time.Duration // until it expires, by the store's clock when it answered; 0 unless held
	Reference string        // of a confirmed or a late one
	Age       time.Duration // since it was placed
	Ended     time.Duration // since it ended; of one that expired, since its deadline; of a late one, since the payment came; 0 while held
}

// ListRequest asks for holds that match all that is set.
type ListRequest struct {
	Actor  string
	Item   string
	States []State
	After  fence.ID // ids after this one
	Limit  int      // 1 to MaxList
}

// Guarantees is what a store keeps.
type Guarantees struct {
	Store   string
	Durable bool // what was told survives the process and the machine
	// Exclusive: two stores of one authority, and a failover that lost what was told, do not sell an item twice. Without it a store is no place to sell from.
	Exclusive bool
}
