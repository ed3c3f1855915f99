package leasetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// The times of most cases. Between them and every Advance lies a second or more.
const (
	ttl     = 10 * time.Second
	long    = time.Hour
	within  = 7 * time.Second  // after it, a session of ttl has 3 s left
	past    = 13 * time.Second // after it, a session of ttl is over for 3 s
	rounded = time.Millisecond // what a store may round a duration by
)

// stage is one run of a case. Its methods are the steps; the first step that finds something wrong is kept,
// and every later one does nothing, so that a case reads as what it does and not as what may fail.
// A stage belongs to one goroutine.
type stage struct {
	ctx   context.Context // of the case: a stage lives no longer than the call that made it
	h     Harness
	store *watch
	ids   lease.IDs
	slack time.Duration // by how much a step back of the clock may have lengthened what remains
	err   error
}

// named makes a case of steps.
func named[H Harness](name string, steps func(s *stage, h H)) Case[H] {
	return Case[H]{Name: name, Run: func(ctx context.Context, h H) error {
		s := &stage{ctx: ctx, h: h, store: newWatch(h)}
		steps(s, h)
		return errors.Join(s.err, s.store.finish(ctx))
	}}
}

// plain makes a case that needs nothing beside the store.
func plain(name string, steps func(s *stage)) Case[Harness] {
	return named(name, func(s *stage, _ Harness) { steps(s) })
}

func (s *stage) failed() bool { return s.err != nil }

// fail records the first thing that was found wrong.
func (s *stage) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// want fails unless ok.
func (s *stage) want(ok bool, format string, args ...any) {
	if !ok {
		s.fail(format, args...)
	}
}

// advance lets d pass.
func (s *stage) advance(d time.Duration) {
	if s.failed() {
		return
	}
	s.slack += max(-d, 0)
	if err := s.h.Advance(s.ctx, d); err != nil {
		s.fail("advancing by %v: %w", d, err)
	}
}

// party is a client's side of one session.
type party struct {
	s     *stage
	id    fence.ID
	owner string
	ttl   time.Duration
}

// hold is an acquisition that was granted.
type hold struct {
	p      *party
	req    lease.AcquireRequest
	grants []lease.Grant
}

func (s *stage) open(owner string, ttl time.Duration) *party {
	p := &party{s: s, id: s.ids.New(), owner: owner, ttl: ttl}
	if s.failed() {
		return p
	}
	left, err := s.store.Open(s.ctx, lease.OpenRequest{ID: p.id, Owner: owner, TTL: ttl})
	if err != nil {
		s.fail("opening a session of %q: %w", owner, err)
		return p
	}
	s.want(left > 0 && left <= ttl, "opening a session of %v: %v left", ttl, left)
	return p
}

// request is a new acquisition of names.
func (p *party) request(names ...string) lease.AcquireRequest {
	return lease.AcquireRequest{Session: p.id, ID: p.s.ids.New(), Names: names}
}

// ask sends a request, whatever becomes of it. After a failed step it sends nothing.
func (p *party) ask(req lease.AcquireRequest) ([]lease.Grant, error) {
	if p.s.failed() {
		return nil, p.s.err
	}
	return p.s.store.Acquire(p.s.ctx, req)
}

// acquire must be granted.
func (p *party) acquire(names ...string) *hold { return p.acquired(p.request(names...)) }

func (p *party) acquired(req lease.AcquireRequest) *hold {
	h := &hold{p: p, req: req}
	if p.s.failed() {
		h.grants = make([]lease.Grant, len(req.Names))
		return h
	}
	grants, err := p.ask(req)
	if err != nil {
		p.s.fail("%q acquiring %q: %w; want a grant", p.owner, req.Names, err)
	}
	p.s.checkGrants(p, req, grants)
	if p.s.failed() {
		grants = make([]lease.Grant, len(req.Names))
	}
	h.grants = grants
	return h
}

