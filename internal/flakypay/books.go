package flakypay

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Finding is what an inquiry found of a key.
type Finding string

// The findings.
const (
	Found       Finding = "found"
	KeyClosed   Finding = "closed" // there was no effect, and there will be none
	NotObserved Finding = "not observed"
)

// Reply is the body of every answer.
type Reply struct {
	ID      string  `json:"id,omitempty"` // of the effect
	Amount  int64   `json:"amount,omitempty"`
	Charge  string  `json:"charge,omitempty"` // of a refund
	Finding Finding `json:"finding,omitempty"`
	Reason  string  `json:"reason,omitempty"` // of a refusal
	Final   bool    `json:"final,omitempty"`  // of a refusal: this key will never have an effect
}

// ask is a request as it was understood.
type ask struct {
	Call
	number    int64
	print     [32]byte
	amount    int64
	charge    string
	notAfter  int64 // in ms
	bounded   bool  // there is one
	fault     Fault
	underway  bool // it is in progress in the books
	acc       *account
	completed time.Duration
	absence   Absence         // of the whole provider, when it came
	present   <-chan struct{} // closed when that ends
}

// outcome is an answer before it goes out.
type outcome struct {
	status     int
	reply      Reply
	means      Meaning
	retryAfter time.Duration
	replayed   bool
}

// effected is the answer that tells of an effect.
func effected(a *account, e effect) *outcome {
	p := e.public(a)
	return &outcome{status: http.StatusCreated, means: MeansEffect, reply: Reply{ID: p.ID, Amount: p.Amount, Charge: p.Charge}}
}

// refusal is an answer that this request had no effect, and if final no other will.
func refusal(reason string, final bool) *outcome {
	o := &outcome{status: http.StatusPaymentRequired, means: MeansRefused, reply: Reply{Reason: reason, Final: final}}
	if final {
		o.means = MeansFinal
	}
	return o
}

func problem(status int, reason string) *outcome {
	return &outcome{status: status, means: MeansRefused, reply: Reply{Reason: reason}}
}

// finding is the answer to an inquiry.
func finding(f Finding, from *outcome, reason string) *outcome {
	o := &outcome{status: http.StatusOK, means: MeansNothing, reply: Reply{Finding: f, Reason: reason}}
	switch f {
	case Found:
		o.reply.ID, o.reply.Amount, o.reply.Charge, o.means = from.reply.ID, from.reply.Amount, from.reply.Charge, MeansEffect
	case KeyClosed:
		o.reply.Final, o.means = true, MeansFinal
	case NotObserved:
	}
	return o
}

const reasonClosed = "the key was closed by an inquiry"

// rules are the steps of the books, each one atomic with what it records; a twin replaces one.
type rules struct {
	arrive func(*Provider, *ask) *outcome // nil: it goes on to commit
	commit func(*Provider, *ask) *outcome
	find   func(*Provider, *ask) *outcome
	close  func(*Provider, *ask) *outcome
	// write is no step of the books: it gives an answer to a connection, and says what became of it.
	write func(http.ResponseWriter, *http.Request, int, []byte) Delivery
}

func ours() rules {
	return rules{arrive: arriveLocked, commit: commitLocked, find: findLocked, close: closeLocked, write: write}
}

// stepLocked begins a step: the clock is read, and what is to be forgotten by now is.
func (p *Provider) stepLocked(q *ask) {
	p.ledger.now = max(p.ledger.now, p.c.Clock.Now())
	q.acc = p.ledger.accountLocked(q.Op, q.Key)
	q.acc.forgetLocked(p.ledger, p.c.Forget)
	q.completed = p.ledger.now
}

// arriveLocked looks at the key. That its body is another comes first, also while it is in progress.
func arriveLocked(p *Provider, q *ask) *outcome {
	p.stepLocked(q)
	a := q.acc
	if p.c.Forget.AtOnce {
		q.underway = true
		a.inProgress++
		return nil
	}
	switch {
	case a.known && a.print != q.print:
		return problem(http.StatusUnprocessableEntity, "the key is in use for another body")
	case a.kept != nil:
		o := *a.kept
		o.replayed = true
		return &o
	case a.closed:
		return refusal(reasonClosed, true)
	case a.inProgress > 0:
		return problem(http.StatusConflict, "a request with this key is in progress")
	}
	a.known, a.print, q.underway = true, q.print, true
	a.inProgress++
	return nil
}

