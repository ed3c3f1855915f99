package flakypay

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// Op is what an effect is, and the book that its key is in.
type Op string

// The operations.
const (
	Charge Op = "charge"
	Refund Op = "refund"
)

// Verb is what is asked of an operation's key.
type Verb string

// The verbs.
const (
	Make  Verb = "make"
	Find  Verb = "find"
	Close Verb = "close"
)

// Meaning is what an answer tells of its key. The zero value is none.
type Meaning int

// What an answer can tell.
const (
	MeansNothing Meaning = iota + 1 // nothing was observed
	MeansRefused                    // this request had no effect; nothing is said of others
	MeansFinal                      // there was no effect under this key, and there will be none: of a provider that forgets no key
	MeansEffect                     // there was an effect
)

// Delivery is what is known of an answer's last byte, weakest first. The zero value is none. The package comment says what the words can mean and cannot.
type Delivery int

// What can be known of a delivery.
const (
	NotWritten   Delivery = iota + 1 // it was not given to the connection, and never will be
	Sending                          // it may have been: this was recorded before the first byte, and nothing since
	Unsure                           // it was, and the client was found gone; or a webhook's connection broke before it was answered
	Written                          // it was, as far as this system's kernel can tell
	Acknowledged                     // whoever received it said so
)

// Way is how an answer goes out.
type Way string

// The ways.
const (
	Connection Way = "connection"
	Webhook    Way = "webhook"
)

// Effect is money that moved.
type Effect struct {
	Order   int64 // among all effects, from 1
	Op      Op
	Key     string
	Attempt string // the request's header Payment-Attempt
	ID      string // ch_N or re_N, by its order
	Amount  int64
	Charge  string        // of a refund: what it refunds
	At      time.Duration // by the provider's clock
}

// Request is one that the provider has read.
type Request struct {
	Number  int64 // among all requests, from 1
	Verb    Verb
	Attempt string
	Fault   string // the name of what was chosen for it
	At      time.Duration
}

// Answer is one that the provider made, sent or not.
type Answer struct {
	Number   int64 // among all answers, from 1
	Request  int64
	Status   int
	Means    Meaning
	Way      Way
	Delivery Delivery
	At       time.Duration
}

// Ledger is what really happened at the provider. Safe for concurrent use; what its methods return is the caller's own.
type Ledger struct {
	mu       sync.Mutex
	file     *os.File // nil: memory alone
	sync     bool
	broken   error // of the file: nothing is recorded after it
	size     int64 // of what is whole in the file
	accounts map[accountKey]*account
	order    []*account // in the order in which the keys were first seen
	effects  []*account // whose effect it is, by its order less 1
	refunded map[int64]int64
	requests int64
	answers  int64
	now      time.Duration // the latest reading
}

type accountKey struct {
	op  Op
	key string
}

// account is all that is known of one key: the provider's own memory of it, which it may lose, and the ledger's, which it may not.
type account struct {
	accountKey
	known      bool // the fingerprint is
	print      [32]byte
	inProgress int
	kept       *outcome // the stored answer
	keptAt     time.Duration
	keptWhen   int64 // how many requests there had been
	closed     bool

	tally    Tally  // of what is not in the slices below
	nth      [3]int // requests by verb
	effects  []effect
	requests []detail
	answers  []Answer
	old      bygone
}

type effect struct {
	order, amount, charge int64
	attempt               string
	at                    time.Duration
}

func newLedger() *Ledger {
	return &Ledger{accounts: map[accountKey]*account{}, refunded: map[int64]int64{}}
}

// account finds a key's, or opens one.
func (l *Ledger) accountLocked(op Op, key string) *account {
	k := accountKey{op, key}
	a := l.accounts[k]
	if a == nil {
		a = &account{accountKey: k}
		l.accounts[k] = a
		l.order = append(l.order, a)
	}
	return a
}

