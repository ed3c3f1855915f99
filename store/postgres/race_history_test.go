package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// grantTold is one grant as its client saw it, by readings of one clock. It believed that it held from the reply until its safe deadline, or
// until it sent the release or the close.
type grantTold struct {
	name             string
	session, id      fence.ID
	token            fence.Token
	sent, from       time.Duration
	until            time.Duration
	givenUp, bounded bool // by its client: released, or its session closed; with MaxHold
}

// renewalTold is a renewal that succeeded.
type renewalTold struct {
	session fence.ID
	sent    time.Duration
}

// history is what clients were told. Safe for concurrent use.
type history struct {
	mu       sync.Mutex
	grants   []grantTold
	renewals []renewalTold
}

func (h *history) granted(g grantTold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grants = append(h.grants, g)
}

func (h *history) renewed(session fence.ID, sent time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewals = append(h.renewals, renewalTold{session, sent})
}

// rule judges the grants of one name, given when each session's last renewal was sent.
type rule func(grants []grantTold, lastRenewal map[fence.ID]time.Duration) error

func allRules() []rule { return []rule{tokensRise, oneBelieves, noneRevived} }

// check finds what must never be.
func (h *history) check(rules ...rule) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	byName := map[string][]grantTold{}
	for _, g := range h.grants {
		byName[g.name] = append(byName[g.name], g)
	}
	lastRenewal := map[fence.ID]time.Duration{}
	for _, r := range h.renewals {
		lastRenewal[r.session] = max(lastRenewal[r.session], r.sent)
	}
	for name, grants := range byName {
		for _, broke := range rules {
			if err := broke(slices.Clone(grants), lastRenewal); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// tokensRise: a grant that was asked for after another one's reply has a greater token, and no two have the same.
func tokensRise(grants []grantTold, _ map[fence.ID]time.Duration) error {
	slices.SortFunc(grants, func(a, b grantTold) int { return cmp.Compare(a.sent, b.sent) })
	replies := slices.Clone(grants)
	slices.SortFunc(replies, func(a, b grantTold) int { return cmp.Compare(a.from, b.from) })
	owners := map[fence.Token]fence.ID{}
	var highest grantTold
	next := 0
	for _, g := range grants {
		for ; next < len(replies) && replies[next].from < g.sent; next++ {
			if replies[next].token > highest.token {
				highest = replies[next]
			}
		}
		if g.token < highest.token || g.token == highest.token && g.id != highest.id {
			return broken("token %d was granted after token %d", g.token, highest.token)
		}
		if owner, used := owners[g.token]; used && owner != g.id {
			return broken("token %d was granted twice", g.token)
		}
		owners[g.token] = g.id
	}
	return nil
}

// oneBelieves: by the rule of the safe deadline, at most one client at a time believes that it holds the name.
func oneBelieves(grants []grantTold, _ map[fence.ID]time.Duration) error {
	slices.SortFunc(grants, func(a, b grantTold) int { return cmp.Compare(a.from, b.from) })
	var last grantTold
	for _, g := range grants {
		if g.until <= g.from {
			continue // it came too late to be believed
		}
		if g.from < last.until && g.id != last.id {
			return broken("token %d was believed until %v, and token %d from %v", last.token, last.until, g.token, g.from)
		}
		if g.until > last.until {
			last = g
		}
	}
	return nil
}

// noneRevived: a session whose lease another one was granted, without having given it up, is never renewed after that.
func noneRevived(grants []grantTold, lastRenewal map[fence.ID]time.Duration) error {
	slices.SortFunc(grants, func(a, b grantTold) int { return cmp.Compare(a.token, b.token) })
	for i := 1; i < len(grants); i++ {
		former, successor := grants[i-1], grants[i]
		if former.id == successor.id || former.givenUp || former.bounded {
			continue
		}
		if lastRenewal[former.session] > successor.from {
			return broken("the session of token %d was renewed after token %d had been granted", former.token, successor.token)
		}
	}
	return nil
}

// TestHistoryCheck: the judge finds each kind of fault.
func TestHistoryCheck(t *testing.T) {
	a, b := fence.ID{1}, fence.ID{2}
	first := grantTold{name: "n", session: a, id: a, token: 1, sent: 1, from: 2, until: 10}
	second := grantTold{name: "n", session: b, id: b, token: 2, sent: 11, from: 12, until: 20}
	fine := &history{grants: []grantTold{second, first}, renewals: []renewalTold{{a, 11}, {b, 15}}}
	if err := fine.check(allRules()...); err != nil {
		t.Error(err)
	}
	early, low, same := second, second, second
	early.sent, early.from = 8, 9
	low.token, first.token = 1, 2
	same.token = 2
	for what, h := range map[string]*history{
		"two believe":           {grants: []grantTold{{name: "n", id: a, token: 1, sent: 1, from: 2, until: 10}, early}},
		"a token fell":          {grants: []grantTold{first, low}},
		"a token came again":    {grants: []grantTold{first, same}},
		"a session was revived": {grants: fine.grants, renewals: []renewalTold{{a, 13}}},
	} {
		if h.check(allRules()...) == nil {
			t.Errorf("not found: %s", what)
		}
	}
}
