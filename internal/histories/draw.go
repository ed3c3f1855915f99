package histories

import (
	"encoding/binary"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
)

// Options shapes the histories.
type Options struct {
	Steps    int           // at most; one or more
	Away     time.Duration // between any operation and any expiry, at least; 0 where the clock stands still
	Operator bool          // revoke, list, prune and raise the epoch too: both harnesses are OperatorHarnesses
}

// maxSessions and maxKnown bound what one history speaks of.
const (
	maxSessions = 5
	maxKnown    = 24
)

// night is longer than any TTL and the least age of what is pruned, together.
const night = lease.MaxTTL + 2*lease.MinPruneAge

// Draw draws one history, running it on the oracle as it goes.
func Draw(t *rapid.T, oracle leasetest.Harness, o Options) []leasetest.Op {
	d := &draft{t: t, o: o, oracle: leasetest.NewPlayer(oracle), below: map[fence.ID]fence.ID{}}
	length := rapid.IntRange(1, o.Steps).Draw(t, "steps")
	for len(d.ops) < length {
		steps()[rapid.SampledFrom(d.kinds()).Draw(t, "kind")](d)
	}
	return d.ops
}

// draft is a history being drawn.
type draft struct {
	t        *rapid.T
	o        Options
	oracle   *leasetest.Player
	ops      []leasetest.Op
	last     uint64 // the latest id
	now      time.Duration
	expiries []time.Duration
	sessions []lease.OpenRequest
	known    []lease.AcquireRequest // ids that were asked for, released, or are on their way
	below    map[fence.ID]fence.ID  // by session: closed-below, as a client raises it
}

// steps are the kinds of step. Not each is one operation: some are two, and a request in flight is none yet.
func steps() map[string]func(*draft) {
	return map[string]func(*draft){
		"open": (*draft).open, "open again": (*draft).openAgain, "close": (*draft).close, "renew": (*draft).renew,
		"acquire": (*draft).acquire, "acquire later": (*draft).acquireLater, "acquire again": (*draft).acquireAgain,
		"acquire otherwise": (*draft).acquireOther, "release": (*draft).release, "release otherwise": (*draft).releaseOther,
		"release early": (*draft).releaseEarly, "get": (*draft).get, "advance": (*draft).advance,
		"list": (*draft).list, "revoke": (*draft).revoke, "raise": (*draft).raise, "sleep": (*draft).sleep,
	}
}

// kinds are the steps that make sense now, those that matter more several times.
func (d *draft) kinds() []string {
	if len(d.sessions) == 0 {
		return []string{"open"}
	}
	kinds := []string{
		"open", "open again", "close", "get", "get", "renew", "renew", "renew", "advance", "advance", "advance",
		"acquire", "acquire", "acquire", "acquire", "acquire later", "release early",
	}
	if len(d.known) > 0 {
		kinds = append(kinds, "acquire again", "acquire again", "acquire otherwise", "release", "release", "release", "release otherwise")
	}
	if d.o.Operator {
		kinds = append(kinds, "list", "raise", "sleep")
		if len(d.known) > 0 {
			kinds = append(kinds, "revoke", "revoke")
		}
	}
	return kinds
}

// play adds the operation, and remembers the expiries that it set.
func (d *draft) play(op leasetest.Op) leasetest.Reply {
	d.ops = append(d.ops, op)
	r := d.oracle.Play(d.t.Context(), op)
	d.now += op.Advance
	if r.Err != nil {
		return r
	}
	switch {
	case op.Open != nil:
		d.expires(r.Left)
	case op.Renew != nil:
		d.expires(r.Renewal.Remaining)
	case op.Acquire != nil && r.Grants[0].HoldLeft > 0:
		d.expires(r.Grants[0].HoldLeft)
	}
	return r
}

func (d *draft) expires(left time.Duration) {
	if at := d.now + left; !slices.Contains(d.expiries, at) {
		d.expiries = append(d.expiries, at)
	}
}

func (d *draft) newID() fence.ID {
	d.last++
	var id fence.ID
	binary.BigEndian.PutUint64(id[8:], d.last)
	return id
}

func (d *draft) session() lease.OpenRequest {
	return rapid.SampledFrom(d.sessions).Draw(d.t, "session")
}
func (d *draft) one() lease.AcquireRequest {
	return rapid.SampledFrom(d.known).Draw(d.t, "acquisition")
}
func (d *draft) chance(n int) bool   { return rapid.IntRange(1, n).Draw(d.t, "chance") == 1 }
func (d *draft) name() string        { return rapid.SampledFrom(allNames()).Draw(d.t, "name") }
func (d *draft) ttl() time.Duration  { return rapid.SampledFrom(allTTLs()).Draw(d.t, "ttl") }
func (d *draft) hold() time.Duration { return rapid.SampledFrom(allHolds()).Draw(d.t, "max hold") }
func allNames() []string             { return []string{"a", "a/b", "é", "z"} }
func allTTLs() []time.Duration {
	return []time.Duration{5 * time.Second, 12 * time.Second, time.Minute, time.Hour}
}
func allHolds() []time.Duration {
	return []time.Duration{0, 0, 3 * time.Second, 7 * time.Second, 40 * time.Second}
}
func owners() []string { return []string{"w", "w", "v", ""} }

// names are one to three different names, in any order.
func (d *draft) names() []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(allNames()), 1, 3, rapid.ID[string]).Draw(d.t, "names")
}

// otherNames differ from names as a set.
func (d *draft) otherNames(names []string) []string {
	for {
		other := d.names()
		if !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(other))) {
			return other
		}
	}
}

// know remembers an id, forgetting the oldest beyond a bound.
func (d *draft) know(req lease.AcquireRequest) {
	d.known = append(d.known, req)
	if len(d.known) > maxKnown {
		d.known = d.known[1:]
	}
}

// valid reports whether the acquisition is valid on the oracle.
func (d *draft) valid(a lease.AcquireRequest) bool {
	r := d.oracle.Play(d.t.Context(), leasetest.Op{Get: &a.Names[0]})
	return r.Err == nil && r.Infos[0].Held && r.Infos[0].Acquisition == a.ID
}

// closedBelow is what a request of the session carries: nothing, or what its client has said before.
func (d *draft) closedBelow(session fence.ID) fence.ID {
	if d.chance(2) {
		return d.below[session]
	}
	return fence.ID{}
}
