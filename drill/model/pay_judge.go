package model

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// JudgePayments says what the facts show. What a round did is what the ledger of the provider and the tables hold, and no counter of whoever played it has a say.
//
// The drill is ok when every round was valid, and each that was played with what is built in did no damage and came to exactly what was promised, and each that was played without did the damage that was promised.
func JudgePayments(f PayFacts, d PayDemand) Verdict {
	v := Verdict{Payments: &Payments{Damage: map[Damage]int{}}}
	p := v.Payments
	for _, want := range d.Variants {
		p.Variants = append(p.Variants, PayVariant{Name: want.Name, OK: true})
	}
	if d.Rounds < 1 || len(d.Variants) == 0 {
		v.problem("no round was demanded")
	}
	var waited []time.Duration
	for _, round := range d.Played {
		j := payJudge{v: &v, n: round.Round, PayFacts: f.of(round.Round), want: d.Variants[round.Variant], variant: &p.Variants[round.Variant]}
		if round.Void {
			j.void()
			continue
		}
		j.variant.Rounds++
		problems, invalid := len(v.Problems), len(v.InvalidRounds)
		j.count()
		j.judge()
		if took, ok := j.moved(); ok {
			waited = append(waited, took)
		}
		if len(v.Problems) > problems || len(v.InvalidRounds) > invalid {
			j.variant.OK = false
		}
	}
	bound := time.Duration(0)
	for i, want := range d.Variants {
		bound = max(bound, want.Moved)
		if n := p.Variants[i].Rounds; n != d.Rounds {
			p.Variants[i].OK = false
			v.problem("%s: %d rounds of %d were played", want.Name, n, d.Rounds)
		}
	}
	p.Moved = moves(waited, bound)
	v.OK = len(v.Problems) == 0 && len(v.InvalidRounds) == 0 && p.Moved.soon()
	return v
}

// of are the facts of one round.
func (f PayFacts) of(round int) PayFacts {
	return PayFacts{
		Effects:    filter(f.Effects, func(e Effect) bool { return e.Round == round }),
		Requests:   filter(f.Requests, func(r Request) bool { return r.Round == round }),
		Operations: filter(f.Operations, func(o Recorded) bool { return o.Round == round }),
		Writes:     filter(f.Writes, func(w Write) bool { return w.Round == round }),
		Answers:    filter(f.Answers, func(a Answer) bool { return a.Round == round }),
		Events:     filter(f.Events, func(e Event) bool { return e.Round == round }),
	}
}

// payJudge judges one round.
type payJudge struct {
	PayFacts
	v       *Verdict
	n       int
	want    PayWant
	variant *PayVariant
}

func (j *payJudge) problem(format string, args ...any) {
	j.v.problem("round %d, %s: "+format, append([]any{j.n, j.want.Name}, args...)...)
}

// void makes sure that a round which is not to count did no damage.
func (j *payJudge) void() {
	if found := j.damages(); len(found) > 0 && j.want.Damage == "" {
		j.problem("it was given up, and did damage: %v", found)
	}
}

func (j *payJudge) count() {
	p := j.v.Payments
	p.Charges += j.effects(PayCharge)
	p.Refunds += j.effects(PayRefund)
	p.Transfers += j.effects(PayTransfer)
	for _, r := range j.Requests {
		if r.Inquiry {
			p.Inquiries++
		} else {
			p.Requests++
		}
	}
	for _, o := range j.Operations {
		if o.Listed {
			p.Conflicts += o.Conflicts
		}
	}
	p.Refused += len(j.refused())
	j.variant.Charges += j.effects(PayCharge)
	j.variant.Refunds += j.effects(PayRefund)
}

func (j *payJudge) effects(what string) int {
	return len(filter(j.Effects, func(e Effect) bool { return e.What == what }))
}

func (j *payJudge) refused() []Answer {
	return filter(j.Answers, func(a Answer) bool { return !a.Accepted })
}

