package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tenure-go/tenure/fence"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
	"github.com/tenure-go/tenure/lease"
)

// Leases is the authority's leases. It is safe for concurrent use.
type Leases struct{ client *Client }

var (
	_ lease.Store       = (*Leases)(nil)
	_ lease.Revoker     = (*Leases)(nil)
	_ lease.Lister      = (*Leases)(nil)
	_ lease.Pruner      = (*Leases)(nil)
	_ lease.EpochRaiser = (*Leases)(nil)
)

// Leases returns the authority's leases.
func (c *Client) Leases() *Leases { return &Leases{c} }

// failed is a failed call as the contract's error.
func failed(op string, id fence.ID, err error) error {
	if fault := wire.FaultOf(err); fault != nil {
		if told := wire.LeaseError(fault); told != nil {
			return told
		}
	} else if !applied(err) {
		return &lease.UnavailableError{Op: op, Err: err}
	}
	return &lease.UnknownError{Op: op, ID: id, Err: err}
}

// answered is the error of a call that travelled with others, or nil.
func answered(op string, id fence.ID, m *v1.ExchangeResponse_Answer) error {
	switch answer := m.GetAnswer().(type) {
	case *v1.ExchangeResponse_Answer_Acquired, *v1.ExchangeResponse_Answer_Released:
		return nil
	case *v1.ExchangeResponse_Answer_Fault:
		if told := wire.LeaseError(answer.Fault); told != nil {
			return told
		}
	}
	return &lease.UnknownError{Op: op, ID: id, Err: errors.New(m.GetMessage())}
}

// unread is a failure to read, which has changed nothing.
func unread(op string, err error) error {
	if fault := wire.FaultOf(err); fault != nil {
		if told := wire.LeaseError(fault); told != nil {
			return told
		}
	}
	return &lease.UnavailableError{Op: op, Err: err}
}

// Open implements [lease.Store].
func (l *Leases) Open(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
	if err := req.Check(l.client.guarantees); err != nil {
		return 0, err
	}
	m, err := ask(ctx, l.client, func(ctx context.Context, e *endpoint) (*v1.OpenSessionResponse, error) {
		return e.leases.OpenSession(ctx, wire.PutOpen(req))
	})
	if err != nil {
		return 0, failed("open", req.ID, err)
	}
	left, err := wire.Span("remaining", m.GetRemaining())
	return left, unreadable("open", req.ID, err)
}

// unreadable is a reply that makes no sense: what was asked for may have been done.
func unreadable(op string, id fence.ID, err error) error {
	if err == nil {
		return nil
	}
	return &lease.UnknownError{Op: op, ID: id, Err: nonsense(err)}
}

// Renew implements [lease.Store].
func (l *Leases) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	if err := req.Check(); err != nil {
		return lease.Renewal{}, err
	}
	put := wire.PutRenew(req)
	kept, err := l.client.keeper.renew(ctx, put)
	if err != nil {
		return lease.Renewal{}, failed("renew", req.Session, err)
	}
	m := kept.GetRenewed()
	switch {
	case kept == nil:
		if m, err = ask(ctx, l.client, func(ctx context.Context, e *endpoint) (*v1.RenewSessionResponse, error) {
			return e.leases.RenewSession(ctx, put)
		}); err != nil {
			return lease.Renewal{}, failed("renew", req.Session, err)
		}
	case m == nil:
		if told := wire.LeaseError(kept.GetFault()); told != nil {
			return lease.Renewal{}, told
		}
		return lease.Renewal{}, &lease.UnknownError{Op: "renew", ID: req.Session, Err: errors.New(kept.GetMessage())}
	}
	reply, err := wire.GetRenewal(m)
	return reply, unreadable("renew", req.Session, err)
}

// Close implements [lease.Store].
func (l *Leases) Close(ctx context.Context, session fence.ID) error {
	_, err := ask(ctx, l.client, func(ctx context.Context, e *endpoint) (*v1.CloseSessionResponse, error) {
		return e.leases.CloseSession(ctx, &v1.CloseSessionRequest{Session: wire.ID(session)})
	})
	if err != nil {
		return failed("close", session, err)
	}
	return nil
}

// Acquire implements [lease.Store].
func (l *Leases) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	if err := req.Check(l.client.guarantees); err != nil {
		return nil, err
	}
	put := wire.PutAcquire(req)
	var m *v1.AcquireResponse
	answer, err := l.client.lane.send(ctx, &v1.ExchangeRequest_Call{Call: &v1.ExchangeRequest_Call_Acquire{Acquire: put}}, func() (err error) {
		m, err = ask(ctx, l.client, func(ctx context.Context, e *endpoint) (*v1.AcquireResponse, error) { return e.leases.Acquire(ctx, put) })
		return err
	})
	if err != nil {
		return nil, failed("acquire", req.ID, err)
	}
	if answer != nil {
		if err := answered("acquire", req.ID, answer); err != nil {
			return nil, err
		}
		m = answer.GetAcquired()
	}
	grants, err := wire.GetGrants(m)
	return grants, unreadable("acquire", req.ID, err)
}

