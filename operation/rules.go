package operation

import (
	"bytes"
	"fmt"

	"github.com/tenure-go/tenure/fence"
)

// Begin records a new attempt, before anything of it leaves. number is greater than every one before it. Another attempt while one is open, or after one whose outcome
// is unknown, is the caller's to justify: again says that the provider knows the effect by its key within its window, so that two attempts have one effect.
//
// It returns a [*StateError] matching [ErrDecided], or one matching [ErrUndecided] where earlier attempts may have had the effect and again is false.
func (o *Operation) Begin(number fence.Token, worker string, again bool) (*Operation, error) {
	switch {
	case o.State.Decided():
		return nil, &StateError{Kind: ErrDecided, ID: o.ID, State: o.State, What: "another attempt"}
	case number <= o.Current():
		return nil, &InvalidError{"attempt", fmt.Sprintf("number %d after %d", number, o.Current())}
	case !o.harmless() && !again:
		return nil, &StateError{Kind: ErrUndecided, ID: o.ID, State: o.State, What: "another attempt without the provider's window"}
	}
	next := o.clone()
	for i := range next.Attempts { // one that is still open was given up: only its own answer can tell
		if next.Attempts[i].Known == Open {
			next.Attempts[i].Known = NoAnswer
		}
	}
	next.Attempts = append(next.Attempts, Attempt{Number: number, Worker: worker, Known: Open})
	next.State = Attempting
	return next, nil
}

// GiveUp decides that there will be no further attempt of an operation of which none can have had an effect: it has failed. Otherwise it is a [*StateError], matching [ErrDecided] or
// [ErrUndecided].
func (o *Operation) GiveUp(reason string) (*Operation, error) {
	switch {
	case o.State.Decided():
		return nil, &StateError{Kind: ErrDecided, ID: o.ID, State: o.State, What: "giving up"}
	case !o.harmless():
		return nil, &StateError{Kind: ErrUndecided, ID: o.ID, State: o.State, What: "giving up while an attempt may have had its effect"}
	}
	next := o.clone()
	next.State, next.Reason = Failed, reason
	return next, nil
}

// Answer is what is learned of one attempt: from its own worker, at once or late, from a webhook, or from nobody.
type Answer struct {
	Known  Known // not Open
	Result []byte
	Reason string
	// Final is of a refusal: asking again under this id can never do it.
	Final bool
}

// Complete is a worker's own report of the attempt that it has made, which may stand in the transaction of what it has changed beside. It moves the operation only as the current
// attempt's while that is open; else it is a [*StaleError], nothing is to be stored, and the worker's transaction must be rolled back. What a stale worker has learned from the
// provider all the same is evidence, and is for [Operation.Report].
func (o *Operation) Complete(number fence.Token, answer Answer) (*Operation, error) {
	i := o.find(number)
	if i >= 0 && (number != o.Current() || o.Attempts[i].Known != Open || o.State.Decided()) {
		return nil, &StaleError{ID: o.ID, Attempt: number, Newer: o.Current(), State: o.State}
	}
	return o.Report(number, answer)
}

// Report applies evidence: what the provider has said of an attempt, at once, late or by another way. The operation that it returns is to be stored also with an error matching [ErrStale]: the attempt's own record changes, or a
// conflict is added, although the report does not complete the operation as the current attempt's would.
//
// It returns a [*StaleError] if the attempt is not the current one and its report is no success that decides the operation, or if the operation was decided otherwise. It returns a [*InvalidError] for an attempt that was never recorded and an answer that is none.
func (o *Operation) Report(number fence.Token, answer Answer) (*Operation, error) {
	i := o.find(number)
	if i < 0 {
		return nil, &InvalidError{"attempt", fmt.Sprintf("number %d was never recorded", number)}
	}
	if answer.Known < NotSent || answer.Known > Effective || answer.Known == Open {
		return nil, &InvalidError{"answer", answer.Known.String()}
	}
	next := o.clone()
	was := next.Attempts[i].Known
	if learned(was, answer.Known) {
		next.Attempts[i].Known, next.Attempts[i].Result, next.Attempts[i].Reason = answer.Known, answer.Result, answer.Reason
	}
	stale := &StaleError{ID: o.ID, Attempt: number, Newer: o.Current(), State: o.State}
	if o.State.Decided() {
		if o.decidedAs(answer) {
			return next, nil
		}
		next.contradict(Conflict{Attempt: number, Result: answer.Result, Reason: Cut(fmt.Sprintf("%v after the operation was %v: %s", answer.Known, o.State, answer.Reason))})
		return next, stale
	}
	next.settle(answer.Final && number == o.Current())
	if number != o.Current() && next.State != Succeeded {
		stale.State = next.State
		return next, stale
	}
	return next, nil
}

func (o *Operation) find(number fence.Token) int {
	for i, a := range o.Attempts {
		if a.Number == number {
			return i
		}
	}
	return -1
}

// learned reports whether an answer says more than what was known. That the effect happened always does: who said before that it did not was wrong.
func learned(was, now Known) bool {
	return was == Open || was == NoAnswer && now != NoAnswer || now == Effective && was != Effective
}

// decidedAs reports whether an answer agrees with the decision: one without an answer says nothing, and that one attempt had no effect does not mean that another had none.
func (o *Operation) decidedAs(a Answer) bool {
	if a.Known == Effective {
		return o.State == Succeeded && sameResult(o.Result, a.Result)
	}
	return true
}

