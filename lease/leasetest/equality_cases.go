package leasetest

import (
	"time"

	"github.com/tenure-go/tenure/lease"
)

// EqualityCases is what happens at the very instant of an expiry: now >= expiry is expired. They need an
// authority whose clock stands still.
func EqualityCases() []Case[ManualHarness] {
	return []Case[ManualHarness]{
		named("renewal-refused-at-equality", renewalAtEquality),
		named("renewal-accepted-just-before-equality", renewalBeforeEquality),
		named("take-over-granted-at-equality-and-not-before", takeOverAtEquality),
		named("acquire-refused-at-the-equality-of-its-own-session", acquireAtEquality),
		named("max-hold-over-at-equality", maxHoldAtEquality),
		named("release-at-equality-is-too-late", releaseAtEquality),
		named("close-and-open-at-equality-are-too-late", closeAtEquality),
		named("remaining-is-exact", remainingExact),
		named("get-shows-a-free-name-at-equality", getAtEquality),
	}
}

// grain is the finest difference in time that every store keeps.
const grain = time.Microsecond

func renewalAtEquality(s *stage, h ManualHarness) {
	a := s.open("a", ttl)
	a.acquire("n")
	h.Tick(ttl)
	a.renewFails(lease.EndExpired)
	s.free("n", lease.EndExpired)
	a.renewFails(lease.EndExpired)
}

func renewalBeforeEquality(s *stage, h ManualHarness) {
	a := s.open("a", ttl)
	n := a.acquire("n")
	for range 3 {
		h.Tick(ttl - grain)
		n.stays("just before its expiry")
		r := a.renew()
		s.want(r.Remaining == ttl, "a renewal gives %v; want %v", r.Remaining, ttl)
	}
}

func takeOverAtEquality(s *stage, h ManualHarness) {
	a, b := s.open("a", ttl), s.open("b", long)
	n := a.acquire("n")
	h.Tick(ttl - grain)
	b.refused(n, "n", "n")
	h.Tick(grain)
	b.acquire("n")
	a.renewFails(lease.EndExpired)
}

func acquireAtEquality(s *stage, h ManualHarness) {
	a := s.open("a", ttl)
	n := a.acquire("n")
	h.Tick(ttl)
	_, err := a.ask(a.request("m"))
	s.ended(err, "session", a.id, lease.EndExpired)
	_, err = a.ask(n.req)
	s.ended(err, "session", a.id, lease.EndExpired)
	s.free("m")
}

func maxHoldAtEquality(s *stage, h ManualHarness) {
	a, b := s.open("a", long), s.open("b", long)
	n, m := a.acquireFor(ttl, "n"), a.acquireFor(ttl, "m")
	h.Tick(ttl - grain)
	n.stays("just before MaxHold passes")
	b.refused(n, "n", "n")
	h.Tick(grain)
	n.over(lease.EndExpired)
	b.acquire("m")
	m.over(lease.EndSuperseded)
}

func releaseAtEquality(s *stage, h ManualHarness) {
	a := s.open("a", ttl)
	n := a.acquire("n")
	h.Tick(ttl)
	n.releaseFails(lease.EndExpired)
	s.free("n", lease.EndExpired)
}

func closeAtEquality(s *stage, h ManualHarness) {
	a := s.open("a", ttl)
	h.Tick(ttl)
	if s.failed() {
		return
	}
	_, err := s.store.Open(s.ctx, a.openRequest())
	s.ended(err, "session", a.id, lease.EndExpired)
	s.ended(s.store.Close(s.ctx, a.id), "session", a.id, lease.EndExpired)
}

func remainingExact(s *stage, h ManualHarness) {
	const step = 3*time.Second + grain
	a, b := s.open("a", ttl), s.open("b", long)
	n := a.acquireFor(7*time.Second, "n")
	h.Tick(step)
	info := s.get("n")
	s.want(info.Remaining == ttl-step && info.HoldLeft == 7*time.Second-step, "Get: %+v", info)
	b.refused(n, "n", "n")
	again := a.acquired(n.req)
	s.want(again.grants[0].Remaining == ttl-step && again.grants[0].HoldLeft == 7*time.Second-step, "the grants again: %+v", again.grants)
	a.renew()
	info = s.get("n")
	s.want(info.Remaining == ttl && info.HoldLeft == 7*time.Second-step, "Get after a renewal: %+v", info)
}

func getAtEquality(s *stage, h ManualHarness) {
	a := s.open("a", ttl)
	a.acquire("n")
	h.Tick(ttl - grain)
	info := s.get("n")
	s.want(info.Held && info.Remaining == grain, "Get just before the expiry: %+v", info)
	h.Tick(grain)
	s.free("n", lease.EndExpired)
}
