package ophistories

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/operation/operationtest"
)

// Options shapes the histories.
type Options struct {
	Steps int           // at most; one or more
	Away  time.Duration // between any call and any instant that matters, at least; 0 where the clock stands still
}

// grain is the finest difference in time that every store keeps.
const grain = time.Microsecond

// maxIDs bounds what one history speaks of.
const maxIDs = 8

// Draw draws one history, running it on the oracle as it goes.
func Draw(t *rapid.T, oracle operationtest.Harness, o Options) []operationtest.Op {
	d := &draft{
		t: t, o: o, h: oracle, oracle: operationtest.NewPlayer(oracle), beside: max(o.Away, grain), requests: map[string]operation.SubmitRequest{}, records: map[string]operation.Record{},
		tied: map[string]bool{},
	}
	steps := number(t, "steps", 1, o.Steps)
	for range steps {
		d.pass()
		calls()[pick(t, "call", d.kinds())](d)
	}
	return d.ops
}

// draft is a history being drawn.
type draft struct {
	t        *rapid.T
	o        Options
	h        operationtest.Harness
	oracle   *operationtest.Player
	beside   time.Duration
	ops      []operationtest.Op
	now      time.Duration
	instants []time.Duration // that matter to some call
	ids      []string        // that were submitted, in this order
	requests map[string]operation.SubmitRequest
	records  map[string]operation.Record // as the oracle tells them now
	tied     map[string]bool             // may be due since the same instant as another
	texts    int                         // that were made up
}

// calls are the kinds of call.
func calls() map[string]func(*draft) {
	return map[string]func(*draft){
		"submit": (*draft).submit, "submit again": (*draft).submitAgain, "compensate": (*draft).compensate, "get": (*draft).get, "cancel": (*draft).cancel, "respond": (*draft).respond,
		"claim": (*draft).claim, "renew": (*draft).renew, "complete": (*draft).complete, "complete many": (*draft).completeMany, "expire": (*draft).expire, "due": (*draft).due,
		"inquired": (*draft).inquired, "undone": (*draft).undone, "list": (*draft).list, "resolve": (*draft).resolve, "prune": (*draft).prune, "stats": (*draft).stats, "advance": (*draft).advance,
	}
}

// kinds are the calls that make sense now, those that matter more several times.
func (d *draft) kinds() []string {
	if len(d.ids) == 0 {
		return []string{"submit"}
	}
	kinds := []string{
		"submit", "submit", "submit", "claim", "submit again", "get", "cancel", "expire", "due", "inquired", "list", "resolve", "prune", "stats", "advance", "advance",
	}
	for _, rec := range d.records {
		if len(rec.Attempts) > 0 {
			kinds = append(kinds, "respond", "renew", "complete", "complete many")
		}
		switch {
		case rec.State == operation.Succeeded:
			kinds = append(kinds, "compensate", "undone", "due")
		case rec.Step == operation.Work && !rec.Blocked && rec.StepIn == 0:
			kinds = append(kinds, "claim", "claim", "claim")
		case rec.State == operation.Attempting && rec.StepIn > 0:
			kinds = append(kinds, "complete", "complete many", "respond", "cancel", "advance")
		case rec.State == operation.Attempting:
			kinds = append(kinds, "complete", "expire", "expire")
		case rec.Step == operation.Ask:
			kinds = append(kinds, "due", "due", "inquired", "respond", "advance")
		}
	}
	slices.Sort(kinds) // records come in any order
	return kinds
}

// play adds the call, and sees what became of it.
func (d *draft) play(op operationtest.Op) operationtest.Reply {
	d.ops = append(d.ops, op)
	r := d.oracle.Play(d.t.Context(), op)
	d.now += op.Advance
	d.observe(r, op.Advance == 0 && slices.Contains(d.instants, d.now))
	if op.Advance == 0 { // what became due at once is due since now
		d.instants = append(d.instants, d.now)
	}
	return r
}

