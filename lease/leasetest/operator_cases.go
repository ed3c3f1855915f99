package leasetest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// OperatorCases is what a store with operator functions must do.
func OperatorCases() []Case[OperatorHarness] {
	return []Case[OperatorHarness]{
		named("revocation-frees-at-once-and-is-told-with-the-next-renewal", revokeTold),
		named("revoking-takes-every-name-of-the-acquisition", revokeUnit),
		named("L14-revoking-twice-is-success", revokeTwice),
		named("revoking-needs-the-latest-token", revokeNeedsToken),
		named("revoking-what-is-over-says-how", revokeOver),
		named("a-revoked-id-is-never-granted-again", revokedOver),
		named("revoking-with-bad-input-is-refused", revokeBadInput),
		named("listing-is-by-bytes-in-pages", listPages),
		named("listing-shows-how-names-are-held-and-ended", listDescribes),
		named("L69-no-token-repeats-after-pruning", pruneTokens),
		named("pruning-keeps-what-may-still-be-asked-for", pruneKeeps),
		named("pruning-keeps-what-is-valid-or-recent", pruneRecent),
		named("pruning-with-bad-input-is-refused", pruneBadInput),
		named("raising-the-epoch-raises-every-later-token", raiseEpoch),
		named("fault-17-an-epoch-out-of-range-is-refused", raiseBadInput),
	}
}

const reason = "taken for maintenance"

// revoke must succeed for the name's latest token.
func (s *stage) revoke(o Operator, h *hold, name string, already bool) lease.Revoked {
	if s.failed() {
		return lease.Revoked{}
	}
	r, err := o.Revoke(s.ctx, lease.RevokeRequest{Name: name, Token: h.token(name), Reason: reason})
	if err != nil {
		s.fail("revoking %q under its latest token: %w; want success", name, err)
		return r
	}
	s.want(r.Already == already, "revoking %q: Already is %v", name, r.Already)
	s.want(r.Former.Name == name && r.Former.Token == h.token(name) && r.Former.Acquisition == h.req.ID && r.Former.Held != already,
		"revoking %q: the former holder is told as %+v", name, r.Former)
	s.want(r.BelievesAtMost >= 0 && r.BelievesAtMost <= h.p.ttl, "revoking %q: the former holder may believe for %v", name, r.BelievesAtMost)
	s.want(already || r.BelievesAtMost > 0, "revoking a held name: the former holder may believe for %v", r.BelievesAtMost)
	return r
}

func revokeTold(s *stage, oh OperatorHarness) {
	a, b := s.open("a", ttl), s.open("b", ttl)
	taken, kept := a.acquire("n"), a.acquire("m")
	r := a.renew()
	s.want(len(r.Revoked) == 0, "a renewal tells of revocations %v; want none", r.Revoked)
	s.revoke(oh.Operator(), taken, "n", false)
	s.free("n", lease.EndRevoked)
	next := b.acquire("n")
	s.want(next.token("n") > taken.token("n"), "the successor's token is not above the revoked one")
	want := []lease.RevokedAcquisition{{ID: taken.req.ID, Reason: reason}}
	for range 2 { // also when the first reply was lost
		r = a.renew()
		s.want(slices.Equal(r.Revoked, want), "a renewal tells of %v; want %v", r.Revoked, want)
	}
	kept.stays("after another lease of its session was revoked")
	taken.releaseFails(lease.EndRevoked)
	r = a.renew()
	s.want(len(r.Revoked) == 0, "a renewal tells of %v after a release named it", r.Revoked)
	second := a.acquire("o")
	s.revoke(oh.Operator(), second, "o", false)
	r = a.renewed(lease.RenewRequest{Session: a.id, Release: []lease.Abandoned{{ID: second.req.ID, Names: second.req.Names}}})
	s.want(len(r.Revoked) == 0, "a renewal tells of %v although it named it in a release", r.Revoked)
	next.stays("after the former holder was told")
}

