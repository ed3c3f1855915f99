package holdtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

func listCases() []Case[Harness] {
	return []Case[Harness]{
		plain("a-list-holds-what-matches-all-that-is-set", listFilters),
		plain("a-list-goes-on-after-an-id", listPages),
		plain("items-are-listed-by-prefix-byte-by-byte", itemsByPrefix),
		plain("items-go-on-after-a-name", itemsPages),
	}
}

func pruneCases() []Case[Harness] {
	return []Case[Harness]{
		plain("what-is-sold-stays-sold-when-its-hold-is-forgotten", pruneKeepsSold),
		plain("only-what-has-been-over-for-so-long-is-forgotten", pruneOnlyOld),
		plain("forgetting-stops-at-its-limit", pruneLimit),
		plain("an-id-that-was-forgotten-is-a-new-hold", prunedAgain),
	}
}

// list must hold exactly these.
func (s *stage) list(req hold.ListRequest, names ...string) {
	if s.failed() {
		return
	}
	if req.Limit == 0 {
		req.Limit = hold.MaxList
	}
	all, err := s.store.List(s.ctx, req)
	if err != nil {
		s.fail("listing %+v: %w", req, err)
	}
	got, want := []fence.ID{}, []fence.ID{}
	for _, h := range all {
		got = append(got, h.ID)
	}
	for _, name := range names {
		want = append(want, idOf(name))
	}
	s.want(slices.Equal(got, want), "listing %+v: %v; want %v, %q", req, got, want, names)
}

// states brings one hold of 1 a into each state, and names it after that; the stock of it must suffice. Then ann's, it is of b too.
func (s *stage) states() {
	s.place("confirmed", ann, "a", "b")
	s.place("expired", bob, "a")
	s.place("late", ann, "a", "b")
	s.place("released", bob, "a")
	s.sell("confirmed", ann)
	s.release("released", bob, hold.Released)
	s.advance(past)
	s.confirm(paid("late", ann, "r"), hold.Late)
	s.place("held", bob, "a")
}

func listFilters(s *stage) {
	s.list(hold.ListRequest{})
	s.stock(9, "a", "b", "c")
	s.states()
	s.place("z", ann, "c")
	s.list(hold.ListRequest{}, "confirmed", "expired", "held", "late", "released", "z")
	s.list(hold.ListRequest{Actor: ann}, "confirmed", "late", "z")
	s.list(hold.ListRequest{Actor: bob}, "expired", "held", "released")
	s.list(hold.ListRequest{Actor: "an"})
	s.list(hold.ListRequest{Item: "a"}, "confirmed", "expired", "held", "late", "released")
	s.list(hold.ListRequest{Item: "b"}, "confirmed", "late")
	s.list(hold.ListRequest{Item: "none"})
	for _, state := range []hold.State{hold.Confirmed, hold.Expired, hold.Late, hold.Released} {
		s.list(hold.ListRequest{States: []hold.State{state}}, state.String())
	}
	s.list(hold.ListRequest{States: []hold.State{hold.Held}}, "held", "z")
	s.list(hold.ListRequest{States: []hold.State{hold.Held}, Actor: ann}, "z")
	s.list(hold.ListRequest{States: []hold.State{hold.Held, hold.Expired}, Item: "a"}, "expired", "held")
	s.list(hold.ListRequest{States: []hold.State{hold.Late, hold.Confirmed}, Item: "b", Actor: ann, After: idOf("confirmed")}, "late")
	s.list(hold.ListRequest{Item: "b", Actor: bob})
	s.advance(past)
	s.list(hold.ListRequest{States: []hold.State{hold.Held}})
	s.list(hold.ListRequest{States: []hold.State{hold.Expired}}, "expired", "held", "z")
}

func listPages(s *stage) {
	s.stock(100, "a", "b")
	var names []string
	for i := range 25 {
		name := fmt.Sprintf("p%02d", (i*7)%25)
		names = append(names, name)
		s.place(name, ann, "a", "b")
	}
	s.place("q", bob, "a")
	slices.Sort(names)
	for _, req := range []hold.ListRequest{{Actor: ann}, {Item: "b"}, {Item: "b", Actor: ann, States: []hold.State{hold.Held}}} {
		req.Limit = 4
		for from := 0; from <= len(names); from += req.Limit {
			s.list(req, names[from:min(from+req.Limit, len(names))]...)
			if from < len(names) {
				req.After = idOf(names[min(from+req.Limit, len(names))-1])
			}
		}
	}
	s.list(hold.ListRequest{After: idOf("p24")}, "q")
	s.list(hold.ListRequest{After: idOf("p2"), Limit: 1}, "p20")
}

func (s *stage) items(prefix, after string, limit int, names ...string) {
	if s.failed() {
		return
	}
	all, err := s.store.Items(s.ctx, prefix, after, limit)
	if err != nil {
		s.fail("listing items with %q after %q: %w", prefix, after, err)
	}
	got := []string{}
	for _, i := range all {
		got = append(got, i.Name)
	}
	s.want(slices.Equal(got, names), "items with %q after %q: %q; want %q", prefix, after, got, names)
}

