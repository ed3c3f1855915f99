package holdtest

import (
	"time"

	"github.com/tenure-go/tenure/hold"
)

func confirmCases() []Case[Harness] {
	return []Case[Harness]{
		plain("F33-confirming-twice-sells-once", confirmTwice),
		plain("F33-confirming-under-another-reference-is-refused", confirmOtherReference),
		plain("F33-only-its-actor-confirms-a-hold", confirmActor),
		plain("F33-what-was-released-is-not-confirmed", confirmReleased),
		plain("confirming-nothing-is-not-found", confirmNothing),
	}
}

func confirmTwice(s *stage) {
	s.stock(5, "a")
	s.placed(requestOf("x", ann, line("a", 2)))
	for range 3 {
		s.confirm(paid("x", ann, "r"), hold.Confirmed)
	}
	s.item("a", 5, 2, 0)
	s.advance(past)
	late := paid("x", ann, "r")
	s.confirm(late, hold.Confirmed)
	late.Grace = time.Hour
	s.confirm(late, hold.Confirmed)
	s.item("a", 5, 2, 0)
	h := s.at("x", hold.Confirmed, "r")
	s.want(near(-h.Ended, -past), "it was confirmed %v ago; want %v: repeating is no new end", h.Ended, past)
}

func confirmOtherReference(s *stage) {
	s.stock(1, "a")
	s.place("x", ann, "a")
	s.confirm(paid("x", ann, "r"), hold.Confirmed)
	for _, reference := range []string{"s", "R", "r "} {
		_, err := s.store.Confirm(s.ctx, paid("x", ann, reference))
		s.kind(err, hold.ErrMismatch, "confirming under %q what was confirmed under another", reference)
		s.mismatch(err, idOf("x"), "reference")
	}
	s.at("x", hold.Confirmed, "r")
	s.item("a", 1, 1, 0)
}

func confirmActor(s *stage) {
	s.stock(1, "a")
	s.place("x", ann, "a")
	for _, actor := range []string{bob, "ANN", "an"} {
		_, err := s.store.Confirm(s.ctx, paid("x", actor, "r"))
		s.notTheirs(err, "x", actor, "confirming another's")
	}
	s.at("x", hold.Held, "")
	s.item("a", 1, 0, 1)
	s.sell("x", ann)
	_, err := s.store.Confirm(s.ctx, paid("x", bob, "pays x"))
	s.notTheirs(err, "x", bob, "confirming another's that is sold")
	s.stock(1, "b")
	s.place("y", ann, "b")
	s.advance(past)
	_, err = s.store.Confirm(s.ctx, paid("y", bob, "r"))
	s.notTheirs(err, "y", bob, "confirming another's that has expired")
	s.at("y", hold.Expired, "")
}

func confirmReleased(s *stage) {
	s.stock(1, "a")
	s.place("x", ann, "a")
	s.release("x", ann, hold.Released)
	req := paid("x", ann, "r")
	for _, grace := range []time.Duration{0, time.Hour} {
		req.Grace = grace
		_, err := s.store.Confirm(s.ctx, req)
		s.over(err, req.ID, hold.Released, "confirming what was released")
	}
	s.advance(past)
	_, err := s.store.Confirm(s.ctx, req)
	s.over(err, req.ID, hold.Released, "confirming later what was released")
	s.at("x", hold.Released, "")
	s.item("a", 1, 0, 0)
}

func confirmNothing(s *stage) {
	_, err := s.store.Confirm(s.ctx, paid("none", ann, "r"))
	s.kind(err, hold.ErrNotFound, "confirming nothing")
	_, err = s.store.Get(s.ctx, idOf("none"))
	s.kind(err, hold.ErrNotFound, "getting nothing")
}

func lateCases() []Case[Harness] {
	return []Case[Harness]{
		plain("H73-a-payment-after-the-hold-expired-is-recorded-and-sells-nothing", lateRecorded),
		plain("H73-a-late-payment-is-late-for-ever", lateForEver),
		plain("H73-a-late-payment-takes-nothing-from-who-came-next", lateTakesNothing),
	}
}

