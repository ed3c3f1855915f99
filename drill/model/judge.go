package model

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// Demand is what a drill promised to show.
type Demand struct {
	Rounds   int           `json:"rounds"`   // that count
	Void     []int         `json:"void"`     // numbers of rounds that do not: they were begun and given up before anything was late
	Fenced   bool          `json:"fenced"`   // whether the resource was to check
	Late     int           `json:"late"`     // late writes that each round must have sent to the resource
	Unsent   int           `json:"unsent"`   // late writes that the client of each round must have refused to send
	Noticed  bool          `json:"noticed"`  // each former holder stopped believing before its successor was granted
	Handover time.Duration `json:"handover"` // the successor is granted within this of the former holder's expiry; 0: not asked
	After    What          `json:"after"`    // what Handover counts from instead of the expiry
	Overran  bool          `json:"overran"`  // each former holder worked on after its expiry
	Told     string        `json:"told"`     // part of what each refused late write must have been told; empty: anything
}

// Verdict is the judgement over a history. The zero value is "not ok".
type Verdict struct {
	LateSent             int       `json:"late_writes_sent"`
	AcceptedStale        int       `json:"accepted_stale_writes"`
	RefusedStale         int       `json:"refused_stale_writes"`
	SuccessorWrites      int       `json:"successor_writes"`
	LostUpdates          int       `json:"lost_updates"`
	OK                   bool      `json:"ok"`
	InvalidRounds        []int     `json:"invalid_rounds,omitempty"`
	RefusedBeforeSending int       `json:"refused_before_sending"`
	Reclaims             int       `json:"reclaims"` // grants over a holder that had not released
	Handover             *Handover `json:"handover,omitempty"`
	Failover             *Failover `json:"failover,omitempty"`
	Payments             *Payments `json:"payments,omitempty"`
	Sales                *Sales    `json:"sales,omitempty"`
	Mail                 *Mail     `json:"messages,omitempty"`
	OverranMS            int64     `json:"overran_ms,omitempty"` // how much longer than their leases the former holders worked, at least
	Why                  string    `json:"why,omitempty"`        // what the last refused late write was told
	Problems             []string  `json:"problems,omitempty"`   // at most maxProblems
}

const maxProblems = 20

func (v *Verdict) problem(format string, args ...any) {
	if len(v.Problems) < maxProblems {
		v.Problems = append(v.Problems, fmt.Sprintf(format, args...))
	}
}

// Judge says what the history shows. It believes the order of the resource's own log over what writers say of
// themselves: an accepted write is stale if a write under a greater token was accepted before it.
//
// With enforcement it is ok when every round sent its late writes, all of them were refused, and nothing else was; without,
// when every one of them was accepted and each round lost acknowledged updates. Either way the record must be sound: a refusal changed
// nothing, log and content agree, no token had two writers, and no successor was granted while the former holder held.
func Judge(h History, d Demand) Verdict {
	var v Verdict
	if d.Rounds < 1 {
		v.problem("no round was demanded")
	}
	for round := 1; round <= d.last(); round++ {
		if slices.Contains(d.Void, round) {
			judgeVoid(&v, h.of(round), round)
			continue
		}
		judgeRound(&v, h.of(round), d, round)
	}
	if stray := h.outside(d.last()); stray > 0 {
		v.problem("%d entries are of no round", stray)
	}
	v.Handover = judgeHandover(&v, h, d)
	v.OK = len(v.Problems) == 0 && len(v.InvalidRounds) == 0 && v.LateSent == d.Rounds*d.Late &&
		v.SuccessorWrites >= d.Rounds && v.Handover.within(d)
	if d.Fenced {
		v.OK = v.OK && v.AcceptedStale == 0 && v.RefusedStale == v.LateSent && v.LostUpdates == 0
	} else {
		v.OK = v.OK && v.AcceptedStale == v.LateSent && v.RefusedStale == 0 && v.LostUpdates >= d.Rounds
	}
	return v
}

// last is the highest number of a round. Rounds are numbered from 1, those that do not count included.
func (d Demand) last() int { return d.Rounds + len(d.Void) }

// judgeVoid makes sure that a round which is not to count has nothing in it that would have counted.
func judgeVoid(v *Verdict, h History, round int) {
	var highest fence.Token
	for _, w := range h.Writes {
		if w.Token < highest {
			v.problem("round %d was given up, and a stale write was accepted in it", round)
		}
		highest = max(highest, w.Token)
	}
	for _, a := range h.Answers {
		if a.Late || !a.Accepted {
			v.problem("round %d was given up, and %q had been answered in it", round, a.Element)
		}
	}
}

// of is the history of one round.
func (h History) of(round int) History {
	return History{
		Writes:  filter(h.Writes, func(w Write) bool { return w.Round == round }),
		Answers: filter(h.Answers, func(a Answer) bool { return a.Round == round }),
		Events:  filter(h.Events, func(e Event) bool { return e.Round == round }),
		Content: map[int][]string{round: h.Content[round]},
	}
}

