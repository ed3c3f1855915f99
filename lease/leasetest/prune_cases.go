package leasetest

import (
	"math"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func pruneTokens(s *stage, oh OperatorHarness) {
	o := oh.Operator()
	names := many(s.store.Guarantees().MaxNames)
	var last fence.Token
	for round := range 4 {
		a := s.open("a", ttl)
		h := a.acquire(names...)
		for _, g := range h.grants {
			s.want(s.failed() || g.Claim.Token > last, "round %d: token %d of %q after token %d was pruned", round, g.Claim.Token, g.Claim.Name, last)
		}
		for _, g := range h.grants {
			last = max(last, g.Claim.Token)
		}
		if round%2 == 0 {
			a.close()
		}
		s.advance(3 * lease.MinPruneAge)
		pruned := s.prune(o, lease.MinPruneAge)
		s.want(s.failed() || pruned >= len(names), "round %d: %d rows pruned; want the %d names and more", round, pruned, len(names))
		left := s.list(o, lease.ListRequest{Limit: lease.MaxList})
		s.want(len(left) == 0, "round %d: %d names are left after pruning", round, len(left))
		s.free(names[0])
	}
	s.want(s.prune(o, lease.MinPruneAge) == 0, "there was something left to prune")
}

func pruneKeeps(s *stage, oh OperatorHarness) {
	o := oh.Operator()
	a, b := s.open("a", 12*time.Hour), s.open("b", 12*time.Hour)
	tombstone := a.request("n1")
	a.released(lease.ReleaseRequest{Session: a.id, ID: tombstone.ID, Names: tombstone.Names}, true)
	released, revoked := a.acquire("n2"), a.acquire("n3")
	bounded := a.acquireFor(ttl, "n4")
	released.release(false)
	s.revoke(o, revoked, "n3", false)
	b.acquire("n2", "n3").release(false)
	s.advance(3 * lease.MinPruneAge)
	s.prune(o, lease.MinPruneAge)
	_, err := a.ask(tombstone)
	s.ended(err, "acquisition", tombstone.ID, lease.EndReleased)
	released.over(lease.EndReleased)
	revoked.over(lease.EndRevoked)
	bounded.over(lease.EndExpired)
	r := a.renew()
	s.want(len(r.Revoked) == 1, "after pruning, a renewal tells of revocations %v; want the one that no release named", r.Revoked)
	revoked.releaseFails(lease.EndRevoked)
	a.renewed(lease.RenewRequest{Session: a.id, ClosedBelow: s.ids.New()})
	b.renewed(lease.RenewRequest{Session: b.id, ClosedBelow: s.ids.New()})
	s.advance(3 * lease.MinPruneAge)
	s.prune(o, lease.MinPruneAge)
	for _, req := range []lease.AcquireRequest{tombstone, released.req, revoked.req, bounded.req} {
		_, err := a.ask(req)
		s.ended(err, "acquisition", req.ID, lease.EndForgotten)
	}
	for _, h := range []*hold{released, revoked, bounded} {
		h.release(true)
	}
	left := s.list(o, lease.ListRequest{Limit: lease.MaxList})
	s.want(len(left) == 0, "names %q are left although nothing about them may be asked", left)
}

func pruneRecent(s *stage, oh OperatorHarness) {
	o := oh.Operator()
	a, b := s.open("a", 12*time.Hour), s.open("b", 12*time.Hour)
	held := a.acquire("n1")
	s.advance(3 * lease.MinPruneAge)
	recent := b.acquire("n2")
	b.close()
	s.advance(lease.MinPruneAge / 2)
	s.prune(o, lease.MinPruneAge)
	held.stays("after pruning")
	s.free("n2", lease.EndClosed)
	if s.failed() {
		return
	}
	_, err := b.ask(recent.req)
	s.ended(err, "session", b.id, lease.EndClosed)
	s.advance(lease.MinPruneAge)
	pruned, err := o.Prune(s.ctx, lease.MinPruneAge, 1)
	s.want(err == nil && pruned == 1, "pruning at most 1 row: %d, %v", pruned, err)
	s.prune(o, lease.MinPruneAge)
	_, err = b.ask(recent.req)
	s.ended(err, "session", b.id, lease.EndForgotten)
	recent.release(true)
	s.free("n2")
	held.stays("after pruning")
}

func pruneBadInput(s *stage, oh OperatorHarness) {
	a := s.open("a", ttl)
	a.acquire("n").release(false)
	if s.failed() {
		return
	}
	for _, age := range []time.Duration{0, -1, lease.MinPruneAge - 1, math.MinInt64} {
		_, err := oh.Operator().Prune(s.ctx, age, 1)
		s.kind(err, lease.ErrInvalid, "pruning what is over for %v", age)
	}
	for _, limit := range []int{0, -1, lease.MaxPrune + 1} {
		_, err := oh.Operator().Prune(s.ctx, lease.MinPruneAge, limit)
		s.kind(err, lease.ErrInvalid, "pruning %d rows", limit)
	}
	s.free("n", lease.EndReleased)
}

func raiseEpoch(s *stage, oh OperatorHarness) {
	a := s.open("a", 12*time.Hour)
	h := a.acquire("n")
	before := h.token("n")
	for _, above := range []fence.Token{0, before, before + 1000, 5} {
		if s.failed() {
			return
		}
		floor, err := oh.Operator().RaiseEpoch(s.ctx, above)
		if err != nil {
			s.fail("raising the epoch above %d: %w", above, err)
			return
		}
		s.want(floor >= above && floor >= before, "raising above %d after token %d gives the floor %d", above, before, floor)
		next := a.acquire("m " + s.ids.New().String())
		s.want(next.grants[0].Claim.Token > floor, "token %d after the floor %d was told", next.grants[0].Claim.Token, floor)
		before = max(floor, next.grants[0].Claim.Token)
	}
	h.stays("after the epoch was raised")
	s.advance(lease.MinPruneAge)
	if s.failed() {
		return
	}
	floor, err := oh.Operator().RaiseEpoch(s.ctx, 0)
	most := fence.Token(lease.MinPruneAge.Milliseconds() << 10)
	s.want(err == nil && floor >= most, "raising by the clock an hour on gives the floor %d, %v; want %d or more", floor, err, most)
	h.release(false)
	next := a.acquire("n")
	s.want(next.token("n") > floor, "token %d after the floor %d", next.token("n"), floor)
}

func raiseBadInput(s *stage, oh OperatorHarness) {
	a := s.open("a", ttl)
	h := a.acquire("n")
	if s.failed() {
		return
	}
	for _, above := range []fence.Token{-1, math.MinInt64, math.MaxInt64, 1<<62 + 1} {
		_, err := oh.Operator().RaiseEpoch(s.ctx, above)
		s.kind(err, lease.ErrInvalid, "raising the epoch above %d", above)
	}
	h.stays("after epochs out of range")
	h.release(false)
	next := a.acquire("n")
	s.want(next.token("n") < 1<<62, "an epoch out of range raised the tokens to %d", next.token("n"))
}
