package memory

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// maxFenced bounds the context of work under [Store.Fenced]: every other call waits for it.
const maxFenced = time.Second

// Fenced runs fn while no successor of the claim's holder can be recognised: the strict rule, for a
// resource in this process. The claim is verified first, by the authority's clock, and no other call of this
// store is served until fn has returned. fn therefore must not call the store, and must stop when its
// context ends, which is after one second or the lease's remaining time, whichever is sooner. Work that
// overruns its context still keeps every successor out until it returns.
//
// Fenced returns fn's error. Where it refuses, fn was not called: a [*fence.RefusedError] with
// the reason, a [*fence.ForeignError] for a claim of another authority, an error matching [fence.ErrInvalid]
// for a claim that is no claim, and a [*fence.AheadError] for a token that this authority has not issued,
// which also stops grants of that name until [Store.RaiseEpoch]. If ctx is done before the store's turn
// came, the error matches [lease.ErrUnavailable].
func (s *Store) Fenced(ctx context.Context, claim fence.Claim, fn func(ctx context.Context) error) error {
	if err := s.begin(ctx, "fenced work"); err != nil {
		return err
	}
	defer s.end()
	if err := s.core.verify(claim); err != nil {
		return err
	}
	bound := min(maxFenced, s.core.left(s.core.rows[claim.Name].latest))
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return fn(ctx)
}
