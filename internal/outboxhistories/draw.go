package outboxhistories

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxtest"
)

// Options shapes the histories.
type Options struct {
	Steps int           // at most; one or more
	Away  time.Duration // between any call and any instant that matters, at least; 0 where the clock stands still
}

// grain is the finest difference in time that every store keeps.
const grain = time.Microsecond

// maxMessages bounds what one history speaks of at a time.
const maxMessages = 14

// Draw draws one history, running it on the oracle as it goes.
func Draw(t *rapid.T, oracle outboxtest.Harness, o Options) []outboxtest.Op {
	d := &draft{t: t, o: o, oracle: oracle, beside: max(o.Away, grain), under: map[fence.ID]fence.ID{}}
	d.append() // without which nothing happens
	for range number(t, "steps", 1, o.Steps) {
		d.pass()
		calls()[pick(t, "call", d.kinds())](d)
	}
	return d.ops
}

// draft is a history being drawn.
type draft struct {
	t        *rapid.T
	o        Options
	oracle   outboxtest.Harness
	beside   time.Duration
	ops      []outboxtest.Op
	now      time.Duration
	instants []time.Duration  // that matter to some call
	known    []outbox.Info    // as the oracle tells them now
	appended []outbox.Message // all that ever were
	claims   []fence.ID
	under    map[fence.ID]fence.ID // the latest claim of a message, as far as the oracle's choice goes
}

// calls are the kinds of call.
func calls() map[string]func(*draft) {
	return map[string]func(*draft){
		"append": (*draft).append, "append again": (*draft).appendAgain, "claim": (*draft).claim, "settle": (*draft).settle, "settle anything": (*draft).settleAnything, "get": (*draft).get, "list": (*draft).list,
		"topics": (*draft).topics, "pause": (*draft).pause, "retry": (*draft).retry, "replay": (*draft).replay, "prune": (*draft).prune, "advance": (*draft).advance,
	}
}

// kinds are the calls that make sense now, those that matter more several times.
func (d *draft) kinds() []string {
	kinds := []string{"append", "append", "append again", "claim", "claim", "claim", "claim", "list", "topics", "pause", "prune", "advance", "advance", "get"}
	for i := range d.known {
		switch d.known[i].State {
		case outbox.Dead:
			kinds = append(kinds, "retry")
		case outbox.Delivered:
			kinds = append(kinds, "replay")
		case outbox.Pending:
		}
	}
	if len(d.claims) > 0 {
		kinds = append(kinds, "settle", "settle", "settle", "settle", "settle", "settle anything", "advance")
	}
	return kinds
}

// play adds the call, and sees what became of it.
func (d *draft) play(op outboxtest.Op) outboxtest.Reply {
	d.ops = append(d.ops, op)
	r := outboxtest.Play(d.t.Context(), d.oracle, op)
	d.now += op.Advance
	d.observe()
	return r
}

// observe looks at everything on the oracle, and remembers the instants that matter from now on.
func (d *draft) observe() {
	all, err := d.oracle.Office().List(d.t.Context(), outbox.ListRequest{Limit: outbox.MaxList})
	if err != nil {
		d.t.Fatalf("listing on the oracle: %v", err)
	}
	d.known = all
	for i := range all {
		if all[i].State == outbox.Pending {
			d.instant(d.now + all[i].DueIn)
			d.instant(d.now + all[i].Claimed)
			continue
		}
		for _, after := range []time.Duration{window, pruneAge, 2 * pruneAge} {
			d.instant(d.now - all[i].Ended + after)
		}
	}
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

// pass lets a little time pass before each call; where the clock stands still, it may stay at an instant that was sought, or let several calls be at one instant.
func (d *draft) pass() {
	if d.o.Away == 0 && d.chance(2) {
		return
	}
	d.play(outboxtest.Op{Advance: d.free(d.beside)})
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
