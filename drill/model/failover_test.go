package model

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// survived is a failover of some rounds in which all went as stated, with the resource's history.
func survived(rounds int) (History, Facts) {
	h := sound(resources*rounds, true)
	h.Events = nil
	var f Facts
	for round := 1; round <= rounds; round++ {
		grant := func(branch Branch, name string, tokens ...fence.Token) {
			for _, token := range tokens {
				f.Grants = append(f.Grants, Grant{round, branch, name, token})
			}
		}
		grant(Primary, "n", 1, 2)
		grant(Unshipped, "n", 3, 4)
		grant(Promoted, "n", 2048, 2049)
		grant(Second, "n", 4096)
		grant(Copied, "n", 6144)
		grant(Returned, "n", 8192)
		grant(ClockBehind, "n", 3, 4)
		grant(Raised, "n", 5)
		grant(Raised, "m", 6)
		f.Beliefs = append(f.Beliefs, Belief{round, "n", true}, Belief{round, "m", false})
		f.Ahead = append(f.Ahead, Ahead{Round: round, Refused: true, Stopped: true, Lifted: true})
	}
	return h, f
}

func TestFailoverThatHolds(t *testing.T) {
	h, f := survived(2)
	v := JudgeFailover(h, f, Demand{Rounds: 2, Fenced: true})
	r := v.Failover
	if !v.OK || v.LateSent != 4 || v.RefusedStale != 4 || r.Grants != 26 || r.Judged() != 18 || r.Repeated != 0 || r.BehindRepeated != 4 || r.Successors != 4 || r.Believers != 2 ||
		r.RaisedGrants != 4 || len(r.Branches) != 8 || r.Branches[0].Grants != 4 || r.Branches[0].Last != 2 {
		t.Errorf("%+v %+v", v, r)
	}
	if v := JudgeFailover(h, f, Demand{Rounds: 2}); v.OK {
		t.Errorf("without the jump nothing repeats, and it is ok: %+v", v.Failover)
	}
}

// TestFailoverThatDoesNotHold: whatever one may not find makes it not ok.
func TestFailoverThatDoesNotHold(t *testing.T) {
	of := func(f *Facts, branch Branch) *Grant {
		return &f.Grants[slices.IndexFunc(f.Grants, func(g Grant) bool { return g.Branch == branch && g.Round == 2 })]
	}
	for name, c := range map[string]struct {
		spoil  func(h *History, f *Facts)
		counts func(r *Failover) bool
	}{
		"a token of the lost branch comes again": {func(_ *History, f *Facts) { of(f, Promoted).Token = 4 }, func(r *Failover) bool { return r.Repeated == 1 }},
		"the old primary repeats":                {func(_ *History, f *Facts) { of(f, Returned).Token = 6144 }, func(r *Failover) bool { return r.Repeated == 1 }},
		"tokens fall":                            {func(_ *History, f *Facts) { of(f, Copied).Token = 5 }, func(r *Failover) bool { return r.Fallen == 1 }},
		"a raised epoch repeats":                 {func(_ *History, f *Facts) { of(f, Raised).Token = 4 }, func(r *Failover) bool { return r.RaisedRepeated == 1 }},
		"a branch does not grant": {func(_ *History, f *Facts) {
			f.Grants = slices.DeleteFunc(f.Grants, func(g Grant) bool { return g.Branch == Second })
		}, nil},
		"the residue does not show": {func(_ *History, f *Facts) {
			for i := range f.Grants {
				if f.Grants[i].Branch == ClockBehind {
					f.Grants[i].Token += 1 << 30
				}
			}
		}, func(r *Failover) bool { return r.BehindRepeated == 0 }},
		"a claim from the future is let in": {func(_ *History, f *Facts) { f.Ahead[1].Refused = false }, func(r *Failover) bool { return r.AheadRefused == 1 }},
		"it stops nothing":                  {func(_ *History, f *Facts) { f.Ahead[1].Stopped = false }, func(r *Failover) bool { return r.AheadStopped == 1 }},
		"the stop is not lifted":            {func(_ *History, f *Facts) { f.Ahead[1].Lifted = false }, nil},
		"nobody was seen to believe": {func(_ *History, f *Facts) {
			for i := range f.Beliefs {
				f.Beliefs[i].Believes = false
			}
		}, nil},
		"a late write is accepted": {func(h *History, _ *Facts) {
			late := lateOf(h, 3)
			late.Accepted = true
			h.Writes = append(h.Writes, Write{Round: 3, Writer: "A", Element: "a-2", Token: late.Token, Content: []string{"a-1", "a-2"}})
			h.Content[3] = []string{"a-1", "a-2"}
		}, nil},
		"a late write is not sent": {func(h *History, _ *Facts) {
			h.Answers = slices.DeleteFunc(h.Answers, func(a Answer) bool { return a.Round == 3 && a.Late })
		}, nil},
		"nothing happened": {func(h *History, f *Facts) { *h, *f = History{}, Facts{} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, f := survived(2)
			c.spoil(&h, &f)
			v := JudgeFailover(h, f, Demand{Rounds: 2, Fenced: true})
			if v.OK || c.counts != nil && !c.counts(v.Failover) {
				t.Errorf("%+v %+v", v, v.Failover)
			}
		})
	}
}

// TestWithoutTheJumpEachRoundRepeats: one lucky round is not enough to say that the drill can fail.
func TestWithoutTheJumpEachRoundRepeats(t *testing.T) {
	h, f := survived(2)
	for round := 1; round <= 2; round++ {
		i := slices.IndexFunc(f.Grants, func(g Grant) bool { return g.Branch == Promoted && g.Round == round })
		f.Grants[i].Token = 4
		if v := JudgeFailover(h, f, Demand{Rounds: 2}); v.OK != (round == 2) {
			t.Errorf("after round %d: %s", round, fmt.Sprintf("%+v", v.Failover))
		}
	}
}
