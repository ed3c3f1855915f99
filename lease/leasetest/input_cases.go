package leasetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func inputCases() []Case[Harness] {
	return []Case[Harness]{
		plain("L87-names-are-compared-byte-by-byte", namesByBytes),
		plain("L87-a-name-is-never-a-prefix-or-a-pattern", namesNoPattern),
		plain("L87-names-that-are-none-are-refused", namesRefused),
	}
}

// goodNames differ, in a way that some store or path of a store may lose.
func goodNames() []string {
	return []string{
		"a", "A", "a/", "a/b", "/a", "a//b", "a/../b", "..", ".", "a.", " a", "a ", "a b", "%", "%00", "%2e%2e", "_", "a_", "a%",
		"'", "''", "\"", "`", "a';--", "\\", "\\0", "*", "?", "[a]", "{a}", ":", "a:b", "&", "=", "+", "~", "null", "NULL", "0", "00", "1", "1.0",
		"é", "e\u0301", "ß", "ss", "ı", "i", "İ", "ﬁ", "fi", "日本", "\U0001F512", "\u200b", "\u00a0", "\ufeff", "\U0010ffff", "ａ",
		strings.Repeat("n", fence.MaxName), strings.Repeat("n", fence.MaxName-1), strings.Repeat("é", fence.MaxName/2),
	}
}

// badNames are no names.
func badNames() []string {
	return []string{
		"", "\x00", "a\x00", "a\x00b", "#", "a#", "NAME#3", "a#*", "a\n", "\t", "\x7f", "\u0085", "\x1b[31m",
		"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\xaf",
		strings.Repeat("n", fence.MaxName+1), strings.Repeat("é", fence.MaxName/2) + "n", strings.Repeat("n", 64<<10), strings.Repeat("n", 1<<20),
	}
}

func namesByBytes(s *stage) {
	parties := []*party{s.open("a", long), s.open("b", long)}
	var holds []*hold
	for i, name := range goodNames() {
		holds = append(holds, parties[i%2].acquire(name))
	}
	for i, h := range holds {
		h.stays("beside names that resemble it")
		parties[(i+1)%2].refused(h, h.req.Names[0], h.req.Names[0])
	}
	for i, h := range holds {
		if i%2 == 0 {
			h.release(false)
		}
	}
	for i, h := range holds {
		if i%2 == 1 {
			h.stays("after names that resemble it were released")
		} else {
			s.free(h.req.Names[0], lease.EndReleased)
		}
	}
}

func namesNoPattern(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	under := a.acquire("a/b", "a/", "axb")
	for _, name := range []string{"a", "a/%", "a_b", "a%", "%", "a*", "a/b/"} {
		s.free(name)
		b.acquire(name).release(false)
		under.stays("after " + name + " was acquired and released")
	}
}

func namesRefused(s *stage) {
	a, b := s.open("a", long), s.open("b", long)
	h := a.acquire("held")
	for _, name := range badNames() {
		if s.failed() {
			return
		}
		shown := fmt.Sprintf("%.20q (%d bytes)", name, len(name))
		_, err := b.ask(b.request(name))
		s.kind(err, lease.ErrInvalid, "acquiring %s", shown)
		_, err = b.ask(b.request("untouched", name))
		s.kind(err, lease.ErrInvalid, "acquiring it beside a good name, %s", shown)
		_, err = s.store.Get(s.ctx, name)
		s.kind(err, lease.ErrInvalid, "looking at %s", shown)
		_, err = s.store.Release(s.ctx, lease.ReleaseRequest{Session: a.id, ID: h.req.ID, Names: []string{name}})
		s.kind(err, lease.ErrInvalid, "releasing %s", shown)
		_, err = s.store.Renew(s.ctx, lease.RenewRequest{Session: a.id, Release: []lease.Abandoned{{ID: h.req.ID, Names: []string{name}}}})
		s.kind(err, lease.ErrInvalid, "releasing %s with a renewal", shown)
	}
	s.free("untouched")
	h.stays("after names that are none")
}

func requestCases() []Case[Harness] {
	return []Case[Harness]{
		plain("acquires-that-make-no-sense-are-refused", badAcquires),
		plain("sessions-that-make-no-sense-are-refused", badSessions),
		plain("releases-that-make-no-sense-are-refused", badReleases),
		plain("guarantees-are-within-the-contract", guaranteesHold),
	}
}

func many(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i)
	}
	return names
}

