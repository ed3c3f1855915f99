package model

import (
	"fmt"
	"slices"
	"strings"
)

// What the states of messages are called.
const (
	mailDelivered = "delivered"
	mailPending   = "pending"
	mailDead      = "dead"
)

// JudgeMail says what the facts show. What arrived, and what it did, is what the consumer's tables hold, and no counter of whoever played the round has a say.
//
// The drill is ok when every round was valid, and each that was played with what prevents damage did none and came to exactly what was promised, and each that was played without did the damage that was promised.
func JudgeMail(f MailFacts, d MailDemand) Verdict {
	v := Verdict{Mail: &Mail{Damage: map[Damage]int{}}}
	for _, want := range d.Variants {
		v.Mail.Variants = append(v.Mail.Variants, MailVariant{Name: want.Name, OK: true})
	}
	if d.Rounds < 1 || len(d.Variants) == 0 {
		v.problem("no round was demanded")
	}
	for _, round := range d.Played {
		j := mailJudge{v: &v, n: round.Round, MailFacts: f.of(round.Round), want: d.Variants[round.Variant]}
		if round.Void {
			if found := j.damages(); len(found) > 0 && j.want.Damage == "" {
				j.problem("it was given up, and did damage: %v", found)
			}
			continue
		}
		variant := &v.Mail.Variants[round.Variant]
		problems, invalid := len(v.Problems), len(v.InvalidRounds)
		variant.Rounds++
		variant.Deliveries += len(j.Deliveries)
		variant.Effects += len(j.Effects)
		j.count()
		if j.judge() {
			variant.Damaged++
		}
		variant.OK = variant.OK && len(v.Problems) == problems && len(v.InvalidRounds) == invalid
	}
	for i, want := range d.Variants {
		if n := v.Mail.Variants[i].Rounds; n != d.Rounds {
			v.Mail.Variants[i].OK = false
			v.problem("%s: %d rounds of %d were played", want.Name, n, d.Rounds)
		}
	}
	v.OK = len(v.Problems) == 0 && len(v.InvalidRounds) == 0
	return v
}

// of are the facts of one round, deliveries in their order.
func (f MailFacts) of(round int) MailFacts {
	one := MailFacts{
		Deliveries: filter(f.Deliveries, func(d Delivery) bool { return d.Round == round }),
		Effects:    filter(f.Effects, func(e MailEffect) bool { return e.Round == round }),
		States:     filter(f.States, func(s MailState) bool { return s.Round == round }),
		Messages:   filter(f.Messages, func(m MailMessage) bool { return m.Round == round }),
		Answers:    filter(f.Answers, func(a Answer) bool { return a.Round == round }),
		Events:     filter(f.Events, func(e Event) bool { return e.Round == round }),
	}
	slices.SortFunc(one.Deliveries, func(a, b Delivery) int { return a.Seq - b.Seq })
	return one
}

// mailJudge judges one round.
type mailJudge struct {
	MailFacts
	v    *Verdict
	n    int
	want MailWant
}

func (j *mailJudge) problem(format string, args ...any) {
	j.v.problem("round %d, %s: "+format, append([]any{j.n, j.want.Name}, args...)...)
}

func (j *mailJudge) count() {
	m := j.v.Mail
	m.Deliveries += len(j.Deliveries)
	m.Effects += len(j.Effects)
	taken := map[string]bool{}
	for _, d := range j.Deliveries {
		switch {
		case !d.Accepted:
			m.Refused++
		case taken[d.Message]:
			m.Repeated++
		}
		taken[d.Message] = taken[d.Message] || d.Accepted
	}
	m.Dead += len(filter(j.Messages, func(m MailMessage) bool { return m.State == mailDead }))
	late := filter(j.Answers, j.late)
	m.LateSent += len(late)
	m.LateTaken += len(filter(late, func(a Answer) bool { return a.Accepted }))
}

// late reports whether a settlement was of a claim that another one had followed.
func (j *mailJudge) late(a Answer) bool {
	return a.Late && !a.Unsent && slices.ContainsFunc(j.Messages, func(m MailMessage) bool { return m.Name == a.Element && int(a.Token) < m.Attempts })
}

