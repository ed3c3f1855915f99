package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// JudgeSales says what the facts show. What was sold is what the business's table holds, and no counter of whoever played the round has a say.
//
// The drill is ok when every round was valid, and each that was played with holds did no damage and came to exactly what was promised, and each that was played without did the damage that was promised.
func JudgeSales(f SaleFacts, d SaleDemand) Verdict {
	v := Verdict{Sales: &Sales{Damage: map[Damage]int{}}}
	for _, want := range d.Variants {
		v.Sales.Variants = append(v.Sales.Variants, SaleVariant{Name: want.Name, OK: true})
	}
	if d.Rounds < 1 || len(d.Variants) == 0 {
		v.problem("no round was demanded")
	}
	for _, round := range d.Played {
		j := saleJudge{v: &v, n: round.Round, SaleFacts: f.of(round.Round), want: d.Variants[round.Variant]}
		if round.Void {
			if found := j.damages(); len(found) > 0 && j.want.Damage == "" {
				j.problem("it was given up, and did damage: %v", found)
			}
			continue
		}
		variant := &v.Sales.Variants[round.Variant]
		problems, invalid := len(v.Problems), len(v.InvalidRounds)
		variant.Rounds++
		variant.Sales += len(j.Sales)
		j.count()
		if j.judge() {
			variant.Damaged++
		}
		variant.OK = variant.OK && len(v.Problems) == problems && len(v.InvalidRounds) == invalid
	}
	for i, want := range d.Variants {
		if n := v.Sales.Variants[i].Rounds; n != d.Rounds {
			v.Sales.Variants[i].OK = false
			v.problem("%s: %d rounds of %d were played", want.Name, n, d.Rounds)
		}
	}
	v.OK = len(v.Problems) == 0 && len(v.InvalidRounds) == 0
	return v
}

// of are the facts of one round.
func (f SaleFacts) of(round int) SaleFacts {
	return SaleFacts{
		Sales:   filter(f.Sales, func(s SaleRow) bool { return s.Round == round }),
		Holds:   filter(f.Holds, func(h SaleHold) bool { return h.Round == round }),
		Items:   filter(f.Items, func(i SaleItem) bool { return i.Round == round }),
		Answers: filter(f.Answers, func(a Answer) bool { return a.Round == round }),
		Events:  filter(f.Events, func(e Event) bool { return e.Round == round }),
	}
}

// saleJudge judges one round.
type saleJudge struct {
	SaleFacts
	v    *Verdict
	n    int
	want SaleWant
}

func (j *saleJudge) problem(format string, args ...any) {
	j.v.problem("round %d, %s: "+format, append([]any{j.n, j.want.Name}, args...)...)
}

func (j *saleJudge) count() {
	s := j.v.Sales
	s.Sales += len(j.Sales)
	s.Confirmed += len(filter(j.Holds, func(h SaleHold) bool { return h.State == "confirmed" }))
	s.Late += len(filter(j.Holds, func(h SaleHold) bool { return h.State == "late" }))
	late := filter(j.Answers, func(a Answer) bool { return a.Late && !a.Unsent })
	s.LateSent += len(late)
	s.LateSold += len(filter(late, func(a Answer) bool { return a.Accepted }))
}

// damages are the kinds of damage that the round shows, whatever was promised of it.
func (j *saleJudge) damages() (found []Damage) {
	paid, deals := map[string]int{}, map[[2]string]bool{}
	for _, s := range j.Sales {
		paid[s.Reference]++
		deals[[2]string{s.Buyer, s.Reference}] = true
	}
	confirmed := func(id, reference string) bool {
		return slices.ContainsFunc(j.Holds, func(h SaleHold) bool { return h.ID == id && h.State == "confirmed" && h.Reference == reference })
	}
	add := func(is bool, kind Damage) {
		if is {
			found = append(found, kind)
		}
	}
	add(len(deals) > 1, SoldTwice)
	add(slices.ContainsFunc(slices.Collect(maps.Values(paid)), func(n int) bool { return n > 1 }), SaleTwice)
	if len(j.Holds) > 0 { // else there are none to compare with
		add(slices.ContainsFunc(j.Sales, func(s SaleRow) bool { return !confirmed(s.Hold, s.Reference) }), SoldUnheld)
	}
	add(slices.ContainsFunc(j.Holds, func(h SaleHold) bool {
		return h.State == "confirmed" && !slices.ContainsFunc(j.Sales, func(s SaleRow) bool { return s.Hold == h.ID && s.Reference == h.Reference })
	}), Unwritten)
	return found
}

// judge compares a round that counts with what was promised, and reports whether there is damage. It counts also where nothing went wrong that was to.
func (j *saleJudge) judge() bool {
	found := j.damages()
	for _, kind := range found {
		j.v.Sales.Damage[kind]++
		if j.want.Damage == "" {
			j.problem("damage: %s; %s", kind, j.sold())
		}
	}
	if len(found) > 0 {
		j.v.Sales.DamagedRounds++
	}
	switch {
	case !j.valid():
		j.v.InvalidRounds = append(j.v.InvalidRounds, j.n)
	case j.want.Damage == "":
		j.compare()
	case !slices.Contains(found, j.want.Damage):
		j.problem("the damage %q is not seen, but %q; %s", j.want.Damage, found, j.sold())
	}
	return len(found) > 0
}

// valid reports whether what was to go wrong did, and what was to be sent late was.
func (j *saleJudge) valid() bool {
	for _, what := range j.want.Saw {
		if !slices.ContainsFunc(j.Events, func(e Event) bool { return e.What == what }) {
			return false
		}
	}
	for _, writer := range j.want.Late {
		if !slices.ContainsFunc(j.Answers, func(a Answer) bool { return a.Late && !a.Unsent && a.Writer == writer }) {
			return false
		}
	}
	return true
}

// compare demands exactly what was promised: one sale, the holds in their states, and what the sellers were told.
func (j *saleJudge) compare() {
	if len(j.Sales) != 1 || j.Sales[0].Buyer != j.want.Buyer || j.Sales[0].Reference != j.want.Paid {
		j.problem("want one sale, to %s for %s; %s", j.want.Buyer, j.want.Paid, j.sold())
	}
	if len(j.Items) != 1 || j.Items[0].Sold != 1 {
		j.problem("the store says that of its one seat were sold: %+v", j.Items)
	}
	got := map[string]string{}
	for _, h := range j.Holds {
		got[h.Actor] = strings.TrimSpace(h.State + " " + h.Reference)
	}
	if !maps.Equal(got, j.want.Holds) {
		j.problem("the holds are %v, want %v", got, j.want.Holds)
	}
	for writer, told := range j.want.Told {
		all := filter(j.Answers, func(a Answer) bool { return a.Writer == writer })
		if !slices.ContainsFunc(all, func(a Answer) bool { return strings.Contains(a.Why, told) }) {
			j.problem("%s was told %+v, want %q", writer, all, told)
		}
	}
}

// sold says what the table holds.
func (j *saleJudge) sold() string {
	if len(j.Sales) == 0 {
		return "nothing is sold"
	}
	var texts []string
	for _, s := range j.Sales {
		texts = append(texts, fmt.Sprintf("%s has bought it for %s", s.Buyer, s.Reference))
	}
	return strings.Join(texts, ", ")
}
