package leasetest

import (
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func maxHoldCases() []Case[Harness] {
	return []Case[Harness]{
		plain("max-hold-ends-a-lease-while-its-session-lives", maxHoldEnds),
		plain("max-hold-does-not-outlive-the-session", maxHoldSession),
		plain("max-hold-is-not-renewed", maxHoldNotRenewed),
	}
}

func (p *party) acquireFor(d time.Duration, names ...string) *hold {
	req := p.request(names...)
	req.MaxHold = d
	return p.acquired(req)
}

func maxHoldEnds(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	bounded, other := a.acquireFor(ttl, "n1", "n2"), a.acquire("n3")
	b.refused(bounded, "n1", "n1")
	s.advance(within)
	bounded.stays("before MaxHold passed")
	s.advance(past - within)
	s.free("n1", lease.EndExpired)
	next := b.acquire("n1")
	s.want(next.token("n1") > bounded.token("n1"), "the successor's token is not above its predecessor's")
	a.renew()
	other.stays("after the MaxHold of another lease of its session")
	bounded.over(lease.EndSuperseded)
	next.stays("after the former holder's session was renewed")
}

func maxHoldSession(s *stage) {
	a, b := s.open("a", ttl), s.open("b", long)
	h := a.acquireFor(long, "n")
	s.advance(past)
	s.free("n", lease.EndExpired)
	b.acquire("n")
	h.releaseFails(lease.EndExpired)
}

func maxHoldNotRenewed(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	h := a.acquireFor(ttl, "n")
	for range 3 {
		s.advance(3 * time.Second)
		a.renew()
	}
	h.stays("one second before MaxHold passes")
	s.advance(3 * time.Second)
	a.renew()
	s.free("n", lease.EndExpired)
	h.over(lease.EndExpired)
	b.acquire("n")
}

func tokenCases() []Case[Harness] {
	return []Case[Harness]{
		plain("token-rises-after-release", tokenAfterRelease),
		plain("token-rises-with-every-grant-of-one-session", tokenOfOneSession),
		plain("token-rises-after-every-kind-of-end", tokenAfterEnds),
		plain("L75-the-claim-of-a-handle-never-changes", claimNeverChanges),
		plain("L71-a-token-counter-has-no-ttl", counterHasNoTTL),
		plain("fault-16-one-authority-one-id", oneAuthority),
	}
}

// rising acquires and ends a lease of the name again and again, and demands that the token rises.
func rising(s *stage, name string, rounds int, round func(i int) (*hold, func())) {
	var last fence.Token
	for i := range rounds {
		h, end := round(i)
		if s.failed() {
			return
		}
		s.want(h.token(name) > last, "round %d: token %d of %q after token %d: tokens must rise", i, h.token(name), name, last)
		last = h.token(name)
		end()
		if info := s.get(name); info.Token != 0 {
			s.want(info.Token == last, "round %d: Get tells token %d of %q; want %d", i, info.Token, name, last)
		}
	}
}

func tokenAfterRelease(s *stage) {
	parties := []*party{s.open("a", long), s.open("b", long), s.open("c", long)}
	rising(s, "n", 12, func(i int) (*hold, func()) {
		h := parties[i%3].acquire("n")
		return h, func() { h.release(false) }
	})
}

func tokenOfOneSession(s *stage) {
	a := s.open("a", long)
	rising(s, "n", 6, func(i int) (*hold, func()) {
		h := a.acquire("m "+string(rune('a'+i)), "n")
		return h, func() { h.release(false) }
	})
}

func tokenAfterEnds(s *stage) {
	rising(s, "n", 10, func(i int) (*hold, func()) {
		a := s.open("a", ttl)
		switch i % 3 {
		case 0:
			return a.acquire("n"), a.close
		case 1:
			return a.acquire("n", "m"), func() { s.advance(past) }
		default:
			return a.acquireFor(4*time.Second, "n"), func() { s.advance(within) }
		}
	})
}

func claimNeverChanges(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	old := a.acquireFor(ttl, "n")
	text := old.claim().String()
	s.advance(past)
	next := b.acquire("n")
	old.over(lease.EndSuperseded)
	s.want(old.claim().String() == text, "the claim changed from %s to %s", text, old.claim())
	next.stays("after the former holder asked again")
	next.release(false)
	again := a.acquire("n")
	s.want(again.claim().Acquisition != old.claim().Acquisition && again.token("n") > next.token("n") && next.token("n") > old.token("n"),
		"three grants: %v, %v, %v; want three acquisitions with rising tokens", old.claim(), next.claim(), again.claim())
	s.want(again.claim().Authority == old.claim().Authority, "one authority under two ids: %v, %v", old.claim(), again.claim())
}

func counterHasNoTTL(s *stage) {
	rising(s, "n", 4, func(int) (*hold, func()) {
		a := s.open("a", ttl)
		return a.acquire("n"), func() { s.advance(400 * 24 * time.Hour) }
	})
}

func oneAuthority(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	one, two, three := a.acquire("n1"), b.acquire("n2"), a.acquire("n3", "n4")
	s.want(one.claim().Authority == two.claim().Authority && one.claim().Authority == three.claim().Authority,
		"claims of more than one authority: %v, %v, %v", one.claim(), two.claim(), three.claim())
}
