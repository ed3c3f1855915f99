package lease

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// Limits that every store keeps; [Guarantees] may state narrower TTLs and fewer names.
const (
	MinTTL     = time.Millisecond
	MaxTTL     = 24 * time.Hour
	MaxMaxHold = 366 * 24 * time.Hour
	MaxNames   = 128 // names in one Acquire
	MaxOwner   = 256 // bytes of an owner label
	MaxReason  = 512 // bytes of the reason of a revocation
	MaxRelease = 256 // abandoned acquisitions that one Renew releases
	MaxList    = 1000

	MinPruneAge = time.Hour // requests are assumed to arrive within it
	MaxPrune    = 10_000    // rows that one Prune deletes
)

// Store is an authority: it keeps sessions and leases and decides by its own clock. Every method is safe for
// concurrent use, and every call may be repeated: the ids are the client's, chosen before the call.
//
// Errors common to all methods: one matching [ErrInvalid] for bad input, nothing changed; [ErrUnavailable]
// when the request was certainly not applied; [ErrUnknown] when it may or may not have been, which repeating the
// same request settles. A reply is given only once what it says is durable, as far as [Guarantees] go.
// After a call, whatever it returned, the request's slices are the caller's alone again.
type Store interface {
	// Open begins the session req.ID, with expiry = now + req.TTL, and returns its remaining TTL.
	//
	// Opening a live session again with the same request returns what is left, and renews nothing. Open
	// returns an error matching [ErrMismatch] if the id was opened with another owner or TTL, and
	// one matching [ErrEnded] if the session is over: closed (also before this Open arrived) or expired.
	Open(ctx context.Context, req OpenRequest) (time.Duration, error)

	// Renew sets the session's expiry to now + its TTL, never creating a session, and releases req.Release.
	//
	// The reply tells which acquisitions of the session were revoked and have not been named in a release since,
	// at most [MaxRelease] of them. Renew returns an error matching [ErrEnded], and renews nothing, if the session is over or unknown.
	Renew(ctx context.Context, req RenewRequest) (Renewal, error)

	// Close ends the session and with it every lease attached to it. Closing a closed or unknown session is
	// success, and an Open of that id that arrives later is refused: an unknown id leaves a closed session. Close returns an [*EndedError] if the
	// session had expired before: its leases were lost earlier than the caller believed.
	Close(ctx context.Context, session fence.ID) error

	// Acquire asks for all of req.Names, or none, on behalf of req.Session, under the acquisition req.ID.
	//
	// Each grant's token is greater than every token ever granted for its name, released, expired and
	// pruned ones included. Grants are in the order of req.Names. Validity counts from before the request was
	// sent: a slow reply shortens it. Repeating a request whose grant is still valid returns the same grants.
	//
	// Acquire returns a [*HeldError] naming the holder and the time left at most, unless renewed, having
	// written nothing; an [*EndedError] if the session or req.ID is over, and never a new grant under an id
	// that is over; [ErrMismatch] if req.ID was used with other names, MaxHold or session; an error matching
	// [fence.ErrAhead] for a name whose token from the future was reported.
	Acquire(ctx context.Context, req AcquireRequest) ([]Grant, error)

	// Release ends an acquisition and frees its names. It closes the id: an Acquire under it that arrives
	// later is refused, also when the id was unknown. Releasing again is success and says so.
	//
	// Release returns an [*EndedError] if the acquisition had expired, was superseded or was revoked before:
	// it was over earlier than the caller believed. The id is closed in that case too.
	Release(ctx context.Context, req ReleaseRequest) (Released, error)

	// Get says who holds a name. It reads only; what it says may be old when the caller sees it, and is a
	// description, never a right. A name that nobody ever acquired, or whose row was pruned, has Token 0.
	Get(ctx context.Context, name string) (Info, error)

	// Guarantees states what this store keeps. See [Require].
	Guarantees() Guarantees
}

// Revoker takes leases away. For operators.
type Revoker interface {
	// Revoke ends the acquisition that holds req.Name under exactly req.Token, with all its names.
	//
	// The former holder is not stopped by it: it learns with its next renewal, and until Revoked.BelievesAtMost
	// from now it may believe that it holds. Revoking again is success and says so. Revoke returns an
	// error matching [ErrMismatch] if the name's latest token is another one, and an [*EndedError] if that
	// acquisition was already over.
	Revoke(ctx context.Context, req RevokeRequest) (Revoked, error)
}

