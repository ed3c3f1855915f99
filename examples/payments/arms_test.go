package payments_test

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/tenure-go/tenure/examples/payments"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
)

// arm is a provider with its terms, and what must be true in the end.
type arm struct {
	name        string
	config      flakypay.Config
	terms       payments.Terms
	attempts    int  // of one operation at most; 0: the default
	forgets     bool // what was not delivered is unknown for ever
	deaf        bool // the shop's webhook acknowledges, and records nothing: a twin
	mayStayOpen func(rec *operation.Record, t flakypay.Tally) bool
}

const defaultAttempts = 25 // of package worker

func never(*operation.Record, flakypay.Tally) bool { return false }

// arms are all. timeout is that of a request.
func arms(timeout time.Duration) []arm {
	return []arm{
		{
			name:        "closes", // and keeps. Few attempts, so that keys are closed at all
			config:      flakypay.Config{Closes: true},
			terms:       payments.Terms{Keeps: operation.Forever, Closes: true, Timeout: timeout},
			attempts:    3,
			mayStayOpen: never,
		},
		{
			name:        "bounded", // keeps, and enforces a not-after
			terms:       payments.Terms{Keeps: operation.Forever, NotAfter: 30 * timeout, Timeout: timeout},
			attempts:    3,
			mayStayOpen: never,
		},
		{
			name:  "keeps", // and nothing else
			terms: payments.Terms{Keeps: operation.Forever, Timeout: timeout},
			// Another attempt decides, so that nothing stays open for which one may follow. None follows a wish to cancel, nor the last one; and then a look-up decides only where the provider has something to show.
			mayStayOpen: func(rec *operation.Record, t flakypay.Tally) bool {
				return t.Effects == 0 && !t.RefusedFinally && (rec.CancelWished || sent(rec) >= defaultAttempts)
			},
		},
		{
			name:    "lapses", // keeps a key for a time; half of that is the margin for what is on its way
			config:  flakypay.Config{Forget: flakypay.Forget{After: 40 * timeout}},
			terms:   payments.Terms{Keeps: 40 * timeout, Margin: 20 * timeout, Timeout: timeout},
			forgets: true,
			mayStayOpen: func(rec *operation.Record, t flakypay.Tally) bool {
				return !knowable(rec, t)
			},
		},
		{
			name:    "forgets", // every key, at once
			config:  flakypay.Config{Forget: flakypay.Forget{AtOnce: true}},
			terms:   payments.Terms{Timeout: timeout},
			forgets: true,
			mayStayOpen: func(rec *operation.Record, t flakypay.Tally) bool {
				return !knowable(rec, t)
			},
		},
	}
}

// chances are every fault that the provider can have, at 5 % each. Two of them take longer than a client waits, so that what it gave up on happens, or is answered, after that.
func chances(c flakypay.Config, timeout time.Duration) []flakypay.Chance {
	all := flakypay.EveryFault(c, 0.05)
	for i := range all {
		switch f := &all[i].Fault; f.Name {
		case "slow":
			f.Before = timeout + timeout/2
		case "late":
			f.After = timeout + timeout/2
		}
	}
	return all
}

// spare lets a fifth of inquiries meet the chances, and the others none: who fails every other question counts as down, and is asked seldom, which decides no less, but later.
func spare(c flakypay.Call) flakypay.Fault {
	h := fnv.New32a()
	fmt.Fprint(h, c.Key, c.Nth)
	if c.Verb == flakypay.Make || h.Sum32()>>8%5 == 0 {
		return flakypay.Fault{}
	}
	return flakypay.Fault{Name: "none"}
}

// sent is how many of an operation's attempts may have sent their request, as the store has it.
func sent(rec *operation.Record) (n int64) {
	for _, a := range rec.Attempts {
		if a.Known != operation.NotSent {
			n++
		}
	}
	return n
}

// knowable reports whether the ledger's delivery log has what decides: an answer that was acknowledged tells of the effect, or that there will be none; or every request that may have been sent was refused, and the refusal
// acknowledged. A request that the provider never read is not in its ledger, so that the store says how many there may be.
func knowable(rec *operation.Record, t flakypay.Tally) bool {
	return t.EffectTold == flakypay.Acknowledged || t.FinalTold == flakypay.Acknowledged || t.RefusedTold[flakypay.Acknowledged] == sent(rec)
}
