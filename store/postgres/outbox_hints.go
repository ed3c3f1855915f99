package postgres

import (
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	fullLook  = 5 * time.Second // after so long a look begins at the beginning, whatever is known
	fullShare = 20              // and after so many times what the last one took
)

// hints are, for each topic, a turn below which this process expects nothing in the queue. They are in no database and decide nothing: a wrong one makes a message wait, until the next full look at most.
//
// A row below a hint can only be one whose transaction had drawn its turn, and had not committed, when the hint was learnt. It has its number before it draws, so it is among those that were under way in the snapshot of that look, and what it draws is
// above all that was learnt before it was first seen. That is kept for each of these as its floor; when it has ended, looks go back to there, once. So a late commit is found by the first look after it, and a transaction that
// stays open costs nothing.
//
// A snapshot does not name those whose number is at or above its upper end, that is, above every number that has ended: the newest of the cluster may be under way and in no list. But a look that has claimed something had a number of its own, which
// has ended when the next look begins: from then on whoever has a lower one is named. So what is named in no list has drawn after the latest such look began, and above all that was learnt before it: solid. No look begins above that,
// and it is the floor of whoever is named for the first time.
type hints struct {
	mu     sync.Mutex
	from   map[string]int64            // never changed, only replaced
	best   map[string]int64            // the highest that were learnt; likewise
	floors map[uint64]map[string]int64 // of a transaction under way
	newest taken                       // the snapshot of the newest look that was learnt from
	solid  map[string]int64            // never changed, only replaced, as are the next ones
	next   map[string]int64            // solid, as soon as a look has begun after the one that claimed
	round  int64                       // of next
	looked time.Time                   // when the last full look began
	took   time.Duration               // how long it took
}

// look is where one begins.
type look struct {
	from  map[string]int64
	full  bool
	began time.Time
	round int64
}

// begin is from where to look.
func (h *hints) begin(now time.Time) look {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := look{from: h.from, began: now, round: h.round}
	if h.from == nil || now.Sub(h.looked) > max(fullLook, fullShare*h.took) {
		h.looked = now
		l.from, l.full = nil, true
	}
	return l
}

// reset forgets everything: what is behind the connection may be another server.
func (h *hints) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetLocked()
}

func (h *hints) forgetLocked() {
	h.from, h.best, h.floors, h.newest, h.solid, h.next = nil, nil, nil, taken{}, nil, nil
}

// learn takes what a look has seen: for each topic that it looked at the first turn that was there, in a snapshot. claimed: the look has written, and has committed.
// It reports whether a transaction has ended that may have left something below where the look began.
func (h *hints) learn(l look, topics []string, firsts []int64, seen string, claimed bool, now time.Time) (again bool) {
	s, ok := snapshot(seen)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !ok {
		h.forgetLocked()
		return false
	}
	if l.full {
		h.took = now.Sub(l.began)
	}
	if !s.follows(h.newest) {
		return false
	}
	h.newest = s
	best := h.best
	var back []map[string]int64
	floors := make(map[uint64]map[string]int64, len(s.running))
	for xid, floor := range h.floors {
		if s.running[xid] {
			floors[xid] = floor
		} else {
			back = append(back, floor)
		}
	}
	for xid := range s.running {
		if _, known := floors[xid]; !known {
			floors[xid] = h.solid
		}
	}
	h.floors = floors
	if h.next != nil && l.round == h.round {
		h.solid, h.next = h.next, nil
	}
	if claimed && h.next == nil {
		h.round++
		h.next = raised(best)
	}
	h.from, h.best = raised(h.from), raised(best)
	for i, topic := range topics {
		h.best[topic] = max(h.best[topic], firsts[i])
		if l.from[topic] <= h.from[topic] { // else it has not looked at what is between
			h.from[topic] = firsts[i]
		}
	}
	for topic, turn := range h.from {
		turn = min(turn, h.solid[topic])
		for _, floor := range back {
			turn = min(turn, floor[topic])
		}
		again = again || turn < l.from[topic]
		h.from[topic] = turn
	}
	return again
}

// raised is a copy to change.
func raised(m map[string]int64) map[string]int64 {
	if m == nil {
		return map[string]int64{}
	}
	return maps.Clone(m)
}

// taken is a snapshot: which transactions have ended.
type taken struct {
	high    uint64 // none from here on
	running map[uint64]bool
}

// follows reports whether whatever has ended in before has ended in s.
func (s taken) follows(before taken) bool {
	if s.high < before.high {
		return false
	}
	for xid := range s.running {
		if xid < before.high && !before.running[xid] {
			return false
		}
	}
	return true
}

// snapshot reads pg_snapshot: xmin:xmax:xip,xip.
func snapshot(text string) (s taken, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return s, false
	}
	high, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return s, false
	}
	s = taken{high: high, running: map[uint64]bool{}}
	for xid := range strings.SplitSeq(parts[2], ",") {
		if xid == "" {
			continue
		}
		n, err := strconv.ParseUint(xid, 10, 64)
		if err != nil {
			return s, false
		}
		s.running[n] = true
	}
	return s, true
}