// Release implements [lease.Store].
func (l *Leases) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	if err := req.Check(); err != nil {
		return lease.Released{}, err
	}
	put := wire.PutRelease(req)
	var m *v1.ReleaseResponse
	answer, err := l.client.lane.send(ctx, &v1.ExchangeRequest_Call{Call: &v1.ExchangeRequest_Call_Release{Release: put}}, func() (err error) {
		m, err = ask(ctx, l.client, func(ctx context.Context, e *endpoint) (*v1.ReleaseResponse, error) { return e.leases.Release(ctx, put) })
		return err
	})
	if err != nil {
		return lease.Released{}, failed("release", req.ID, err)
	}
	if answer != nil {
		if err := answered("release", req.ID, answer); err != nil {
			return lease.Released{}, err
		}
		m = answer.GetReleased()
	}
	return lease.Released{Already: m.GetAlready()}, nil
}

// Get implements [lease.Store].
func (l *Leases) Get(ctx context.Context, name string) (lease.Info, error) {
	if err := lease.CheckName(name); err != nil {
		return lease.Info{}, err
	}
	m, err := ask(ctx, l.client, func(ctx context.Context, e *endpoint) (*v1.GetLeaseResponse, error) {
		return e.leases.GetLease(ctx, &v1.GetLeaseRequest{Name: name})
	})
	if err != nil {
		return lease.Info{}, unread("get", err)
	}
	info, err := wire.GetInfo(m.GetLease())
	if err != nil {
		return lease.Info{}, &lease.UnavailableError{Op: "get", Err: nonsense(err)}
	}
	return info, nil
}

// Guarantees implements [lease.Store]: what the authority's store keeps, as it said when it was dialled. Everybody who can reach a server shares it, and no write of a caller's is in its transaction.
func (l *Leases) Guarantees() lease.Guarantees { return l.client.guarantees }

// List implements [lease.Lister].
func (l *Leases) List(ctx context.Context, req lease.ListRequest) ([]lease.Info, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	m, err := ask(ctx, l.client, func(ctx context.Context, e *endpoint) (*v1.ListLeasesResponse, error) {
		return e.leases.ListLeases(ctx, &v1.ListLeasesRequest{Prefix: req.Prefix, After: req.After, Limit: int32(req.Limit)})
	})
	if err != nil {
		return nil, unread("list", err)
	}
	all, err := wire.TryAll(m.GetLeases(), wire.GetInfo)
	if err != nil {
		return nil, &lease.UnavailableError{Op: "list", Err: nonsense(err)}
	}
	return all, nil
}

// Revoke implements [lease.Revoker].
func (l *Leases) Revoke(ctx context.Context, req lease.RevokeRequest) (lease.Revoked, error) {
	if err := req.Check(); err != nil {
		return lease.Revoked{}, err
	}
	m, err := ask(ctx, l.client, func(ctx context.Context, e *endpoint) (*v1.RevokeLeaseResponse, error) {
		return e.leases.RevokeLease(ctx, &v1.RevokeLeaseRequest{Name: req.Name, Token: int64(req.Token), Reason: req.Reason})
	})
	if err != nil {
		return lease.Revoked{}, failed("revoke", fence.ID{}, err)
	}
	reply, err := wire.GetRevoked(m)
	return reply, unreadable("revoke", fence.ID{}, err)
}

// Prune implements [lease.Pruner].
func (l *Leases) Prune(ctx context.Context, age time.Duration, limit int) (int, error) {
	m, err := ask(ctx, l.client, func(ctx context.Context, e *endpoint) (*v1.PruneLeasesResponse, error) {
		return e.leases.PruneLeases(ctx, &v1.PruneLeasesRequest{Age: durationpb.New(age), Limit: wire.Int32(limit)})
	})
	if err != nil {
		return 0, failed("prune", fence.ID{}, err)
	}
	return int(m.GetPruned()), nil
}

// RaiseEpoch implements [lease.EpochRaiser].
func (l *Leases) RaiseEpoch(ctx context.Context, above fence.Token) (fence.Token, error) {
	m, err := ask(ctx, l.client, func(ctx context.Context, e *endpoint) (*v1.RaiseEpochResponse, error) {
		return e.leases.RaiseEpoch(ctx, &v1.RaiseEpochRequest{Above: int64(above)})
	})
	if err != nil {
		return 0, failed("raise epoch", fence.ID{}, err)
	}
	return fence.Token(m.GetFloor()), nil
}
