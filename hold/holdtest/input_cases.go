package holdtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

func inputCases() []Case[Harness] {
	return []Case[Harness]{
		plain("a-place-that-makes-no-sense-is-refused", placeInput),
		plain("a-stock-that-makes-no-sense-is-refused", stockInput),
		plain("whatever-else-makes-no-sense-is-refused", otherInput),
		plain("texts-of-any-letters-and-up-to-their-limits-are-kept", anyLetters),
		plain("numbers-up-to-their-limits-are-kept", numbersKept),
		plain("what-is-asked-and-told-is-the-callers-own", slicesOwned),
		plain("a-call-whose-context-has-ended-changes-nothing", endedContext),
		plain("the-store-says-what-it-keeps", guaranteesTold),
	}
}

// noText are texts that no store keeps, for a limit.
func noText(most int) map[string]string {
	return map[string]string{
		"none": "", "a long one": strings.Repeat("x", most+1), "a NUL": "a\x00b", "a line feed": "a\nb", "a C1 control": "a\u0085b", "no UTF-8": "a\xff", "half a surrogate": "a\xed\xa0\x80",
	}
}

func placeInput(s *stage) {
	s.stock(5, "a")
	refused := func(what string, spoil func(r *hold.PlaceRequest)) {
		req := request("x", ann, "a")
		spoil(&req)
		s.refused(req, hold.ErrInvalid)
		if s.failed() {
			s.err = fmt.Errorf("with %s: %w", what, s.err)
		}
	}
	for what, text := range noText(hold.MaxActor) {
		refused("as actor "+what, func(r *hold.PlaceRequest) { r.Actor = text })
	}
	for what, text := range noText(hold.MaxItem) {
		refused("as item "+what, func(r *hold.PlaceRequest) { r.Lines = []hold.Line{line("a", 1), line(text, 1)} })
	}
	for what, spoil := range map[string]func(r *hold.PlaceRequest){
		"no id": func(r *hold.PlaceRequest) { r.ID = fence.ID{} }, "no lines": func(r *hold.PlaceRequest) { r.Lines = nil },
		"too many lines": func(r *hold.PlaceRequest) { r.Lines = slices.Repeat(r.Lines, hold.MaxLines+1) },
		"none of it":     func(r *hold.PlaceRequest) { r.Lines[0].Quantity = 0 }, "less than none": func(r *hold.PlaceRequest) { r.Lines[0].Quantity = -1 },
		"too much":              func(r *hold.PlaceRequest) { r.Lines[0].Quantity = hold.MaxQuantity + 1 },
		"too much in sum":       func(r *hold.PlaceRequest) { r.Lines = []hold.Line{line("a", hold.MaxQuantity), line("a", 1)} },
		"a sum to undo another": func(r *hold.PlaceRequest) { r.Lines = []hold.Line{line("a", 2), line("a", -1)} },
		"no time":               func(r *hold.PlaceRequest) { r.TTL = 0 }, "less than no time": func(r *hold.PlaceRequest) { r.TTL = -ttl },
		"too little time": func(r *hold.PlaceRequest) { r.TTL = hold.MinTTL - 1 }, "too much time": func(r *hold.PlaceRequest) { r.TTL = hold.MaxTTL + 1 },
		"a negative limit of holds": func(r *hold.PlaceRequest) { r.MaxHolds = -1 }, "a negative limit of units": func(r *hold.PlaceRequest) { r.MaxUnits = -1 },
	} {
		refused(what, spoil)
	}
	s.item("a", 5, 0, 0)
	s.list(hold.ListRequest{})
	s.place("x", ann, "a")
}

func stockInput(s *stage) {
	s.stock(5, "a")
	invalid := func(what string, items ...hold.Item) {
		if !s.failed() {
			s.kind(s.store.Stock(s.ctx, items), hold.ErrInvalid, "stocking %s", what)
		}
	}
	for what, text := range noText(hold.MaxItem) {
		invalid("as item "+what, hold.Item{Name: "a", Quantity: 1}, hold.Item{Name: text, Quantity: 1})
	}
	invalid("nothing")
	invalid("an item twice", hold.Item{Name: "a", Quantity: 7}, hold.Item{Name: "a", Quantity: 7})
	invalid("less than nothing", hold.Item{Name: "a", Quantity: -1})
	invalid("too much", hold.Item{Name: "a", Quantity: hold.MaxQuantity + 1})
	many := make([]hold.Item, hold.MaxItems+1)
	for i := range many {
		many[i].Name = fmt.Sprint("i", i)
	}
	invalid("too many", many...)
	s.items("", "", 10, "a")
	s.item("a", 5, 0, 0)
	s.stocked(many[1:]...)
}