func revokeUnit(s *stage, oh OperatorHarness) {
	a, b := s.open("a", ttl), s.open("b", ttl)
	taken, kept := a.acquire("n3", "n1", "n2"), a.acquire("m")
	r := s.revoke(oh.Operator(), taken, "n2", false)
	s.want(slices.Equal(r.Names, []string{"n1", "n2", "n3"}), "revoking one of three names frees %q; want all three, sorted", r.Names)
	for _, name := range taken.req.Names {
		s.free(name, lease.EndRevoked)
	}
	b.acquire("n1", "n2", "n3")
	kept.stays("after another lease of its session was revoked")
}

func revokeTwice(s *stage, oh OperatorHarness) {
	a := s.open("a", ttl)
	h := a.acquire("n", "m")
	s.revoke(oh.Operator(), h, "n", false)
	s.revoke(oh.Operator(), h, "n", true)
	s.revoke(oh.Operator(), h, "m", true)
	r := a.renew()
	s.want(len(r.Revoked) == 1, "revoked twice, a renewal tells of %v; want it once", r.Revoked)
}

func revokeNeedsToken(s *stage, oh OperatorHarness) {
	a, b := s.open("a", long), s.open("b", long)
	old := a.acquire("n")
	old.release(false)
	h := b.acquire("n")
	for _, token := range []fence.Token{old.token("n"), h.token("n") + 1, 1<<63 - 1} {
		if s.failed() {
			return
		}
		_, err := oh.Operator().Revoke(s.ctx, lease.RevokeRequest{Name: "n", Token: token, Reason: reason})
		s.mismatch(err, "token")
		var mismatch *lease.MismatchError
		s.want(errors.As(err, &mismatch) && mismatch.Name == "n" && mismatch.Seen == h.token("n"), "the mismatch tells %w; want the latest token %d", err, h.token("n"))
	}
	_, err := oh.Operator().Revoke(s.ctx, lease.RevokeRequest{Name: "never", Token: 1, Reason: reason})
	s.mismatch(err, "token")
	h.stays("after revocations under other tokens")
}

func revokeOver(s *stage, oh OperatorHarness) {
	a, short := s.open("a", long), s.open("short", ttl)
	released, expired, closed := a.acquire("released"), short.acquire("expired"), s.open("closed", long)
	inClosed := closed.acquire("closed")
	released.release(false)
	closed.close()
	s.advance(past)
	for how, h := range map[lease.End]*hold{lease.EndReleased: released, lease.EndExpired: expired, lease.EndClosed: inClosed} {
		if s.failed() {
			return
		}
		name := h.req.Names[0]
		_, err := oh.Operator().Revoke(s.ctx, lease.RevokeRequest{Name: name, Token: h.token(name), Reason: reason})
		s.ended(err, "acquisition", h.req.ID, how)
		s.free(name, how)
	}
}

func revokedOver(s *stage, oh OperatorHarness) {
	a, b := s.open("a", long), s.open("b", long)
	h := a.acquire("n")
	s.revoke(oh.Operator(), h, "n", false)
	h.over(lease.EndRevoked)
	_, err := a.ask(h.req)
	var ended *lease.EndedError
	s.want(errors.As(err, &ended) && ended.Reason == reason, "after a revocation: %v; want its reason", err)
	next := b.acquire("n")
	h.over(lease.EndRevoked)
	for range 2 {
		h.releaseFails(lease.EndRevoked)
	}
	h.over(lease.EndRevoked)
	next.stays("after the former holder asked again")
	a.acquire("m") // the session goes on
}

func revokeBadInput(s *stage, oh OperatorHarness) {
	a := s.open("a", ttl)
	h := a.acquire("n")
	good := lease.RevokeRequest{Name: "n", Token: h.token("n"), Reason: reason}
	bad := map[string]lease.RevokeRequest{
		"no token":              {Name: "n", Reason: reason},
		"a negative token":      {Name: "n", Token: -1, Reason: reason},
		"no reason":             {Name: "n", Token: good.Token},
		"too long a reason":     {Name: "n", Token: good.Token, Reason: strings.Repeat("r", lease.MaxReason+1)},
		"a reason not in UTF-8": {Name: "n", Token: good.Token, Reason: "r\xff"},
	}
	for _, name := range badNames() {
		bad["a name that is none: "+name] = lease.RevokeRequest{Name: name, Token: 1, Reason: reason}
	}
	for what, req := range bad {
		if s.failed() {
			return
		}
		_, err := oh.Operator().Revoke(s.ctx, req)
		s.kind(err, lease.ErrInvalid, "revoking with %.60q", what)
	}
	h.stays("after revocations that make no sense")
}

