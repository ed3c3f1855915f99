package leasetest_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
	"github.com/tenure-go/tenure/store/memory"
)

func operatorTwins() []twin {
	return []twin{
		{"a revocation is not told", revocationUntold, []string{"revocation-frees-at-once-and-is-told-with-the-next-renewal"}},
		{"a revocation is told once, in a reply that may be lost", revocationToldOnce, []string{"revocation-frees-at-once-and-is-told-with-the-next-renewal"}},
		{"revoking tells one name of several", revokeOneName, []string{"revoking-takes-every-name-of-the-acquisition"}},
		{"revoking twice is an error", revokeOnce, []string{"L14-revoking-twice-is-success"}},
		{"revoking takes whatever is held", revokeAny, []string{"revoking-needs-the-latest-token"}},
		{"revoking what is over is success", revokeSilent, []string{"revoking-what-is-over-says-how"}},
		{"revoking needs no reason", revokeUnreasoned, []string{"revoking-with-bad-input-is-refused"}},
		{"listing by a prefix ignores case", listFolded, []string{"listing-is-by-bytes-in-pages"}},
		{"listing shows expired leases as held", listStale, []string{"listing-shows-how-names-are-held-and-ended"}},
		{"pruning forgets which ids are over", pruneForgets, []string{"pruning-keeps-what-may-still-be-asked-for"}},
		{"pruning takes what is recent", pruneEarly, []string{"pruning-keeps-what-is-valid-or-recent"}},
		{"pruning mends bad input", pruneLenient, []string{"pruning-with-bad-input-is-refused"}},
		{"raising the epoch changes nothing", raiseNothing, []string{"raising-the-epoch-raises-every-later-token"}},
		{"raising the epoch mends bad input", raiseLenient, []string{"fault-17-an-epoch-out-of-range-is-refused"}},
	}
}

func revocationUntold(h *harness) {
	w := replace(h)
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		r, err := w.inner.Renew(ctx, req)
		r.Revoked = nil
		return r, err
	}
}

func revocationToldOnce(h *harness) {
	w := replace(h)
	var told sync.Map
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		r, err := w.inner.Renew(ctx, req)
		var fresh []lease.RevokedAcquisition
		for _, a := range r.Revoked {
			if _, before := told.LoadOrStore(a.ID, true); !before {
				fresh = append(fresh, a)
			}
		}
		r.Revoked = fresh
		return r, err
	}
}

// revoking is an operator that revokes in its own way.
type revoking struct {
	leasetest.Operator
	revoke func(ctx context.Context, o leasetest.Operator, req lease.RevokeRequest) (lease.Revoked, error)
}

func (o revoking) Revoke(ctx context.Context, req lease.RevokeRequest) (lease.Revoked, error) {
	return o.revoke(ctx, o.Operator, req)
}

func revokeOneName(h *harness) {
	h.operator = revoking{h.operator, func(ctx context.Context, o leasetest.Operator, req lease.RevokeRequest) (lease.Revoked, error) {
		r, err := o.Revoke(ctx, req)
		r.Names = []string{req.Name}
		return r, err
	}}
}

func revokeOnce(h *harness) {
	h.operator = revoking{h.operator, func(ctx context.Context, o leasetest.Operator, req lease.RevokeRequest) (lease.Revoked, error) {
		r, err := o.Revoke(ctx, req)
		if r.Already {
			return r, &lease.EndedError{What: "acquisition", ID: r.Former.Acquisition, How: lease.EndRevoked}
		}
		return r, err
	}}
}

func revokeAny(h *harness) {
	h.operator = revoking{h.operator, func(ctx context.Context, o leasetest.Operator, req lease.RevokeRequest) (lease.Revoked, error) {
		r, err := o.Revoke(ctx, req)
		var mismatch *lease.MismatchError
		if errors.As(err, &mismatch) && mismatch.Seen > 0 {
			req.Token = mismatch.Seen
			return o.Revoke(ctx, req)
		}
		return r, err
	}}
}

func revokeSilent(h *harness) {
	h.operator = revoking{h.operator, func(ctx context.Context, o leasetest.Operator, req lease.RevokeRequest) (lease.Revoked, error) {
		r, err := o.Revoke(ctx, req)
		if errors.Is(err, lease.ErrEnded) {
			return lease.Revoked{Already: true}, nil
		}
		return r, err
	}}
}