func otherInput(s *stage) {
	s.stock(5, "a")
	s.place("x", ann, "a")
	invalid := func(err error, doing string) { s.kind(err, hold.ErrInvalid, "%s", doing) }
	for what, text := range noText(hold.MaxActor) {
		_, err := s.store.Confirm(s.ctx, paid("x", text, "r"))
		invalid(err, "confirming as actor "+what)
		_, err = s.store.Extend(s.ctx, idOf("x"), text, ttl)
		invalid(err, "extending as actor "+what)
		_, err = s.store.Release(s.ctx, idOf("x"), text)
		invalid(err, "releasing as actor "+what)
	}
	for what, text := range noText(hold.MaxReference) {
		_, err := s.store.Confirm(s.ctx, paid("x", ann, text))
		invalid(err, "confirming under reference "+what)
	}
	for _, grace := range []time.Duration{-1, hold.MaxGrace + 1} {
		_, err := s.store.Confirm(s.ctx, graced("x", ann, "r", grace))
		invalid(err, "confirming with a grace that is none")
	}
	for _, by := range []time.Duration{0, -ttl, hold.MinTTL - 1, hold.MaxTTL + 1} {
		_, err := s.store.Extend(s.ctx, idOf("x"), ann, by)
		invalid(err, "extending by no time")
	}
	var none fence.ID
	_, err := s.store.Confirm(s.ctx, hold.ConfirmRequest{Actor: ann, Reference: "r"})
	invalid(err, "confirming no id")
	_, err = s.store.Extend(s.ctx, none, ann, ttl)
	invalid(err, "extending no id")
	_, err = s.store.Release(s.ctx, none, ann)
	invalid(err, "releasing no id")
	s.officeInput(invalid)
	s.at("x", hold.Held, "")
	s.item("a", 5, 0, 1)
}

func (s *stage) officeInput(invalid func(err error, doing string)) {
	for _, limit := range []int{-1, 0, hold.MaxList + 1} {
		_, err := s.store.List(s.ctx, hold.ListRequest{Limit: limit})
		invalid(err, "listing too many or none")
		_, err = s.store.Items(s.ctx, "", "", limit)
		invalid(err, "listing too many items or none")
		_, err = s.store.Prune(s.ctx, time.Hour, limit*10)
		invalid(err, "forgetting too many or none")
	}
	for what, text := range noText(hold.MaxActor) {
		if text == "" {
			continue
		}
		_, err := s.store.List(s.ctx, hold.ListRequest{Actor: text, Limit: 1})
		invalid(err, "listing of actor "+what)
		_, err = s.store.List(s.ctx, hold.ListRequest{Item: text, Limit: 1})
		invalid(err, "listing of item "+what)
		_, err = s.store.Items(s.ctx, text, "", 1)
		invalid(err, "items with prefix "+what)
		_, err = s.store.Items(s.ctx, "", text, 1)
		invalid(err, "items after "+what)
	}
	for _, state := range []hold.State{-1, 0, hold.Late + 1} {
		_, err := s.store.List(s.ctx, hold.ListRequest{States: []hold.State{hold.Held, state}, Limit: 1})
		invalid(err, "listing no state")
	}
	for _, age := range []time.Duration{-1, 0, hold.MinPruneAge - 1} {
		_, err := s.store.Prune(s.ctx, age, 1)
		invalid(err, "forgetting what is not old")
	}
}

func anyLetters(s *stage) {
	for i, text := range []string{
		"'; DROP TABLE holds; --", `"quoted"`, `back\slash`, "%_*?[a]", "日本語 ☃ 𝄞", "e\u0301 is not \u00e9", " spaces ", "{\"json\":[1,null]}", "$1", "NULL", "\u202eright", "ﬀ",
		strings.Repeat("𝄞", hold.MaxItem/4), strings.Repeat("x", hold.MaxItem),
	} {
		name := fmt.Sprint("x", i)
		reference := strings.Repeat(text, hold.MaxReference/len(text))
		s.stock(1, text)
		s.place(name, text, text)
		s.taken(request(name+" 2", ann, text), text, 1, 0)
		s.list(hold.ListRequest{Actor: text, Item: text}, name)
		s.confirm(paid(name, text, reference), hold.Confirmed)
		h := s.at(name, hold.Confirmed, reference)
		s.want(s.failed() || h.Actor == text && h.Lines[0].Item == text, "%q became %+v", text, h)
		s.item(text, 1, 1, 0)
	}
}