// Lister lists leases. For operators.
type Lister interface {
	// List returns the names that start with req.Prefix and come after req.After, in byte order, at most
	// req.Limit of them, free names that still have a row included.
	List(ctx context.Context, req ListRequest) ([]Info, error)
}

// Pruner forgets what is over. For operators and scheduled upkeep.
type Pruner interface {
	// Prune deletes at most limit rows of free names, ended sessions and closed acquisitions that have been over
	// for at least age ([MinPruneAge] or more), and returns how many. No token repeats after it; how a pruned
	// id ended is answered as [EndForgotten]. A request that was delayed for longer than age is beyond what a store remembers.
	Prune(ctx context.Context, age time.Duration, limit int) (int, error)
}

// EpochRaiser repairs an authority whose store was restored from a copy.
type EpochRaiser interface {
	// RaiseEpoch makes every later token greater than above and than every token that this store can have
	// issued by its own clock, and returns the new floor. It lifts the stop that a token from the future caused.
	RaiseEpoch(ctx context.Context, above fence.Token) (fence.Token, error)
}

// OpenRequest begins a session.
type OpenRequest struct {
	ID    fence.ID // made by the client, see [NewID]
	Owner string   // a label for people, at most MaxOwner bytes; may be empty or reused; never proof
	TTL   time.Duration
}

// RenewRequest keeps a session alive.
type RenewRequest struct {
	Session fence.ID
	// ClosedBelow is the lowest acquisition id whose grant the client may still ask for. An Acquire below it
	// that arrives later gets no new grant; what is held below it stays held. Zero closes nothing. It never falls.
	ClosedBelow fence.ID
	// Release holds acquisitions whose release the client could not confirm. At most MaxRelease.
	Release []Abandoned
}

// Abandoned names an acquisition that the client wants released.
type Abandoned struct {
	ID    fence.ID
	Names []string // the names that were asked for under ID
}

// Renewal is the reply to a renewal: durable, and every id in the request's Release is closed.
type Renewal struct {
	Remaining time.Duration // of the session's TTL, by the authority's clock when it answered
	Revoked   []RevokedAcquisition
}

// RevokedAcquisition tells a session what an operator took away.
type RevokedAcquisition struct {
	ID     fence.ID
	Reason string
}

// AcquireRequest asks for names.
type AcquireRequest struct {
	Session     fence.ID
	ID          fence.ID      // made by the client before the call; ids of one session rise
	Names       []string      // 1 to MaxNames different names
	MaxHold     time.Duration // the acquisition ends this long after its grant even while the session lives; 0: no such bound
	ClosedBelow fence.ID      // as in RenewRequest
}

// Grant is ownership of one name.
type Grant struct {
	Claim     fence.Claim
	Remaining time.Duration // of the session's TTL
	HoldLeft  time.Duration // of MaxHold; 0 when there is no such bound
}

// ReleaseRequest ends an acquisition.
type ReleaseRequest struct {
	Session fence.ID
	ID      fence.ID
	// Names are those that were asked for under ID. A store notices others (ErrMismatch) while ID is not below ClosedBelow;
	// below it, it may answer that nothing of these names is held under ID.
	Names       []string
	ClosedBelow fence.ID // as in RenewRequest
}

// Released is the reply to a release.
type Released struct {
	Already bool // it was released before, or its session closed, or it was never granted
}

// Info describes a name.
type Info struct {
	Name        string
	Token       fence.Token // the latest granted, 0 if none is known
	Held        bool
	Acquisition fence.ID // of the latest grant
	Session     fence.ID
	Owner       string
	Remaining   time.Duration // of the holder's session, at most, unless renewed; 0 when not held
	HoldLeft    time.Duration // 0 when there is no such bound or the name is not held
	End         End           // how the latest grant ended; 0 while held, or when none is known
}

// RevokeRequest takes a lease away.
type RevokeRequest struct {
	Name   string
	Token  fence.Token // the token that the operator saw
	Reason string      // 1 to MaxReason bytes, told to the former holder
}

// Revoked is the reply to a revocation.
type Revoked struct {
	Already        bool
	Former         Info          // as it was before; Held is false if it was already revoked
	Names          []string      // every name that this revocation freed, sorted
	BelievesAtMost time.Duration // how long the former holder may still believe that it holds
}

// ListRequest selects names.
type ListRequest struct {
	Prefix string // may be empty
	After  string // the last name of the page before, or empty
	Limit  int    // 1 to MaxList
}
