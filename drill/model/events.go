package model

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// Handover is how long after the former holder's expiry the successors were granted. That expiry counts
// from before the holder's last acknowledged request was sent, so nobody may be granted before.
type Handover struct {
	Rounds   int   `json:"rounds"`
	Early    int   `json:"early"`     // granted before the expiry: none may be
	WithinMS int64 `json:"within_ms"` // the bound that was asked for, 0 for none
	Within   int   `json:"within"`    // of Rounds
	P50US    int64 `json:"p50_us"`    // after the expiry, microseconds
	P99US    int64 `json:"p99_us"`
	MaxUS    int64 `json:"max_us"`
}

// within reports whether the demand is met: at most one round in a hundred, rounded up, may be later.
func (s *Handover) within(d Demand) bool {
	if d.Handover == 0 {
		return true
	}
	return s != nil && s.Rounds == d.Rounds && s.Early == 0 && s.Rounds-s.Within <= (s.Rounds+99)/100
}

// judgeEvents looks for successors that were granted while the former holder held, or believed to hold.
func judgeEvents(v *Verdict, h History, d Demand, round int) {
	noticed := false
	for _, e := range h.Events {
		next, ok := successor(h.Events, e.Token)
		if !ok {
			continue
		}
		did := ""
		switch e.What {
		case Granted:
		case HeldTill:
			v.Reclaims++
			did = "held it"
		case Worked:
			did = "worked under it"
		case Believed:
			noticed, did = true, "believed to hold"
		case Stopped, Killed, Continued, LateTold, Wished, ClaimTill, Moved: // of payments, where nobody holds
		}
		if did != "" && next.At < e.At {
			v.problem("round %d: token %d was granted while the owner of token %d still %s, for %v more",
				round, next.Token, e.Token, did, e.At-next.At)
		}
	}
	if d.Noticed && !noticed {
		v.problem("round %d: the former holder did not notice that its lease was over", round)
	}
	if d.Overran {
		judgeOverrun(v, h, round)
	}
}

// judgeOverrun makes sure that the former holder worked on after its lease was over.
func judgeOverrun(v *Verdict, h History, round int) {
	worked, held := latest(h.Events, Worked), latest(h.Events, HeldTill)
	over := worked.At - held.At
	if worked.Token == 0 || held.Token == 0 || over <= 0 {
		v.problem("round %d: the former holder's work was not seen to outlast its lease", round)
		return
	}
	if v.OverranMS == 0 || over.Milliseconds() < v.OverranMS {
		v.OverranMS = over.Milliseconds()
	}
}

// successor is the first grant under a greater token.
func successor(events []Event, token fence.Token) (Event, bool) {
	var found Event
	for _, e := range events {
		if e.What == Granted && e.Token > token && (found.Token == 0 || e.Token < found.Token) {
			found = e
		}
	}
	return found, found.Token != 0
}

// judgeHandover measures the hand-overs of all rounds; nil if there are none.
func judgeHandover(v *Verdict, h History, d Demand) *Handover {
	stats := &Handover{WithinMS: d.Handover.Milliseconds()}
	var late []time.Duration
	for round := 1; round <= d.last(); round++ {
		if slices.Contains(d.Void, round) {
			continue
		}
		took, ok := handover(h.of(round), d)
		if !ok {
			if d.Handover > 0 {
				v.problem("round %d: it is not known when the former holder's lease was over, or when the successor was granted", round)
			}
			continue
		}
		if took < 0 {
			stats.Early++
		}
		if d.Handover > 0 && took <= d.Handover {
			stats.Within++
		}
		late = append(late, took)
	}
	if len(late) == 0 {
		return nil
	}
	slices.Sort(late)
	stats.Rounds = len(late)
	stats.P50US = quantile(late, 50).Microseconds()
	stats.P99US = quantile(late, 99).Microseconds()
	stats.MaxUS = late[len(late)-1].Microseconds()
	return stats
}

// handover is the time from the last moment at which the former holder held for certain, or worked, to its successor's grant.
func handover(h History, d Demand) (time.Duration, bool) {
	what := HeldTill
	if d.After != "" {
		what = d.After
	}
	held := latest(h.Events, what)
	if held.Token == 0 {
		return 0, false
	}
	next, ok := successor(h.Events, held.Token)
	return next.At - held.At, ok
}

// latest is the last event of a kind, or one without a token.
func latest(events []Event, what What) Event {
	var last Event
	for _, e := range events {
		if e.What == what && (last.Token == 0 || e.At > last.At) {
			last = e
		}
	}
	return last
}

// quantile is the smallest value that is at least as large as percent of all; sorted is not empty.
func quantile(sorted []time.Duration, percent int) time.Duration {
	at := (len(sorted)*percent + 99) / 100
	return sorted[max(at, 1)-1]
}