// fact is one thing that happened: a line of the file.
type fact struct {
	Fact     string   `json:"fact"`
	Number   int64    `json:"n,omitempty"` // of a request, an answer or an effect
	Op       Op       `json:"op"`
	Key      string   `json:"key"`
	AtMS     int64    `json:"at_ms"` // rounded up, so that a clock which goes on from it does not go back
	Verb     Verb     `json:"verb,omitempty"`
	Nth      int      `json:"nth,omitempty"`
	Attempt  string   `json:"attempt,omitempty"`
	Fault    string   `json:"fault,omitempty"`
	Print    []byte   `json:"fingerprint,omitempty"`
	Kept     bool     `json:"kept,omitempty"`
	Amount   int64    `json:"amount,omitempty"`
	Charge   int64    `json:"charge,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Request  int64    `json:"request,omitempty"`
	Status   int      `json:"status,omitempty"`
	Means    Meaning  `json:"means,omitempty"`
	Way      Way      `json:"way,omitempty"`
	Delivery Delivery `json:"delivery,omitempty"`

	at time.Duration
}

// The facts. An effect and the stored answer are one, so that a provider that dies between them cannot exist.
const (
	factRequest = "request"
	factEffect  = "effect"
	factRefused = "refused" // for good, and stored as the key's answer
	factClosed  = "closed"
	factAnswer  = "answer"
	factSent    = "sent" // what became of an answer
)

// recordLocked makes a fact one: in the file, if there is one, and then in memory. On an error it is none, or it is unknown whether it is one, and nothing is
// recorded any more.
func (l *Ledger) recordLocked(f *fact) error {
	f.at = l.now
	f.AtMS = int64((l.now + time.Millisecond - 1) / time.Millisecond)
	if err := l.appendLocked(f); err != nil {
		return err
	}
	l.applyLocked(f)
	return nil
}

// applyLocked is how a fact changes what is known, at once and when a file is read.
func (l *Ledger) applyLocked(f *fact) {
	a := l.accountLocked(f.Op, f.Key)
	switch f.Fact {
	case factRequest:
		l.requests = max(l.requests, f.Number)
		a.nth[verbIndex(f.Verb)] = max(a.nth[verbIndex(f.Verb)], f.Nth)
		if f.Verb == Make {
			a.tally.Requests++
		} else {
			a.tally.Inquiries++
		}
		a.requestLocked(Request{Number: f.Number, Verb: f.Verb, Attempt: f.Attempt, Fault: f.Fault, At: f.at})
	case factEffect:
		l.effects = append(l.effects, a)
		if f.Op == Refund {
			l.refunded[f.Charge] = f.Number
		}
		a.effects = append(a.effects, effect{order: f.Number, amount: f.Amount, charge: f.Charge, attempt: f.Attempt, at: f.at})
		a.keepLocked(l, f, effected(a, a.effects[len(a.effects)-1]))
	case factRefused:
		a.tally.RefusedFinally = true
		a.keepLocked(l, f, refusal(f.Reason, true))
	case factClosed:
		a.closed = true
	case factAnswer:
		l.answers = max(l.answers, f.Number)
		a.answerLocked(Answer{Number: f.Number, Request: f.Request, Status: f.Status, Means: f.Means, Way: f.Way, Delivery: f.Delivery, At: f.at})
	case factSent:
		a.sentLocked(f.Number, f.Means, f.Delivery)
	}
}

// keepLocked is the provider's memory of an answer.
func (a *account) keepLocked(l *Ledger, f *fact, o *outcome) {
	if !f.Kept {
		return
	}
	a.kept, a.keptAt, a.keptWhen, a.known = o, f.at, l.requests, true
	copy(a.print[:], f.Print)
}

// forgetLocked lets the provider forget what its configuration says, now.
func (a *account) forgetLocked(l *Ledger, f Forget) {
	if a.kept == nil {
		return
	}
	if f.AfterRequests > 0 && l.requests-a.keptWhen >= f.AfterRequests || f.After > 0 && l.now-a.keptAt >= f.After {
		a.kept, a.known = nil, false
	}
}

func verbIndex(v Verb) int {
	switch v {
	case Find:
		return 1
	case Close:
		return 2
	case Make:
	}
	return 0
}

func (e effect) id(op Op) string {
	if op == Refund {
		return fmt.Sprintf("re_%d", e.order)
	}
	return fmt.Sprintf("ch_%d", e.order)
}

func (e effect) public(a *account) Effect {
	p := Effect{Order: e.order, Op: a.op, Key: a.key, Attempt: e.attempt, ID: e.id(a.op), Amount: e.amount, At: e.at}
	if a.op == Refund {
		p.Charge = effect{order: e.charge}.id(Charge)
	}
	return p
}