// outside counts what is of no round from 1 to rounds.
func (h History) outside(rounds int) int {
	other := func(round int) bool { return round < 1 || round > rounds }
	n := len(filter(h.Writes, func(w Write) bool { return other(w.Round) }))
	n += len(filter(h.Answers, func(a Answer) bool { return other(a.Round) }))
	n += len(filter(h.Events, func(e Event) bool { return other(e.Round) }))
	for round := range h.Content {
		if other(round) {
			n++
		}
	}
	return n
}

func filter[T any](all []T, keep func(T) bool) []T {
	var kept []T
	for _, x := range all {
		if keep(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

func judgeRound(v *Verdict, h History, d Demand, round int) {
	stale := judgeWrites(v, h, round)
	sent, unsent := judgeAnswers(v, h, stale, d, round)
	if sent != d.Late || unsent != d.Unsent {
		v.InvalidRounds = append(v.InvalidRounds, round)
	}
	judgeRecord(v, h, round)
	judgeEvents(v, h, d, round)
}

// judgeWrites follows the log and returns the elements whose writes were stale.
func judgeWrites(v *Verdict, h History, round int) map[string]bool {
	var highest fence.Token
	writers := map[fence.Token]string{}
	seen := map[string]bool{}
	stale := map[string]bool{}
	first := h.lowest()
	for _, w := range h.Writes {
		if seen[w.Element] {
			v.problem("round %d: %q was written twice", round, w.Element)
		}
		seen[w.Element] = true
		if other, ok := writers[w.Token]; ok && other != w.Writer {
			v.problem("round %d: token %d was used by %s and %s", round, w.Token, other, w.Writer)
		}
		writers[w.Token] = w.Writer
		switch {
		case w.Token < highest:
			v.AcceptedStale++
			stale[w.Element] = true
		case w.Token > first:
			v.SuccessorWrites++
		}
		highest = max(highest, w.Token)
		if !slices.Contains(h.Content[round], w.Element) {
			v.LostUpdates++
		}
	}
	return stale
}

// lowest is the lowest token that the history shows: the first owner's. The others are successors. Token 0 is of a writer without any claim, who
// is nobody's owner.
func (h History) lowest() fence.Token {
	var lowest fence.Token
	take := func(token fence.Token) {
		if token > 0 && (lowest == 0 || token < lowest) {
			lowest = token
		}
	}
	for _, w := range h.Writes {
		take(w.Token)
	}
	for _, a := range h.Answers {
		take(a.Token)
	}
	return lowest
}

// judgeAnswers holds what the writers were told against the log.
func judgeAnswers(v *Verdict, h History, stale map[string]bool, d Demand, round int) (sent, unsent int) {
	written := map[string]Write{}
	for _, w := range h.Writes {
		written[w.Element] = w
	}
	answered := map[string]bool{}
	for _, a := range h.Answers {
		w, isWritten := written[a.Element]
		switch {
		case a.Unsent:
			unsent++
			v.RefusedBeforeSending++
			continue
		case a.Accepted && (!isWritten || w.Token != a.Token || w.Writer != a.Writer):
			v.problem("round %d: %s was told that %q is accepted, and the log has no such write", round, a.Writer, a.Element)
		case !a.Accepted && isWritten:
			v.problem("round %d: %s was told that %q is refused, and it is in the log", round, a.Writer, a.Element)
		case !a.Accepted && slices.Contains(h.Content[round], a.Element):
			v.problem("round %d: %q was refused, and is in the content", round, a.Element)
		}
		if answered[a.Element] {
			v.problem("round %d: %q was answered twice", round, a.Element)
		}
		answered[a.Element] = true
		switch {
		case !a.Late && !a.Accepted:
			v.problem("round %d: the rightful write %q of %s was refused: %s", round, a.Element, a.Writer, a.Why)
		case a.Late && a.Accepted && !stale[a.Element]:
			v.problem("round %d: the late write %q was not late: nobody had written under a newer token", round, a.Element)
		case a.Late && !a.Accepted && !preceded(h, a):
			v.problem("round %d: the late write %q was not late: no successor's write is in the log", round, a.Element)
		}
		if a.Late {
			sent++
			if !a.Accepted {
				v.RefusedStale++
				v.Why = a.Why
				if !strings.Contains(a.Why, d.Told) {
					v.problem("round %d: the late write %q was told %q, want %q", round, a.Element, a.Why, d.Told)
				}
			}
		}
	}
	for element := range written {
		if !answered[element] {
			v.problem("round %d: nobody was told of %q, which is in the log", round, element)
		}
	}
	v.LateSent += sent
	return sent, unsent
}

// preceded reports whether a write under a greater token than the refused one's is in the log.
func preceded(h History, a Answer) bool {
	return slices.ContainsFunc(h.Writes, func(w Write) bool { return w.Token > a.Token })
}

// judgeRecord holds the content against the log: both change in one transaction.
func judgeRecord(v *Verdict, h History, round int) {
	content := h.Content[round]
	if len(h.Writes) == 0 {
		if len(content) > 0 {
			v.problem("round %d: the content is %q, and nothing was written", round, content)
		}
		return
	}
	if last := h.Writes[len(h.Writes)-1]; !slices.Equal(last.Content, content) {
		v.problem("round %d: the last write left %q, and %q is read", round, last.Content, content)
	}
}
