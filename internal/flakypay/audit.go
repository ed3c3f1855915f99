package flakypay

import "slices"

// Tally is what an audit asks of one key. It counts everything that ever was.
type Tally struct {
	Op             Op
	Key            string
	Requests       int64 // to have the effect, that the provider has read
	Inquiries      int64
	Effects        int64
	Amount         int64 // of all effects
	Closed         bool  // by an inquiry
	RefusedFinally bool  // and stored so
	// EffectTold is the best delivery among the answers that tell of an effect, 0 if there was none; FinalTold among those that tell that there is none and never will be.
	EffectTold, FinalTold Delivery
	// RefusedTold are the requests to have the effect that were refused, by the best delivery of a refusal; under 0 those of which there is none.
	RefusedTold [Acknowledged + 1]int64
}

// Knowable reports whether answers that were delivered as well as by, or better, decide the key: one tells of an effect; or that there will be none; or each single
// request was refused, and told so. A request that the provider has never read is not in it: its sender does not know that, so an audit compares Requests with what
// was sent. Acknowledged is for certain, Written with clients that nobody kills, and Sending is the most that can have been known.
//
// It says nothing of what can still be learned by asking: where keys are never forgotten, that is everything.
func (t Tally) Knowable(by Delivery) bool {
	refused := int64(0)
	for d := by; d <= Acknowledged; d++ {
		refused += t.RefusedTold[d]
	}
	return t.EffectTold >= by || t.FinalTold >= by || t.Requests > 0 && refused == t.Requests
}

// Entry is one key with the latest of what happened under it.
type Entry struct {
	Tally
	Effects  []Effect  // all
	Requests []Request // the latest [MaxDetails]
	Answers  []Answer  // the latest [MaxDetails]
}

// bygone is what remains of details that are not kept any more.
type bygone struct {
	refused [Acknowledged + 1]int64
	best    [MeansEffect + 1]Delivery
}

// detail is a request and how well its refusal was told.
type detail struct {
	Request
	refused Delivery
}

// requestLocked adds a request.
func (a *account) requestLocked(r Request) {
	if len(a.requests) == MaxDetails {
		if a.requests[0].Verb == Make {
			a.old.refused[a.requests[0].refused]++
		}
		a.requests = a.requests[:copy(a.requests, a.requests[1:])]
	}
	a.requests = append(a.requests, detail{Request: r})
}

// answerLocked adds an answer.
func (a *account) answerLocked(n Answer) {
	if len(a.answers) == MaxDetails {
		first := a.answers[0]
		a.old.best[first.Means] = max(a.old.best[first.Means], first.Delivery)
		a.answers = a.answers[:copy(a.answers, a.answers[1:])]
	}
	a.answers = append(a.answers, n)
	a.toldLocked(n.Request)
}

// sentLocked says what became of an answer.
func (a *account) sentLocked(number int64, means Meaning, d Delivery) {
	i := slices.IndexFunc(a.answers, func(n Answer) bool { return n.Number == number })
	if i < 0 {
		a.old.best[means] = max(a.old.best[means], d)
		return
	}
	a.answers[i].Delivery = d
	a.toldLocked(a.answers[i].Request)
}

// toldLocked finds how well the refusal of a request was told.
func (a *account) toldLocked(request int64) {
	best := Delivery(0)
	for _, n := range a.answers {
		if n.Request == request && (n.Means == MeansRefused || n.Means == MeansFinal) {
			best = max(best, n.Delivery)
		}
	}
	if i := slices.IndexFunc(a.requests, func(d detail) bool { return d.Number == request }); i >= 0 {
		a.requests[i].refused = best
	}
}

func (a *account) tallyLocked() Tally {
	t := a.tally
	t.Op, t.Key, t.Closed = a.op, a.key, a.closed
	t.RefusedTold = a.old.refused
	t.EffectTold, t.FinalTold = a.old.best[MeansEffect], a.old.best[MeansFinal]
	for _, n := range a.answers {
		switch n.Means {
		case MeansEffect:
			t.EffectTold = max(t.EffectTold, n.Delivery)
		case MeansFinal:
			t.FinalTold = max(t.FinalTold, n.Delivery)
		case MeansNothing, MeansRefused:
		}
	}
	for _, d := range a.requests {
		if d.Verb == Make {
			t.RefusedTold[d.refused]++
		}
	}
	t.Effects = int64(len(a.effects))
	for _, e := range a.effects {
		t.Amount += e.amount
	}
	return t
}

// Tallies is the tally of every key, in the order in which keys were first seen, all of one moment.
func (l *Ledger) Tallies() []Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Tally, len(l.order))
	for i, a := range l.order {
		all[i] = a.tallyLocked()
	}
	return all
}

// Tally is that of one key; of one that was never seen, it has zeros.
func (l *Ledger) Tally(op Op, key string) Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[accountKey{op, key}]; a != nil {
		return a.tallyLocked()
	}
	return Tally{Op: op, Key: key}
}

// Doubles are the tallies of the keys with more than one effect.
func (l *Ledger) Doubles() []Tally {
	return slices.DeleteFunc(l.Tallies(), func(t Tally) bool { return t.Effects < 2 })
}

// Unknowable are the tallies of the keys that answers delivered as well as by do not decide. See [Tally.Knowable].
func (l *Ledger) Unknowable(by Delivery) []Tally {
	return slices.DeleteFunc(l.Tallies(), func(t Tally) bool { return t.Requests == 0 || t.Knowable(by) })
}

// Effects are all effects in their order.
func (l *Ledger) Effects() []Effect {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Effect, len(l.effects))
	for _, a := range l.order {
		for _, e := range a.effects {
			all[e.order-1] = e.public(a)
		}
	}
	return all
}

// Entry is one key with its details; of one that was never seen, it has none.
func (l *Ledger) Entry(op Op, key string) Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[accountKey{op, key}]
	if a == nil {
		return Entry{Tally: Tally{Op: op, Key: key}}
	}
	e := Entry{Tally: a.tallyLocked(), Answers: slices.Clone(a.answers)}
	for _, one := range a.effects {
		e.Effects = append(e.Effects, one.public(a))
	}
	for _, d := range a.requests {
		e.Requests = append(e.Requests, d.Request)
	}
	return e
}

// Counts are how many requests were read and answers made, of all keys.
func (l *Ledger) Counts() (requests, answers int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests, l.answers
}

// Acknowledge records that an answer was received for good, by whoever received it. Twice is no error. It returns an error matching [ErrNoAnswer] for an answer that
// is not among its key's latest [MaxDetails], or was never given to a connection, and one matching [ErrFile].
func (l *Ledger) Acknowledge(op Op, key string, answer int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[accountKey{op, key}]
	if a == nil {
		return ErrNoAnswer
	}
	i := slices.IndexFunc(a.answers, func(n Answer) bool { return n.Number == answer })
	if i < 0 || a.answers[i].Delivery == NotWritten {
		return ErrNoAnswer
	}
	return l.sentLocked(a, a.answers[i], Acknowledged)
}

// sentLocked records what became of an answer, unless something better is known: a client may acknowledge before the write has returned here.
func (l *Ledger) sentLocked(a *account, n Answer, d Delivery) error {
	i := slices.IndexFunc(a.answers, func(other Answer) bool { return other.Number == n.Number })
	if i >= 0 && a.answers[i].Delivery == Acknowledged {
		return nil
	}
	return l.recordLocked(&fact{Fact: factSent, Op: a.op, Key: a.key, Number: n.Number, Means: n.Means, Delivery: d})
}