// checkGrants demands what every grant must be, whatever the case.
func (s *stage) checkGrants(p *party, req lease.AcquireRequest, grants []lease.Grant) {
	if s.failed() {
		return
	}
	if len(grants) != len(req.Names) {
		s.fail("acquiring %q: %d grants", req.Names, len(grants))
		return
	}
	for i, g := range grants {
		c := g.Claim
		s.want(c.Name == req.Names[i], "acquiring %q: grant %d is of %q; want the order of the request", req.Names, i, c.Name)
		s.want(c.Acquisition == req.ID, "acquiring %q: the claim is of acquisition %s, not of %s", req.Names, c.Acquisition, req.ID)
		s.want(c.Check() == nil, "acquiring %q: the claim is none: %v", req.Names, c.Check())
		s.want(c.Authority == grants[0].Claim.Authority, "acquiring %q: claims of two authorities", req.Names)
		s.want(g.Remaining > 0 && g.Remaining <= p.ttl+s.slack, "acquiring %q: %v remain of %v", req.Names, g.Remaining, p.ttl)
		if req.MaxHold == 0 {
			s.want(g.HoldLeft == 0, "acquiring %q without MaxHold: HoldLeft %v; want 0", req.Names, g.HoldLeft)
		} else {
			s.want(g.HoldLeft > 0 && g.HoldLeft <= req.MaxHold+s.slack, "acquiring %q: %v left of MaxHold %v", req.Names, g.HoldLeft, req.MaxHold)
		}
	}
}

// refused must be answered with who holds the name.
func (p *party) refused(by *hold, name string, names ...string) {
	if p.s.failed() {
		return
	}
	_, err := p.ask(p.request(names...))
	var held *lease.HeldError
	if !errors.As(err, &held) {
		p.s.fail("%q acquiring %q, which %q holds: %v; want a HeldError", p.owner, names, by.p.owner, err)
		return
	}
	p.s.want(held.Name == name && held.Owner == by.p.owner && held.Token == by.token(name),
		"the refusal names %q under token %d as holder of %q; want %q under %d as holder of %q",
		held.Owner, held.Token, held.Name, by.p.owner, by.token(name), name)
	p.s.want(held.Left > 0 && held.Left <= by.p.ttl+p.s.slack, "the refusal says %v left of a TTL of %v", held.Left, by.p.ttl)
}

// claim is the claim to the first name.
func (h *hold) claim() fence.Claim { return h.grants[0].Claim }

func (h *hold) token(name string) fence.Token {
	if i := slices.Index(h.req.Names, name); i >= 0 {
		return h.grants[i].Claim.Token
	}
	return 0
}

// stays must still be valid: the request, repeated, gives the same claims.
func (h *hold) stays(when string) {
	s := h.p.s
	if s.failed() {
		return
	}
	grants, err := h.p.ask(h.req)
	if err != nil {
		s.fail("%s: %q repeating the acquire of %q: %w; want the same grants", when, h.p.owner, h.req.Names, err)
		return
	}
	s.checkGrants(h.p, h.req, grants)
	for i := range grants {
		s.want(s.failed() || grants[i].Claim == h.grants[i].Claim, "%s: the claim to %q changed from %v to %v", when, h.req.Names[i], h.grants[i].Claim, grants[i].Claim)
	}
	for _, name := range h.req.Names {
		info := s.get(name)
		s.want(info.Held && info.Acquisition == h.req.ID && info.Token == h.token(name) && info.Owner == h.p.owner && info.Session == h.p.id,
			"%s: Get says of %q: %+v; want it held by %q under token %d", when, name, info, h.p.owner, h.token(name))
	}
}

// over must be refused for ever, with how.
func (h *hold) over(how ...lease.End) {
	if h.p.s.failed() {
		return
	}
	_, err := h.p.ask(h.req)
	h.p.s.ended(err, "acquisition", h.req.ID, how...)
}

func (h *hold) releaseRequest() lease.ReleaseRequest {
	return lease.ReleaseRequest{Session: h.p.id, ID: h.req.ID, Names: h.req.Names}
}

// release must succeed, and say whether it was over already.
func (h *hold) release(already bool) {
	h.p.released(h.releaseRequest(), already)
}