// arrivals are the deliveries of a message.
func (j *mailJudge) arrivals(message string) []Delivery {
	return filter(j.Deliveries, func(d Delivery) bool { return d.Message == message })
}

// lastRefused is the place of the last refused delivery of a message; 0: none.
func (j *mailJudge) lastRefused(message string) int {
	last := 0
	for _, d := range j.arrivals(message) {
		if !d.Accepted {
			last = d.Seq
		}
	}
	return last
}

// damages are the kinds of damage that the round shows, whatever was promised of it.
func (j *mailJudge) damages() (found []Damage) {
	for _, kind := range MailDamages() {
		if slices.ContainsFunc(j.Messages, func(m MailMessage) bool { return j.shows(kind, m) }) {
			found = append(found, kind)
		}
	}
	return found
}

// shows reports whether there is that damage to a message.
func (j *mailJudge) shows(kind Damage, m MailMessage) bool {
	accepted := func(d Delivery) bool { return d.Accepted }
	switch kind {
	case EffectTwice:
		return len(filter(j.Effects, func(e MailEffect) bool { return e.Message == m.Name })) > 1
	case MailLost:
		return m.State == mailDelivered && !slices.ContainsFunc(j.arrivals(m.Name), accepted)
	case OldOverNew:
		return slices.ContainsFunc(j.States, func(s MailState) bool { return s.Key == m.Key && s.Value < m.Value }) && slices.ContainsFunc(j.arrivals(m.Name), accepted)
	case AckedStale:
		return slices.ContainsFunc(j.Answers, func(a Answer) bool {
			return j.late(a) && a.Accepted && a.Element == m.Name
		})
	case HeldUp:
		ownFailed := slices.ContainsFunc(j.Deliveries, func(d Delivery) bool { return d.Key == m.Key && !d.Accepted })
		othersFailed := slices.ContainsFunc(j.Deliveries, func(d Delivery) bool { return d.Key != m.Key && !d.Accepted })
		return m.State == mailPending && len(j.arrivals(m.Name)) == 0 && !ownFailed && othersFailed
	case PassedOver:
		return j.passedOver(m)
	default: // of other drills
		return false
	}
}

// passedOver reports whether m arrived before an earlier message of its key was acknowledged, or tried for the last time.
func (j *mailJudge) passedOver(m MailMessage) bool {
	mine := j.arrivals(m.Name)
	if len(mine) == 0 {
		return false
	}
	return slices.ContainsFunc(j.Messages, func(earlier MailMessage) bool {
		if earlier.Key != m.Key || earlier.Value >= m.Value {
			return false
		}
		all := j.arrivals(earlier.Name)
		settled := j.lastRefused(earlier.Name)
		if at := slices.IndexFunc(all, func(d Delivery) bool { return d.Accepted }); at >= 0 {
			settled = all[at].Seq
		}
		return mine[0].Seq < settled
	})
}

// judge compares a round that counts with what was promised, and reports whether there is damage. It counts also where nothing went wrong that was to.
func (j *mailJudge) judge() bool {
	found := j.damages()
	for _, kind := range found {
		j.v.Mail.Damage[kind]++
		if j.want.Damage == "" {
			j.problem("damage: %s; %s", kind, j.arrived())
		}
	}
	if len(found) > 0 {
		j.v.Mail.DamagedRounds++
	}
	switch {
	case !j.valid():
		j.v.InvalidRounds = append(j.v.InvalidRounds, j.n)
	case j.want.Damage == "":
		j.compare()
	case !slices.Contains(found, j.want.Damage):
		j.problem("the damage %q is not seen, but %q; %s", j.want.Damage, found, j.arrived())
	}
	return len(found) > 0
}

// valid reports whether what was to go wrong did, and what was to be said late was.
func (j *mailJudge) valid() bool {
	for _, what := range j.want.Saw {
		if !slices.ContainsFunc(j.Events, func(e Event) bool { return e.What == what }) {
			return false
		}
	}
	for _, relay := range j.want.Late {
		if !slices.ContainsFunc(j.Answers, func(a Answer) bool { return j.late(a) && a.Writer == relay }) {
			return false
		}
	}
	for message, n := range j.want.Refused {
		if j.want.Damage == "" {
			n = 1
		}
		if len(filter(j.arrivals(message), func(d Delivery) bool { return !d.Accepted })) < n {
			return false
		}
	}
	return true
}