func (j *payJudge) outcome(name string) (Recorded, bool) {
	i := slices.IndexFunc(j.Operations, func(o Recorded) bool { return o.Name == name })
	if i < 0 {
		return Recorded{}, false
	}
	return j.Operations[i], true
}

// judge compares a round that counts with what was promised. Damage counts also where nothing went wrong that was to.
func (j *payJudge) judge() {
	found := j.damages()
	if len(found) > 0 {
		j.v.Payments.DamagedRounds++
		j.variant.Damaged++
	}
	for _, kind := range found {
		j.v.Payments.Damage[kind]++
		if j.want.Damage == "" {
			j.problem("damage: %s; %s", kind, j.money())
		}
	}
	charge, ok := j.outcome(PayCharge)
	if !slices.Contains(j.want.Known, notSent) {
		charge = charge.sent()
	}
	switch {
	case !ok || !j.valid(charge):
		j.v.InvalidRounds = append(j.v.InvalidRounds, j.n)
	case j.want.Damage == "":
		j.compare(charge)
	case !slices.Contains(found, j.want.Damage):
		j.problem("the damage %q is not seen, but %q; %s", j.want.Damage, found, j.money())
	}
}

// notSent is what is known of an attempt that never left, and did nothing.
const notSent = "not sent"

// sent is the operation without the attempts that never left: on a slow machine a worker gives back what it cannot begin in time.
func (o Recorded) sent() Recorded {
	known, numbers := o.Known, o.Numbers
	o.Known, o.Numbers = nil, nil
	for i, k := range known {
		if k != notSent {
			o.Known, o.Numbers = append(o.Known, k), append(o.Numbers, numbers[i])
		}
	}
	return o
}

// valid reports whether what was to go wrong did.
func (j *payJudge) valid(charge Recorded) bool {
	for _, what := range j.want.Saw {
		if !slices.ContainsFunc(j.Events, func(e Event) bool { return e.What == what }) {
			return false
		}
	}
	if !j.want.Lost && !j.want.Unsent {
		return true
	}
	if len(charge.Numbers) == 0 {
		return false
	}
	first := filter(j.Requests, func(r Request) bool { return r.What == PayCharge && !r.Inquiry && r.Attempt == charge.Numbers[0] })
	if j.want.Unsent {
		return len(first) == 0
	}
	return len(first) == 1 && first[0].Effective && first[0].Unheard
}

// money says what moved.
func (j *payJudge) money() string {
	texts := []string{}
	for _, e := range j.Effects {
		texts = append(texts, e.What)
	}
	for _, w := range j.Writes {
		texts = append(texts, w.Writer+" wrote "+w.Element)
	}
	if charge, ok := j.outcome(PayCharge); ok {
		texts = append(texts, "the operation is "+charge.State)
	}
	return strings.Join(texts, ", ")
}

// damages are the kinds of damage that the round shows, whatever was promised of it.
func (j *payJudge) damages() (found []Damage) {
	charges, back := j.effects(PayCharge), j.effects(PayRefund)+j.effects(PayTransfer)
	charge, _ := j.outcome(PayCharge)
	decided := charge.State
	if j.want.Table && len(j.Writes) > 0 {
		decided = j.Writes[len(j.Writes)-1].Element
	}
	add := func(is bool, kind Damage) {
		if is {
			found = append(found, kind)
		}
	}
	add(charges > 1, ChargedTwice)
	add((decided == "succeeded" || decided == RowDone) && charges == 0 && !j.local(), DoneUncharged)
	add((decided == RowFailed || decided == RowCancelled) && charges > back && !charge.Listed, ChargedUnrecorded)
	add(back > charges || j.paidFirst(), PaidForNothing)
	stale, twice := j.rows()
	add(stale, StaleRow)
	add(twice, DecidedTwice)
	return found
}

// local reports whether the round's only effect is in the table: nothing was asked of the provider.
func (j *payJudge) local() bool { return len(j.Requests) == 0 && len(j.Writes) > 0 }

// paidFirst reports whether money was given back before any was taken.
func (j *payJudge) paidFirst() bool {
	all := slices.SortedFunc(slices.Values(j.Effects), func(a, b Effect) int { return cmp.Compare(a.Order, b.Order) })
	return len(all) > 0 && all[0].What != PayCharge
}