func badAcquires(s *stage) {
	a := s.open("a", long)
	h := a.acquire("held")
	most := s.store.Guarantees().MaxNames
	bad := map[string]lease.AcquireRequest{
		"no session":           {ID: s.ids.New(), Names: []string{"n"}},
		"no id":                {Session: a.id, Names: []string{"n"}},
		"no names":             a.request(),
		"a name twice":         a.request("n", "n"),
		"a name twice, apart":  a.request("n", "m", "n"),
		"too many names":       a.request(many(most + 1)...),
		"far too many names":   a.request(many(100_000)...),
		"a negative MaxHold":   {Session: a.id, ID: s.ids.New(), Names: []string{"n"}, MaxHold: -1},
		"a MaxHold below 1 ms": {Session: a.id, ID: s.ids.New(), Names: []string{"n"}, MaxHold: time.Millisecond - 1},
		"too long a MaxHold":   {Session: a.id, ID: s.ids.New(), Names: []string{"n"}, MaxHold: lease.MaxMaxHold + 1},
		"the longest duration": {Session: a.id, ID: s.ids.New(), Names: []string{"n"}, MaxHold: 1<<63 - 1},
	}
	for what, req := range bad {
		_, err := a.ask(req)
		s.kind(err, lease.ErrInvalid, "acquiring with %s", what)
	}
	s.free("n")
	s.free("n0")
	h.stays("after acquires that make no sense")
	a.acquire(many(most)...)
}

func badSessions(s *stage) {
	a := s.open("a", long)
	if s.failed() {
		return
	}
	bad := map[string]lease.OpenRequest{
		"no id":                   {Owner: "a", TTL: ttl},
		"too long an owner label": {ID: s.ids.New(), Owner: strings.Repeat("o", lease.MaxOwner+1), TTL: ttl},
		"an owner of 1 MB":        {ID: s.ids.New(), Owner: strings.Repeat("o", 1<<20), TTL: ttl},
		"an owner not in UTF-8":   {ID: s.ids.New(), Owner: "o\xff", TTL: ttl},
		"an owner with NUL":       {ID: s.ids.New(), Owner: "o\x00o", TTL: ttl},
	}
	for what, req := range bad {
		_, err := s.store.Open(s.ctx, req)
		s.kind(err, lease.ErrInvalid, "opening with %s", what)
	}
	_, err := s.store.Renew(s.ctx, lease.RenewRequest{})
	s.kind(err, lease.ErrInvalid, "renewing no session")
	s.kind(s.store.Close(s.ctx, fence.ID{}), lease.ErrInvalid, "closing no session")
	for _, owner := range []string{"", strings.Repeat("o", lease.MaxOwner), "o\no", "'; --", "日本"} {
		p := s.open(owner, ttl)
		p.acquire("owned by " + p.id.String()).stays("under an unusual owner label")
	}
	a.renew()
}

func badReleases(s *stage) {
	a := s.open("a", long)
	h := a.acquire("n")
	if s.failed() {
		return
	}
	bad := map[string]lease.ReleaseRequest{
		"no session":         {ID: h.req.ID, Names: h.req.Names},
		"no id":              {Session: a.id, Names: h.req.Names},
		"no names":           {Session: a.id, ID: h.req.ID},
		"a name twice":       {Session: a.id, ID: h.req.ID, Names: []string{"n", "n"}},
		"far too many names": {Session: a.id, ID: h.req.ID, Names: many(100_000)},
	}
	for what, req := range bad {
		_, err := s.store.Release(s.ctx, req)
		s.kind(err, lease.ErrInvalid, "releasing with %s", what)
		_, err = s.store.Renew(s.ctx, lease.RenewRequest{Session: req.Session, Release: []lease.Abandoned{{ID: req.ID, Names: req.Names}}})
		s.kind(err, lease.ErrInvalid, "renewing with a release with %s", what)
	}
	tooMany := lease.RenewRequest{Session: a.id}
	for range lease.MaxRelease + 1 {
		tooMany.Release = append(tooMany.Release, lease.Abandoned{ID: s.ids.New(), Names: []string{"m"}})
	}
	_, err := s.store.Renew(s.ctx, tooMany)
	s.kind(err, lease.ErrInvalid, "renewing with too many releases")
	tooMany.Release = tooMany.Release[1:]
	a.renewed(tooMany)
	h.stays("after releases that make no sense")
}

func guaranteesHold(s *stage) {
	g := s.store.Guarantees()
	s.want(g.Store != "", "the store states no name: %+v", g)
	s.want(g.MaxNames >= 1 && g.MaxNames <= lease.MaxNames, "names in one acquire: %d", g.MaxNames)
	s.want(g.MinTTL >= lease.MinTTL && g.MinTTL < g.MaxTTL && g.MaxTTL <= lease.MaxTTL, "TTLs of %v to %v", g.MinTTL, g.MaxTTL)
	a, b := s.open("shortest", g.MinTTL), s.open("longest", g.MaxTTL)
	s.want(a.id != b.id, "two sessions have one id")
	b.acquire("n")
}
