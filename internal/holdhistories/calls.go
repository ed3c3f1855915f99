package holdhistories

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/hold/holdtest"
)

func graces() []time.Duration { return []time.Duration{3 * time.Second, 20 * time.Second} }

func itemNames() []string { return []string{"a", "b", "c"} }

func actors() []string { return []string{"ann", "bob"} }

func (d *draft) item() string {
	if d.chance(40) {
		return "none"
	}
	return pick(d.t, "item", itemNames())
}

func (d *draft) ttl() time.Duration {
	return d.free(pick(d.t, "ttl", []time.Duration{5 * time.Second, 10 * time.Second, time.Minute}))
}

func (d *draft) stock() {
	var items []hold.Item
	for _, name := range itemNames() {
		if len(d.ops) == 0 || d.chance(2) {
			items = append(items, hold.Item{Name: name, Quantity: int64(number(d.t, "quantity", 0, 5))})
		}
	}
	if len(items) == 0 {
		items = []hold.Item{{Name: "a", Quantity: 4}}
	}
	d.play(holdtest.Op{Stock: items})
}

func (d *draft) lines() []hold.Line {
	var lines []hold.Line
	for range number(d.t, "lines", 1, 3) {
		lines = append(lines, hold.Line{Item: d.item(), Quantity: int64(pick(d.t, "quantity", []int{1, 1, 1, 2, 3}))})
	}
	return lines
}

func (d *draft) limits(req *hold.PlaceRequest) {
	if d.chance(3) {
		req.MaxHolds = int64(number(d.t, "holds", 1, 3))
	}
	if d.chance(3) {
		req.MaxUnits = int64(number(d.t, "units", 2, 7))
	}
}

func (d *draft) place() {
	if len(d.ids) >= maxHolds {
		d.prune()
		return
	}
	d.texts++
	var id fence.ID
	copy(id[:], fmt.Sprintf("h%02d", d.texts*7%50)) // not in the order of the placing
	req := hold.PlaceRequest{ID: id, Actor: pick(d.t, "actor", actors()), Lines: d.lines(), TTL: d.ttl()}
	d.limits(&req)
	d.granted(req)
}

func (d *draft) granted(req hold.PlaceRequest) {
	r := d.play(holdtest.Op{Place: &req})
	if _, known := d.placed[req.ID]; r.Err == nil && !known {
		d.placed[req.ID] = req
	}
}

// placeAgain repeats a place, also under an id that was forgotten, or uses the id for something else.
func (d *draft) placeAgain() {
	ids := slices.SortedFunc(maps.Keys(d.placed), func(a, b fence.ID) int { return bytes.Compare(a[:], b[:]) })
	req := d.placed[pick(d.t, "id", ids)]
	req.Lines = slices.Clone(req.Lines)
	switch number(d.t, "particulars", 0, 6) {
	case 0:
		req.Actor = pick(d.t, "actor", actors())
	case 1:
		req.Lines = d.lines()
	case 2:
		req.TTL = d.ttl()
	case 3:
		slices.Reverse(req.Lines)
	}
	d.limits(&req)
	d.granted(req)
}

// id is one that is known, or, rarely, none; if possible, one in one of these states.
func (d *draft) id(states ...hold.State) fence.ID {
	var in []fence.ID
	for _, id := range d.ids {
		if slices.Contains(states, d.known[id].State) {
			in = append(in, id)
		}
	}
	switch {
	case len(d.ids) == 0 || d.chance(20):
		return fence.ID{'n', 'o', 'n', 'e'}
	case len(in) == 0 || d.chance(5):
		return pick(d.t, "id", d.ids)
	}
	return pick(d.t, "id", in)
}

// actor is the hold's, mostly.
func (d *draft) actor(id fence.ID) string {
	h, ok := d.known[id]
	if !ok || d.chance(8) {
		return pick(d.t, "actor", actors())
	}
	return h.Actor
}

func (d *draft) extend() {
	id := d.id(hold.Held, hold.Held, hold.Expired)
	d.play(holdtest.Op{Extend: &holdtest.Extension{ID: id, Actor: d.actor(id), TTL: d.ttl()}})
}

func (d *draft) confirm() {
	id := d.id(hold.Held, hold.Expired)
	req := hold.ConfirmRequest{ID: id, Actor: d.actor(id), Reference: pick(d.t, "reference", []string{"r", "r", "r", "s"}), Grace: pick(d.t, "grace", append(graces(), 0, 0, 0))}
	d.play(holdtest.Op{Confirm: &req})
}

func (d *draft) release() {
	id := d.id(hold.Held)
	d.play(holdtest.Op{Release: &holdtest.Return{ID: id, Actor: d.actor(id)}})
}

func (d *draft) get() { d.play(holdtest.Op{Get: d.id()}) }

func (d *draft) list() {
	req := hold.ListRequest{Limit: pick(d.t, "limit", []int{1, 3, hold.MaxList})}
	req.Actor = pick(d.t, "actor", append(actors(), "", ""))
	req.Item = pick(d.t, "item", append(itemNames(), "", "", ""))
	if d.chance(2) {
		req.After = d.id()
	}
	if d.chance(2) {
		req.States = []hold.State{hold.State(number(d.t, "state", 1, 5)), hold.State(number(d.t, "state", 1, 5))}
	}
	d.play(holdtest.Op{List: &req})
}

func (d *draft) items() {
	d.play(holdtest.Op{Items: &holdtest.Page{Prefix: pick(d.t, "prefix", []string{"", "", "", "b"}), After: pick(d.t, "after", []string{"", "", "a"}), Limit: pick(d.t, "limit", []int{1, 10, 10})}})
}

// prune forgets what is old enough: an hour may pass before.
func (d *draft) prune() {
	if d.chance(2) {
		d.to(d.now + hold.MinPruneAge)
	}
	d.play(holdtest.Op{Prune: &holdtest.Forgetting{Age: hold.MinPruneAge, Limit: hold.MaxPrune}})
}

// advance lets time pass: a little, much, or to an instant that matters.
func (d *draft) advance() {
	var to []time.Duration
	for _, at := range d.instants {
		for _, t := range []time.Duration{at - d.beside, at, at + d.beside} {
			if t > d.now && at < d.now+2*hold.MinPruneAge {
				to = append(to, t)
			}
		}
	}
	target := d.now + pick(d.t, "by", []time.Duration{time.Millisecond, 2 * time.Second, 9 * time.Second, 30 * time.Second})
	if len(to) > 0 && d.chance(2) {
		target = pick(d.t, "to", to)
	}
	d.to(target)
}

// to lets time pass until then, or a little longer where it must stay away from what matters.
func (d *draft) to(target time.Duration) {
	by := target - d.now
	if d.o.Away > 0 {
		by = d.free(by)
	}
	if by > 0 {
		d.play(holdtest.Op{Advance: by})
	}
}
