package model

import "github.com/tenure-go/tenure/fence"

// Branch is a part of an authority's history in the drill failover: which server granted, after what.
type Branch string

// The branches, in the order in which they grant.
const (
	Primary     Branch = "primary"              // shipped to all standbys
	Unshipped   Branch = "primary, cut off"     // commits that no standby ever sees
	Promoted    Branch = "standby promoted"     // after the primary was killed
	Second      Branch = "second standby"       // promoted from the same parent
	Copied      Branch = "plain copy"           // of the dead primary's files, started
	Returned    Branch = "old primary back"     // started again
	ClockBehind Branch = "clock an hour behind" // a third standby whose clock is behind the parent's: the stated residue
	Raised      Branch = "epoch raised"         // the same, repaired
)

// Grant is a token that was granted.
type Grant struct {
	Round  int         `json:"round"`
	Branch Branch      `json:"branch"`
	Name   string      `json:"name"`
	Token  fence.Token `json:"token"`
}

// Belief is what the holder of the lost branch said when a successor had been granted on another one.
type Belief struct {
	Round    int    `json:"round"`
	Name     string `json:"name"`
	Believes bool   `json:"believes"` // that it holds
}

// Ahead is what became of a claim of the lost branch on the branch whose clock is behind.
type Ahead struct {
	Round   int  `json:"round"`
	Refused bool `json:"refused"` // as a token from the future
	Stopped bool `json:"stopped"` // no grant of its name followed
	Lifted  bool `json:"lifted"`  // until the epoch was raised
}

// Facts are what a drill of failover saw beside the resource.
type Facts struct {
	Grants  []Grant  `json:"grants"` // in the order in which they were made
	Beliefs []Belief `json:"beliefs"`
	Ahead   []Ahead  `json:"ahead"`
}

// BranchTokens is what one branch granted.
type BranchTokens struct {
	Branch   Branch      `json:"branch"`
	Grants   int         `json:"grants"`
	Repeated int         `json:"repeated"` // tokens that an earlier grant of the same name had
	First    fence.Token `json:"first"`    // of the last round
	Last     fence.Token `json:"last"`
}

// Failover is the judgement over tokens and beliefs.
type Failover struct {
	Branches   []BranchTokens `json:"branches"`
	Grants     int            `json:"grants"`
	Repeated   int            `json:"repeated_tokens"` // the branch whose clock is behind apart
	Fallen     int            `json:"fallen_tokens"`   // not above all earlier ones of their name
	Successors int            `json:"successors"`      // granted while the holder of the lost branch was there to be asked
	Believers  int            `json:"two_believers"`   // of these: the former holder still believed to hold
	// The residue: a new branch whose clock is behind.
	BehindRepeated int `json:"behind_repeated_tokens"`
	AheadRefused   int `json:"ahead_refused"`
	AheadStopped   int `json:"ahead_stopped"`
	RaisedGrants   int `json:"raised_grants"`
	RaisedRepeated int `json:"raised_repeated_tokens"`
}

// Judged is how many grants had to be new: all but those of the residue.
func (f *Failover) Judged() int {
	n := f.Grants
	for _, b := range f.Branches {
		if b.Branch == ClockBehind || b.Branch == Raised {
			n -= b.Grants
		}
	}
	return n
}

// resources is how many values a round of failover writes to, each with one late write.
const resources = 2