// sameResult compares byte by byte; one that is empty, because nothing was told or it was forgotten, contradicts nothing.
func sameResult(a, b []byte) bool { return len(a) == 0 || len(b) == 0 || bytes.Equal(a, b) }

// contradict records what was said against the decision, once.
func (o *Operation) contradict(c Conflict) {
	for _, known := range o.Conflicts {
		if c.Attempt == known.Attempt && bytes.Equal(c.Result, known.Result) {
			return
		}
	}
	o.Conflicts = append(o.Conflicts, c)
}

// settle finds the state of an operation that is undecided, from what is known of its attempts. final: the current one was refused for good.
func (o *Operation) settle(final bool) {
	open := false
	for _, a := range o.Attempts {
		switch a.Known {
		case Effective:
			o.State, o.Result = Succeeded, a.Result
			return
		case Open:
			open = true
		case NotSent, Refused, NoAnswer:
		}
	}
	last := o.Attempts[len(o.Attempts)-1]
	switch {
	case open:
		o.State = Attempting
	case !o.harmless():
		o.State = Uncertain
	case final:
		o.State, o.Reason = Failed, last.Reason
	case o.CancelWished:
		o.State, o.Reason = Cancelled, "cancelled when it was known that no attempt had an effect"
	default:
		o.State = Pending
	}
}

// Finding is what an inquiry learned at the provider, of the operation's identity as a whole.
type Finding int

// What an inquiry can find. The zero value is nothing.
const (
	Found       Finding = iota + 1 // the effect happened
	Closed                         // it did not, and the provider has closed the key in the same step: it never will
	PastInstant                    // it was not observed, and the provider enforces the instant that every attempt carried, which has passed by its own clock
	NotObserved                    // it was not observed: that decides nothing
)

// Inquired applies a finding. It is no error to learn the same again, or to find nothing.
//
// It returns the operation to be stored; against a decision with a conflict added, and a [*StateError] matching [ErrDecided].
func (o *Operation) Inquired(f Finding, result []byte, reason string) (*Operation, error) {
	next := o.clone()
	switch {
	case f < Found || f > NotObserved:
		return nil, &InvalidError{"finding", fmt.Sprint(int(f))}
	case f == PastInstant && o.NotAfter.IsZero():
		return nil, &InvalidError{"finding", "no attempt carried an instant after which the provider refuses it"}
	case f == NotObserved:
		return next, nil
	case !o.State.Decided() && f == Found:
		next.State, next.Result = Succeeded, result
		return next, nil
	case !o.State.Decided():
		next.State, next.Reason = Failed, reason
		return next, nil
	}
	agrees := f == Found && o.State == Succeeded && sameResult(o.Result, result) || f != Found && o.State != Succeeded
	if agrees {
		return next, nil
	}
	next.contradict(Conflict{Result: result, Reason: Cut(fmt.Sprintf("found otherwise after the operation was %v: %s", o.State, reason))})
	return next, &StateError{Kind: ErrDecided, ID: o.ID, State: o.State, What: "the finding of an inquiry"}
}

// Cancel asks that the effect should not happen. It succeeds only while no attempt can have had it; otherwise it is a wish, which compensation honours. It returns the operation
// to be stored: its state says which of the two. A decided operation is a [*StateError] matching [ErrDecided], unless it was cancelled already.
func (o *Operation) Cancel(reason string) (*Operation, error) {
	next := o.clone()
	switch {
	case o.State == Cancelled:
	case o.State.Decided():
		return nil, &StateError{Kind: ErrDecided, ID: o.ID, State: o.State, What: "cancelling"}
	case o.harmless():
		next.State, next.Reason = Cancelled, reason
	default:
		next.CancelWished = true
	}
	return next, nil
}

// Resolve is an operator's verdict over an operation that is uncertain: it has succeeded, or it has failed. A reason is required.
func (o *Operation) Resolve(verdict State, result []byte, reason string) (*Operation, error) {
	switch {
	case verdict != Succeeded && verdict != Failed:
		return nil, &InvalidError{"verdict", verdict.String() + "; want succeeded or failed"}
	case reason == "":
		return nil, &InvalidError{"reason", "an operator's verdict needs one"}
	case o.State.Decided():
		return nil, &StateError{Kind: ErrDecided, ID: o.ID, State: o.State, What: "a verdict"}
	case o.State != Uncertain:
		return nil, &StateError{Kind: ErrUndecided, ID: o.ID, State: o.State, What: "a verdict before the attempt has ended"}
	}
	next := o.clone()
	next.State, next.Result, next.Reason = verdict, result, reason
	return next, nil
}

// MayCompensate is nil if the operation has succeeded, so that there is something to undo. While it is undecided a refund could come before the charge: that is a
// [*StateError] matching [ErrUndecided]; where it has failed or was cancelled there is nothing to undo, and it matches [ErrDecided].
func (o *Operation) MayCompensate() error {
	switch {
	case o.State == Succeeded:
		return nil
	case o.State.Decided():
		return &StateError{Kind: ErrDecided, ID: o.ID, State: o.State, What: "a compensation"}
	}
	return &StateError{Kind: ErrUndecided, ID: o.ID, State: o.State, What: "a compensation"}
}