func numbersKept(s *stage) {
	s.stock(hold.MaxQuantity, "a", "b")
	req := requestOf("x", ann, line("a", hold.MaxQuantity), line("b", hold.MaxQuantity))
	req.TTL = hold.MaxTTL
	req.MaxHolds, req.MaxUnits = 1<<62, 1<<62
	s.placed(req)
	s.item("a", hold.MaxQuantity, 0, hold.MaxQuantity)
	s.extend("x", ann, hold.MaxTTL, hold.MaxTTL)
	s.confirm(graced("x", ann, "r", hold.MaxGrace), hold.Confirmed)
	s.item("b", hold.MaxQuantity, hold.MaxQuantity, 0)
	s.stock(1, "c")
	short := request("short", bob, "c")
	short.TTL = hold.MinTTL
	h, err := s.store.Place(s.ctx, short)
	s.want(err == nil && (h.State == hold.Held || h.State == hold.Expired), "placing for %v: %+v, %v", hold.MinTTL, h, err)
	s.advance(time.Second)
	s.place("next", ann, "c")
}

func slicesOwned(s *stage) {
	items := []hold.Item{{Name: "b", Quantity: 3}, {Name: "a", Quantity: 3}}
	s.stocked(items...)
	s.want(items[0].Name == "b", "the caller's items were sorted: %+v", items)
	items[0] = hold.Item{}
	req := requestOf("x", ann, line("b", 1), line("a", 1), line("b", 1))
	h := s.placed(req)
	s.want(slices.Equal(req.Lines, []hold.Line{line("b", 1), line("a", 1), line("b", 1)}), "the caller's lines became %v", req.Lines)
	clear(req.Lines)
	clear(h.Lines)
	want := []hold.Line{line("a", 1), line("b", 2)}
	for range 2 {
		h = s.at("x", hold.Held, "")
		s.want(slices.Equal(h.Lines, want), "its lines became %v; want %v", h.Lines, want)
		clear(h.Lines)
		if s.failed() {
			return
		}
		list, err := s.store.List(s.ctx, hold.ListRequest{Limit: 1})
		s.want(err == nil && len(list) == 1 && slices.Equal(list[0].Lines, want), "listed: %+v, %v", list, err)
		for _, l := range list {
			clear(l.Lines)
		}
	}
	h = s.again(requestOf("x", ann, line("b", 2), line("a", 1)), hold.Held)
	clear(h.Lines)
	h = s.confirm(paid("x", ann, "r"), hold.Confirmed)
	clear(h.Lines)
	s.item("b", 3, 2, 0)
	h = s.at("x", hold.Confirmed, "r")
	s.want(slices.Equal(h.Lines, want), "its lines became %v; want %v", h.Lines, want)
}

func endedContext(s *stage) {
	s.stock(5, "a")
	s.place("x", ann, "a")
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	unavailable := func(err error, doing string) { s.kind(err, hold.ErrUnavailable, "%s with an ended context", doing) }
	unavailable(s.store.Stock(ctx, []hold.Item{{Name: "a", Quantity: 1}}), "stocking")
	_, err := s.store.Place(ctx, request("y", ann, "a"))
	unavailable(err, "placing")
	_, err = s.store.Extend(ctx, idOf("x"), ann, time.Hour)
	unavailable(err, "extending")
	_, err = s.store.Confirm(ctx, paid("x", ann, "r"))
	unavailable(err, "confirming")
	_, err = s.store.Release(ctx, idOf("x"), ann)
	unavailable(err, "releasing")
	_, err = s.store.Get(ctx, idOf("x"))
	unavailable(err, "getting")
	_, err = s.store.List(ctx, hold.ListRequest{Limit: 1})
	unavailable(err, "listing")
	_, err = s.store.Items(ctx, "", "", 1)
	unavailable(err, "listing items")
	_, err = s.h.Office().Prune(ctx, time.Hour, 1)
	unavailable(err, "pruning")
	h := s.at("x", hold.Held, "")
	s.want(near(h.Left, ttl), "it has %v left", h.Left)
	s.item("a", 5, 0, 1)
	s.list(hold.ListRequest{}, "x")
}

func guaranteesTold(s *stage) {
	g := s.store.Guarantees()
	s.want(g.Store != "", "the store has no name: %+v", g)
}
