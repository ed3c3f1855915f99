package memory

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
)

// Options configures [New]. The zero value is ready.
type Options struct {
	// Clock reads the authority's clock, as a duration since an origin of its own. A reading below an earlier
	// one counts as that earlier one. nil: the clock that goes on while the machine sleeps.
	Clock func() time.Duration
}

// Store is an authority in this process's memory. Its methods are safe for concurrent use and run one at a
// time; a context that is done, also while waiting for another call, ends a call with an error
// matching [lease.ErrUnavailable] before anything was applied. No call's outcome is ever unknown.
type Store struct {
	clock func() time.Duration
	turn  chan struct{} // holds one element while a call runs; a channel, because waiting for it obeys a context
	core  *core         // guarded by turn
}

var (
	_ lease.Store       = (*Store)(nil)
	_ lease.Revoker     = (*Store)(nil)
	_ lease.Lister      = (*Store)(nil)
	_ lease.Pruner      = (*Store)(nil)
	_ lease.EpochRaiser = (*Store)(nil)
)

// New returns a fresh authority, with an id of its own, that has granted nothing.
func New(o Options) *Store {
	if o.Clock == nil {
		o.Clock = clock.Client()
	}
	return &Store{clock: o.Clock, turn: make(chan struct{}, 1), core: newCore(lease.NewID(), o.Clock())}
}

// Authority returns the id that this store's claims carry.
func (s *Store) Authority() fence.ID { return s.core.authority }

// begin waits for the turn and moves the core's clock. The caller gives the turn back by end.
func (s *Store) begin(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		select {
		case s.turn <- struct{}{}:
			s.core.tick(s.clock())
			return nil
		case <-ctx.Done():
		}
	}
	return &lease.UnavailableError{Op: op, Err: context.Cause(ctx)}
}

func (s *Store) end() { <-s.turn }

// Open implements [lease.Store].
func (s *Store) Open(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
	if err := s.begin(ctx, "open"); err != nil {
		return 0, err
	}
	defer s.end()
	return s.core.open(req)
}

// Renew implements [lease.Store].
func (s *Store) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	if err := s.begin(ctx, "renew"); err != nil {
		return lease.Renewal{}, err
	}
	defer s.end()
	return s.core.renew(req)
}

// Close implements [lease.Store]. The store itself needs no closing.
func (s *Store) Close(ctx context.Context, session fence.ID) error {
	if err := s.begin(ctx, "close"); err != nil {
		return err
	}
	defer s.end()
	return s.core.close(session)
}

// Acquire implements [lease.Store].
func (s *Store) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	if err := s.begin(ctx, "acquire"); err != nil {
		return nil, err
	}
	defer s.end()
	return s.core.acquire(req)
}

// Release implements [lease.Store].
func (s *Store) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	if err := s.begin(ctx, "release"); err != nil {
		return lease.Released{}, err
	}
	defer s.end()
	return s.core.release(req)
}

// Get implements [lease.Store].
func (s *Store) Get(ctx context.Context, name string) (lease.Info, error) {
	if err := s.begin(ctx, "get"); err != nil {
		return lease.Info{}, err
	}
	defer s.end()
	return s.core.get(name)
}

// Guarantees implements [lease.Store]. Nothing survives the process; within it expiry is precise and the
// strict check covers the work that it guards.
func (s *Store) Guarantees() lease.Guarantees { return guarantees() }

// Revoke implements [lease.Revoker].
func (s *Store) Revoke(ctx context.Context, req lease.RevokeRequest) (lease.Revoked, error) {
	if err := s.begin(ctx, "revoke"); err != nil {
		return lease.Revoked{}, err
	}
	defer s.end()
	return s.core.revoke(req)
}

// List implements [lease.Lister].
func (s *Store) List(ctx context.Context, req lease.ListRequest) ([]lease.Info, error) {
	if err := s.begin(ctx, "list"); err != nil {
		return nil, err
	}
	defer s.end()
	return s.core.list(req)
}

// Prune implements [lease.Pruner].
func (s *Store) Prune(ctx context.Context, age time.Duration, limit int) (int, error) {
	if err := s.begin(ctx, "prune"); err != nil {
		return 0, err
	}
	defer s.end()
	return s.core.prune(age, limit)
}

// RaiseEpoch implements [lease.EpochRaiser]. It lifts the stop of every name.
func (s *Store) RaiseEpoch(ctx context.Context, above fence.Token) (fence.Token, error) {
	if err := s.begin(ctx, "raise epoch"); err != nil {
		return 0, err
	}
	defer s.end()
	return s.core.raiseEpoch(above)
}

// Advance moves every stored instant back by d, as if d had passed; d may be negative. What was written to
// be over stays over. For tests and drills.
func (s *Store) Advance(d time.Duration) {
	s.turn <- struct{}{}
	defer s.end()
	s.core.tick(s.clock())
	s.core.advance(d)
}
