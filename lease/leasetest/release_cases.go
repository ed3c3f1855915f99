package leasetest

import (
	"github.com/tenure-go/tenure/lease"
)

func releaseCases() []Case[Harness] {
	return []Case[Harness]{
		plain("release-overtakes-acquire", releaseOvertakes),
		plain("L14-releasing-twice-is-success", releaseTwice),
		plain("L1-a-late-release-leaves-the-next-lease", lateRelease),
		plain("L90-release-answers-success-or-how-it-was-over", releaseAnswers),
		plain("a-release-frees-by-acquisition-never-by-name", releaseByName),
		plain("a-release-names-what-was-acquired", releaseNames),
		plain("a-renewal-releases-what-was-given-up", renewalReleases),
		plain("a-release-in-an-ended-session-closes-nothing-else", releaseInEndedSession),
	}
}

func releaseOvertakes(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	req := a.request("n1", "n2")
	a.released(lease.ReleaseRequest{Session: a.id, ID: req.ID, Names: req.Names}, true)
	for range 2 {
		_, err := a.ask(req)
		s.ended(err, "acquisition", req.ID, lease.EndReleased)
	}
	s.free("n1")
	s.free("n2")
	a.renew()
	h := b.acquire("n1")
	_, err := a.ask(req)
	s.ended(err, "acquisition", req.ID, lease.EndReleased)
	a.released(lease.ReleaseRequest{Session: a.id, ID: req.ID, Names: req.Names}, true)
	h.stays("after the other's release came again")
	a.acquire("n2")
}

func releaseTwice(s *stage) {
	a, b := s.open("a", ttl), s.open("b", ttl)
	h := a.acquire("n1", "n2")
	h.release(false)
	h.release(true)
	next := b.acquire("n1")
	h.release(true)
	next.stays("after the predecessor's release came again")
	s.free("n2", lease.EndReleased)
	a.close()
	h.release(true)
	next.stays("after the predecessor's release came again, its session closed")
}

func lateRelease(s *stage) {
	a := s.open("a", ttl)
	first := a.acquire("n")
	first.release(false) // whose reply is lost
	second := a.acquire("n")
	first.release(true) // the old release, retried
	second.stays("after the old release came again")
	s.want(second.token("n") > first.token("n"), "the second token is not above the first")
	second.release(false)
	first.release(true)
	s.free("n", lease.EndReleased)
}

func releaseAnswers(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	short := s.open("short", ttl)
	inExpired := short.acquire("n1")
	req := a.request("n2")
	req.MaxHold = ttl
	bounded := a.acquired(req)
	req = a.request("n3")
	req.MaxHold = ttl
	taken := a.acquired(req)
	s.advance(past)
	next := b.acquire("n3")
	for range 2 {
		inExpired.releaseFails(lease.EndExpired)
		bounded.releaseFails(lease.EndExpired)
		taken.releaseFails(lease.EndSuperseded)
	}
	bounded.over(lease.EndExpired)
	next.stays("after a release of its predecessor")
}

func releaseByName(s *stage) {
	a, b := s.open("a", ttl), s.open("b", long)
	old := a.acquire("n1", "n2")
	s.advance(past)
	h := b.acquire("n1", "n2")
	old.releaseFails(lease.EndExpired)
	h.stays("after a release of the same names by the former holder")
	never := b.request("n1", "n2")
	b.released(lease.ReleaseRequest{Session: b.id, ID: never.ID, Names: never.Names}, true)
	h.stays("after a release of the same names under an id that was never granted")
	c := s.open("c", ttl)
	never = c.request("n1")
	c.released(lease.ReleaseRequest{Session: c.id, ID: never.ID, Names: never.Names}, true)
	h.stays("after a release of one of its names by a session that holds nothing")
	h.release(false)
}

func releaseNames(s *stage) {
	a := s.open("a", ttl)
	h := a.acquire("n1", "n2")
	other := a.acquire("n3")
	for _, names := range [][]string{{"n1"}, {"n2"}, {"n1", "n2", "n3"}, {"n3"}} {
		if s.failed() {
			return
		}
		_, err := s.store.Release(s.ctx, lease.ReleaseRequest{Session: a.id, ID: h.req.ID, Names: names})
		s.mismatch(err, "names")
	}
	h.stays("after releases with other names")
	other.stays("after releases that named it under another id")
	a.released(lease.ReleaseRequest{Session: a.id, ID: h.req.ID, Names: []string{"n2", "n1"}}, false)
	s.free("n1", lease.EndReleased)
	s.free("n2", lease.EndReleased)
}

func renewalReleases(s *stage) {
	a, b := s.open("a", ttl), s.open("b", ttl)
	one, two, kept := a.acquire("n1", "n2"), a.acquire("n3"), a.acquire("n4")
	two.release(false)
	unknown := a.request("n5")
	req := lease.RenewRequest{Session: a.id, Release: []lease.Abandoned{
		{ID: one.req.ID, Names: one.req.Names}, {ID: two.req.ID, Names: two.req.Names}, {ID: unknown.ID, Names: unknown.Names},
	}}
	s.advance(within)
	r := a.renewed(req)
	s.want(r.Remaining > ttl-within, "a renewal with releases: %v remain; want a renewal", r.Remaining)
	a.renewed(req)
	one.over(lease.EndReleased)
	two.over(lease.EndReleased)
	_, err := a.ask(unknown)
	s.ended(err, "acquisition", unknown.ID, lease.EndReleased)
	one.release(true)
	s.free("n5")
	kept.stays("after a renewal that released others")
	b.renew()
	next := b.acquire("n1", "n2", "n3", "n5")
	a.renewed(req)
	next.stays("after the renewal with releases came again")
}

func releaseInEndedSession(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	h := a.acquire("n")
	never := a.request("n")
	a.close()
	next := b.acquire("n")
	h.release(true)
	a.released(lease.ReleaseRequest{Session: a.id, ID: never.ID, Names: never.Names}, true)
	unknown := lease.ReleaseRequest{Session: s.ids.New(), ID: s.ids.New(), Names: []string{"n"}}
	b.released(unknown, true)
	next.stays("after releases in ended and unknown sessions")
}