// leaveLocked ends what arrive began. A fingerprint that belongs to no stored answer is kept: another body under the key is a mistake also after a refusal.
func leaveLocked(q *ask) {
	if q.underway {
		q.acc.inProgress--
		q.underway = false
	}
}

// commitLocked has the effect, or refuses it: closing, not-after, refusal, effect and stored answer are one step.
func commitLocked(p *Provider, q *ask) *outcome {
	p.stepLocked(q)
	leaveLocked(q)
	if o := refusedLocked(p, q); o != nil {
		return o
	}
	a, l := q.acc, p.ledger
	f := &fact{Fact: factEffect, Op: q.Op, Key: q.Key, Number: int64(len(l.effects)) + 1, Request: q.number, Attempt: q.Attempt, Amount: q.amount, Charge: chargeNumber(q.charge),
		Kept: !p.c.Forget.AtOnce && !q.fault.Forget, Print: q.print[:]}
	if err := l.recordLocked(f); err != nil {
		return nil
	}
	if !f.Kept {
		a.known = false
	}
	return effected(a, a.effects[len(a.effects)-1])
}

// refusedLocked is why there will be no effect, or nil.
func refusedLocked(p *Provider, q *ask) *outcome {
	switch {
	case q.acc.closed:
		return refusal(reasonClosed, true)
	case q.bounded && !p.c.IgnoresNotAfter && p.ledger.now >= time.Duration(q.notAfter)*time.Millisecond:
		return refusal("its not-after has passed", false)
	case q.fault.Refuse.Status == http.StatusPaymentRequired:
		return refuseLocked(p, q, q.fault.Refuse.Reason, q.fault.Refuse.Final)
	case q.Op == Charge:
		return nil
	}
	return refundLocked(p, q)
}

// refuseLocked refuses, and stores a final refusal where keys are kept.
func refuseLocked(p *Provider, q *ask, reason string, final bool) *outcome {
	if !final {
		return refusal(reason, false)
	}
	if p.c.Forget.ever() { // what it says of the key is not certain to hold
		o := refusal(reason, true)
		o.means = MeansRefused
		return o
	}
	if err := p.ledger.recordLocked(&fact{Fact: factRefused, Op: q.Op, Key: q.Key, Request: q.number, Reason: reason, Kept: true, Print: q.print[:]}); err != nil {
		return nil
	}
	return refusal(reason, true)
}

// refundLocked is why a charge cannot be refunded, or nil; q's amount is then the charge's.
func refundLocked(p *Provider, q *ask) *outcome {
	l, n := p.ledger, chargeNumber(q.charge)
	if n < 1 || n > int64(len(l.effects)) || l.effects[n-1].op != Charge {
		return refusal("there is no such charge", false)
	}
	if l.refunded[n] != 0 {
		return refuseLocked(p, q, "the charge was refunded before", true)
	}
	for _, e := range l.effects[n-1].effects {
		if e.order == n {
			q.amount = e.amount
		}
	}
	return nil
}

// chargeNumber is the order of a charge by its id, 0 if it is none.
func chargeNumber(id string) int64 {
	digits, ok := strings.CutPrefix(id, "ch_")
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || fmt.Sprint(n) != digits {
		return 0
	}
	return n
}

// findLocked is an inquiry.
func findLocked(p *Provider, q *ask) *outcome {
	p.stepLocked(q)
	a := q.acc
	switch {
	case a.kept != nil && a.kept.means == MeansEffect:
		return finding(Found, a.kept, "")
	case a.kept != nil:
		return finding(KeyClosed, nil, a.kept.reply.Reason)
	case a.closed:
		return finding(KeyClosed, nil, reasonClosed)
	}
	return finding(NotObserved, nil, "")
}

// closeLocked is an inquiry that closes the key, unless there was an effect, in one step with the look. What is in progress under the key will be refused.
func closeLocked(p *Provider, q *ask) *outcome {
	if o := findLocked(p, q); o.reply.Finding != NotObserved {
		return o
	}
	if err := p.ledger.recordLocked(&fact{Fact: factClosed, Op: q.Op, Key: q.Key, Request: q.number}); err != nil {
		return nil
	}
	return finding(KeyClosed, nil, reasonClosed)
}
