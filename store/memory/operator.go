package memory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// highestFloor leaves as many tokens above it as below.
const highestFloor fence.Token = 1 << 62

func (c *core) get(name string) (lease.Info, error) {
	if err := lease.CheckName(name); err != nil {
		return lease.Info{}, err
	}
	return c.info(name), nil
}

func (c *core) info(name string) lease.Info {
	r := c.rows[name]
	if r == nil {
		return lease.Info{Name: name}
	}
	a := r.latest
	info := lease.Info{
		Name: name, Token: r.token, Acquisition: a.id, Session: a.session.id, Owner: a.session.owner, End: c.endOf(a),
	}
	if info.End == 0 {
		info.Held, info.Remaining = true, a.session.expiry-c.now
		if a.maxHold != 0 {
			info.HoldLeft = a.holdExpiry - c.now
		}
	}
	return info
}

func (c *core) list(req lease.ListRequest) ([]lease.Info, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	var names []string
	for name := range c.rows {
		if name > req.After && strings.HasPrefix(name, req.Prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	infos := []lease.Info{}
	for _, name := range names[:min(len(names), req.Limit)] {
		infos = append(infos, c.info(name))
	}
	return infos, nil
}

func (c *core) revoke(req lease.RevokeRequest) (lease.Revoked, error) {
	if err := req.Check(); err != nil {
		return lease.Revoked{}, err
	}
	former := c.info(req.Name)
	if former.Token != req.Token {
		return lease.Revoked{}, &lease.MismatchError{What: "token", ID: former.Acquisition, Name: req.Name, Seen: former.Token}
	}
	a := c.rows[req.Name].latest
	switch former.End {
	case 0:
	case lease.EndRevoked:
		return lease.Revoked{Already: true, Former: former, BelievesAtMost: max(a.believes-c.now, 0)}, nil
	default:
		return lease.Revoked{}, &lease.EndedError{What: "acquisition", ID: a.id, How: former.End}
	}
	left := c.left(a)
	a.reason, a.believes = req.Reason, c.now+left
	a.session.revoked = append(a.session.revoked, a)
	c.finish(a, lease.EndRevoked, c.now)
	return lease.Revoked{Former: former, Names: slices.Clone(a.names), BelievesAtMost: left}, nil
}

func (c *core) prune(age time.Duration, limit int) (int, error) {
	if age < lease.MinPruneAge {
		return 0, &lease.InvalidError{Field: "age", Problem: fmt.Sprintf("want at least %v, got %v", lease.MinPruneAge, age)}
	}
	if limit < 1 || limit > lease.MaxPrune {
		return 0, &lease.InvalidError{Field: "limit", Problem: fmt.Sprintf("want 1 to %d, got %d", lease.MaxPrune, limit)}
	}
	old := c.now - age
	pruned := 0
	for _, name := range slices.Sorted(maps.Keys(c.rows)) {
		a := c.rows[name].latest
		if pruned < limit && c.endOf(a) != 0 && c.overSince(a) <= old && !c.mayBeAsked(a) {
			delete(c.rows, name)
			a.rows--
			pruned++
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(c.acquisitions), compareIDs) {
		a := c.acquisitions[id]
		if pruned < limit && a.rows == 0 && c.endOf(a) != 0 && c.overSince(a) <= old && !c.mayBeAsked(a) {
			delete(c.acquisitions, id)
			pruned++
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(c.sessions), compareIDs) {
		s := c.sessions[id]
		if pruned < limit && c.sessionEnd(s) != 0 && s.overSince() <= old {
			c.settle(s)
			delete(c.sessions, id)
			pruned++
		}
	}
	return pruned, nil
}

// mayBeAsked reports whether what became of a must still be known, although it is over: an acquire under
// its id may arrive, or its holder has not confirmed that it was told of a revocation.
func (c *core) mayBeAsked(a *acquisition) bool {
	if c.sessionEnd(a.session) != 0 {
		return false
	}
	return !a.id.Less(a.session.closedBelow) || slices.Contains(a.session.revoked, a)
}

func (s *session) overSince() time.Duration {
	if s.ended != 0 {
		return s.endedAt
	}
	return s.expiry
}

func compareIDs(a, b fence.ID) int { return strings.Compare(string(a[:]), string(b[:])) }

func (c *core) raiseEpoch(above fence.Token) (fence.Token, error) {
	if above < 0 || above > highestFloor {
		return 0, &lease.InvalidError{Field: "token", Problem: fmt.Sprintf("want a floor of 0 to %d, got %d", highestFloor, above)}
	}
	byClock := fence.Token((c.now - c.origin).Milliseconds() << 10)
	c.counter = max(c.counter, above, byClock)
	clear(c.stopped)
	return c.counter, nil
}

// verify is the strict rule on what the core knows. A token of this authority's that it never issued stops
// grants of the name: the next one could repeat it.
func (c *core) verify(claim fence.Claim) error {
	standing := fence.Standing{Authority: c.authority, Name: claim.Name, Issued: c.counter}
	if r := c.rows[claim.Name]; r != nil {
		standing.Acquisition, standing.Token = r.latest.id, r.token
		standing.Over = overAs(c.endOf(r.latest))
	}
	err := fence.Verify(standing, claim)
	if ahead, ok := err.(*fence.AheadError); ok { //nolint:errorlint // Verify returns it unwrapped, and so it is kept
		c.stopped[claim.Name] = ahead
	}
	return err
}

// overAs is a lease's end in the words of a refusal.
func overAs(end lease.End) fence.Reason {
	switch end {
	case 0:
		return 0
	case lease.EndReleased, lease.EndClosed:
		return fence.Released
	case lease.EndExpired:
		return fence.Expired
	case lease.EndSuperseded:
		return fence.Superseded
	case lease.EndRevoked:
		return fence.Revoked
	default: // forgotten: the core says it of what it does not know, never of a row
		return fence.NotGranted
	}
}
