package memory

import (
	"bytes"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func (c *core) open(req lease.OpenRequest) (time.Duration, error) {
	if err := req.Check(guarantees()); err != nil {
		return 0, err
	}
	if c.sessions[req.ID] == nil {
		c.sessions[req.ID] = &session{id: req.ID, owner: req.Owner, ttl: req.TTL, expiry: c.now + req.TTL}
		return req.TTL, nil
	}
	s, err := c.live(req.ID)
	if err != nil {
		return 0, err
	}
	if s.owner != req.Owner {
		return 0, &lease.MismatchError{What: "owner", ID: req.ID}
	}
	if s.ttl != req.TTL {
		return 0, &lease.MismatchError{What: "ttl", ID: req.ID}
	}
	return s.expiry - c.now, nil
}

func (c *core) renew(req lease.RenewRequest) (lease.Renewal, error) {
	if err := req.Check(); err != nil {
		return lease.Renewal{}, err
	}
	s, err := c.live(req.Session)
	if err != nil {
		return lease.Renewal{}, err
	}
	c.closeBelow(s, req.ClosedBelow)
	for _, a := range req.Release {
		// How one of them was over already is of no use to a client that has given it up: all that
		// matters is that the id is closed afterwards, and it is.
		_, _ = c.release(lease.ReleaseRequest{Session: req.Session, ID: a.ID, Names: a.Names})
	}
	s.expiry = c.now + s.ttl
	return lease.Renewal{Remaining: s.ttl, Revoked: revokedOf(s)}, nil
}

func revokedOf(s *session) []lease.RevokedAcquisition {
	var told []lease.RevokedAcquisition
	for _, a := range s.revoked[:min(len(s.revoked), lease.MaxRelease)] {
		told = append(told, lease.RevokedAcquisition{ID: a.id, Reason: a.reason})
	}
	slices.SortFunc(told, func(a, b lease.RevokedAcquisition) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return told
}

func (c *core) close(id fence.ID) error {
	if id.IsZero() {
		return &lease.InvalidError{Field: "session", Problem: "no id"}
	}
	s := c.sessions[id]
	if s == nil {
		c.sessions[id] = &session{id: id, ended: lease.EndClosed, endedAt: c.now}
		return nil
	}
	if end := c.settle(s); end == lease.EndClosed {
		return nil
	} else if end != 0 {
		return &lease.EndedError{What: "session", ID: id, How: end}
	}
	s.ended, s.endedAt = lease.EndClosed, c.now
	for _, a := range s.closed {
		c.forget(a)
	}
	s.closed, s.revoked = nil, nil
	return nil
}
