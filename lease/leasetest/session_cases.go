package leasetest

import (
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func sessionCases() []Case[Harness] {
	return []Case[Harness]{
		plain("opening-again-is-the-same-session-and-renews-nothing", openAgain),
		plain("opening-with-other-particulars-is-a-mismatch", openMismatch),
		plain("opening-an-ended-session-is-refused", openEnded),
		plain("a-session-id-that-comes-again-holds-nothing-of-before", sessionAgain),
		plain("close-overtakes-open", closeOvertakesOpen),
		plain("closing-twice-is-success", closeTwice),
		plain("close-after-expiry-says-so", closeAfterExpiry),
		plain("close-frees-every-lease", closeFrees),
		plain("a-closed-session-acquires-and-renews-nothing", closedSession),
		plain("L25-renewal-never-creates", renewalNeverCreates),
		plain("L7-a-renewal-whose-reply-was-lost-is-repeated", renewalRepeated),
		plain("L80-one-renewal-keeps-every-lease-of-a-session", renewalKeepsMany),
		plain("L56-ttl-is-exact-or-refused", ttlExact),
		plain("L55-a-ttl-out-of-range-is-refused", ttlOutOfRange),
	}
}

func (p *party) openRequest() lease.OpenRequest {
	return lease.OpenRequest{ID: p.id, Owner: p.owner, TTL: p.ttl}
}

func openAgain(s *stage) {
	a := s.open("a", ttl)
	h := a.acquire("n")
	s.advance(within)
	if s.failed() {
		return
	}
	left, err := s.store.Open(s.ctx, a.openRequest())
	if err != nil {
		s.fail("opening a live session again: %w; want what is left of it", err)
		return
	}
	s.want(left > 0 && left <= ttl-within, "opening again after %v: %v left of %v; want no renewal", within, left, ttl)
	h.stays("after opening the session again")
	s.advance(past - within)
	a.renewFails(lease.EndExpired)
}

func openMismatch(s *stage) {
	a := s.open("a", ttl)
	h := a.acquire("n")
	if s.failed() {
		return
	}
	other := a.openRequest()
	other.Owner = "b"
	_, err := s.store.Open(s.ctx, other)
	s.mismatch(err, "owner")
	other = a.openRequest()
	other.TTL = 2 * ttl
	_, err = s.store.Open(s.ctx, other)
	s.mismatch(err, "ttl")
	h.stays("after opening with other particulars")
	s.advance(past)
	a.renewFails(lease.EndExpired)
}

func openEnded(s *stage) {
	closed, expired := s.open("closed", long), s.open("expired", ttl)
	closed.close()
	s.advance(past)
	if s.failed() {
		return
	}
	_, err := s.store.Open(s.ctx, closed.openRequest())
	s.ended(err, "session", closed.id, lease.EndClosed)
	_, err = s.store.Open(s.ctx, expired.openRequest())
	s.ended(err, "session", expired.id, lease.EndExpired)
}

// forgotten is how long after its end a store may have forgotten a session without being asked to.
const forgotten = 25 * time.Hour

// comesAgain lets the session of p end and be forgotten, as far as a store does that when others are opened, and opens
// its id again. It reports whether that was granted; else it was refused as over.
func (p *party) comesAgain() bool {
	s := p.s
	s.advance(p.ttl + forgotten)
	for range 2 {
		s.open("other", ttl)
	}
	if s.failed() {
		return false
	}
	left, err := s.store.Open(s.ctx, p.openRequest())
	if err != nil {
		s.ended(err, "session", p.id, lease.EndExpired)
		return false
	}
	s.want(left > 0 && left <= p.ttl, "opening a forgotten id again: %v left of %v", left, p.ttl)
	return true
}

func sessionAgain(s *stage) {
	a := s.open("a", ttl)
	one, two := a.acquire("n1"), a.acquire("n2", "n3")
	again := a.comesAgain()
	for _, name := range []string{"n1", "n2", "n3"} {
		info := s.get(name)
		s.want(!info.Held, "%q is held before anybody acquired it in the session that came again: %+v", name, info)
	}
	b := s.open("b", long)
	if !again {
		b.acquire("n1", "n2", "n3").stays("after the id of an ended session was refused")
		return
	}
	one.over(lease.EndExpired, lease.EndForgotten)
	next := b.acquire("n1", "n2")
	one.over(lease.EndExpired, lease.EndForgotten)
	two.over(lease.EndExpired, lease.EndForgotten) // asked about for the first time since
	next.stays("after acquires of a session before one with its id")
	a.refused(next, "n1", "n1")
	a.renew()
	next.release(false)
	fresh := a.acquire("n1", "n2", "n3")
	one.over(lease.EndExpired, lease.EndForgotten)
	fresh.stays("in a session whose id came again")
}

func closeOvertakesOpen(s *stage) {
	a := &party{s: s, id: s.ids.New(), owner: "a", ttl: ttl}
	a.close()
	if s.failed() {
		return
	}
	_, err := s.store.Open(s.ctx, a.openRequest())
	s.ended(err, "session", a.id, lease.EndClosed)
	_, err = a.ask(a.request("n"))
	s.ended(err, "session", a.id, lease.EndClosed)
	s.free("n")
}

func closeTwice(s *stage) {
	a := s.open("a", ttl)
	a.acquire("n")
	a.close()
	a.close()
	s.advance(past)
	a.close()
	s.free("n", lease.EndClosed)
}

func closeAfterExpiry(s *stage) {
	a := s.open("a", ttl)
	h := a.acquire("n")
	s.advance(past)
	for range 2 {
		if s.failed() {
			return
		}
		s.ended(s.store.Close(s.ctx, a.id), "session", a.id, lease.EndExpired)
	}
	s.free("n", lease.EndExpired)
	h.releaseFails(lease.EndExpired)
}

func closeFrees(s *stage) {
	a, b := s.open("a", ttl), s.open("b", ttl)
	one, two := a.acquire("n1", "n2"), a.acquire("n3")
	kept := b.acquire("n4")
	a.close()
	for _, name := range []string{"n1", "n2", "n3"} {
		s.free(name, lease.EndClosed)
	}
	kept.stays("after another session was closed")
	after := b.acquire("n3", "n2", "n1")
	s.want(after.token("n1") > one.token("n1") && after.token("n3") > two.token("n3"), "the successor's tokens are not above the predecessor's")
	one.release(true)
	two.release(true)
	after.stays("after late releases of a closed session")
}

func closedSession(s *stage) {
	a := s.open("a", ttl)
	h := a.acquire("n")
	a.close()
	a.renewFails(lease.EndClosed)
	if s.failed() {
		return
	}
	_, err := a.ask(a.request("other"))
	s.ended(err, "session", a.id, lease.EndClosed)
	_, err = a.ask(h.req)
	s.ended(err, "session", a.id, lease.EndClosed)
	s.free("other")
}

func renewalNeverCreates(s *stage) {
	never := &party{s: s, id: s.ids.New(), owner: "never", ttl: ttl}
	never.renewFails(lease.EndForgotten)
	if s.failed() {
		return
	}
	_, err := never.ask(never.request("n"))
	s.ended(err, "session", never.id, lease.EndForgotten)
	late := s.open("late", ttl)
	late.acquire("n")
	s.advance(past)
	late.renewFails(lease.EndExpired)
	late.renewFails(lease.EndExpired)
	s.free("n", lease.EndExpired)
	if s.failed() {
		return
	}
	_, err = late.ask(late.request("n"))
	s.ended(err, "session", late.id, lease.EndExpired)
	s.open("successor", ttl).acquire("n")
}

func renewalRepeated(s *stage) {
	a, b := s.open("a", ttl), s.open("b", long)
	h := a.acquire("n")
	s.advance(within)
	a.renew()
	a.renew()
	s.advance(within)
	a.renew()
	h.stays("after renewals, some of them twice")
	b.refused(h, "n", "n")
}

func renewalKeepsMany(s *stage) {
	const batches = 16
	most := s.store.Guarantees().MaxNames
	a := s.open("a", long) // so many grants take seconds on a store that is slow today
	var holds []*hold
	for range batches {
		names := make([]string, most)
		for i := range names {
			names[i] = "n-" + s.ids.New().String()
		}
		holds = append(holds, a.acquire(names...))
	}
	s.advance(long * 7 / 10)
	a.renew()
	s.advance(long * 7 / 10)
	b := s.open("b", ttl)
	for _, h := range holds {
		h.stays("after one renewal")
		b.refused(h, h.req.Names[0], h.req.Names[0])
	}
}

// exactTTLs are such as a store that counts in whole seconds, or in whole milliseconds, would change.
func exactTTLs() []time.Duration {
	return []time.Duration{
		1900 * time.Millisecond, 2999 * time.Millisecond, 10*time.Second + 999*time.Microsecond,
		59*time.Second + 999*time.Millisecond, 90 * time.Minute,
	}
}

func ttlExact(s *stage) {
	for _, d := range exactTTLs() {
		if s.failed() {
			return
		}
		began := time.Now()
		p := &party{s: s, id: s.ids.New(), owner: "a", ttl: d}
		left, err := s.store.Open(s.ctx, p.openRequest())
		if lease.CodeOf(err) == "invalid" {
			p.renewFails(lease.EndForgotten)
			continue
		}
		if err != nil {
			s.fail("opening with a TTL of %v: %w; want it opened or refused as invalid", d, err)
			return
		}
		s.exactly("open", left, d, began)
		name := "n " + d.String()
		h := p.acquire(name)
		s.exactly("the grant", h.grants[0].Remaining, d, began)
		if info := s.get(name); info.Held {
			s.exactly("Get", info.Remaining, d, began)
		}
		renewed := time.Now()
		s.exactly("renewal", p.renew().Remaining, d, renewed)
	}
}

// exactly demands that what is left of d is d, less the time since began at most.
func (s *stage) exactly(what string, left, d time.Duration, began time.Time) {
	least := d - time.Since(began) - rounded
	s.want(left <= d && left >= least, "a TTL of %v: %s says that %v is left; want %v to %v", d, what, left, least, d)
}

func ttlOutOfRange(s *stage) {
	g := s.store.Guarantees()
	s.want(g.MinTTL >= lease.MinTTL && g.MaxTTL <= lease.MaxTTL && g.MinTTL <= g.MaxTTL, "the store states TTLs of %v to %v", g.MinTTL, g.MaxTTL)
	live := s.open("live", ttl)
	h := live.acquire("n")
	bad := []time.Duration{0, -1, -time.Second, 1, time.Millisecond - 1, g.MinTTL - 1, g.MaxTTL + 1, 1<<63 - 1, -1 << 63}
	for _, d := range bad {
		for _, id := range []fence.ID{s.ids.New(), live.id} {
			if s.failed() {
				return
			}
			_, err := s.store.Open(s.ctx, lease.OpenRequest{ID: id, Owner: "live", TTL: d})
			s.kind(err, lease.ErrInvalid, "opening with a TTL of %v", d)
			if id != live.id {
				(&party{s: s, id: id, owner: "bad", ttl: d}).renewFails(lease.EndForgotten)
			}
		}
	}
	h.stays("after refused TTLs")
}