// JudgeFailover says what the tokens of all branches and the resource show. h numbers the resource's rounds from 1 to twice d.Rounds.
//
// It is ok when no token came twice for a name nor fell, over all branches, every late write of a holder of the lost branch
// was refused, and the residue showed as stated: with the clock behind, tokens repeat, a claim of the lost branch stops its
// name, and raising the epoch repairs both. With d.Fenced false the branches did not jump: it is ok when tokens repeat in each round.
func JudgeFailover(h History, f Facts, d Demand) Verdict {
	v := Verdict{Failover: judgeTokens(f)}
	late := d
	late.Late, late.Unsent = 1, 0
	for round := 1; round <= resources*d.Rounds; round++ {
		part := h.of(round)
		stale := judgeWrites(&v, part, round)
		if sent, _ := judgeAnswers(&v, part, stale, late, round); sent != 1 {
			v.InvalidRounds = append(v.InvalidRounds, round)
		}
		judgeRecord(&v, part, round)
	}
	r := v.Failover
	sent := v.LateSent == resources*d.Rounds && len(v.InvalidRounds) == 0
	if !d.Fenced {
		v.OK = sent && d.Rounds > 0 && repeatsInEach(f, d.Rounds)
		return v
	}
	residue := r.BehindRepeated >= d.Rounds && r.AheadRefused == d.Rounds && r.AheadStopped == d.Rounds &&
		r.RaisedGrants >= resources*d.Rounds && r.RaisedRepeated == 0
	v.OK = sent && d.Rounds > 0 && len(v.Problems) == 0 && v.AcceptedStale == 0 && v.RefusedStale == v.LateSent && v.LostUpdates == 0 &&
		r.Repeated == 0 && r.Fallen == 0 && r.Believers >= d.Rounds && residue && grantedEverywhere(r.Branches, d.Rounds)
	return v
}

// judgeTokens holds each grant against the earlier ones of its name. A round is a history of its own.
func judgeTokens(f Facts) *Failover {
	type key struct {
		round int
		name  string
	}
	r := &Failover{Grants: len(f.Grants)}
	seen := map[key]map[fence.Token]bool{}
	highest := map[key]fence.Token{}
	at := map[Branch]int{}
	round := map[Branch]int{}
	for _, g := range f.Grants {
		k := key{g.Round, g.Name}
		i, known := at[g.Branch]
		if !known {
			i = len(r.Branches)
			at[g.Branch] = i
			r.Branches = append(r.Branches, BranchTokens{Branch: g.Branch})
		}
		b := &r.Branches[i]
		if round[g.Branch] != g.Round {
			round[g.Branch], b.First = g.Round, g.Token
		}
		b.Grants++
		b.Last = g.Token
		repeated := seen[k][g.Token]
		if repeated {
			b.Repeated++
		}
		switch {
		case g.Branch == ClockBehind && repeated:
			r.BehindRepeated++
		case g.Branch == Raised:
			r.RaisedGrants++
			if repeated {
				r.RaisedRepeated++
			}
		case g.Branch != ClockBehind:
			if repeated {
				r.Repeated++
			} else if g.Token <= highest[k] {
				r.Fallen++
			}
			highest[k] = max(highest[k], g.Token)
		}
		if seen[k] == nil {
			seen[k] = map[fence.Token]bool{}
		}
		seen[k][g.Token] = true
	}
	for _, b := range f.Beliefs {
		r.Successors++
		if b.Believes {
			r.Believers++
		}
	}
	for _, a := range f.Ahead {
		if a.Refused {
			r.AheadRefused++
		}
		if a.Refused && a.Stopped && a.Lifted {
			r.AheadStopped++
		}
	}
	return r
}

// grantedEverywhere reports whether each branch granted in each round: what did not grant shows nothing.
func grantedEverywhere(branches []BranchTokens, rounds int) bool {
	granted := 0
	for _, b := range branches {
		if b.Grants >= rounds {
			granted++
		}
	}
	return granted == len([]Branch{Primary, Unshipped, Promoted, Second, Copied, Returned, ClockBehind, Raised})
}

// repeatsInEach reports whether a token came twice in each round.
func repeatsInEach(f Facts, rounds int) bool {
	for round := 1; round <= rounds; round++ {
		part := Facts{Grants: filter(f.Grants, func(g Grant) bool { return g.Round == round })}
		if judgeTokens(part).Repeated == 0 {
			return false
		}
	}
	return true
}