// rows looks through the business's table in the order in which it was written.
func (j *payJudge) rows() (stale, twice bool) {
	for i, w := range j.Writes {
		if i == 0 {
			continue
		}
		stale = stale || w.Token < j.Writes[i-1].Token
		twice = twice || w.Element != j.Writes[i-1].Element
	}
	return stale, twice
}

// compare holds a round to each part of its promise.
func (j *payJudge) compare(charge Recorded) {
	w := j.want
	check := func(ok bool, what string, got, want any) {
		if !ok {
			j.problem("%s: %v, want %v; %s", what, got, want, j.money())
		}
	}
	check(charge.State == w.State, "the charge is", charge.State, w.State)
	known, wantKnown := slices.Equal(charge.Known, w.Known), any(w.Known)
	if w.EachKnown != "" {
		other := func(k string) bool { return k != w.EachKnown }
		known, wantKnown = len(charge.Known) > 1 && !slices.ContainsFunc(charge.Known, other), "each "+w.EachKnown
	}
	check(known, "what is known of its attempts", charge.Known, wantKnown)
	check(j.effects(PayCharge) == w.Charges, "charges", j.effects(PayCharge), w.Charges)
	check(j.effects(PayRefund) == w.Refunds, "refunds", j.effects(PayRefund), w.Refunds)
	check(j.effects(PayTransfer) == 0, "transfers", j.effects(PayTransfer), 0)
	check(charge.Conflicts == w.Conflicts && charge.Listed == (w.Conflicts > 0), "conflicts", charge.Conflicts, w.Conflicts)
	var rows, told []string
	for _, write := range j.Writes {
		rows = append(rows, write.Writer)
	}
	check(slices.Equal(rows, w.Rows), "rows of the table are", rows, w.Rows)
	for _, a := range j.refused() {
		told = append(told, a.Why)
	}
	check(slices.EqualFunc(told, w.Refused, strings.Contains), "refusals", told, w.Refused)
	asked, other := 0, false
	for _, r := range j.Requests {
		if r.Inquiry && r.What == PayCharge {
			asked++
		}
		other = other || r.OtherKey
	}
	check(!other, "a request under a key of its own", other, false)
	check(asked >= w.Asked && (w.MostAsked == 0 || asked <= w.MostAsked), "inquiries", asked, [2]int{w.Asked, w.MostAsked})
	refund, ok := j.outcome(PayRefund)
	check(!ok || refund.State == "succeeded", "the refund is", refund.State, "succeeded")
	check(ok == (w.Refunds > 0), "an operation that refunds", ok, w.Refunds > 0)
}

// moved is how long after the end of a killed worker's claim its operation was seen in other hands.
func (j *payJudge) moved() (time.Duration, bool) {
	if j.want.Moved == 0 {
		return 0, false
	}
	till, moved := latest(j.Events, ClaimTill), latest(j.Events, Moved)
	if till.Token == 0 || moved.Token == 0 {
		j.problem("it is not known when the claim ended, or when the operation moved")
		return 0, false
	}
	return moved.At - till.At, true
}

// moves are the figures of all of them; nil: there are none.
func moves(waited []time.Duration, bound time.Duration) *Handover {
	if len(waited) == 0 {
		return nil
	}
	slices.Sort(waited)
	h := &Handover{Rounds: len(waited), WithinMS: bound.Milliseconds(), P50US: quantile(waited, 50).Microseconds(), P99US: quantile(waited, 99).Microseconds(),
		MaxUS: waited[len(waited)-1].Microseconds()}
	for _, took := range waited {
		switch {
		case took < 0:
			h.Early++
		case took <= bound:
			h.Within++
		}
	}
	return h
}

// soon reports whether none moved before the claim had ended, and all but one in a hundred, rounded up, within the bound.
func (s *Handover) soon() bool {
	return s == nil || s.Early == 0 && s.Rounds-s.Within <= (s.Rounds+99)/100
}
