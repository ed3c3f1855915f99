package leasetest

import (
	"errors"
	"time"

	"github.com/tenure-go/tenure/lease"
)

func expiryCases() []Case[Harness] {
	return []Case[Harness]{
		plain("L59-expiry-follows-the-recorded-ttl", expiryFollowsTTL),
		plain("L66-expiry-is-computed-by-the-store", expiryByStore),
		plain("L60-a-waiter-acquires-at-the-true-expiry", waiterAtExpiry),
		plain("expiry-is-a-verdict-that-a-take-over-writes", verdictByTakeOver),
		plain("expiry-is-a-verdict-that-a-call-of-the-session-writes", verdictByOwnCall),
		plain("reading-writes-no-verdict", readingWritesNothing),
		plain("fault-6-renewal-after-a-take-over-restores-nothing", renewalAfterTakeOver),
		plain("L65-a-step-of-the-clock-moves-expiry-and-nothing-else", clockStep),
	}
}

func expiryFollowsTTL(s *stage) {
	short, slow := s.open("short", ttl), s.open("slow", 6*ttl)
	first := short.acquire("n")
	slow.refused(first, "n", "n")
	s.advance(past)
	second := slow.acquire("n")
	s.advance(past) // beyond any TTL but the holder's
	second.stays("after the TTL of its predecessor")
	s.open("third", ttl).refused(second, "n", "n")
	s.advance(6*ttl - past + 3*time.Second)
	s.open("fourth", ttl).acquire("n")
}

func expiryByStore(s *stage) {
	const early, late = 1500 * time.Millisecond, 3 * time.Second
	watcher := s.open("watcher", long)
	for _, renewed := range []bool{false, true} {
		a := s.open("a", ttl)
		h := a.acquire("n")
		if renewed {
			s.advance(within)
			a.renew()
		}
		s.advance(ttl - early)
		h.stays("1.5 s before its expiry")
		watcher.refused(h, "n", "n")
		s.advance(late)
		h2 := watcher.acquire("n")
		h2.release(false)
		a.renewFails(lease.EndExpired)
	}
}

func waiterAtExpiry(s *stage) {
	a := s.open("a", ttl)
	h := a.acquire("n")
	s.advance(within)
	waiter := s.open("restarted waiter", long)
	if s.failed() {
		return
	}
	_, err := waiter.ask(waiter.request("n"))
	var held *lease.HeldError
	if !errors.As(err, &held) {
		s.fail("acquiring a held name: %v; want a HeldError", err)
		return
	}
	s.want(held.Left <= ttl-within, "%v after the grant %v are left of %v", within, held.Left, ttl)
	s.advance(held.Left + time.Second)
	next := waiter.acquire("n")
	s.want(next.token("n") > h.token("n"), "the successor's token is not above its predecessor's")
}

// back is far enough to make every expiry of a case lie in the future again.
const back = -100 * time.Second

func verdictByTakeOver(s *stage) {
	a, b := s.open("a", ttl), s.open("b", long)
	old := a.acquire("n", "m")
	s.advance(past)
	h := b.acquire("n")
	s.advance(back) // by the clock alone, a's session would live
	h.stays("after the clock stepped back")
	a.renewFails(lease.EndExpired)
	if s.failed() {
		return
	}
	_, err := a.ask(old.req)
	s.ended(err, "session", a.id, lease.EndExpired)
	_, err = a.ask(a.request("other"))
	s.ended(err, "session", a.id, lease.EndExpired)
	s.free("m", lease.EndExpired)
	old.releaseFails(lease.EndExpired)
	h.stays("after the former holder's calls")
}

func verdictByOwnCall(s *stage) {
	calls := map[string]func(p *party) error{
		"renew": func(p *party) error {
			_, err := s.store.Renew(s.ctx, lease.RenewRequest{Session: p.id})
			return err
		},
		"acquire": func(p *party) error { _, err := p.ask(p.request("other")); return err },
		"close":   func(p *party) error { return s.store.Close(s.ctx, p.id) },
		"open":    func(p *party) error { _, err := s.store.Open(s.ctx, p.openRequest()); return err },
	}
	for call, do := range calls {
		a := s.open("a", ttl)
		h := a.acquire("n " + call)
		s.advance(past)
		if s.failed() {
			return
		}
		s.ended(do(a), "session", a.id, lease.EndExpired)
		s.advance(back)
		a.renewFails(lease.EndExpired)
		s.free(h.req.Names[0], lease.EndExpired)
		h.releaseFails(lease.EndExpired)
		if s.failed() {
			s.err = errors.Join(s.err, errors.New("the call that told the expiry first was "+call))
		}
	}
}

func readingWritesNothing(s *stage) {
	a, b := s.open("a", ttl), s.open("b", long)
	h := a.acquire("n")
	other := b.acquire("m")
	s.advance(past)
	s.free("n", lease.EndExpired)
	b.refused(other, "m", "m", "n") // n is free, but nothing is granted
	s.advance(-past)
	h.stays("after the expiry was only looked at, and the clock stepped back")
	a.renew()
}

func renewalAfterTakeOver(s *stage) {
	a, b := s.open("a", ttl), s.open("b", long)
	old := a.acquire("n")
	s.advance(past)
	h := b.acquire("n")
	for range 3 {
		a.renewFails(lease.EndExpired)
	}
	old.releaseFails(lease.EndExpired)
	h.stays("after renewals of the former holder")
	h.release(false)
	a.renewFails(lease.EndExpired)
	s.free("n", lease.EndReleased)
}

func clockStep(s *stage) {
	a, b := s.open("a", ttl), s.open("b", 3*long)
	old := a.acquire("n")
	s.advance(-long) // a backward step delays the take-over by as much
	old.stays("after the clock stepped back by an hour")
	b.refused(old, "n", "n")
	a.renew() // and the next renewal is by the clock as it stands
	s.advance(past)
	next := b.acquire("n")
	s.want(next.token("n") > old.token("n"), "the successor's token is not above its predecessor's")
	s.advance(-long)
	next.stays("after the clock stepped back by another hour")
	a.renewFails(lease.EndExpired)
	s.advance(long)
	c := s.open("c", ttl)
	third := c.acquire("m")
	s.advance(long) // a forward step ends leases early
	s.free("m", lease.EndExpired)
	c.renewFails(lease.EndExpired)
	fourth := b.acquire("m")
	s.want(fourth.token("m") > third.token("m"), "the successor's token is not above its predecessor's")
}
