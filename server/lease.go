package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tenure-go/tenure/fence"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
	"github.com/tenure-go/tenure/lease"
)

// MaxExchange is how many calls one Exchange may carry.
const MaxExchange = 64

type leases struct{ *Options }

// OpenSession is [lease.Store.Open].
func (s *leases) OpenSession(ctx context.Context, m *v1.OpenSessionRequest) (*v1.OpenSessionResponse, error) {
	req, err := wire.GetOpen(m)
	return one(ctx, req, err, s.Leases.Open, func(left time.Duration) *v1.OpenSessionResponse {
		return &v1.OpenSessionResponse{Remaining: durationpb.New(left)}
	}, wire.Error)
}

// RenewSession is [lease.Store.Renew].
func (s *leases) RenewSession(ctx context.Context, m *v1.RenewSessionRequest) (*v1.RenewSessionResponse, error) {
	req, err := wire.GetRenew(m)
	return one(ctx, req, err, s.Leases.Renew, wire.PutRenewal, wire.Error)
}

// keepsAtOnce is how many renewals of one stream run at a time; the next one is read when one of them has ended.
const keepsAtOnce = 64

// KeepSession is [lease.Store.Renew], for as long as the stream lasts. A renewal that takes long holds up no other one's answer.
func (s *leases) KeepSession(ctx context.Context, stream *connect.BidiStream[v1.KeepSessionRequest, v1.KeepSessionResponse]) error {
	var all sync.WaitGroup
	defer all.Wait() // the stream is the call's alone
	var sending sync.Mutex
	requests, failed := make(chan *v1.KeepSessionRequest), make(chan error, 1)
	over := make(chan struct{})
	defer close(over)
	go func() { // it ends when the call has: then the request's body is closed
		for {
			m, err := stream.Receive()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- m:
			case <-over:
				return
			}
		}
	}()
	places := make(chan struct{}, keepsAtOnce)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case m := <-requests:
			all.Go(func() {
				defer func() { <-places }()
				reply := s.keep(ctx, m)
				sending.Lock()
				defer sending.Unlock()
				_ = stream.Send(reply) // if the stream is over, Receive says so
			})
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-s.Draining:
			return nil // what was read is answered, and the next renewal goes elsewhere
		}
	}
}

func (s *leases) keep(ctx context.Context, m *v1.KeepSessionRequest) *v1.KeepSessionResponse {
	renewed, err := s.RenewSession(ctx, m.GetRenew())
	reply := &v1.KeepSessionResponse{Tag: m.GetTag(), Renewed: renewed}
	if err != nil {
		reply.Fault, reply.Message = wire.FaultOf(err), err.Error()
	}
	return reply
}

// CloseSession is [lease.Store.Close].
func (s *leases) CloseSession(ctx context.Context, m *v1.CloseSessionRequest) (*v1.CloseSessionResponse, error) {
	req, err := wire.GetClose(m)
	return one(ctx, req, err, func(ctx context.Context, id fence.ID) (*v1.CloseSessionResponse, error) {
		return &v1.CloseSessionResponse{}, s.Leases.Close(ctx, id)
	}, same, wire.Error)
}

// Acquire is [lease.Store.Acquire].
func (s *leases) Acquire(ctx context.Context, m *v1.AcquireRequest) (*v1.AcquireResponse, error) {
	req, err := wire.GetAcquire(m)
	return one(ctx, req, err, s.Leases.Acquire, wire.PutGrants, wire.Error)
}

// Release is [lease.Store.Release].
func (s *leases) Release(ctx context.Context, m *v1.ReleaseRequest) (*v1.ReleaseResponse, error) {
	req, err := wire.GetRelease(m)
	return one(ctx, req, err, s.Leases.Release, func(r lease.Released) *v1.ReleaseResponse { return &v1.ReleaseResponse{Already: r.Already} }, wire.Error)
}

// Exchange does each of its calls as if alone, at the same time: the store brings them together where it can.
func (s *leases) Exchange(ctx context.Context, m *v1.ExchangeRequest) (*v1.ExchangeResponse, error) {
	calls := m.GetCalls()
	if len(calls) > MaxExchange {
		return nil, wire.Error(&lease.InvalidError{Field: "calls", Problem: "more than 64"})
	}
	answers := make([]*v1.ExchangeResponse_Answer, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() { answers[i] = s.answer(ctx, call) })
	}
	all.Wait()
	return &v1.ExchangeResponse{Answers: answers}, nil
}

