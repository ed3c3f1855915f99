package holdhistories

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/hold/holdtest"
)

// Options shapes the histories.
type Options struct {
	Steps int           // at most; one or more
	Away  time.Duration // between any call and any instant that matters, at least; 0 where the clock stands still
}

// grain is the finest difference in time that every store keeps.
const grain = time.Microsecond

// maxHolds bounds what one history speaks of at a time.
const maxHolds = 10

// Draw draws one history, running it on the oracle as it goes.
func Draw(t *rapid.T, oracle holdtest.Harness, o Options) []holdtest.Op {
	d := &draft{t: t, o: o, oracle: oracle, beside: max(o.Away, grain), placed: map[fence.ID]hold.PlaceRequest{}, known: map[fence.ID]hold.Hold{}}
	d.stock() // without which nothing happens
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
	oracle   holdtest.Harness
	beside   time.Duration
	ops      []holdtest.Op
	now      time.Duration
	instants []time.Duration                // that matter to some call
	placed   map[fence.ID]hold.PlaceRequest // granted, also if they are forgotten
	known    map[fence.ID]hold.Hold         // as the oracle tells them now
	ids      []fence.ID                     // of known, in order
	texts    int                            // that were made up
}

// calls are the kinds of call.
func calls() map[string]func(*draft) {
	return map[string]func(*draft){
		"stock": (*draft).stock, "place": (*draft).place, "place again": (*draft).placeAgain, "extend": (*draft).extend, "confirm": (*draft).confirm, "release": (*draft).release,
		"get": (*draft).get, "list": (*draft).list, "items": (*draft).items, "prune": (*draft).prune, "advance": (*draft).advance,
	}
}

// kinds are the calls that make sense now, those that matter more several times.
func (d *draft) kinds() []string {
	kinds := []string{"stock", "place", "place", "place", "place", "items", "list", "prune", "advance", "advance"}
	if len(d.placed) > 0 {
		kinds = append(kinds, "place again", "get")
	}
	live, expired := false, false
	for _, h := range d.known {
		live = live || h.State == hold.Held
		expired = expired || h.State == hold.Expired
	}
	if live {
		kinds = append(kinds, "extend", "extend", "confirm", "confirm", "release", "advance")
	}
	if expired {
		kinds = append(kinds, "confirm", "confirm", "extend", "release", "place")
	}
	if len(d.known) > 0 {
		kinds = append(kinds, "confirm", "release", "extend")
	}
	return kinds
}

// play adds the call, and sees what became of it.
func (d *draft) play(op holdtest.Op) holdtest.Reply {
	d.ops = append(d.ops, op)
	r := holdtest.Play(d.t.Context(), d.oracle, op)
	d.now += op.Advance
	d.observe()
	return r
}

// observe looks at everything on the oracle, and remembers the instants that matter from now on.
func (d *draft) observe() {
	all, err := d.oracle.Office().List(d.t.Context(), hold.ListRequest{Limit: hold.MaxList})
	if err != nil {
		d.t.Fatalf("listing on the oracle: %v", err)
	}
	d.known, d.ids = map[fence.ID]hold.Hold{}, nil
	for _, h := range all {
		d.known[h.ID] = h
		d.ids = append(d.ids, h.ID)
		ends := d.now - h.Ended
		if h.State == hold.Held {
			ends = d.now + h.Left
			d.instant(ends)
			for _, grace := range graces() {
				d.instant(ends + grace)
			}
		}
		d.instant(ends + hold.MinPruneAge)
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
	d.play(holdtest.Op{Advance: d.free(d.beside)})
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
