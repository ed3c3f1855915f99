package wire

import (
	"time"

	"github.com/tenure-go/tenure/fence"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/lease"
)

// lease is nil, or the package's error for the first field that could not be read.
func (r *reader) lease() error {
	if r.field == "" {
		return nil
	}
	return &lease.InvalidError{Field: r.field, Problem: r.problem}
}

// PutOpen writes the request.
func PutOpen(r lease.OpenRequest) *v1.OpenSessionRequest {
	return &v1.OpenSessionRequest{Id: ID(r.ID), Owner: r.Owner, Ttl: duration(r.TTL)}
}

// GetOpen reads it. Like all that read requests it returns the contract's error for what cannot be one; the rest is the store's to check.
func GetOpen(m *v1.OpenSessionRequest) (lease.OpenRequest, error) {
	var r reader
	req := lease.OpenRequest{ID: r.id("id", m.GetId()), Owner: m.GetOwner(), TTL: r.span("ttl", m.GetTtl())}
	return req, r.lease()
}

// PutRenew writes the request.
func PutRenew(r lease.RenewRequest) *v1.RenewSessionRequest {
	return &v1.RenewSessionRequest{
		Session: ID(r.Session), ClosedBelow: ID(r.ClosedBelow),
		Release: All(r.Release, func(a lease.Abandoned) *v1.Abandoned { return &v1.Abandoned{Id: ID(a.ID), Names: a.Names} }),
	}
}

// GetRenew reads it.
func GetRenew(m *v1.RenewSessionRequest) (lease.RenewRequest, error) {
	var r reader
	req := lease.RenewRequest{
		Session: r.id("session", m.GetSession()), ClosedBelow: r.id("closed below", m.GetClosedBelow()),
		Release: All(m.GetRelease(), func(a *v1.Abandoned) lease.Abandoned {
			return lease.Abandoned{ID: r.id("release", a.GetId()), Names: a.GetNames()}
		}),
	}
	return req, r.lease()
}

// PutRenewal writes the reply.
func PutRenewal(r lease.Renewal) *v1.RenewSessionResponse {
	return &v1.RenewSessionResponse{
		Remaining: duration(r.Remaining),
		Revoked: All(r.Revoked, func(a lease.RevokedAcquisition) *v1.RevokedAcquisition {
			return &v1.RevokedAcquisition{Id: ID(a.ID), Reason: a.Reason}
		}),
	}
}

// GetRenewal reads it.
func GetRenewal(m *v1.RenewSessionResponse) (lease.Renewal, error) {
	var r reader
	reply := lease.Renewal{
		Remaining: r.span("remaining", m.GetRemaining()),
		Revoked: All(m.GetRevoked(), func(a *v1.RevokedAcquisition) lease.RevokedAcquisition {
			return lease.RevokedAcquisition{ID: r.id("revoked", a.GetId()), Reason: a.GetReason()}
		}),
	}
	return reply, r.lease()
}

// PutAcquire writes the request.
func PutAcquire(r lease.AcquireRequest) *v1.AcquireRequest {
	return &v1.AcquireRequest{Session: ID(r.Session), Id: ID(r.ID), Names: r.Names, MaxHold: duration(r.MaxHold), ClosedBelow: ID(r.ClosedBelow)}
}

// GetAcquire reads it.
func GetAcquire(m *v1.AcquireRequest) (lease.AcquireRequest, error) {
	var r reader
	req := lease.AcquireRequest{
		Session: r.id("session", m.GetSession()), ID: r.id("id", m.GetId()), Names: m.GetNames(), MaxHold: r.span("max hold", m.GetMaxHold()),
		ClosedBelow: r.id("closed below", m.GetClosedBelow()),
	}
	return req, r.lease()
}

// PutGrants writes the reply.
func PutGrants(all []lease.Grant) *v1.AcquireResponse {
	return &v1.AcquireResponse{Grants: All(all, func(g lease.Grant) *v1.Grant {
		return &v1.Grant{Claim: Claim(g.Claim), Remaining: duration(g.Remaining), HoldLeft: duration(g.HoldLeft)}
	})}
}

// GetGrants reads it.
func GetGrants(m *v1.AcquireResponse) ([]lease.Grant, error) {
	var r reader
	all := All(m.GetGrants(), func(g *v1.Grant) lease.Grant {
		claim, err := ParseClaim(g.GetClaim())
		r.fail("claim", err)
		return lease.Grant{Claim: claim, Remaining: r.span("remaining", g.GetRemaining()), HoldLeft: r.span("hold left", g.GetHoldLeft())}
	})
	return all, r.lease()
}

