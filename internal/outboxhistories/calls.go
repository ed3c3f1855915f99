package outboxhistories

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxtest"
)

const (
	pruneAge = time.Hour
	window   = 20 * time.Minute // of retries and replays
	attempts = 3
)

func topicNames() []string { return []string{"mail", "bill"} }

func keys() []string { return []string{"k", "l"} }

func idOf(text string) (id fence.ID) {
	copy(id[:], text)
	return id
}

func (d *draft) message() outbox.Message {
	n := len(d.appended)
	m := outbox.Message{
		ID: idOf(fmt.Sprintf("m%02d", n*7%100)), Topic: pick(d.t, "topic", topicNames()), Payload: make([]byte, pick(d.t, "size", []int{0, 10, 10, 60})), Headers: map[string]string{"n": fmt.Sprint(n)},
	} // ids are not in the order of the appends
	if d.chance(4) {
		m.Headers = nil
	}
	if !d.chance(3) {
		m.Key, m.Ordered = pick(d.t, "key", keys()), !d.chance(4)
	}
	d.appended = append(d.appended, m)
	return m
}

func (d *draft) append() {
	if len(d.known) >= maxMessages || len(d.appended) > 90 {
		d.prune()
		return
	}
	var messages []outbox.Message
	for range number(d.t, "messages", 1, 4) {
		messages = append(messages, d.message())
	}
	d.play(outboxtest.Op{Append: messages})
}

// appendAgain repeats a message, also one that was forgotten, or uses its id for another.
func (d *draft) appendAgain() {
	m := pick(d.t, "message", d.appended)
	m.Headers = maps.Clone(m.Headers)
	switch number(d.t, "particulars", 0, 9) {
	case 0:
		m.Topic = pick(d.t, "topic", topicNames())
	case 1:
		m.Key, m.Ordered = pick(d.t, "key", keys()), true
	case 2:
		m.Ordered = m.Key != "" && !m.Ordered
	case 3:
		m.Headers = map[string]string{"other": ""}
	case 4:
		m.Payload = []byte("other")
	}
	messages := []outbox.Message{m}
	if d.chance(2) {
		messages = append([]outbox.Message{d.message()}, m)
	}
	d.play(outboxtest.Op{Append: messages})
}

func (d *draft) claim() {
	req := outbox.ClaimRequest{
		Claim: idOf(fmt.Sprint("claim ", len(d.claims))), Relay: pick(d.t, "relay", []string{"", "r", "s"}), Limit: pick(d.t, "limit", []int{1, 2, 3, 100, 100}), Bytes: pick(d.t, "bytes", []int{1, 50, 10_000, 10_000, 10_000}),
		TTL: d.free(pick(d.t, "ttl", []time.Duration{5 * time.Second, 10 * time.Second, time.Minute})), MaxAttempts: attempts,
	}
	if d.chance(5) {
		req.Topics = []string{pick(d.t, "topic", topicNames())}
	}
	d.claims = append(d.claims, req.Claim)
	d.instant(d.now + req.TTL) // also if another store's choice is all that it hands out
	r := d.play(outboxtest.Op{Claim: &req})
	for i := range r.Batch.Deliveries {
		d.under[r.Batch.Deliveries[i].ID] = req.Claim
	}
}

func (d *draft) verdict() outbox.Verdict {
	v := outbox.Verdict{Outcome: pick(d.t, "outcome", []outbox.Outcome{outbox.Published, outbox.Published, outbox.Failed, outbox.Failed, outbox.Returned})}
	if v.Outcome != outbox.Published && d.chance(2) {
		v.RetryIn = d.free(pick(d.t, "retry in", []time.Duration{3 * time.Second, 20 * time.Second}))
		d.instant(d.now + v.RetryIn)
	}
	if v.Outcome == outbox.Failed {
		v.Error = pick(d.t, "error", []string{"", "no", "a\x00b"})
		v.Dead = d.chance(4)
	}
	return v
}

// settle says what became of some messages of a claim.
func (d *draft) settle() {
	id := d.claims[max(0, len(d.claims)-1-number(d.t, "claim", 0, 2))]
	s := outboxtest.Settlement{Claim: id, Relay: pick(d.t, "relay", []string{"", "r"})}
	for i := range d.known {
		if of := d.known[i].ID; d.under[of] == id && !d.chance(3) {
			s.IDs = append(s.IDs, of)
			s.Verdicts = append(s.Verdicts, d.verdict())
		}
	}
	d.say(s)
}

