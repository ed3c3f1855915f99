package holdtest

import (
	"fmt"

	"github.com/tenure-go/tenure/hold"
)

// DurableCases is what a store keeps across the end of every process of it.
func DurableCases() []Case[DurableHarness] {
	return []Case[DurableHarness]{
		named("a-hold-survives-a-restart-and-its-time-goes-on", holdSurvives),
		named("what-is-over-stays-so-after-a-restart", endsSurvive),
		named("what-is-sold-stays-sold-after-a-restart", soldSurvives),
	}
}

// restart ends every process of the store. What was told before must still be so.
func (s *stage) restart(h DurableHarness) {
	if s.failed() {
		return
	}
	if err := h.Restart(s.ctx); err != nil {
		s.fail("restarting: %w", err)
	}
}

func holdSurvives(s *stage, h DurableHarness) {
	s.stock(2, "a")
	s.stock(1, "b")
	req := requestOf("x", ann, line("a", 1), line("b", 1))
	req.MaxHolds = 1
	s.placed(req)
	s.advance(within)
	s.restart(h)
	s.item("a", 2, 0, 1)
	held := s.again(req, hold.Held)
	s.want(near(held.Left, ttl-within), "after a restart it has %v left; want %v", held.Left, ttl-within)
	s.taken(request("y", bob, "b"), "b", 1, 0)
	other := request("z", ann, "a")
	other.MaxHolds = 1
	s.limited(other, "holds", 1, 1)
	s.extend("x", ann, ttl, ttl)
	s.restart(h)
	s.advance(within)
	s.sell("x", ann)
	s.restart(h)
	s.at("x", hold.Confirmed, "pays x")
	s.item("b", 1, 1, 0)
}

func endsSurvive(s *stage, h DurableHarness) {
	s.stock(9, "a", "b")
	s.states()
	for range 2 {
		s.restart(h)
		s.at("confirmed", hold.Confirmed, "pays confirmed")
		s.at("expired", hold.Expired, "")
		s.at("late", hold.Late, "r")
		s.at("released", hold.Released, "")
		s.confirm(paid("late", ann, "r"), hold.Late)
		s.release("released", bob, hold.Released)
		for _, name := range []string{"expired", "released"} {
			req := request(name, bob, "a")
			s.refused(req, hold.ErrOver)
		}
		s.item("a", 9, 1, 1)
	}
	s.advance(past)
	s.restart(h)
	s.at("held", hold.Expired, "")
	s.item("a", 9, 1, 0)
}

func soldSurvives(s *stage, h DurableHarness) {
	s.stock(5, "a")
	for i := range 5 {
		name := fmt.Sprint("x", i)
		s.place(name, ann, "a")
		if i%2 == 0 {
			s.restart(h)
		}
		s.sell(name, ann)
		if i%2 == 1 {
			s.restart(h)
		}
		s.item("a", 5, int64(i)+1, 0)
	}
	s.restart(h)
	s.taken(request("y", bob, "a"), "a", 1, 0)
	s.advance(3 * hold.MinPruneAge)
	s.prune(hold.MinPruneAge, 10, 5)
	s.restart(h)
	s.item("a", 5, 5, 0)
	s.stockRefused("a", 5, 4, hold.Item{Name: "a", Quantity: 4})
}