func revokeUnreasoned(h *harness) {
	h.operator = revoking{h.operator, func(ctx context.Context, o leasetest.Operator, req lease.RevokeRequest) (lease.Revoked, error) {
		req.Reason = cmp.Or(req.Reason, "none given")
		return o.Revoke(ctx, req)
	}}
}

// listing is an operator that lists in its own way.
type listing struct {
	leasetest.Operator
	list func(ctx context.Context, o leasetest.Operator, req lease.ListRequest) ([]lease.Info, error)
}

func (o listing) List(ctx context.Context, req lease.ListRequest) ([]lease.Info, error) {
	return o.list(ctx, o.Operator, req)
}

func listFolded(h *harness) {
	h.operator = listing{h.operator, func(ctx context.Context, o leasetest.Operator, req lease.ListRequest) ([]lease.Info, error) {
		if req.Check() != nil || req.Prefix == "" {
			return o.List(ctx, req)
		}
		all, err := o.List(ctx, lease.ListRequest{After: req.After, Limit: lease.MaxList})
		var some []lease.Info
		for _, info := range all {
			if strings.HasPrefix(strings.ToLower(info.Name), strings.ToLower(req.Prefix)) && len(some) < req.Limit {
				some = append(some, info)
			}
		}
		return some, err
	}}
}

func listStale(h *harness) {
	h.operator = listing{h.operator, func(ctx context.Context, o leasetest.Operator, req lease.ListRequest) ([]lease.Info, error) {
		infos, err := o.List(ctx, req)
		for i := range infos {
			if infos[i].End == lease.EndExpired {
				infos[i].Held, infos[i].End = true, 0
			}
		}
		return infos, err
	}}
}

// pruning is an operator that tells when it pruned.
type pruning struct {
	leasetest.Operator
	pruned func()
}

func (o pruning) Prune(ctx context.Context, age time.Duration, limit int) (int, error) {
	o.pruned()
	return o.Operator.Prune(ctx, age, limit)
}

func pruneForgets(h *harness) {
	var pruned atomic.Bool
	h.operator = pruning{h.operator, func() { pruned.Store(true) }}
	w := replace(h)
	w.acquire = grantAnew(w, &aliases{}, func(*lease.EndedError) bool { return pruned.Load() })
}

// pruningBy is an operator that prunes by other numbers.
type pruningBy struct {
	leasetest.Operator
	mem  *memory.Store
	by   func(age time.Duration, limit int) (time.Duration, int)
	skip time.Duration
}

func (o pruningBy) Prune(ctx context.Context, age time.Duration, limit int) (int, error) {
	o.mem.Advance(o.skip)
	defer o.mem.Advance(-o.skip)
	age, limit = o.by(age, limit)
	return o.Operator.Prune(ctx, age, limit)
}

func pruneEarly(h *harness) {
	by := func(age time.Duration, limit int) (time.Duration, int) { return age, limit }
	h.operator = pruningBy{h.operator, h.mem, by, lease.MinPruneAge}
}

func pruneLenient(h *harness) {
	by := func(age time.Duration, limit int) (time.Duration, int) {
		return max(age, lease.MinPruneAge), min(max(limit, 1), lease.MaxPrune)
	}
	h.operator = pruningBy{h.operator, h.mem, by, 0}
}

// raising is an operator that raises the epoch in its own way.
type raising struct {
	leasetest.Operator
	raise func(ctx context.Context, o leasetest.Operator, above fence.Token) (fence.Token, error)
}

func (o raising) RaiseEpoch(ctx context.Context, above fence.Token) (fence.Token, error) {
	return o.raise(ctx, o.Operator, above)
}

func raiseNothing(h *harness) {
	h.operator = raising{h.operator, func(_ context.Context, _ leasetest.Operator, above fence.Token) (fence.Token, error) {
		return max(above, 1), nil
	}}
}

func raiseLenient(h *harness) {
	h.operator = raising{h.operator, func(ctx context.Context, o leasetest.Operator, above fence.Token) (fence.Token, error) {
		return o.RaiseEpoch(ctx, min(max(above, 0), 1<<62))
	}}
}
