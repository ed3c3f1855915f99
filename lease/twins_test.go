package lease_test

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/memory"
)

// The broken twins. Each is the client with one rule undone: where the rule lies between the client and the
// authority, by a store that undoes it on the way; elsewhere by a function or value that stands for the client's.

// failureIsEnd takes a renewal that was not acknowledged for the end.
type failureIsEnd struct{ lease.Store }

func (s failureIsEnd) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	r, err := s.Store.Renew(ctx, req)
	if err != nil {
		err = &lease.EndedError{What: "session", ID: req.Session, How: lease.EndExpired}
	}
	return r, err
}

// hopes takes a renewal that was not acknowledged for a success.
type hopes struct{ lease.Store }

func (s hopes) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	r, err := s.Store.Renew(ctx, req)
	if err != nil {
		r, err = lease.Renewal{Remaining: ttl}, nil
	}
	return r, err
}

// endIsFailure keeps asking although the authority said that the session is over.
type endIsFailure struct{ lease.Store }

func (s endIsFailure) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	r, err := s.Store.Renew(ctx, req)
	if errors.Is(err, lease.ErrEnded) {
		err = unknownTo(err)
	}
	return r, err
}

// creates renews by opening again what is gone.
type creates struct{ lease.Store }

func (s creates) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	r, err := s.Store.Renew(ctx, req)
	if errors.Is(err, lease.ErrEnded) {
		r.Remaining, err = s.Open(ctx, lease.OpenRequest{ID: req.Session, Owner: "a", TTL: ttl})
	}
	return r, err
}

// forgetsReleases does not repeat an unconfirmed release with the renewals.
type forgetsReleases struct{ lease.Store }

func (s forgetsReleases) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	req.Release = nil
	return s.Store.Renew(ctx, req)
}

// neverGivesBack drops what nobody waits for: no release leaves it.
type neverGivesBack struct{ forgetsReleases }

func (s neverGivesBack) Release(context.Context, lease.ReleaseRequest) (lease.Released, error) {
	return lease.Released{}, nil
}

// renewsEach sends one renewal for each of its leases, here a hundred.
type renewsEach struct{ lease.Store }

func (s renewsEach) Renew(ctx context.Context, req lease.RenewRequest) (r lease.Renewal, err error) {
	for range 100 {
		r, err = s.Store.Renew(ctx, req)
	}
	return r, err
}

// straysAfterClose lets a renewal leave after the session was closed.
type straysAfterClose struct{ lease.Store }

func (s straysAfterClose) Close(ctx context.Context, session fence.ID) error {
	err := s.Store.Close(ctx, session)
	_, _ = s.Renew(ctx, lease.RenewRequest{Session: session})
	return err
}

// freshIDs asks for a lost reply under a new id.
type freshIDs struct{ lease.Store }

func (s freshIDs) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	asked := req.ID
	req.ID = lease.NewID()
	grants, err := s.Store.Acquire(ctx, req)
	for i := range grants {
		grants[i].Claim.Acquisition = asked
	}
	return grants, err
}

// closesTooMuch declares ids closed that are still asked for.
type closesTooMuch struct{ lease.Store }

func (s closesTooMuch) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	req.ClosedBelow = lease.NewID()
	return s.Store.Renew(ctx, req)
}

// releasesByName releases whatever acquisition of the session holds the name now.
type releasesByName struct{ lease.Store }

func (s releasesByName) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	info, err := s.Get(ctx, req.Names[0])
	if err != nil {
		return lease.Released{}, err
	}
	req.ID = info.Acquisition
	return s.Store.Release(ctx, req)
}

// tiesGrantToCall lets a grant live as long as the call that asked for it.
type tiesGrantToCall struct{ lease.Store }

func (s tiesGrantToCall) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	grants, err := s.Store.Acquire(ctx, req)
	context.AfterFunc(ctx, func() {
		_, _ = s.Release(context.Background(), lease.ReleaseRequest{Session: req.Session, ID: req.ID, Names: req.Names})
	})
	return grants, err
}

// releaseAttached gives up the release when its caller's context has ended.
func releaseAttached(ctx context.Context, l *lease.Lease) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return l.Release(ctx)
}

// releaseOnCancel is a Do that releases as soon as the work is cancelled.
func releaseOnCancel(ctx context.Context, s *lease.Session, name string, fn func(context.Context, *lease.Lease) error) error {
	l, err := s.Acquire(ctx, lease.Want{Names: []string{name}})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Release(context.Background()) })
	err = fn(ctx, l)
	return errors.Join(err, l.Release(ctx))
}

// trusting believes its context, and does not read the clock.
type trusting struct {
	ctx   context.Context
	claim fence.Claim
}

func (h trusting) Claim() (fence.Claim, error) { return h.claim, context.Cause(h.ctx) }

func trust(l *lease.Lease) holding {
	claim, _ := l.Claim()
	return trusting{l.Context(), claim}
}

// asksAgain takes the authority's word for its own, also after its context has ended, and so comes back.
type asksAgain struct {
	authority *memory.Store
	lease     *lease.Lease
}

func (h asksAgain) Claim() (fence.Claim, error) {
	info, err := h.authority.Get(context.Background(), h.lease.Names()[0])
	if err != nil || !info.Held {
		return fence.Claim{}, errLost
	}
	return fence.Claim{Authority: h.authority.Authority(), Name: info.Name, Acquisition: info.Acquisition, Token: info.Token}, nil
}

// watchInTheLoop is a session with one loop that renews and watches the deadline.
func watchInTheLoop(store lease.Store) (context.Context, error) {
	id, now := lease.NewID(), time.Now
	if _, err := store.Open(context.Background(), lease.OpenRequest{ID: id, TTL: ttl}); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(context.Background())
	deadline := now().Add(ttl - margin)
	go func() {
		defer func() { _ = recover() }()
		for now().Before(deadline) {
			<-time.After(ttl / 3)
			sent := now()
			if r, err := store.Renew(ctx, lease.RenewRequest{Session: id}); err == nil {
				deadline = sent.Add(r.Remaining - margin)
			}
		}
		end(&lease.UncertainError{})
	}()
	return ctx, nil
}
