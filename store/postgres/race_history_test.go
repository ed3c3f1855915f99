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
	Name             string
	Session, ID      fence.ID
	Token            fence.Token
	Sent, From       time.Duration
	Until            time.Duration
	GivenUp, Bounded bool // by its client: released, or its session closed; with MaxHold
}

// renewalTold is a renewal that succeeded.
type renewalTold struct {
	Session fence.ID
	Sent    time.Duration
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
		byName[g.Name] = append(byName[g.Name], g)
	}
	lastRenewal := map[fence.ID]time.Duration{}
	for _, r := range h.renewals {
		lastRenewal[r.Session] = max(lastRenewal[r.Session], r.Sent)
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
	slices.SortFunc(grants, func(a, b grantTold) int { return cmp.Compare(a.Sent, b.Sent) })
	replies := slices.Clone(grants)
	slices.SortFunc(replies, func(a, b grantTold) int { return cmp.Compare(a.From, b.From) })
	owners := map[fence.Token]fence.ID{}
	var highest grantTold
	next := 0
	for _, g := range grants {
		for ; next < len(replies) && replies[next].From < g.Sent; next++ {
			if replies[next].Token > highest.Token {
				highest = replies[next]
			}
		}
		if g.Token < highest.Token || g.Token == highest.Token && g.ID != highest.ID {
			return broken("token %d was granted after token %d", g.Token, highest.Token)
		}
		if owner, used := owners[g.Token]; used && owner != g.ID {
			return broken("token %d was granted twice", g.Token)
		}
		owners[g.Token] = g.ID
	}
	return nil
}

// oneBelieves: by the rule of the safe deadline, at most one client at a time believes that it holds the name.
func oneBelieves(grants []grantTold, _ map[fence.ID]time.Duration) error {
	slices.SortFunc(grants, func(a, b grantTold) int { return cmp.Compare(a.From, b.From) })
	var last grantTold
	for _, g := range grants {
		if g.Until <= g.From {
			continue // it came too late to be believed
		}
		if g.From < last.Until && g.ID != last.ID {
			return broken("token %d was believed until %v, and token %d from %v", last.Token, last.Until, g.Token, g.From)
		}
		if g.Until > last.Until {
			last = g
		}
	}
	return nil
}

// noneRevived: a session whose lease another one was granted, without having given it up, is never renewed after that.
func noneRevived(grants []grantTold, lastRenewal map[fence.ID]time.Duration) error {
	slices.SortFunc(grants, func(a, b grantTold) int { return cmp.Compare(a.Token, b.Token) })
	for i := 1; i < len(grants); i++ {
		former, successor := grants[i-1], grants[i]
		if former.ID == successor.ID || former.GivenUp || former.Bounded {
			continue
		}
		if lastRenewal[former.Session] > successor.From {
			return broken("the session of token %d was renewed after token %d had been granted", former.Token, successor.Token)
		}
	}
	return nil
}

// TestHistoryCheck: the judge finds each kind of fault.
func TestHistoryCheck(t *testing.T) {
	a, b := fence.ID{1}, fence.ID{2}
	first := grantTold{Name: "n", Session: a, ID: a, Token: 1, Sent: 1, From: 2, Until: 10}
	second := grantTold{Name: "n", Session: b, ID: b, Token: 2, Sent: 11, From: 12, Until: 20}
	fine := &history{grants: []grantTold{second, first}, renewals: []renewalTold{{a, 11}, {b, 15}}}
	if err := fine.check(allRules()...); err != nil {
		t.Error(err)
	}
	early, low, same := second, second, second
	early.Sent, early.From = 8, 9
	low.Token, first.Token = 1, 2
	same.Token = 2
	for what, h := range map[string]*history{
		"two believe":           {grants: []grantTold{{Name: "n", ID: a, Token: 1, Sent: 1, From: 2, Until: 10}, early}},
		"a token fell":          {grants: []grantTold{first, low}},
		"a token came again":    {grants: []grantTold{first, same}},
		"a session was revived": {grants: fine.grants, renewals: []renewalTold{{a, 13}}},
	} {
		if h.check(allRules()...) == nil {
			t.Errorf("not found: %s", what)
		}
	}
}