func lateRecorded(s *stage) {
	s.stock(2, "a")
	s.place("x", ann, "a")
	s.advance(past)
	s.confirm(paid("x", ann, "charge 1"), hold.Late) // though it is free
	s.item("a", 2, 0, 0)
	s.confirm(paid("x", ann, "charge 1"), hold.Late)
	s.at("x", hold.Late, "charge 1")
	_, err := s.store.Confirm(s.ctx, paid("x", ann, "charge 2"))
	s.kind(err, hold.ErrMismatch, "a late payment under another reference")
	s.mismatch(err, idOf("x"), "reference")
	s.at("x", hold.Late, "charge 1")
	list, err := s.store.List(s.ctx, hold.ListRequest{States: []hold.State{hold.Late}, Limit: 10})
	s.want(err == nil && len(list) == 1 && list[0].ID == idOf("x") && list[0].Reference == "charge 1", "late payments: %+v, %v", list, err)
}

func lateForEver(s *stage) {
	s.stock(1, "a")
	s.place("x", ann, "a")
	s.advance(past)
	s.confirm(paid("x", ann, "r"), hold.Late)
	graced := paid("x", ann, "r")
	graced.Grace = hold.MaxGrace
	s.confirm(graced, hold.Late)
	s.item("a", 1, 0, 0)
	s.advance(time.Hour)
	s.confirm(paid("x", ann, "r"), hold.Late)
	h := s.at("x", hold.Late, "r")
	s.want(near(-h.Ended, -time.Hour), "it was late %v ago; want %v: repeating is no new end", h.Ended, time.Hour)
	s.place("y", bob, "a")
}

func lateTakesNothing(s *stage) {
	s.stock(1, "a", "b")
	s.place("x", ann, "a", "b")
	s.advance(past)
	s.place("y", bob, "a")
	s.confirm(paid("x", ann, "r"), hold.Late)
	s.at("y", hold.Held, "")
	s.item("a", 1, 0, 1)
	s.item("b", 1, 0, 0)
	s.sell("y", bob)
	s.item("a", 1, 1, 0)
	s.confirm(paid("x", ann, "r"), hold.Late)
}

func graceCases() []Case[Harness] {
	return []Case[Harness]{
		plain("H74-grace-sells-what-is-still-free-for-so-long", graceSells),
		plain("H74-grace-takes-nothing-from-who-came-next", graceTakesNothing),
		plain("H74-grace-is-off-unless-asked-for-and-ends", graceEnds),
	}
}

// graced is a confirmation with grace.
func graced(name, actor, reference string, grace time.Duration) hold.ConfirmRequest {
	req := paid(name, actor, reference)
	req.Grace = grace
	return req
}

func graceSells(s *stage) {
	s.stock(5, "a", "b")
	s.placed(requestOf("x", ann, line("a", 2), line("b", 5)))
	s.placed(requestOf("held", bob, line("a", 3)))
	s.extend("held", bob, time.Hour, time.Hour)
	s.advance(past)
	s.at("x", hold.Expired, "")
	s.confirm(graced("x", ann, "r", past), hold.Confirmed)
	s.item("a", 5, 2, 3)
	s.item("b", 5, 5, 0)
	s.confirm(paid("x", ann, "r"), hold.Confirmed)
	s.item("a", 5, 2, 3)
	s.taken(request("y", ann, "a"), "a", 1, 0)
}

func graceTakesNothing(s *stage) {
	s.stock(2, "a", "b", "c")
	s.placed(requestOf("x", ann, line("a", 1), line("b", 2), line("c", 1)))
	s.placed(requestOf("y", ann, line("a", 1)))
	s.advance(past)
	s.place("z", bob, "b") // of one item too little is free
	s.confirm(graced("x", ann, "r", time.Hour), hold.Late)
	s.item("a", 2, 0, 0)
	s.item("b", 2, 0, 1)
	s.item("c", 2, 0, 0)
	s.placed(requestOf("w", bob, line("a", 2)))
	s.sell("w", bob)
	s.confirm(graced("y", ann, "r", time.Hour), hold.Late)
	s.item("a", 2, 2, 0)
	s.stock(1, "d")
	s.place("d", ann, "d")
	s.advance(past)
	s.stock(0, "d")
	s.confirm(graced("d", ann, "r", time.Hour), hold.Late) // it is not there any more
	s.item("d", 0, 0, 0)
}

func graceEnds(s *stage) {
	s.stock(1, "a", "b", "c")
	s.place("x", ann, "a")
	s.place("y", ann, "b")
	s.place("z", ann, "c")
	s.advance(past) // over for 3 s
	s.confirm(paid("x", ann, "r"), hold.Late)
	s.confirm(graced("y", ann, "r", time.Second), hold.Late)
	s.confirm(graced("z", ann, "r", 6*time.Second), hold.Confirmed)
	s.item("a", 1, 0, 0)
	s.item("b", 1, 0, 0)
	s.item("c", 1, 1, 0)
}