func (s *leases) answer(ctx context.Context, m *v1.ExchangeRequest_Call) *v1.ExchangeResponse_Answer {
	answer := &v1.ExchangeResponse_Answer{}
	var err error
	switch call := m.GetCall().(type) {
	case *v1.ExchangeRequest_Call_Acquire:
		var reply *v1.AcquireResponse
		reply, err = s.Acquire(ctx, call.Acquire)
		answer.Answer = &v1.ExchangeResponse_Answer_Acquired{Acquired: reply}
	case *v1.ExchangeRequest_Call_Release:
		var reply *v1.ReleaseResponse
		reply, err = s.Release(ctx, call.Release)
		answer.Answer = &v1.ExchangeResponse_Answer_Released{Released: reply}
	default:
		err = wire.Error(&lease.InvalidError{Field: "call", Problem: "neither acquire nor release"})
	}
	if err != nil {
		answer.Answer, answer.Message = &v1.ExchangeResponse_Answer_Fault{Fault: wire.FaultOf(err)}, err.Error()
	}
	return answer
}

// GetLease is [lease.Store.Get].
func (s *leases) GetLease(ctx context.Context, m *v1.GetLeaseRequest) (*v1.GetLeaseResponse, error) {
	return one(ctx, m.GetName(), nil, s.Leases.Get, func(i lease.Info) *v1.GetLeaseResponse { return &v1.GetLeaseResponse{Lease: wire.PutInfo(i)} }, wire.Error)
}

// ListLeases is [lease.Lister].
func (s *leases) ListLeases(ctx context.Context, m *v1.ListLeasesRequest) (*v1.ListLeasesResponse, error) {
	store, ok := s.Leases.(lease.Lister)
	if !ok {
		return nil, unimplemented("list leases")
	}
	req := lease.ListRequest{Prefix: m.GetPrefix(), After: m.GetAfter(), Limit: limit(m.GetLimit())}
	return one(ctx, req, nil, store.List, func(all []lease.Info) *v1.ListLeasesResponse {
		return &v1.ListLeasesResponse{Leases: wire.All(all, wire.PutInfo)}
	}, wire.Error)
}

// RevokeLease is [lease.Revoker].
func (s *leases) RevokeLease(ctx context.Context, m *v1.RevokeLeaseRequest) (*v1.RevokeLeaseResponse, error) {
	store, ok := s.Leases.(lease.Revoker)
	if !ok {
		return nil, unimplemented("revoke a lease")
	}
	req := lease.RevokeRequest{Name: m.GetName(), Token: fence.Token(m.GetToken()), Reason: m.GetReason()}
	return one(ctx, req, nil, store.Revoke, wire.PutRevoked, wire.Error)
}

// PruneLeases is [lease.Pruner].
func (s *leases) PruneLeases(ctx context.Context, m *v1.PruneLeasesRequest) (*v1.PruneLeasesResponse, error) {
	store, ok := s.Leases.(lease.Pruner)
	if !ok {
		return nil, unimplemented("prune leases")
	}
	age, most, err := wire.GetPrune(m)
	return one(ctx, age, err, func(ctx context.Context, age time.Duration) (int, error) { return store.Prune(ctx, age, most) },
		func(n int) *v1.PruneLeasesResponse { return &v1.PruneLeasesResponse{Pruned: int32(n)} }, wire.Error)
}

// RaiseEpoch is [lease.EpochRaiser].
func (s *leases) RaiseEpoch(ctx context.Context, m *v1.RaiseEpochRequest) (*v1.RaiseEpochResponse, error) {
	store, ok := s.Leases.(lease.EpochRaiser)
	if !ok {
		return nil, unimplemented("raise the epoch")
	}
	return one(ctx, fence.Token(m.GetAbove()), nil, store.RaiseEpoch, func(floor fence.Token) *v1.RaiseEpochResponse { return &v1.RaiseEpochResponse{Floor: int64(floor)} }, wire.Error)
}

// GetAuthority says what this is and keeps.
func (s *leases) GetAuthority(context.Context, *v1.GetAuthorityRequest) (*v1.GetAuthorityResponse, error) {
	m := wire.PutAuthority(s.Authority, s.Leases.Guarantees())
	if s.Holds != nil {
		m.Holds = wire.PutHoldGuarantees(s.Holds.Guarantees())
	}
	if s.Operations != nil {
		m.Operations = wire.PutOperationGuarantees(s.Operations.Guarantees())
	}
	return m, nil
}

func same[T any](v T) T { return v }

// limit is 100 where none is asked for.
func limit(asked int32) int {
	if asked == 0 {
		return 100
	}
	return int(asked)
}

func unimplemented(what string) error {
	return connect.NewError(connect.CodeUnimplemented, errors.New("this store cannot "+what))
}
