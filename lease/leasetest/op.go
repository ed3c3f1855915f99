package leasetest

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// Op is one operation of a history: exactly one of its fields is set. It speaks of ids, never of tokens, so
// that one history runs on any store.
type Op struct {
	Open    *lease.OpenRequest
	Renew   *lease.RenewRequest
	Close   *fence.ID
	Acquire *lease.AcquireRequest
	Release *lease.ReleaseRequest
	Get     *string
	Advance time.Duration // not 0

	// For a harness with operator functions.
	Revoke *Revocation
	List   *lease.ListRequest
	Prune  time.Duration // what has been over for as long as this
	Raise  bool          // the epoch, above the highest token seen
}

// Revocation revokes Name under the token that the acquisition had there.
type Revocation struct {
	Name        string
	Acquisition fence.ID
	Reason      string
}

// String says what the operation is, for a failure.
func (o Op) String() string {
	switch {
	case o.Open != nil:
		return fmt.Sprintf("open session %s of %q with a TTL of %v", short(o.Open.ID), o.Open.Owner, o.Open.TTL)
	case o.Renew != nil:
		text := fmt.Sprintf("renew session %s", short(o.Renew.Session))
		for _, a := range o.Renew.Release {
			text += fmt.Sprintf(", releasing %s %q", short(a.ID), a.Names)
		}
		return text + closing(o.Renew.ClosedBelow)
	case o.Close != nil:
		return fmt.Sprintf("close session %s", short(*o.Close))
	case o.Acquire != nil:
		text := fmt.Sprintf("session %s acquires %q as %s", short(o.Acquire.Session), o.Acquire.Names, short(o.Acquire.ID))
		if o.Acquire.MaxHold != 0 {
			text += fmt.Sprintf(" for at most %v", o.Acquire.MaxHold)
		}
		return text + closing(o.Acquire.ClosedBelow)
	case o.Release != nil:
		return fmt.Sprintf("session %s releases %s %q", short(o.Release.Session), short(o.Release.ID), o.Release.Names) + closing(o.Release.ClosedBelow)
	case o.Get != nil:
		return fmt.Sprintf("get %q", *o.Get)
	case o.Revoke != nil:
		return fmt.Sprintf("revoke %q of %s", o.Revoke.Name, short(o.Revoke.Acquisition))
	case o.List != nil:
		return fmt.Sprintf("list %+v", *o.List)
	case o.Prune != 0:
		return fmt.Sprintf("prune what is over for %v", o.Prune)
	case o.Raise:
		return "raise the epoch"
	}
	return fmt.Sprintf("advance by %v", o.Advance)
}

func closing(below fence.ID) string {
	if below.IsZero() {
		return ""
	}
	return ", closing what is below " + short(below)
}

// short is an id without leading zeros' worth of noise: those of drawn histories are small numbers.
func short(id fence.ID) string {
	for i, b := range id {
		if b != 0 {
			return fmt.Sprintf("%x", id[i:])
		}
	}
	return "0"
}

// Reply is what a store answered to an operation.
type Reply struct {
	Err      error
	Left     time.Duration // Open
	Renewal  lease.Renewal
	Grants   []lease.Grant
	Released lease.Released
	Infos    []lease.Info // Get and List
	Revoked  lease.Revoked
	Floor    fence.Token // Raise
}

// Player runs operations on a harness. It belongs to one goroutine.
type Player struct {
	h       Harness
	tokens  map[fence.ID]map[string]fence.Token // of what was granted
	highest fence.Token
}

// NewPlayer starts on a fresh harness. Operator functions need an [OperatorHarness].
func NewPlayer(h Harness) *Player {
	return &Player{h: h, tokens: map[fence.ID]map[string]fence.Token{}}
}

// Play runs one operation. An operation that the harness has no function for is answered with an error that
// matches [lease.ErrInvalid].
func (p *Player) Play(ctx context.Context, op Op) Reply {
	var r Reply
	store := p.h.Store()
	switch {
	case op.Open != nil:
		r.Left, r.Err = store.Open(ctx, *op.Open)
	case op.Renew != nil:
		r.Renewal, r.Err = store.Renew(ctx, *op.Renew)
	case op.Close != nil:
		r.Err = store.Close(ctx, *op.Close)
	case op.Acquire != nil:
		r.Grants, r.Err = store.Acquire(ctx, *op.Acquire)
		p.learn(r.Grants)
	case op.Release != nil:
		r.Released, r.Err = store.Release(ctx, *op.Release)
	case op.Get != nil:
		var info lease.Info
		info, r.Err = store.Get(ctx, *op.Get)
		r.Infos = []lease.Info{info}
	case op.Advance != 0:
		r.Err = p.h.Advance(ctx, op.Advance)
	default:
		return p.operate(ctx, op)
	}
	return r
}

func (p *Player) operate(ctx context.Context, op Op) Reply {
	var r Reply
	oh, ok := p.h.(OperatorHarness)
	if !ok {
		r.Err = &lease.InvalidError{Field: "operation", Problem: "the harness has no operator functions"}
		return r
	}
	o := oh.Operator()
	switch {
	case op.Revoke != nil:
		token := p.tokens[op.Revoke.Acquisition][op.Revoke.Name]
		if token == 0 { // never granted: a token that is no one's, the same for every store
			token = p.highest + 1<<20
		}
		r.Revoked, r.Err = o.Revoke(ctx, lease.RevokeRequest{Name: op.Revoke.Name, Token: token, Reason: op.Revoke.Reason})
	case op.List != nil:
		r.Infos, r.Err = o.List(ctx, *op.List)
	case op.Prune != 0:
		_, r.Err = o.Prune(ctx, op.Prune, lease.MaxPrune)
	case op.Raise:
		r.Floor, r.Err = o.RaiseEpoch(ctx, p.highest)
		p.highest = max(p.highest, r.Floor)
	}
	return r
}

func (p *Player) learn(grants []lease.Grant) {
	for _, g := range grants {
		of := p.tokens[g.Claim.Acquisition]
		if of == nil {
			of = map[string]fence.Token{}
			p.tokens[g.Claim.Acquisition] = of
		}
		of[g.Claim.Name] = g.Claim.Token
		p.highest = max(p.highest, g.Claim.Token)
	}
}
