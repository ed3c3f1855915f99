package leasetest

import (
	"errors"
	"slices"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func acquireCases() []Case[Harness] {
	return []Case[Harness]{
		plain("held-refusal-names-the-holder", heldNamesHolder),
		plain("held-refusal-writes-nothing", heldWritesNothing),
		plain("another-acquisition-of-the-same-session-is-refused", ownOtherRefused),
		plain("an-owner-label-is-no-proof", labelIsNoProof),
		plain("all-or-none", allOrNone),
		plain("the-first-held-name-in-byte-order-is-told", firstHeldName),
		plain("grants-come-in-the-order-of-the-request", grantOrder),
		plain("an-acquisition-is-one-unit", oneUnit),
		plain("acquire-in-an-unknown-session-is-refused", acquireUnknownSession),
		plain("get-describes-a-name", getDescribes),
	}
}

func heldNamesHolder(s *stage) {
	a, b := s.open("the holder", ttl), s.open("b", ttl)
	h := a.acquire("n")
	b.refused(h, "n", "n")
	s.advance(within)
	if s.failed() {
		return
	}
	_, err := b.ask(b.request("n"))
	var held *lease.HeldError
	s.want(errors.As(err, &held) && held.Left <= ttl-within, "after %v: %v; want a HeldError with what is left", within, err)
	s.kind(err, lease.ErrHeld, "acquiring a held name")
	req := a.request("bounded")
	req.MaxHold = within
	a.renew()
	bounded := a.acquired(req)
	if s.failed() {
		return
	}
	b.renew()
	_, err = b.ask(b.request("bounded"))
	s.want(errors.As(err, &held) && held.Left <= within && held.Token == bounded.token("bounded"), "acquiring a name held for at most %v: %v", within, err)
}

func heldWritesNothing(s *stage) {
	a, b := s.open("a", ttl), s.open("b", ttl)
	h := a.acquire("held")
	before := s.get("held")
	for range 5 {
		b.refused(h, "held", "held")
		b.refused(h, "held", "untouched", "held")
	}
	after := s.get("held")
	s.want(after.Token == before.Token && after.Acquisition == before.Acquisition && after.Session == before.Session,
		"refusals changed what is known of the name from %+v to %+v", before, after)
	s.free("untouched")
	h.stays("after refusals")
	h.release(false)
	b.acquire("untouched", "held")
}

func ownOtherRefused(s *stage) {
	a := s.open("a", ttl)
	h := a.acquire("n")
	a.refused(h, "n", "n")
	a.refused(h, "n", "m", "n")
	h.stays("after its own session asked under another id")
	h.release(false)
	a.acquire("n")
}

func labelIsNoProof(s *stage) {
	a, twin := s.open("w", ttl), s.open("w", ttl)
	h := a.acquire("n")
	twin.refused(h, "n", "n")
	mine := twin.request("n")
	twin.released(lease.ReleaseRequest{Session: twin.id, ID: mine.ID, Names: mine.Names}, true)
	h.stays("after a release by another session of the same owner")
	twin.close()
	h.stays("after another session of the same owner was closed")
	if s.failed() {
		return
	}
	again := s.open("w", ttl)
	_, err := s.store.Release(s.ctx, lease.ReleaseRequest{Session: again.id, ID: h.req.ID, Names: h.req.Names})
	s.mismatch(err, "session")
	h.stays("after a release of its id by another session")
}

func allOrNone(s *stage) {
	a, b := s.open("a", ttl), s.open("b", ttl)
	for _, at := range []string{"n1", "n2", "n3"} { // whether the held one comes first, between or last
		h := a.acquire(at)
		b.refused(h, at, "n3", "n1", "n2")
		for _, name := range []string{"n1", "n2", "n3"} {
			if info := s.get(name); name != at {
				s.want(!info.Held, "%q is held after all of it was refused: %+v", name, info)
			}
		}
		h.stays("after a refusal of more names")
		h.release(false)
	}
	all := b.acquire("n3", "n1", "n2")
	a.refused(all, "n1", "n0", "n1", "n2")
	s.free("n0")
	all.stays("after being refused to another")
}

func firstHeldName(s *stage) {
	a, b := s.open("a", ttl), s.open("b", ttl)
	h := a.acquire("m", "a/b", "é")
	b.refused(h, "a/b", "é", "z", "m", "a/b")
	b.refused(h, "m", "é", "m")
}

func grantOrder(s *stage) {
	a := s.open("a", ttl)
	h := a.acquire("c", "a", "d", "b") // checkGrants compares the order
	again := h.req
	again.Names = slices.Sorted(slices.Values(h.req.Names))
	if s.failed() {
		return
	}
	grants, err := a.ask(again)
	if err != nil {
		s.fail("repeating with the same names in another order: %w; want the same grants", err)
		return
	}
	s.checkGrants(a, again, grants)
	for i, name := range again.Names {
		s.want(s.failed() || grants[i].Claim.Token == h.token(name), "the token of %q changed with the order of the names", name)
	}
}

func oneUnit(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	h := a.acquire("n1", "n2")
	h.release(false)
	s.free("n1", lease.EndReleased)
	s.free("n2", lease.EndReleased)
	req := a.request("n1", "n2")
	req.MaxHold = ttl
	bounded := a.acquired(req)
	s.advance(past)
	b.acquire("n2")
	s.free("n1", lease.EndExpired, lease.EndSuperseded)
	bounded.over(lease.EndSuperseded)
	bounded.releaseFails(lease.EndSuperseded)
	b.acquire("n1")
}

func acquireUnknownSession(s *stage) {
	p := &party{s: s, id: s.ids.New(), owner: "nobody", ttl: ttl}
	_, err := p.ask(p.request("n"))
	s.ended(err, "session", p.id, lease.EndForgotten)
	s.kind(err, lease.ErrEnded, "acquiring in a session that was never opened")
	s.free("n")
}

func getDescribes(s *stage) {
	s.free("n")
	a := s.open("a", ttl)
	req := a.request("n")
	req.MaxHold = within
	h := a.acquired(req)
	info := s.get("n")
	want := lease.Info{
		Name: "n", Token: h.token("n"), Held: true, Acquisition: h.req.ID, Session: a.id, Owner: "a",
		Remaining: info.Remaining, HoldLeft: info.HoldLeft,
	}
	s.want(info == want, "Get: %+v; want %+v", info, want)
	s.want(info.Remaining > 0 && info.Remaining <= ttl && info.HoldLeft > 0 && info.HoldLeft <= within, "Get: %+v", info)
	h.release(false)
	info = s.get("n")
	s.want(info.Token == h.token("n") && !info.Held && info.End == lease.EndReleased && info.Acquisition == h.req.ID, "Get after the release: %+v", info)
	s.want(info.Token != 0 && info.Token != fence.Token(-1), "Get after the release forgot the token: %+v", info)
}

func idCases() []Case[Harness] {
	return []Case[Harness]{
		plain("L5-same-id-same-grant", sameIDSameGrant),
		plain("same-id-other-particulars-is-a-mismatch", sameIDMismatch),
		plain("an-id-that-is-over-is-never-granted-again", overNeverGranted),
		plain("an-id-stays-over-when-its-session-takes-the-name-again", overUnderItsOwn),
		plain("an-id-below-closed-below-gets-no-new-grant", closedBelow),
		plain("what-is-held-below-closed-below-stays-held", heldBelowStays),
		plain("closed-below-never-falls", closedBelowStays),
	}
}

func sameIDSameGrant(s *stage) {
	a, b := s.open("a", ttl), s.open("b", ttl)
	h := a.acquire("n1", "n2")
	for range 3 {
		h.stays("asked again, as after a lost reply")
	}
	s.advance(within)
	a.renew()
	b.renew()
	s.advance(within)
	h.stays("asked again after renewals")
	b.refused(h, "n1", "n1")
	h.release(false)
	next := b.acquire("n1")
	h.over(lease.EndReleased)
	next.stays("after the former holder asked again")
}

func sameIDMismatch(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	h := a.acquire("n1", "n2")
	for _, names := range [][]string{{"n1"}, {"n1", "n2", "n3"}, {"n3"}, {"n1", "n3"}} {
		req := h.req
		req.Names = names
		_, err := a.ask(req)
		s.mismatch(err, "names")
	}
	req := h.req
	req.MaxHold = ttl
	_, err := a.ask(req)
	s.mismatch(err, "max hold")
	req = h.req
	req.Session = b.id
	_, err = b.ask(req)
	s.mismatch(err, "session")
	s.kind(err, lease.ErrMismatch, "the same id from another session")
	s.free("n3")
	h.stays("after requests under its id with other particulars")
}

func overNeverGranted(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	released := a.acquire("released", "also released")
	released.release(false)
	bounded := func(name string) *hold {
		req := a.request(name)
		req.MaxHold = ttl
		return a.acquired(req)
	}
	expired, superseded := bounded("expired"), bounded("superseded")
	s.advance(past)
	next := b.acquire("superseded")
	for range 2 {
		released.over(lease.EndReleased)
		expired.over(lease.EndExpired)
		superseded.over(lease.EndSuperseded)
	}
	s.free("released", lease.EndReleased)
	s.free("expired", lease.EndExpired)
	next.stays("after the predecessor's id was asked for again")
	next.release(false)
	b.acquire("released").release(false) // the row now tells of somebody else
	released.over(lease.EndReleased)
	superseded.over(lease.EndSuperseded)
}

func overUnderItsOwn(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	for range 2 { // the second time round the name comes back from another session
		var holds []*hold
		for range 3 {
			req := a.request("n")
			req.ClosedBelow = req.ID // as a client that has settled all that was before
			h := a.acquired(req)
			if s.failed() {
				return
			}
			_, err := s.store.Release(s.ctx, lease.ReleaseRequest{Session: a.id, ID: h.req.ID, Names: h.req.Names, ClosedBelow: req.ID})
			s.join(err)
			holds = append(holds, h)
		}
		for _, h := range holds {
			h.req.ClosedBelow = h.req.ID // a copy that was delayed
			h.over(lease.EndReleased, lease.EndForgotten)
		}
		s.free("n", lease.EndReleased)
		b.acquire("n").release(false)
		for _, h := range holds {
			h.over(lease.EndReleased, lease.EndForgotten)
		}
	}
}

func closedBelow(s *stage) {
	a := s.open("a", long)
	before, own, bound, after := a.request("n1"), a.request("n2"), s.ids.New(), a.request("n3")
	a.renewed(lease.RenewRequest{Session: a.id, ClosedBelow: bound})
	_, err := a.ask(before)
	s.ended(err, "acquisition", before.ID, lease.EndForgotten)
	s.free("n1")
	own.ClosedBelow = after.ID // a request that closes its own id
	_, err = a.ask(own)
	s.ended(err, "acquisition", own.ID, lease.EndForgotten)
	s.free("n2")
	a.released(lease.ReleaseRequest{Session: a.id, ID: before.ID, Names: before.Names}, true)
	a.acquired(after)
}

func heldBelowStays(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	one, two := a.acquire("n1"), a.acquire("n2")
	a.renewed(lease.RenewRequest{Session: a.id, ClosedBelow: s.ids.New()})
	one.stays("after its id was closed")
	b.refused(one, "n1", "n1")
	one.release(false)
	one.release(true)
	one.over(lease.EndReleased, lease.EndForgotten)
	b.acquire("n1")
	one.over(lease.EndReleased, lease.EndForgotten)
	one.release(true)
	two.stays("after its id was closed")
}

func closedBelowStays(s *stage) {
	a := s.open("a", long)
	low, early, high := s.ids.New(), a.request("n"), s.ids.New()
	a.renewed(lease.RenewRequest{Session: a.id, ClosedBelow: high})
	a.renewed(lease.RenewRequest{Session: a.id, ClosedBelow: low}) // a renewal that was overtaken
	a.renew()
	_, err := a.ask(early)
	s.ended(err, "acquisition", early.ID, lease.EndForgotten)
	s.free("n")
}
