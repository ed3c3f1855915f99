package holdtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/hold"
)

func placeCases() []Case[Harness] {
	return []Case[Harness]{
		plain("what-is-held-is-not-free-and-what-is-sold-never-again", heldThenSold),
		plain("H71-demand-for-one-item-is-summed", demandSummed),
		plain("a-hold-has-all-its-lines-or-none", allOrNone),
		plain("who-is-refused-is-told-of-the-first-item-and-when-it-may-be-free", takenTold),
		plain("quantities-are-shared-to-the-last-unit", quantitiesShared),
		plain("an-item-that-was-never-stocked-is-not-found", itemUnknown),
		plain("of-several-refusals-the-first-in-their-order-is-told", refusalsInOrder),
		plain("a-refused-place-leaves-nothing-behind", refusedLeavesNothing),
		plain("a-hold-of-many-lines-is-kept-whole", manyLines),
		plain("what-is-told-are-durations-by-the-stores-clock", durationsTold),
	}
}

func heldThenSold(s *stage) {
	s.stock(1, "seat", "other")
	s.item("seat", 1, 0, 0)
	s.place("a", ann, "seat")
	s.item("seat", 1, 0, 1)
	s.taken(request("b", bob, "seat"), "seat", 1, 0)
	s.taken(request("c", ann, "seat"), "seat", 1, 0) // who holds it has it once
	s.item("other", 1, 0, 0)
	s.sell("a", ann)
	s.item("seat", 1, 1, 0)
	next := s.taken(request("b", bob, "seat"), "seat", 1, 0)
	s.want(next == 0, "a seat that is sold is told as free within %v", next)
	s.advance(past)
	s.taken(request("b", bob, "seat"), "seat", 1, 0)
	s.at("a", hold.Confirmed, "pays a")
	s.item("seat", 1, 1, 0)
	s.place("b", bob, "other")
}

func demandSummed(s *stage) {
	s.stock(1, "one")
	s.stock(2, "two")
	s.stock(5, "five")
	s.taken(requestOf("a", ann, line("one", 1), line("one", 1)), "one", 2, 1)
	s.item("one", 1, 0, 0)
	s.taken(requestOf("a", ann, line("five", 3), line("two", 1), line("five", 3)), "five", 6, 5)
	h := s.placed(requestOf("a", ann, line("two", 1), line("five", 2), line("two", 1), line("five", 1)))
	s.want(s.failed() || slices.Equal(h.Lines, []hold.Line{line("five", 3), line("two", 2)}), "its lines are %v; want them summed, by name", h.Lines)
	s.item("two", 2, 0, 2)
	s.item("five", 5, 0, 3)
	s.sell("a", ann)
	s.item("two", 2, 2, 0)
	s.item("five", 5, 3, 0)
}

func allOrNone(s *stage) {
	s.stock(1, "a", "b", "c")
	s.place("mid", bob, "b")
	for _, items := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"a", "b"}, {"b", "c"}} {
		s.taken(request("x", ann, items...), "b", 1, 0)
		s.item("a", 1, 0, 0)
		s.item("c", 1, 0, 0)
	}
	s.place("y", ann, "c", "a")
	s.taken(request("z", bob, "a", "b", "c"), "a", 1, 0)
	s.release("mid", bob, hold.Released)
	s.taken(request("z", bob, "b", "c"), "c", 1, 0)
	s.item("b", 1, 0, 0)
	s.release("y", ann, hold.Released)
	s.place("z", bob, "a", "b", "c")
}

func takenTold(s *stage) {
	s.stock(3, "a")
	s.stock(1, "b")
	s.placed(requestOf("long", ann, line("a", 1), line("b", 1)))
	req := requestOf("short", bob, line("a", 1))
	req.TTL = within
	s.placed(req)
	s.taken(requestOf("x", ann, line("b", 1), line("a", 1)), "b", 1, 0)
	next := s.taken(requestOf("x", ann, line("b", 1), line("a", 2)), "a", 2, 1)
	s.want(near(next, within), "the next expires within %v; want %v", next, within)
	s.extend("short", bob, time.Minute, time.Minute)
	next = s.taken(requestOf("x", ann, line("a", 2)), "a", 2, 1)
	s.want(near(next, ttl), "after an extension the next expires within %v; want %v", next, ttl)
	s.release("long", ann, hold.Released)
	s.release("short", bob, hold.Released)
	next = s.taken(requestOf("x", ann, line("a", 4)), "a", 4, 3)
	s.want(next == 0, "nothing is held, and the next expires within %v", next)
}