func (s *stage) list(o Operator, req lease.ListRequest) []string {
	if s.failed() {
		return nil
	}
	infos, err := o.List(s.ctx, req)
	if err != nil {
		s.fail("listing %+v: %w", req, err)
	}
	var names []string
	for _, info := range infos {
		names = append(names, info.Name)
	}
	return names
}

func listPages(s *stage, oh OperatorHarness) {
	o := oh.Operator()
	s.want(len(s.list(o, lease.ListRequest{Limit: lease.MaxList})) == 0, "a fresh store lists names")
	names := []string{"a", "a/", "a/b", "a%b", "a_b", "aXb", "B", "b", "é", "日本", "'", "\U0010ffff"}
	s.open("w", long).acquire(names...)
	slices.Sort(names)
	got := s.list(o, lease.ListRequest{Limit: lease.MaxList})
	s.want(s.failed() || slices.Equal(got, names), "listing all: %q; want %q", got, names)
	var paged []string
	for after := ""; ; {
		page := s.list(o, lease.ListRequest{After: after, Limit: 5})
		s.want(len(page) <= 5, "a page of %d names; want at most 5", len(page))
		if len(page) == 0 || s.failed() {
			break
		}
		paged = append(paged, page...)
		after = page[len(page)-1]
	}
	s.want(s.failed() || slices.Equal(paged, names), "listing in pages: %q; want %q", paged, names)
	for prefix, want := range map[string][]string{
		"a": {"a", "a%b", "a/", "a/b", "aXb", "a_b"}, "a/": {"a/", "a/b"}, "a%": {"a%b"}, "a_": {"a_b"}, "b": {"b"}, "c": nil, "\U0010ffff": {"\U0010ffff"},
	} {
		got := s.list(o, lease.ListRequest{Prefix: prefix, Limit: lease.MaxList})
		s.want(s.failed() || slices.Equal(got, want), "listing %q: %q; want %q", prefix, got, want)
	}
	got = s.list(o, lease.ListRequest{Prefix: "a", After: "a/", Limit: 2})
	s.want(s.failed() || slices.Equal(got, []string{"a/b", "aXb"}), "listing after %q: %q", "a/", got)
	for what, req := range map[string]lease.ListRequest{
		"no limit": {}, "a negative limit": {Limit: -1}, "too high a limit": {Limit: lease.MaxList + 1},
		"too long a prefix": {Prefix: strings.Repeat("n", fence.MaxName+1), Limit: 1},
	} {
		_, err := o.List(s.ctx, req)
		s.kind(err, lease.ErrInvalid, "listing with %s", what)
	}
}

func listDescribes(s *stage, oh OperatorHarness) {
	a, short := s.open("a", long), s.open("short", ttl)
	held, released := a.acquire("n1"), a.acquire("n2")
	short.acquire("n3")
	released.release(false)
	s.advance(past)
	if s.failed() {
		return
	}
	infos, err := oh.Operator().List(s.ctx, lease.ListRequest{Limit: 10})
	if err != nil || len(infos) != 3 {
		s.fail("listing three names: %v, %v", infos, err)
		return
	}
	for i, want := range []lease.End{0, lease.EndReleased, lease.EndExpired} {
		got := infos[i]
		s.want(got.Held == (want == 0) && got.End == want && got.Token > 0, "the list tells %+v; want the end %q", got, want)
		one := s.get(got.Name)
		one.Remaining, got.Remaining = 0, 0
		s.want(one == got, "the list tells %+v, Get %+v", got, one)
	}
	s.want(infos[0].Acquisition == held.req.ID && infos[0].Owner == "a" && infos[0].Remaining > 0, "the list tells %+v", infos[0])
}

func (s *stage) prune(o Operator, age time.Duration) int {
	if s.failed() {
		return 0
	}
	n, err := o.Prune(s.ctx, age, lease.MaxPrune)
	if err != nil {
		s.fail("pruning: %w", err)
	}
	return n
}
