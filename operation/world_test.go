package operation

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
)

// rules are the functions that the world goes by; a twin replaces one.
type rules struct {
	begin    func(*Operation, fence.Token, bool) (*Operation, error)
	report   func(*Operation, fence.Token, Answer) (*Operation, error)
	inquired func(*Operation, Finding, []byte) (*Operation, error)
	cancel   func(*Operation) (*Operation, error)
}

func ours() rules {
	return rules{
		begin:  func(o *Operation, n fence.Token, again bool) (*Operation, error) { return o.Begin(n, "w", again) },
		report: func(o *Operation, n fence.Token, a Answer) (*Operation, error) { return o.Report(n, a) },
		inquired: func(o *Operation, f Finding, result []byte) (*Operation, error) {
			return o.Inquired(f, result, "asked")
		},
		cancel: func(o *Operation) (*Operation, error) { return o.Cancel("not wanted") },
	}
}

// request is one attempt's, as it really is.
type request struct {
	number   fence.Token
	canSend  bool // its worker may still send it: it is between its record and its send, or stopped there
	inFlight bool // it may still land
	applied  bool // it had the effect
	refused  bool
	answered bool // the provider has answered
}

// world is an operation and what really happens to it. The provider keeps keys: whatever lands under the identity has one effect at most.
type world struct {
	t        *rapid.T
	r        rules
	op       *Operation
	requests []*request
	effect   bool // it happened
	closed   bool // the provider refuses the identity for ever
	steps    string
}

// broke is how a world tells that a rule was broken.
type brokeError struct{ what string }

func (e *brokeError) Error() string { return e.what }

// next stores what a rule returns: nil means that it refused and nothing is stored.
func (w *world) next(op *Operation, _ error) {
	if op != nil {
		w.op = op
	}
}

func (w *world) note(format string, args ...any) { w.steps += fmt.Sprintf(format, args...) + "\n" }

func (w *world) pick(name string, from []*request) *request {
	if len(from) == 0 {
		return nil
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(w.t, name)]
}

func (w *world) where(is func(*request) bool) (all []*request) {
	for _, r := range w.requests {
		if is(r) {
			all = append(all, r)
		}
	}
	return all
}

// land lets a request arrive: it has the effect, unless the provider refuses it, for a reason of its own or because the identity is closed.
func (w *world) land(r *request, refuse bool) {
	r.inFlight, r.answered = false, true
	if r.refused = !w.effect && (w.closed || refuse); !r.refused {
		r.applied, w.effect = true, true
	}
	w.note("%d lands: refused %t", r.number, r.refused)
}

func (w *world) step() error {
	switch rapid.SampledFrom([]string{"begin", "send", "land", "deliver", "lose", "give up", "look", "close", "cancel"}).Draw(w.t, "step") {
	case "begin":
		number := w.op.Current() + 1
		op, err := w.r.begin(w.op, number, rapid.Bool().Draw(w.t, "again"))
		if err == nil {
			w.op = op
			w.requests = append(w.requests, &request{number: number, canSend: true})
			w.note("attempt %d", number)
		}
	case "send":
		if r := w.pick("who sends", w.where(func(r *request) bool { return r.canSend })); r != nil {
			r.canSend, r.inFlight = false, true
			w.note("%d sends", r.number)
		}
	case "land":
		if r := w.pick("which lands", w.where(func(r *request) bool { return r.inFlight })); r != nil {
			w.land(r, rapid.Bool().Draw(w.t, "refuse"))
		}
	case "deliver": // at once, late or twice
		if r := w.pick("which answer", w.where(func(r *request) bool { return r.answered })); r != nil {
			answer := Answer{Known: Effective, Result: []byte("r")}
			if r.refused {
				answer = Answer{Known: Refused, Reason: "no", Final: rapid.Bool().Draw(w.t, "final")}
			}
			w.note("%d's answer: %v final %t", r.number, answer.Known, answer.Final)
			w.next(w.r.report(w.op, r.number, answer))
		}
	case "lose": // its worker, or whoever takes its claim over, does not know
		if r := w.pick("which is lost", w.requests); r != nil {
			w.note("%d: no answer", r.number)
			w.next(w.r.report(w.op, r.number, Answer{Known: NoAnswer}))
		}
	case "give up": // the worker itself says that it will not send
		if r := w.pick("who gives up", w.where(func(r *request) bool { return r.canSend })); r != nil {
			r.canSend = false
			w.note("%d was not sent", r.number)
			w.next(w.r.report(w.op, r.number, Answer{Known: NotSent}))
		}
	case "look":
		finding := NotObserved
		if w.effect {
			finding = Found
		}
		w.note("a look: %d", finding)
		w.next(w.r.inquired(w.op, finding, []byte("r")))
	case "close":
		finding := Found
		if !w.effect {
			w.closed, finding = true, Closed
		}
		w.note("the key is closed: %d", finding)
		w.next(w.r.inquired(w.op, finding, []byte("r")))
	case "cancel":
		w.note("cancel")
		w.next(w.r.cancel(w.op))
	}
	return w.check()
}