// compare demands exactly what was promised.
func (j *mailJudge) compare() {
	for message, n := range j.want.Refused {
		if got := len(filter(j.arrivals(message), func(d Delivery) bool { return !d.Accepted })); got != n {
			j.problem("%s was refused %d times, want %d; %s", message, got, n, j.arrived())
		}
	}
	if got := j.texts(); len(j.want.Deliveries) > 0 && !slices.Equal(got, j.want.Deliveries) {
		j.problem("what arrived is %q, want %q", got, j.want.Deliveries)
	}
	j.compareMessages()
	j.compareTimes()
	for relay, told := range j.want.Told {
		all := filter(j.Answers, func(a Answer) bool { return a.Writer == relay })
		if !slices.ContainsFunc(all, func(a Answer) bool { return strings.Contains(a.Why, told) }) {
			j.problem("%s was told %+v, want %q", relay, all, told)
		}
	}
	for a, b := range j.want.Before {
		if all, last := j.arrivals(a), j.lastRefused(b); len(all) == 0 || all[0].Seq > last {
			j.problem("%s waited for %s; %s", a, b, j.arrived())
		}
	}
	for a, b := range j.want.After {
		if all, last := j.arrivals(a), j.lastRefused(b); len(all) == 0 || all[0].Seq < last {
			j.problem("%s did not wait for %s; %s", a, b, j.arrived())
		}
	}
}

// compareMessages compares how the outbox says that the messages ended, and that each that was delivered has one effect.
func (j *mailJudge) compareMessages() {
	if len(j.Messages) != len(j.want.Messages) {
		j.problem("the outbox has %d messages of %d", len(j.Messages), len(j.want.Messages))
	}
	for _, m := range j.Messages {
		want := j.want.Messages[m.Name]
		if got := fmt.Sprintf("%s %d", m.State, m.Attempts); got != want && m.State != want {
			j.problem("%s is %s, want %q", m.Name, got, want)
		}
		effects := len(filter(j.Effects, func(e MailEffect) bool { return e.Message == m.Name }))
		if m.State == mailDelivered && effects != 1 {
			j.problem("%s is delivered, and has %d effects", m.Name, effects)
		}
		part, kept := j.want.Errors[m.Name]
		if kept && (len(m.Errors) == 0 || slices.ContainsFunc(m.Errors, func(e string) bool { return !strings.Contains(e, part) })) {
			j.problem("the errors of %s are %q, want %q in each", m.Name, m.Errors, part)
		}
		for _, d := range j.arrivals(m.Name) {
			if d.ID != m.ID {
				j.problem("%s was published as %s, and is %s", m.Name, d.ID, m.ID)
			}
		}
	}
}

// compareTimes makes sure that nothing was published again before the claim of who was stopped or killed had ended.
func (j *mailJudge) compareTimes() {
	for _, e := range j.Events {
		for _, d := range j.Deliveries {
			if e.What == ClaimTill && d.Attempt > int(e.Token) && d.At < e.At {
				j.problem("%s was published again %v before the claim of attempt %d had ended", d.Message, e.At-d.At, e.Token)
			}
		}
	}
}

// texts are the deliveries as they are promised.
func (j *mailJudge) texts() []string {
	all := []string{}
	for _, d := range j.Deliveries {
		text := fmt.Sprintf("%s/%d %s", d.Relay, d.Attempt, d.Message)
		if !d.Accepted {
			text += " refused"
		}
		all = append(all, text)
	}
	return all
}

// arrived says what arrived.
func (j *mailJudge) arrived() string {
	if len(j.Deliveries) == 0 {
		return "nothing has arrived"
	}
	const most = 12
	all := j.texts()
	if len(all) > most {
		all = append(all[:most], fmt.Sprintf("and %d more", len(j.Deliveries)-most))
	}
	return "what arrived: " + strings.Join(all, ", ")
}