// PutRelease writes the request.
func PutRelease(r lease.ReleaseRequest) *v1.ReleaseRequest {
	return &v1.ReleaseRequest{Session: ID(r.Session), Id: ID(r.ID), Names: r.Names, ClosedBelow: ID(r.ClosedBelow)}
}

// GetRelease reads it.
func GetRelease(m *v1.ReleaseRequest) (lease.ReleaseRequest, error) {
	var r reader
	req := lease.ReleaseRequest{Session: r.id("session", m.GetSession()), ID: r.id("id", m.GetId()), Names: m.GetNames(), ClosedBelow: r.id("closed below", m.GetClosedBelow())}
	return req, r.lease()
}

// PutInfo writes the description.
func PutInfo(i lease.Info) *v1.LeaseInfo {
	return &v1.LeaseInfo{
		Name: i.Name, Token: int64(i.Token), Held: i.Held, Acquisition: ID(i.Acquisition), Session: ID(i.Session), Owner: i.Owner, Remaining: duration(i.Remaining),
		HoldLeft: duration(i.HoldLeft), End: v1.End(i.End),
	}
}

func (r *reader) info(m *v1.LeaseInfo) lease.Info {
	return lease.Info{
		Name: m.GetName(), Token: fence.Token(m.GetToken()), Held: m.GetHeld(), Acquisition: r.id("acquisition", m.GetAcquisition()), Session: r.id("session", m.GetSession()),
		Owner: m.GetOwner(), Remaining: r.span("remaining", m.GetRemaining()), HoldLeft: r.span("hold left", m.GetHoldLeft()), End: lease.End(m.GetEnd()),
	}
}

// GetInfo reads it.
func GetInfo(m *v1.LeaseInfo) (lease.Info, error) {
	var r reader
	info := r.info(m)
	return info, r.lease()
}

// PutRevoked writes the reply.
func PutRevoked(r lease.Revoked) *v1.RevokeLeaseResponse {
	return &v1.RevokeLeaseResponse{Already: r.Already, Former: PutInfo(r.Former), Names: r.Names, BelievesAtMost: duration(r.BelievesAtMost)}
}

// GetRevoked reads it.
func GetRevoked(m *v1.RevokeLeaseResponse) (lease.Revoked, error) {
	var r reader
	reply := lease.Revoked{Already: m.GetAlready(), Former: r.info(m.GetFormer()), Names: m.GetNames(), BelievesAtMost: r.span("believes at most", m.GetBelievesAtMost())}
	return reply, r.lease()
}

// PutAuthority writes what an authority is and keeps.
func PutAuthority(authority fence.ID, g lease.Guarantees) *v1.GetAuthorityResponse {
	return &v1.GetAuthorityResponse{
		Authority: ID(authority), Store: g.Store, DurableGrants: g.DurableGrants, TokensSurvive: g.TokensSurvive, PreciseExpiry: g.PreciseExpiry, FairWaiting: g.FairWaiting,
		Provisional: g.Provisional, MaxNames: int32(g.MaxNames), MinTtl: duration(g.MinTTL), MaxTtl: duration(g.MaxTTL), Grain: duration(g.Grain),
	}
}

// GetAuthority reads it. Through the wire everybody shares the authority, and nobody has it in the transaction of a write.
func GetAuthority(m *v1.GetAuthorityResponse) (fence.ID, lease.Guarantees, error) {
	var r reader
	g := lease.Guarantees{
		Store: m.GetStore(), DurableGrants: m.GetDurableGrants(), TokensSurvive: m.GetTokensSurvive(), PreciseExpiry: m.GetPreciseExpiry(), FairWaiting: m.GetFairWaiting(),
		Provisional: m.GetProvisional(), Shared: true, MaxNames: int(m.GetMaxNames()), MinTTL: r.span("min ttl", m.GetMinTtl()), MaxTTL: r.span("max ttl", m.GetMaxTtl()), Grain: r.span("grain", m.GetGrain()),
	}
	id := r.id("authority", m.GetAuthority())
	return id, g, r.lease()
}

// GetPrune reads what to forget.
func GetPrune(m *v1.PruneLeasesRequest) (age time.Duration, limit int, err error) {
	var r reader
	age = r.span("age", m.GetAge())
	return age, int(m.GetLimit()), r.lease()
}

// GetClose reads which session to close.
func GetClose(m *v1.CloseSessionRequest) (fence.ID, error) {
	var r reader
	id := r.id("session", m.GetSession())
	return id, r.lease()
}