func itemsByPrefix(s *stage) {
	s.items("", "", 10)
	s.stock(1, "a%b", "axb", "a_b", "ab", `a\b`, "A%b", "日本", "é")
	s.items("a%", "", 10, "a%b")
	s.items("a_", "", 10, "a_b")
	s.items(`a\`, "", 10, `a\b`)
	s.items("a*", "", 10)
	s.items("日", "", 10, "日本")
	s.items("日本語", "", 10)
	s.items("", "", 10, "A%b", "a%b", `a\b`, "a_b", "ab", "axb", "é", "日本") // the order of bytes
	s.place("x", ann, "A%b")
	s.taken(request("y", ann, "A%b"), "A%b", 1, 0)
	s.item("a%b", 1, 0, 0)
}

func itemsPages(s *stage) {
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("row 1 seat %d", (i*3)%10))
	}
	s.stock(1, names...)
	s.stock(7, "floor")
	slices.Sort(names)
	s.items("row 1", "", 4, names[:4]...)
	s.items("row 1", names[3], 4, names[4:8]...)
	s.items("row 1", names[7], 4, names[8:]...)
	s.items("row 1", names[9], 4)
	s.items("", "g", 2, names[:2]...)
	s.items("f", "row", 2)
}

// prune must forget exactly n.
func (s *stage) prune(age time.Duration, limit, n int) {
	if s.failed() {
		return
	}
	got, err := s.store.Prune(s.ctx, age, limit)
	if err != nil {
		s.fail("pruning: %w", err)
	}
	s.want(got == n, "%d holds over for %v were forgotten, at most %d; want %d", got, age, limit, n)
}

func pruneKeepsSold(s *stage) {
	s.stock(3, "a")
	s.stock(1, "b")
	s.placed(requestOf("x", ann, line("a", 2), line("b", 1)))
	s.sell("x", ann)
	s.advance(2 * time.Hour)
	s.prune(time.Hour, 10, 1)
	s.item("a", 3, 2, 0)
	s.item("b", 1, 1, 0)
	s.taken(request("y", bob, "b"), "b", 1, 0)
	s.taken(requestOf("y", bob, line("a", 2)), "a", 2, 1)
	s.stockRefused("b", 1, 0, hold.Item{Name: "b"})
	s.placed(requestOf("y", bob, line("a", 1)))
	s.sell("y", bob)
	s.item("a", 3, 3, 0)
	_, err := s.store.Get(s.ctx, idOf("x"))
	s.kind(err, hold.ErrNotFound, "getting what is forgotten")
	_, err = s.store.Confirm(s.ctx, paid("x", ann, "pays x"))
	s.kind(err, hold.ErrNotFound, "confirming what is forgotten")
}

func pruneOnlyOld(s *stage) {
	s.stock(20, "a", "b")
	s.states() // three have been over for 13 s or, expired, 3 s
	s.extend("held", bob, 10*time.Hour, 10*time.Hour)
	s.place("free", ann, "a")
	s.advance(30 * time.Minute)
	s.place("new", ann, "a")
	s.release("new", ann, hold.Released)
	s.prune(time.Hour, 100, 0)
	s.advance(31 * time.Minute)
	s.prune(2*time.Hour, 100, 0)
	s.prune(time.Hour, 100, 5)
	s.list(hold.ListRequest{}, "held", "new")
	s.item("a", 20, 1, 1)
	s.item("b", 20, 1, 0)
	s.advance(time.Hour)
	s.prune(time.Hour, 100, 1)
	s.prune(time.Hour, 100, 0)
	s.at("held", hold.Held, "")
	s.sell("held", bob)
	s.prune(time.Hour, 100, 0)
	s.advance(2 * time.Hour)
	s.prune(time.Hour, 100, 1)
	s.item("a", 20, 2, 0)
}

func pruneLimit(s *stage) {
	s.stock(100, "a")
	for i := range 10 {
		name := fmt.Sprint("x", i)
		s.place(name, ann, "a")
		switch i % 3 {
		case 0:
			s.sell(name, ann)
		case 1:
			s.release(name, ann, hold.Released)
		}
	}
	s.advance(2 * time.Hour)
	s.prune(time.Hour, 4, 4)
	s.prune(time.Hour, 4, 4)
	s.prune(time.Hour, 4, 2)
	s.prune(time.Hour, 4, 0)
	s.item("a", 100, 4, 0)
	s.list(hold.ListRequest{})
}

func prunedAgain(s *stage) {
	s.stock(5, "a", "b")
	s.place("x", ann, "a")
	s.release("x", ann, hold.Released)
	s.place("y", ann, "a")
	s.sell("y", ann)
	s.advance(2 * time.Hour)
	s.prune(time.Hour, 10, 2)
	s.placed(requestOf("x", bob, line("b", 2)))
	s.item("b", 5, 0, 2)
	s.placed(requestOf("y", bob, line("a", 4)))
	s.confirm(paid("y", bob, "another"), hold.Confirmed)
	s.item("a", 5, 5, 0)
	_, err := s.store.Release(s.ctx, idOf("x"), ann)
	s.want(errors.Is(err, hold.ErrActor), "releasing what was another's before: %v", err)
}
