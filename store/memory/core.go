package memory

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// core is the serial model: what an authority knows and how each request changes it. It performs no I/O,
// takes no lock and reads no clock; every request brings the time. It is what every other store is compared
// with, so it says each rule once, in the order in which the contract does.
//
// The clock never goes back: a reading below an earlier one counts as that earlier one.
type core struct {
	authority    fence.ID
	origin       time.Duration // when the authority began, for the floor of raised tokens
	now          time.Duration
	counter      fence.Token // the latest token granted for any name
	sessions     map[fence.ID]*session
	acquisitions map[fence.ID]*acquisition // valid ones, and those that are over and must stay refused
	rows         map[string]*row
	stopped      map[string]*fence.AheadError // names for which a token from the future was seen
}

type session struct {
	id          fence.ID
	owner       string
	ttl         time.Duration
	expiry      time.Duration
	ended       lease.End // written once, and for ever
	endedAt     time.Duration
	closedBelow fence.ID
	closed      []*acquisition // over by release, kept because an acquire under the id may still arrive
	revoked     []*acquisition // revoked, and not named in a release since
}

// acquisition is one unit: all its names are granted together and end together.
type acquisition struct {
	id         fence.ID
	session    *session
	names      []string      // sorted; empty for a tombstone
	tokens     []fence.Token // of names, by index
	maxHold    time.Duration
	holdExpiry time.Duration // meaningful where maxHold is not 0
	end        lease.End     // written; see core.endOf for the ends that follow from the time
	endedAt    time.Duration
	believes   time.Duration // of a revoked one: until when its holder may believe that it holds
	reason     string
	rows       int // names whose latest acquisition this is
}

// row is what is kept of a name after its first grant.
type row struct {
	token  fence.Token
	latest *acquisition
}

func newCore(authority fence.ID, now time.Duration) *core {
	return &core{
		authority:    authority,
		origin:       now,
		now:          now,
		sessions:     map[fence.ID]*session{},
		acquisitions: map[fence.ID]*acquisition{},
		rows:         map[string]*row{},
		stopped:      map[string]*fence.AheadError{},
	}
}

func guarantees() lease.Guarantees {
	return lease.Guarantees{
		Store:         "memory",
		PreciseExpiry: true,
		CoLocated:     true,
		MaxNames:      lease.MaxNames,
		MinTTL:        lease.MinTTL,
		MaxTTL:        lease.MaxTTL,
	}
}

// tick moves the clock, never back.
func (c *core) tick(now time.Duration) { c.now = max(c.now, now) }

// advance moves every stored instant back by d: as if d had passed, or, where d is negative, as if the
// clock stood earlier than it did.
func (c *core) advance(d time.Duration) {
	c.origin -= d
	sessions := map[*session]bool{}
	acquisitions := map[*acquisition]bool{}
	for _, s := range c.sessions {
		sessions[s] = true
	}
	for _, a := range c.acquisitions {
		acquisitions[a] = true
	}
	for _, r := range c.rows { // what was pruned may still be known by the row of a name alone
		acquisitions[r.latest], sessions[r.latest.session] = true, true
	}
	for s := range sessions {
		s.expiry -= d
		s.endedAt -= d
	}
	for a := range acquisitions {
		a.holdExpiry -= d
		a.endedAt -= d
		a.believes -= d
	}
}

// sessionEnd says how s is over, or 0, without writing it.
func (c *core) sessionEnd(s *session) lease.End {
	if s.ended == 0 && c.now >= s.expiry {
		return lease.EndExpired
	}
	return s.ended
}

// settle is sessionEnd for whoever acts on the answer: an expiry that was acted on is written, and stays.
func (c *core) settle(s *session) lease.End {
	if s.ended == 0 && c.now >= s.expiry {
		s.ended, s.endedAt = lease.EndExpired, s.expiry
	}
	return s.ended
}

// live returns the session if it lives, settling it; otherwise an error that says how it ended.
func (c *core) live(id fence.ID) (*session, error) {
	s := c.sessions[id]
	if s == nil {
		return nil, &lease.EndedError{What: "session", ID: id, How: lease.EndForgotten}
	}
	if end := c.settle(s); end != 0 {
		return nil, &lease.EndedError{What: "session", ID: id, How: end}
	}
	return s, nil
}

// endOf says how a is over, or 0 while it is valid, without writing it. Of several ends the first counts.
func (c *core) endOf(a *acquisition) lease.End {
	if a.end != 0 {
		return a.end
	}
	end, at := c.sessionEnd(a.session), a.session.expiry
	if a.session.ended != 0 {
		at = a.session.endedAt
	}
	held := a.maxHold != 0 && c.now >= a.holdExpiry
	if held && (end == 0 || a.holdExpiry <= at) {
		return lease.EndExpired
	}
	return end
}

// overSince is when a's end, as endOf tells it, happened.
func (c *core) overSince(a *acquisition) time.Duration {
	if a.end != 0 {
		return a.endedAt
	}
	at := a.session.expiry
	if a.session.ended != 0 {
		at = a.session.endedAt
	}
	if a.maxHold != 0 {
		at = min(at, a.holdExpiry)
	}
	return at
}

// finish writes how a ended.
func (c *core) finish(a *acquisition, end lease.End, at time.Duration) {
	a.end, a.endedAt = end, at
	if end == lease.EndReleased {
		a.session.closed = append(a.session.closed, a)
	}
	c.forget(a)
}

// forget drops what need not be known any more: a released acquisition that no row names, once an acquire
// under its id is refused anyway.
func (c *core) forget(a *acquisition) {
	end := c.endOf(a)
	if a.rows > 0 || end != lease.EndReleased && end != lease.EndClosed {
		return
	}
	if a.session.ended != 0 || a.id.Less(a.session.closedBelow) {
		delete(c.acquisitions, a.id)
	}
}

// closeBelow raises the session's mark of ids that are over for ever. It never falls.
func (c *core) closeBelow(s *session, id fence.ID) {
	if !s.closedBelow.Less(id) {
		return
	}
	s.closedBelow = id
	s.closed = slices.DeleteFunc(s.closed, func(a *acquisition) bool {
		c.forget(a)
		return a.id.Less(id)
	})
}

// left is how long a stays valid, at most, unless its session is renewed.
func (c *core) left(a *acquisition) time.Duration {
	left := a.session.expiry - c.now
	if a.maxHold != 0 {
		left = min(left, a.holdExpiry-c.now)
	}
	return max(left, 0)
}