// check holds the record against the truth: decided is decided for ever.
func (w *world) check() error {
	switch {
	case w.op.State == Succeeded && !w.effect:
		return &brokeError{"succeeded, and nothing happened\n" + w.steps}
	case (w.op.State == Failed || w.op.State == Cancelled) && w.effect:
		return &brokeError{fmt.Sprintf("%v, and it happened\n%s", w.op.State, w.steps)}
	}
	return nil
}

// play is a random history, after which everything that can still land does.
func play(t *rapid.T, r rules) error {
	w := &world{t: t, r: r, op: &Operation{ID: "o", Kind: "k", State: Pending}}
	var decided State
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		if err := w.step(); err != nil {
			return err
		}
		if decided != 0 && w.op.State != decided {
			return &brokeError{fmt.Sprintf("%v became %v\n%s", decided, w.op.State, w.steps)}
		}
		if w.op.State.Decided() {
			decided = w.op.State
		}
	}
	for _, r := range w.requests {
		if r.canSend || r.inFlight {
			w.land(r, false)
		}
	}
	return w.check()
}

// TestRecordAndTruth: whatever is decided is true, and stays so, in any order of sends, landings, answers, losses, looks and cancels.
func TestRecordAndTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := play(t, ours()); err != nil {
			t.Fatal(err)
		}
	})
}

// brokenRules are the usual mistakes.
func brokenRules() map[string]rules {
	refusal := ours()
	refusal.report = func(o *Operation, n fence.Token, a Answer) (*Operation, error) {
		next, err := o.Report(n, a)
		if next != nil && a.Known == Refused && a.Final && !next.State.Decided() {
			next.State = Failed
		}
		return next, err
	}
	absence := ours()
	absence.inquired = func(o *Operation, f Finding, result []byte) (*Operation, error) {
		if f == NotObserved {
			f = Closed
		}
		return o.Inquired(f, result, "asked")
	}
	hasty := ours()
	hasty.cancel = func(o *Operation) (*Operation, error) {
		next, err := o.Cancel("not wanted")
		if next != nil && next.CancelWished {
			next.State = Cancelled
		}
		return next, err
	}
	silence := ours()
	silence.report = func(o *Operation, n fence.Token, a Answer) (*Operation, error) {
		if a.Known == NoAnswer {
			a = Answer{Known: NotSent}
		}
		return o.Report(n, a)
	}
	late := ours()
	late.report = func(o *Operation, n fence.Token, a Answer) (*Operation, error) {
		next, err := o.Report(n, a)
		if next != nil && o.State.Decided() && a.Known == Effective {
			next.State = Succeeded
		}
		return next, err
	}
	late.cancel = hasty.cancel
	return map[string]rules{
		"a refusal fails the operation": refusal, "not observed is not done": absence, "cancelling while an attempt is open": hasty,
		"no answer is not sent": silence, "a late success overrules a decision": late,
	}
}

// TestBrokenRules: each mistake decides what is not true.
func TestBrokenRules(t *testing.T) {
	for name, r := range brokenRules() {
		t.Run(name, func(t *testing.T) {
			histories := rapid.Custom(func(t *rapid.T) string {
				if err := play(t, r); err != nil {
					return err.Error()
				}
				return ""
			})
			for seed := range 2000 {
				if broke := histories.Example(seed); broke != "" {
					t.Log(broke)
					return
				}
			}
			t.Fatal("the twin was not caught")
		})
	}
}
