package holdtest

import (
	"errors"

	"github.com/tenure-go/tenure/hold"
)

func stockCases() []Case[Harness] {
	return []Case[Harness]{
		plain("stock-is-raised-and-lowered-to-what-is-sold-and-held", stockLowered),
		plain("several-items-are-stocked-all-or-none", stockAllOrNone),
		plain("stock-is-lowered-below-what-expired-holds-had", stockAfterExpiry),
	}
}

// stockRefused must be refused because of this item.
func (s *stage) stockRefused(item string, wanted, free int64, items ...hold.Item) {
	if s.failed() {
		return
	}
	err := s.store.Stock(s.ctx, items)
	s.kind(err, hold.ErrTaken, "stocking %+v", items)
	var t *hold.TakenError
	s.want(s.failed() || errors.As(err, &t) && t.Item == item && t.Wanted == wanted && t.Free == free, "stocking %+v: %v; want that %d of %q are sold or held, and %d would be there", items, err, wanted, item, free)
}

func stockLowered(s *stage) {
	of := func(n int64) hold.Item { return hold.Item{Name: "a", Quantity: n} }
	s.stock(5, "a")
	s.placed(requestOf("x", ann, line("a", 2)))
	s.placed(requestOf("y", bob, line("a", 1)))
	s.sell("y", bob)
	s.stockRefused("a", 3, 2, of(2))
	s.item("a", 5, 1, 2)
	s.stocked(of(3))
	s.stocked(of(3))
	s.item("a", 3, 1, 2)
	s.taken(request("z", bob, "a"), "a", 1, 0)
	s.stocked(of(4))
	s.place("z", bob, "a")
	s.release("x", ann, hold.Released)
	s.stocked(of(2))
	s.sell("z", bob)
	s.stockRefused("a", 2, 1, of(1))
	s.stockRefused("a", 2, 0, of(0))
	s.item("a", 2, 2, 0)
	s.stocked(of(hold.MaxQuantity))
	s.item("a", hold.MaxQuantity, 2, 0)
}

func stockAllOrNone(s *stage) {
	s.stock(5, "m")
	s.placed(requestOf("x", ann, line("m", 4)))
	s.stockRefused("m", 4, 3, hold.Item{Name: "z", Quantity: 1}, hold.Item{Name: "m", Quantity: 3}, hold.Item{Name: "a", Quantity: 1})
	all, err := s.store.Items(s.ctx, "", "", 10)
	s.want(err == nil && len(all) == 1 && all[0].Quantity == 5, "after a refused stock there is %+v, %v", all, err)
	s.stocked(hold.Item{Name: "z", Quantity: 1}, hold.Item{Name: "m", Quantity: 4}, hold.Item{Name: "a", Quantity: 0})
	s.item("z", 1, 0, 0)
	s.item("m", 4, 0, 4)
	s.item("a", 0, 0, 0)
	s.stock(1, "p", "q")
	s.place("p", ann, "p")
	s.place("q", ann, "q")
	s.stockRefused("p", 1, 0, hold.Item{Name: "q"}, hold.Item{Name: "p"}) // the first by name
}

func stockAfterExpiry(s *stage) {
	s.stock(5, "a")
	s.placed(requestOf("x", ann, line("a", 5)))
	s.advance(past)
	s.stock(1, "a")
	s.item("a", 1, 0, 0)
	s.confirm(paid("x", ann, "r"), hold.Late)
	s.place("y", bob, "a")
	s.taken(request("z", bob, "a"), "a", 1, 0)
}