func quantitiesShared(s *stage) {
	s.stock(10, "floor")
	s.placed(requestOf("a", ann, line("floor", 4)))
	s.placed(requestOf("b", bob, line("floor", 3)))
	s.sell("b", bob)
	s.taken(requestOf("c", ann, line("floor", 4)), "floor", 4, 3)
	s.placed(requestOf("c", ann, line("floor", 3)))
	s.item("floor", 10, 3, 7)
	s.taken(requestOf("d", bob, line("floor", 1)), "floor", 1, 0)
	s.release("a", ann, hold.Released)
	s.item("floor", 10, 3, 3)
	s.placed(requestOf("d", bob, line("floor", 4)))
	s.sell("d", bob)
	s.sell("c", ann)
	s.item("floor", 10, 10, 0)
	s.stock(hold.MaxQuantity, "sand")
	s.taken(requestOf("e", ann, line("sand", 1), line("floor", 1)), "floor", 1, 0)
	s.placed(requestOf("e", ann, line("sand", hold.MaxQuantity-1)))
	s.placed(requestOf("f", ann, line("sand", 1)))
	s.taken(requestOf("g", ann, line("sand", 1)), "sand", 1, 0)
	s.sell("e", ann)
	s.item("sand", hold.MaxQuantity, hold.MaxQuantity-1, 1)
}

func itemUnknown(s *stage) {
	s.stock(1, "a", "c")
	for _, items := range [][]string{{"none"}, {"a", "b", "c"}, {"c", "b"}, {"A"}, {"a "}} {
		err := s.refusal(request("x", ann, items...), hold.ErrNotFound)
		var n *hold.NotFoundError
		s.want(s.failed() || errors.As(err, &n) && n.What == "item" && slices.Contains(items, n.Name) && n.Name != "a" && n.Name != "c", "placing %q: %v", items, err)
	}
	s.item("a", 1, 0, 0)
	_, err := s.store.Get(s.ctx, idOf("x"))
	s.kind(err, hold.ErrNotFound, "getting what was refused")
	s.stock(0, "none")
	s.taken(request("x", ann, "none"), "none", 1, 0)
}

func refusalsInOrder(s *stage) {
	s.stock(1, "a", "b")
	req := request("x", ann, "a")
	s.placed(req)
	other := request("x", bob, "b", "none")
	other.TTL, other.MaxHolds = within, 1
	s.differs(other, "actor")
	other.Actor = ann
	s.differs(other, "lines")
	other.Lines = req.Lines
	s.differs(other, "ttl")
	s.release("x", ann, hold.Released)
	s.differs(other, "ttl") // also of one that is over
	other.TTL = req.TTL
	s.over(s.refusal(other, hold.ErrOver), other.ID, hold.Released, "placing again what was released")
	s.place("y", ann, "a")
	full := request("z", ann, "a", "none")
	full.MaxHolds, full.MaxUnits = 1, 1
	s.refused(full, hold.ErrNotFound)
	full.Lines = full.Lines[:1]
	s.limited(full, "holds", 1, 1)
	full.MaxHolds = 0
	s.limited(full, "units", 1, 1)
	full.MaxUnits = 0
	s.taken(full, "a", 1, 0)
}

func refusedLeavesNothing(s *stage) {
	s.stock(1, "a", "b")
	s.place("held", bob, "a")
	req := request("x", ann, "b", "a")
	s.taken(req, "a", 1, 0)
	_, err := s.store.Get(s.ctx, req.ID)
	s.kind(err, hold.ErrNotFound, "getting what was refused")
	_, err = s.store.Confirm(s.ctx, paid("x", ann, "r"))
	s.kind(err, hold.ErrNotFound, "confirming what was refused")
	_, err = s.store.Release(s.ctx, req.ID, ann)
	s.kind(err, hold.ErrNotFound, "releasing what was refused")
	s.release("held", bob, hold.Released)
	s.placed(req) // the id is not used up
	s.item("b", 1, 0, 1)
}

func manyLines(s *stage) {
	var names []string
	for i := range hold.MaxLines {
		names = append(names, fmt.Sprintf("seat %03d", (i*37)%hold.MaxLines))
	}
	s.stock(1, names...)
	h := s.place("all", ann, names...)
	s.want(s.failed() || len(h.Lines) == hold.MaxLines && h.Lines[0].Item == "seat 000" && h.Lines[hold.MaxLines-1].Item == fmt.Sprintf("seat %03d", hold.MaxLines-1), "its lines are %v", h.Lines)
	s.taken(request("x", bob, names...), "seat 000", 1, 0)
	s.sell("all", ann)
	s.item("seat 127", 1, 1, 0)
}

// durationsTold shows that no instant crosses: what a client's clock says is nowhere in a request nor in a reply, so that one which is a day ahead, or behind, or moves meanwhile, changes nothing.
func durationsTold(s *stage) {
	s.stock(1, "a")
	s.place("a", ann, "a")
	s.advance(within)
	h := s.at("a", hold.Held, "")
	s.want(near(h.Left, ttl-within) && near(-h.Age, -within) && h.TTL == ttl && h.Ended == 0, "after %v: %+v", within, h)
	again := s.again(request("a", ann, "a"), hold.Held) // asking again does not prolong it
	s.want(near(again.Left, ttl-within), "placed again after %v it has %v left", within, again.Left)
	s.advance(past - within)
	h = s.at("a", hold.Expired, "")
	s.want(h.Left == 0 && near(-h.Ended, -(past-ttl)) && near(-h.Age, -past), "after %v: %+v", past, h)
	s.confirm(paid("a", ann, "r"), hold.Late)
	s.advance(time.Minute)
	h = s.at("a", hold.Late, "r")
	s.want(near(-h.Ended, -time.Minute) && near(-h.Age, -(past+time.Minute)), "a minute after it was late: %+v", h)
}