func (p *party) released(req lease.ReleaseRequest, already bool) {
	if p.s.failed() {
		return
	}
	r, err := p.s.store.Release(p.s.ctx, req)
	if err != nil {
		p.s.fail("%q releasing %q: %w; want success", p.owner, req.Names, err)
		return
	}
	p.s.want(r.Already == already, "%q releasing %q: Already is %v", p.owner, req.Names, r.Already)
}

// releaseFails must be answered with how it was over before.
func (h *hold) releaseFails(how lease.End) {
	if h.p.s.failed() {
		return
	}
	_, err := h.p.s.store.Release(h.p.s.ctx, h.releaseRequest())
	h.p.s.ended(err, "acquisition", h.req.ID, how)
}

// renew must succeed.
func (p *party) renew() lease.Renewal { return p.renewed(lease.RenewRequest{Session: p.id}) }

func (p *party) renewed(req lease.RenewRequest) lease.Renewal {
	if p.s.failed() {
		return lease.Renewal{}
	}
	r, err := p.s.store.Renew(p.s.ctx, req)
	if err != nil {
		p.s.fail("%q renewing: %w; want success", p.owner, err)
		return r
	}
	p.s.want(r.Remaining > 0 && r.Remaining <= p.ttl, "%q renewing: %v remain of %v", p.owner, r.Remaining, p.ttl)
	return r
}

// renewFails must say that the session is over, and how.
func (p *party) renewFails(how ...lease.End) {
	if p.s.failed() {
		return
	}
	_, err := p.s.store.Renew(p.s.ctx, lease.RenewRequest{Session: p.id})
	p.s.ended(err, "session", p.id, how...)
}

func (p *party) close() {
	if p.s.failed() {
		return
	}
	if err := p.s.store.Close(p.s.ctx, p.id); err != nil {
		p.s.fail("%q closing its session: %w; want success", p.owner, err)
	}
}

func (s *stage) get(name string) lease.Info {
	if s.failed() {
		return lease.Info{}
	}
	info, err := s.store.Get(s.ctx, name)
	if err != nil {
		s.fail("looking at %q: %w", name, err)
	}
	s.want(s.failed() || info.Name == name, "looking at %q: told about %q", name, info.Name)
	return info
}

// free must be nobody's, with the end of its latest holder among ends; without ends, it was never granted.
func (s *stage) free(name string, ends ...lease.End) {
	info := s.get(name)
	if s.failed() {
		return
	}
	s.want(!info.Held && info.Remaining == 0 && info.HoldLeft == 0, "%q is held: %+v; want it free", name, info)
	if len(ends) == 0 {
		s.want(info.Token == 0, "%q was granted under token %d; want it never granted", name, info.Token)
		return
	}
	s.want(slices.Contains(ends, info.End), "%q is free, its latest lease %v; want %v", name, info.End, ends)
}

// ended demands an EndedError about id that says one of how.
func (s *stage) ended(err error, what string, id fence.ID, how ...lease.End) {
	var ended *lease.EndedError
	if !errors.As(err, &ended) {
		s.fail("got %v; want: %s %s is over", err, what, id)
		return
	}
	s.want(ended.What == what && ended.ID == id, "got %w; want it to be about %s %s", err, what, id)
	s.want(slices.Contains(how, ended.How), "got %w; want one of %v", err, how)
}

// kind demands an error of exactly one kind.
func (s *stage) kind(err, kind error, doing string, args ...any) {
	s.want(errors.Is(err, kind), "%s: %v; want an error that matches %q", fmt.Sprintf(doing, args...), err, kind)
	for _, other := range []error{
		lease.ErrHeld, lease.ErrEnded, lease.ErrUnknown, lease.ErrMismatch, lease.ErrInvalid, lease.ErrUnavailable, fence.ErrAhead,
	} {
		s.want(!errors.Is(err, other) || errors.Is(kind, other), "%s: %v matches %q and %q", fmt.Sprintf(doing, args...), err, kind, other)
	}
}

// mismatch demands a MismatchError that says what differs.
func (s *stage) mismatch(err error, what string) {
	var mismatch *lease.MismatchError
	if !errors.As(err, &mismatch) {
		s.fail("another %s: %v; want a MismatchError", what, err)
		return
	}
	s.want(mismatch.What == what, "another %s: %w", what, err)
}
