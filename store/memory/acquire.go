package memory

import (
	"math"
	"slices"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func (c *core) acquire(req lease.AcquireRequest) ([]lease.Grant, error) {
	if err := req.Check(guarantees()); err != nil {
		return nil, err
	}
	s, err := c.live(req.Session)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(slices.Values(req.Names))
	if a := c.acquisitions[req.ID]; a != nil {
		return c.again(a, req, names)
	}
	if req.ID.Less(s.closedBelow) || req.ID.Less(req.ClosedBelow) {
		return nil, &lease.EndedError{What: "acquisition", ID: req.ID, How: lease.EndForgotten}
	}
	if err := c.refusal(names); err != nil {
		return nil, err
	}
	c.closeBelow(s, req.ClosedBelow)
	return c.grants(c.grant(s, req, names), req.Names), nil
}

// again answers an acquire whose id is known: with the same grants while they are valid, never with new ones.
func (c *core) again(a *acquisition, req lease.AcquireRequest, names []string) ([]lease.Grant, error) {
	if end := c.endOf(a); end != 0 {
		if a.end == 0 {
			c.finish(a, end, c.overSince(a))
		}
		return nil, &lease.EndedError{What: "acquisition", ID: a.id, How: end, Reason: a.reason}
	}
	switch {
	case a.session.id != req.Session:
		return nil, &lease.MismatchError{What: "session", ID: req.ID}
	case !slices.Equal(a.names, names):
		return nil, &lease.MismatchError{What: "names", ID: req.ID}
	case a.maxHold != req.MaxHold:
		return nil, &lease.MismatchError{What: "max hold", ID: req.ID}
	}
	return c.grants(a, req.Names), nil
}

// refusal says why not all of the names can be granted, or nil. It writes nothing.
func (c *core) refusal(names []string) error {
	for _, name := range names {
		if ahead := c.stopped[name]; ahead != nil {
			return ahead
		}
	}
	for _, name := range names {
		r := c.rows[name]
		if r != nil && c.endOf(r.latest) == 0 {
			return &lease.HeldError{Name: name, Owner: r.latest.session.owner, Token: r.token, Left: c.left(r.latest)}
		}
	}
	if c.counter > math.MaxInt64-fence.Token(len(names)) {
		return &lease.UnavailableError{Op: "acquire", Err: errTokensUsedUp}
	}
	return nil
}

// grant makes the acquisition. All its names are free.
func (c *core) grant(s *session, req lease.AcquireRequest, names []string) *acquisition {
	a := &acquisition{
		id: req.ID, session: s, names: names, tokens: make([]fence.Token, len(names)),
		maxHold: req.MaxHold, holdExpiry: c.now + req.MaxHold, rows: len(names),
	}
	c.acquisitions[a.id] = a
	for i, name := range names {
		c.counter++
		a.tokens[i] = c.counter
		if r := c.rows[name]; r != nil {
			c.takeOver(r.latest)
		}
		c.rows[name] = &row{token: c.counter, latest: a}
	}
	return a
}

// takeOver writes the verdict on the predecessor of a grant: this is where its expiry becomes final.
func (c *core) takeOver(old *acquisition) {
	old.rows--
	sessionEnd := c.settle(old.session)
	switch end := c.endOf(old); {
	case old.end != 0 || end == lease.EndClosed:
		c.forget(old)
	case sessionEnd == 0: // its session lives: MaxHold passed
		c.finish(old, lease.EndSuperseded, old.holdExpiry)
	default:
		c.finish(old, end, c.overSince(old))
	}
}

// grants describes a, in the order of names.
func (c *core) grants(a *acquisition, names []string) []lease.Grant {
	grants := make([]lease.Grant, 0, len(names))
	for _, name := range names {
		i, _ := slices.BinarySearch(a.names, name)
		g := lease.Grant{
			Claim:     fence.Claim{Authority: c.authority, Name: name, Acquisition: a.id, Token: a.tokens[i]},
			Remaining: a.session.expiry - c.now,
		}
		if a.maxHold != 0 {
			g.HoldLeft = a.holdExpiry - c.now
		}
		grants = append(grants, g)
	}
	return grants
}

func (c *core) release(req lease.ReleaseRequest) (lease.Released, error) {
	if err := req.Check(); err != nil {
		return lease.Released{}, err
	}
	s, _ := c.live(req.Session)
	a := c.acquisitions[req.ID]
	if s != nil {
		c.closeBelow(s, req.ClosedBelow)
	}
	if a == nil {
		if s != nil && !req.ID.Less(s.closedBelow) { // its acquire may still arrive: close the id
			a = &acquisition{id: req.ID, session: s}
			c.acquisitions[a.id] = a
			c.finish(a, lease.EndReleased, c.now)
		}
		return lease.Released{Already: true}, nil
	}
	if a.session.id != req.Session {
		return lease.Released{}, &lease.MismatchError{What: "session", ID: req.ID}
	}
	return c.releaseKnown(a, req)
}

func (c *core) releaseKnown(a *acquisition, req lease.ReleaseRequest) (lease.Released, error) {
	switch end := c.endOf(a); end {
	case 0:
		if !slices.Equal(a.names, slices.Sorted(slices.Values(req.Names))) {
			return lease.Released{}, &lease.MismatchError{What: "names", ID: req.ID}
		}
		c.finish(a, lease.EndReleased, c.now)
		return lease.Released{}, nil
	case lease.EndReleased, lease.EndClosed:
		return lease.Released{Already: true}, nil
	default:
		if a.end == 0 {
			c.finish(a, end, c.overSince(a))
		}
		a.session.revoked = slices.DeleteFunc(a.session.revoked, func(r *acquisition) bool { return r == a })
		return lease.Released{}, &lease.EndedError{What: "acquisition", ID: a.id, How: end, Reason: a.reason}
	}
}
