package operation

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// State is what is known of an operation. The zero value is none.
type State int

// The states. The last three are decisions, and final.
const (
	Pending    State = iota + 1 // no attempt can have had an effect; one may begin
	Attempting                  // the current attempt may have sent its request, and is expected to answer
	Uncertain                   // an attempt may have had its effect, and nobody is at work on finding out but the reconciler
	Succeeded                   // the effect happened
	Failed                      // it did not, and cannot any more
	Cancelled                   // it was not asked for any more before it could happen
)

// String is the state as texts, columns and JSON use it.
func (s State) String() string {
	if s < Pending || s > Cancelled {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return [...]string{"pending", "attempting", "uncertain", "succeeded", "failed", "cancelled"}[s-1]
}

// Decided reports whether the state is final.
func (s State) Decided() bool { return s >= Succeeded && s <= Cancelled }

// Known is what is known of one attempt. The zero value is none.
type Known int

// What can be known, in the order of what it leaves open.
const (
	NotSent   Known = iota + 1 // its request certainly did not leave, and cannot any more
	Refused                    // the provider answered that it did not do it
	Open                       // it was recorded, and may have sent; it may still be at work
	NoAnswer                   // it has ended, and what became of its request is unknown
	Effective                  // the provider answered that it did it
)

// String is what is known, as texts and columns use it.
func (k Known) String() string {
	if k < NotSent || k > Effective {
		return fmt.Sprintf("Known(%d)", int(k))
	}
	return [...]string{"not sent", "refused", "open", "no answer", "effective"}[k-1]
}

// harmless reports whether the attempt had no effect and will have none.
func (k Known) harmless() bool { return k == NotSent || k == Refused }

// Attempt is one try to have the effect. Attempts are history: no later one erases them.
type Attempt struct {
	Number fence.Token // from 1, rising; what carries it can be refused by number
	Worker string      // text for people, never proof
	Known  Known
	Result []byte // of an effective one: what the provider answered
	Reason string // of a refused one, or why nothing is known
	// Began and Ended are how long ago, by the store's clock. No rule reads them.
	Began, Ended time.Duration
}

// Operation is the record of one operation, as a store holds it.
type Operation struct {
	ID          string // the caller's
	Kind        string
	Fingerprint Fingerprint
	State       State
	Attempts    []Attempt // all of them, by number
	// Result is the answer of the attempt that decided, or the operator's.
	Result []byte
	Reason string // of a decision that is no success, and of an operator's
	// CancelWished: somebody asked to cancel while an attempt may have had an effect.
	CancelWished bool
	// Conflicts are answers that contradict the decision. The decision stays.
	Conflicts []Conflict
	// Compensates is the id of the operation that this one undoes, or empty.
	Compensates string
	// NotAfter is the instant that every attempt carries, after which the provider refuses the effect; zero where there is none. See [Job].
	NotAfter time.Time
}

// Conflict is an answer that came after a decision and contradicts it.
type Conflict struct {
	Attempt fence.Token // 0: an inquiry's
	Result  []byte
	Reason  string
}

// Current is the number of the latest attempt, 0 if there was none.
func (o *Operation) Current() fence.Token {
	if len(o.Attempts) == 0 {
		return 0
	}
	return o.Attempts[len(o.Attempts)-1].Number
}

// Tries is how many of its attempts may have been sent, one that is open included: those that count towards [KindClaim.MaxAttempts]. Where there have been MaxAttempts of any sort, it is that many.
func (o *Operation) Tries() int {
	if len(o.Attempts) >= MaxAttempts {
		return MaxAttempts
	}
	n := 0
	for _, a := range o.Attempts {
		if a.Known != NotSent {
			n++
		}
	}
	return n
}

// harmless reports whether no attempt had, or can still have, an effect.
func (o *Operation) harmless() bool {
	for _, a := range o.Attempts {
		if !a.Known.harmless() {
			return false
		}
	}
	return true
}

// clone is a copy that shares nothing which a rule writes.
func (o *Operation) clone() *Operation {
	c := *o
	c.Attempts = append([]Attempt(nil), o.Attempts...)
	c.Conflicts = append([]Conflict(nil), o.Conflicts...)
	return &c
}
