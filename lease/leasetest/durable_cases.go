package leasetest

import (
	"context"

	"github.com/tenure-go/tenure/lease"
)

// DurableCases is what a store keeps across the end of every process of it.
func DurableCases() []Case[DurableHarness] {
	return []Case[DurableHarness]{
		named("a-grant-survives-a-restart", grantSurvives),
		named("fault-16-no-token-repeats-after-a-restart", tokensSurvive),
		named("what-was-over-stays-over-after-a-restart", endsSurvive),
		named("a-verdict-survives-a-restart", verdictSurvives),
		named("a-renewal-survives-a-restart", renewalSurvives),
		named("closed-below-survives-a-restart", closedBelowSurvives),
		named("time-goes-on-across-a-restart", timeGoesOn),
	}
}

// restart ends every process of the store.
func (s *stage) restart(h interface {
	Restart(ctx context.Context) error
}) {
	if s.failed() {
		return
	}
	if err := h.Restart(s.ctx); err != nil {
		s.fail("restarting: %w", err)
	}
}

func grantSurvives(s *stage, dh DurableHarness) {
	a, b := s.open("a", long), s.open("b", long)
	h, bounded := a.acquire("n1", "n2"), a.acquireFor(long, "n3")
	for range 2 {
		s.restart(dh)
		h.stays("after a restart")
		bounded.stays("after a restart")
		b.refused(h, "n1", "n1")
	}
	a.renew()
	h.release(false)
	b.acquire("n1", "n2")
}

func tokensSurvive(s *stage, dh DurableHarness) {
	rising(s, "n", 8, func(i int) (*hold, func()) {
		a := s.open("a", long)
		h := a.acquire("n")
		return h, func() {
			if i%2 == 0 {
				h.release(false)
			}
			s.restart(dh)
			if i%2 == 1 {
				h.stays("after a restart")
				a.close()
			}
		}
	})
}

func endsSurvive(s *stage, dh DurableHarness) {
	a, b, closed := s.open("a", long), s.open("b", long), s.open("closed", long)
	released, tombstone := a.acquire("n1"), a.request("n2")
	inClosed := closed.acquire("n3")
	released.release(false)
	a.released(lease.ReleaseRequest{Session: a.id, ID: tombstone.ID, Names: tombstone.Names}, true)
	closed.close()
	s.restart(dh)
	released.over(lease.EndReleased)
	_, err := a.ask(tombstone)
	s.ended(err, "acquisition", tombstone.ID, lease.EndReleased)
	closed.renewFails(lease.EndClosed)
	inClosed.release(true)
	b.acquire("n1", "n2", "n3")
	s.restart(dh)
	released.over(lease.EndReleased)
	released.release(true)
}

func verdictSurvives(s *stage, dh DurableHarness) {
	a, b := s.open("a", ttl), s.open("b", long)
	old := a.acquire("n")
	s.advance(past)
	h := b.acquire("n")
	s.restart(dh)
	s.advance(back)
	a.renewFails(lease.EndExpired)
	old.releaseFails(lease.EndExpired)
	h.stays("after a restart and a step of the clock")
}

func renewalSurvives(s *stage, dh DurableHarness) {
	a, b := s.open("a", ttl), s.open("b", long)
	h := a.acquire("n")
	s.advance(within)
	a.renew()
	s.restart(dh)
	s.advance(within)
	h.stays("after a renewal and a restart")
	b.refused(h, "n", "n")
	a.renew()
}

func closedBelowSurvives(s *stage, dh DurableHarness) {
	a := s.open("a", long)
	early := a.request("n")
	a.renewed(lease.RenewRequest{Session: a.id, ClosedBelow: s.ids.New()})
	s.restart(dh)
	_, err := a.ask(early)
	s.ended(err, "acquisition", early.ID, lease.EndForgotten)
	s.free("n")
}

func timeGoesOn(s *stage, dh DurableHarness) {
	a, b := s.open("a", ttl), s.open("b", long)
	h := a.acquire("n")
	s.advance(within)
	s.restart(dh)
	b.refused(h, "n", "n")
	h.stays("after a restart")
	s.advance(past - within)
	s.restart(dh)
	a.renewFails(lease.EndExpired)
	b.acquire("n")
}