// observe looks at everything on the oracle, and remembers the instants that matter from now on. busy: something else may be due since this instant.
func (d *draft) observe(r operationtest.Reply, busy bool) {
	all, err := d.h.Store().List(d.t.Context(), operation.ListRequest{Limit: operation.MaxList})
	if err != nil {
		d.t.Fatalf("listing on the oracle: %v", err)
	}
	before := d.records
	d.records = map[string]operation.Record{}
	for _, rec := range all {
		was := before[rec.ID]
		d.records[rec.ID] = rec
		if rec.StepIn > 0 {
			d.instant(d.now + rec.StepIn)
		}
		if rec.State.Decided() && !was.State.Decided() {
			for _, age := range ages() {
				d.instant(d.now + age)
			}
		}
		if rec.State != was.State {
			d.tied[rec.ID] = busy
		}
	}
	for _, j := range r.Jobs {
		d.instant(d.now + j.TimeLeft)
		if j.Ordinal == 1 {
			d.instant(d.now + instant)
			for _, timeout := range timeouts() {
				d.instant(d.now + window - timeout)
			}
		}
		if len(r.Jobs) > 1 {
			d.tied[j.ID] = true
		}
	}
	d.ids = slices.DeleteFunc(d.ids, func(id string) bool { _, ok := d.records[id]; return !ok })
}

func (d *draft) instant(at time.Duration) {
	if at > d.now && !slices.Contains(d.instants, at) {
		d.instants = append(d.instants, at)
	}
}

// free is the first duration from in on after which nothing else matters.
func (d *draft) free(in time.Duration) time.Duration {
	for moved := true; moved; {
		moved = false
		for _, at := range d.instants {
			if apart := d.now + in - at; apart < d.beside && -apart < d.beside {
				in, moved = at+d.beside-d.now, true
			}
		}
	}
	return in
}

// pass lets a little time pass before each call, so that no two are at one instant; where the clock stands still, it may stay at an instant that was sought.
func (d *draft) pass() {
	if d.o.Away == 0 && slices.Contains(d.instants, d.now) && d.chance(2) {
		return
	}
	d.play(operationtest.Op{Advance: d.free(d.beside)})
}

// cut reports whether a limit may cut what is handed out: nothing undecided is due since the same instant as another.
func (d *draft) cut() bool {
	for id, rec := range d.records {
		if d.tied[id] && (!rec.State.Decided() || rec.Step == operation.Undo) {
			return false
		}
	}
	return true
}

func (d *draft) limit(most int) int {
	if d.cut() && d.chance(2) {
		return number(d.t, "limit", 1, 3)
	}
	return most
}

// number is from least to most, each about as likely as another: those that rapid draws itself are small more often than not, and most calls need many others before them. It shrinks
// towards least.
func number(t *rapid.T, what string, least, most int) int {
	const bits = 10
	return rapid.Custom(func(t *rapid.T) int {
		n := 0
		for range bits {
			n <<= 1
			if rapid.Bool().Draw(t, "bit") {
				n++
			}
		}
		return least + n*(most-least+1)>>bits
	}).Draw(t, what)
}

func pick[T any](t *rapid.T, what string, from []T) T { return from[number(t, what, 0, len(from)-1)] }

func (d *draft) chance(n int) bool { return number(d.t, "chance", 1, n) == 1 }

// id is one that was submitted, or, rarely, none.
func (d *draft) id() string {
	if len(d.ids) == 0 || d.chance(20) {
		return "none"
	}
	return pick(d.t, "id", d.ids)
}

// idIn is one in one of these states, if there is one.
func (d *draft) idIn(states ...operation.State) string {
	var in []string
	for _, id := range d.ids {
		if slices.Contains(states, d.records[id].State) {
			in = append(in, id)
		}
	}
	if len(in) == 0 || d.chance(6) {
		return d.id()
	}
	return pick(d.t, "id", in)
}

// try is an attempt of the operation, mostly the current one.
func (d *draft) try(id string) operationtest.Try {
	n := len(d.records[id].Attempts)
	if n == 0 || d.chance(5) {
		n = number(d.t, "attempt", 1, n+1)
	}
	return operationtest.Try{ID: id, N: n}
}

func (d *draft) text(what string) []byte {
	if d.chance(3) {
		d.texts++
	}
	return fmt.Appendf(nil, "%s %d", what, d.texts)
}

func (d *draft) delay() time.Duration {
	if in := pick(d.t, "delay", []time.Duration{0, 0, 3 * time.Second, 30 * time.Second}); in > 0 {
		return d.free(in)
	}
	return 0
}
