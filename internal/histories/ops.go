package histories

import (
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
)

func (d *draft) open() {
	if len(d.sessions) >= maxSessions {
		d.sessions = d.sessions[1:]
	}
	req := lease.OpenRequest{ID: d.newID(), Owner: rapid.SampledFrom(owners()).Draw(d.t, "owner"), TTL: d.ttl()}
	if d.chance(8) { // its close came first
		d.play(leasetest.Op{Close: &req.ID})
	}
	d.sessions = append(d.sessions, req)
	d.play(leasetest.Op{Open: &req})
}

func (d *draft) openAgain() {
	req := d.session()
	switch rapid.IntRange(0, 3).Draw(d.t, "particulars") {
	case 0:
		req.TTL += time.Microsecond // the finest that every store keeps
	case 1:
		req.Owner += "!"
	}
	d.play(leasetest.Op{Open: &req})
}

func (d *draft) close() {
	id := d.session().ID
	d.play(leasetest.Op{Close: &id})
}

func (d *draft) renew() {
	id := d.session().ID
	if d.chance(20) {
		id = d.newID() // unknown
	}
	req := lease.RenewRequest{Session: id, ClosedBelow: d.closedBelow(id)}
	if d.chance(3) { // the client raises it to what it may still ask about
		below := d.newID()
		if len(d.known) > 0 && d.chance(2) {
			below = d.one().ID
		}
		if d.below[id].Less(below) {
			d.below[id], req.ClosedBelow = below, below
		}
	}
	for _, a := range d.known {
		if a.Session == id && d.chance(5) {
			req.Release = append(req.Release, lease.Abandoned{ID: a.ID, Names: a.Names})
		}
	}
	if d.chance(10) {
		never := lease.AcquireRequest{Session: id, ID: d.newID(), Names: d.names()}
		req.Release = append(req.Release, lease.Abandoned{ID: never.ID, Names: never.Names})
		d.know(never)
	}
	d.play(leasetest.Op{Renew: &req})
}

func (d *draft) acquire() {
	s := d.session()
	req := lease.AcquireRequest{Session: s.ID, ID: d.newID(), Names: d.names(), MaxHold: d.hold(), ClosedBelow: d.closedBelow(s.ID)}
	d.know(req)
	d.play(leasetest.Op{Acquire: &req})
}

// acquireLater sends a request that is long in coming: its repetition may be the first to arrive.
func (d *draft) acquireLater() {
	d.know(lease.AcquireRequest{Session: d.session().ID, ID: d.newID(), Names: d.names(), MaxHold: d.hold()})
}

// acquireAgain repeats a request: after a lost reply, or long after its release.
func (d *draft) acquireAgain() {
	req := d.one()
	req.ClosedBelow = d.closedBelow(req.Session)
	d.play(leasetest.Op{Acquire: &req})
}

// acquireOther uses an id for another request. What becomes of it is settled while the id is valid.
func (d *draft) acquireOther() {
	a := d.one()
	if !d.valid(a) {
		d.acquireAgain()
		return
	}
	req := a
	switch rapid.IntRange(0, 2).Draw(d.t, "particulars") {
	case 0:
		req.Names = d.otherNames(req.Names)
	case 1:
		req.MaxHold += time.Second
	case 2:
		req.Session = d.session().ID
	}
	d.play(leasetest.Op{Acquire: &req})
}

func (d *draft) release() {
	a := d.one()
	req := lease.ReleaseRequest{Session: a.Session, ID: a.ID, Names: a.Names, ClosedBelow: d.closedBelow(a.Session)}
	d.play(leasetest.Op{Release: &req})
}

// releaseOther releases a valid acquisition with other names or by another session.
func (d *draft) releaseOther() {
	a := d.one()
	if !d.valid(a) {
		d.release()
		return
	}
	req := lease.ReleaseRequest{Session: a.Session, ID: a.ID, Names: a.Names}
	if d.chance(2) {
		req.Names = d.otherNames(req.Names)
	} else {
		req.Session = d.session().ID
	}
	d.play(leasetest.Op{Release: &req})
}

// releaseEarly releases an id whose acquire has not arrived, and may arrive later.
func (d *draft) releaseEarly() {
	s := d.session()
	never := lease.AcquireRequest{Session: s.ID, ID: d.newID(), Names: d.names()}
	d.know(never)
	d.play(leasetest.Op{Release: &lease.ReleaseRequest{Session: never.Session, ID: never.ID, Names: never.Names}})
}

func (d *draft) get() {
	name := d.name()
	d.play(leasetest.Op{Get: &name})
}

// advance lets time pass: a little, much, or to an expiry.
func (d *draft) advance() {
	beside := max(d.o.Away, time.Microsecond)
	var to []time.Duration
	for _, at := range d.expiries {
		for _, t := range []time.Duration{at - beside, at, at + beside} {
			if t > d.now {
				to = append(to, t)
			}
		}
	}
	by := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond, 700 * time.Millisecond, 2 * time.Second, 9 * time.Second, 30 * time.Second}).Draw(d.t, "by")
	target := d.now + by
	if len(to) > 0 && d.chance(2) {
		target = rapid.SampledFrom(to).Draw(d.t, "to")
	}
	d.play(leasetest.Op{Advance: d.away(target) - d.now})
}

// away is the first time from t on that is far enough from every expiry.
func (d *draft) away(t time.Duration) time.Duration {
	for moved := true; moved; {
		moved = false
		for _, at := range d.expiries {
			if t-at < d.o.Away && at-t < d.o.Away {
				t, moved = at+d.o.Away, true
			}
		}
	}
	return t
}

func (d *draft) list() {
	req := lease.ListRequest{
		Prefix: rapid.SampledFrom([]string{"", "a", "a/", "z"}).Draw(d.t, "prefix"),
		After:  rapid.SampledFrom([]string{"", "a", "é"}).Draw(d.t, "after"), Limit: lease.MaxList,
	}
	d.play(leasetest.Op{List: &req})
}

func (d *draft) revoke() {
	a := d.one()
	name := rapid.SampledFrom(a.Names).Draw(d.t, "name")
	d.play(leasetest.Op{Revoke: &leasetest.Revocation{Name: name, Acquisition: a.ID, Reason: "drawn"}})
}

func (d *draft) raise() { d.play(leasetest.Op{Raise: true}) }

// sleep lets a night pass in which everything ends, and prunes it: what a pruning may delete is then
// the same on every store. Ids of before are asked about afterwards, but not opened anew.
func (d *draft) sleep() {
	if !d.chance(3) {
		d.raise()
		return
	}
	d.play(leasetest.Op{Advance: d.away(d.now+night) - d.now})
	d.play(leasetest.Op{Prune: lease.MinPruneAge})
	d.sessions, d.below = nil, map[fence.ID]fence.ID{}
	d.known = d.known[max(0, len(d.known)-3):]
}