// settleAnything says something about any messages under any claim.
func (d *draft) settleAnything() {
	s := outboxtest.Settlement{Claim: pick(d.t, "claim", append(slices.Clone(d.claims), idOf("none")))}
	for range number(d.t, "verdicts", 1, 3) {
		if id := d.id(); !slices.Contains(s.IDs, id) {
			s.IDs = append(s.IDs, id)
			s.Verdicts = append(s.Verdicts, d.verdict())
		}
	}
	d.say(s)
}

func (d *draft) say(s outboxtest.Settlement) {
	if len(s.IDs) > 0 {
		d.play(outboxtest.Op{Settle: &s})
	}
}

// id is one that is known, or, rarely, none.
func (d *draft) id() fence.ID {
	if len(d.known) == 0 || d.chance(20) {
		return idOf("none")
	}
	return pick(d.t, "id", d.known).ID
}

func (d *draft) get() { d.play(outboxtest.Op{Get: d.id()}) }

func (d *draft) list() {
	l := outboxtest.Listing{ListRequest: outbox.ListRequest{Limit: pick(d.t, "limit", []int{1, 3, outbox.MaxList}), Bodies: d.chance(2)}}
	l.Topic = pick(d.t, "topic", append(topicNames(), "", ""))
	l.Key = pick(d.t, "key", append(keys(), "", "", ""))
	if d.chance(2) {
		l.After = d.id()
	}
	if d.chance(2) {
		l.States = []outbox.State{outbox.State(number(d.t, "state", 1, 3)), outbox.State(number(d.t, "state", 1, 3))}
	}
	d.play(outboxtest.Op{List: &l})
}

func (d *draft) topics() {
	after := pick(d.t, "after", []string{"", "", "bill", "mail"})
	d.play(outboxtest.Op{Topics: &after})
}

func (d *draft) pause() {
	req := outbox.PauseRequest{Topic: pick(d.t, "topic", append(topicNames(), "")), Paused: d.chance(3), Reason: pick(d.t, "reason", []string{"", "why"})}
	d.play(outboxtest.Op{Pause: &req})
}

func (d *draft) moving() *outboxtest.Moving {
	m := &outboxtest.Moving{MoveRequest: outbox.MoveRequest{Limit: outbox.MaxMove}}
	m.Topic = pick(d.t, "topic", append(topicNames(), "", "", ""))
	m.Key = pick(d.t, "key", append(keys(), "", "", ""))
	if d.chance(4) {
		m.IDs = []fence.ID{d.id(), d.id(), d.id()}
	}
	if d.chance(4) {
		m.From = d.id()
	}
	if d.chance(4) {
		m.To = d.id()
	}
	if d.chance(4) {
		m.Within = window
	}
	return m
}

func (d *draft) retry() { d.play(outboxtest.Op{Retry: d.moving()}) }

func (d *draft) replay() { d.play(outboxtest.Op{Replay: d.moving()}) }

// prune forgets what is old enough: an hour may pass before.
func (d *draft) prune() {
	if d.chance(2) {
		d.to(d.now + pruneAge)
	}
	req := outbox.PruneRequest{Delivered: pruneAge, Dead: pick(d.t, "dead", []time.Duration{0, pruneAge, 2 * pruneAge}), Limit: outbox.MaxMove}
	d.play(outboxtest.Op{Prune: &req})
}

// advance lets time pass: a little, much, or to an instant that matters.
func (d *draft) advance() {
	var to []time.Duration
	for _, at := range d.instants {
		for _, t := range []time.Duration{at - d.beside, at, at + d.beside} {
			if t > d.now && at < d.now+2*pruneAge {
				to = append(to, t)
			}
		}
	}
	target := d.now + pick(d.t, "by", []time.Duration{time.Millisecond, 2 * time.Second, 9 * time.Second, 30 * time.Second})
	if len(to) > 0 && d.chance(2) {
		target = pick(d.t, "to", to)
	}
	d.to(target)
}

// to lets time pass until then, or a little longer where it must stay away from what matters.
func (d *draft) to(target time.Duration) {
	by := target - d.now
	if d.o.Away > 0 {
		by = d.free(by)
	}
	if by > 0 {
		d.play(outboxtest.Op{Advance: by})
	}
}
