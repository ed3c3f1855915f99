package holdtest

import (
	"errors"
	"time"

	"github.com/tenure-go/tenure/hold"
)

func repeatCases() []Case[Harness] {
	return []Case[Harness]{
		plain("placing-again-under-one-id-is-one-hold", placeAgain),
		plain("an-id-is-not-used-for-anything-else", idNotReused),
		plain("an-id-that-is-over-is-never-a-new-hold", overNotPlaced),
	}
}

func placeAgain(s *stage) {
	s.stock(2, "a")
	s.stock(1, "b")
	req := requestOf("x", ann, line("b", 1), line("a", 1), line("a", 1))
	first := s.placed(req)
	for range 3 {
		h := s.again(req, hold.Held)
		s.want(h.Left <= first.Left+rounded, "asking again prolongs it from %v to %v", first.Left, h.Left)
	}
	s.again(requestOf("x", ann, line("a", 2), line("b", 1)), hold.Held) // the sums are the same
	limited := req
	limited.MaxHolds, limited.MaxUnits = 1, 3 // it is not counted beside itself
	s.again(limited, hold.Held)
	s.item("a", 2, 0, 2)
	s.item("b", 1, 0, 1)
	s.sell("x", ann)
	h := s.again(req, hold.Confirmed)
	s.want(h.Reference == "pays x", "placed again when it is confirmed: %+v", h)
	s.item("a", 2, 2, 0)
}

func idNotReused(s *stage) {
	s.stock(5, "a", "b")
	req := request("x", ann, "a")
	check := func() {
		actor, lines, quantity, shorter := req, req, req, req
		actor.Actor = bob
		lines.Lines = []hold.Line{line("b", 1)}
		quantity.Lines = []hold.Line{line("a", 1), line("a", 1)}
		shorter.TTL = within
		s.differs(actor, "actor")
		s.differs(lines, "lines")
		s.differs(quantity, "lines")
		s.differs(shorter, "ttl")
	}
	s.placed(req)
	check()
	s.item("a", 5, 0, 1)
	s.item("b", 5, 0, 0)
	s.sell("x", ann)
	check()
	s.placed(request("y", ann, "a"))
	req = request("y", ann, "a")
	s.release("y", ann, hold.Released)
	check()
	s.item("a", 5, 1, 0)
}

func overNotPlaced(s *stage) {
	s.stock(9, "a")
	for _, name := range []string{"released", "expired", "late"} {
		s.place(name, ann, "a")
	}
	s.release("released", ann, hold.Released)
	s.advance(past)
	s.confirm(paid("late", ann, "r"), hold.Late)
	for name, state := range map[string]hold.State{"released": hold.Released, "expired": hold.Expired, "late": hold.Late} {
		req := request(name, ann, "a")
		s.over(s.refusal(req, hold.ErrOver), req.ID, state, "placing "+name+" again")
		s.at(name, state, map[bool]string{true: "r"}[state == hold.Late])
	}
	s.item("a", 9, 0, 0)
}

func limitCases() []Case[Harness] {
	return []Case[Harness]{
		plain("an-actor-has-as-many-holds-as-it-may", limitOfHolds),
		plain("an-actor-has-as-many-units-as-it-may", limitOfUnits),
	}
}

func limitOfHolds(s *stage) {
	s.stock(9, "a", "b")
	req := func(name string) hold.PlaceRequest {
		r := request(name, ann, "a", "b")
		r.MaxHolds = 2
		return r
	}
	s.placed(req("1"))
	s.placed(req("2"))
	s.limited(req("3"), "holds", 2, 2)
	s.item("a", 9, 0, 2)
	s.place("other", bob, "a") // limits are of each
	s.place("free", ann, "a")  // and are asked for
	s.limited(req("3"), "holds", 2, 3)
	s.release("free", ann, hold.Released)
	s.sell("1", ann) // what is sold is not held
	s.placed(req("3"))
	s.limited(req("4"), "holds", 2, 2)
	s.release("3", ann, hold.Released)
	s.placed(req("4"))
	s.advance(past)
	s.placed(req("5")) // nor is what has expired
	s.placed(req("6"))
	s.limited(req("7"), "holds", 2, 2)
}

func limitOfUnits(s *stage) {
	s.stock(99, "a", "b")
	req := func(name string, lines ...hold.Line) hold.PlaceRequest {
		r := requestOf(name, ann, lines...)
		r.MaxUnits = 10
		return r
	}
	s.limited(req("0", line("a", 6), line("b", 3), line("a", 2)), "units", 10, 0)
	s.placed(req("1", line("a", 3), line("b", 3)))
	s.limited(req("2", line("a", 5)), "units", 10, 6)
	s.placed(req("2", line("b", 1), line("a", 3)))
	s.limited(req("3", line("a", 1)), "units", 10, 10)
	s.sell("1", ann)
	s.placed(req("3", line("a", 6)))
	s.limited(req("4", line("a", 1)), "units", 10, 10)
	both := req("4", line("a", 1))
	both.MaxHolds = 2
	s.limited(both, "holds", 2, 2)
	s.advance(past)
	s.placed(req("4", line("a", 10)))
}

func expiryCases() []Case[Harness] {
	return []Case[Harness]{
		plain("H78-an-expired-hold-is-free-without-a-sweeper", noSweeper),
		plain("an-expired-hold-is-told-as-such-whoever-has-noticed", expiredTold),
		plain("expired-holds-of-many-items-free-all-of-them", expiredFreesAll),
	}
}

func noSweeper(s *stage) {
	s.stock(1, "a", "b")
	s.place("x", ann, "a", "b")
	s.advance(past)
	s.place("y", bob, "b") // the first call after it
	s.item("a", 1, 0, 0)
	s.place("z", bob, "a")
	s.advance(past)
	s.item("a", 1, 0, 0)
	s.item("b", 1, 0, 0)
	for _, name := range []string{"x", "y", "z"} {
		s.at(name, hold.Expired, "")
	}
}

func expiredTold(s *stage) {
	s.stock(1, "a")
	s.place("x", ann, "a")
	s.advance(past)
	s.at("x", hold.Expired, "")
	s.place("y", bob, "a")
	s.at("x", hold.Expired, "")
	s.sell("y", bob)
	h := s.at("x", hold.Expired, "")
	s.want(near(-h.Ended, -(past-ttl)), "it ended %v ago; want since its deadline, %v", h.Ended, past-ttl)
}

func expiredFreesAll(s *stage) {
	s.stock(3, "a", "b", "c")
	s.place("1", ann, "a", "b")
	s.place("2", ann, "b", "c")
	s.advance(within)
	s.place("3", ann, "a", "c")
	s.advance(past - within)
	s.item("a", 3, 0, 1)
	s.item("b", 3, 0, 0)
	s.placed(requestOf("4", bob, line("a", 2), line("b", 3), line("c", 2)))
	s.taken(request("5", bob, "a"), "a", 1, 0)
	s.sell("3", ann)
	s.item("c", 3, 1, 2)
}

func extendCases() []Case[Harness] {
	return []Case[Harness]{
		plain("an-extension-never-shortens", extendLengthens),
		plain("what-is-over-is-not-extended", extendOver),
		plain("only-its-actor-extends-a-hold", extendActor),
	}
}

func extendLengthens(s *stage) {
	s.stock(1, "a")
	s.place("x", ann, "a")
	s.extend("x", ann, 2*time.Second, ttl)
	s.extend("x", ann, time.Minute, time.Minute)
	s.extend("x", ann, ttl, time.Minute)
	s.advance(past)
	s.at("x", hold.Held, "")
	s.taken(request("y", bob, "a"), "a", 1, 0)
	s.again(request("x", ann, "a"), hold.Held) // compared with the TTL that it was placed with
	s.advance(30 * time.Second)
	s.extend("x", ann, ttl, 17*time.Second)
	s.extend("x", ann, 20*time.Second, 20*time.Second)
	s.extend("x", ann, 20*time.Second, 20*time.Second)
	s.advance(18 * time.Second)
	s.sell("x", ann)
}

func extendOver(s *stage) {
	s.stock(9, "a")
	for _, name := range []string{"confirmed", "released", "expired", "late"} {
		s.place(name, ann, "a")
	}
	s.sell("confirmed", ann)
	s.release("released", ann, hold.Released)
	s.advance(past)
	s.confirm(paid("late", ann, "r"), hold.Late)
	for name, state := range map[string]hold.State{"confirmed": hold.Confirmed, "released": hold.Released, "expired": hold.Expired, "late": hold.Late} {
		if s.failed() {
			return
		}
		_, err := s.store.Extend(s.ctx, idOf(name), ann, time.Hour)
		s.over(err, idOf(name), state, "extending what is "+name)
		h, err := s.store.Get(s.ctx, idOf(name))
		s.want(err == nil && h.State == state, "extending it: it was %v, and is %+v, %v", state, h, err)
	}
	s.item("a", 9, 1, 0)
	_, err := s.store.Extend(s.ctx, idOf("none"), ann, ttl)
	s.kind(err, hold.ErrNotFound, "extending nothing")
}

func (s *stage) notTheirs(err error, name, actor, doing string) {
	s.kind(err, hold.ErrActor, "%s", doing)
	var a *hold.ActorError
	s.want(s.failed() || errors.As(err, &a) && *a == hold.ActorError{ID: idOf(name), Actor: actor}, "%s: %v", doing, err)
}

func extendActor(s *stage) {
	s.stock(1, "a")
	s.place("x", ann, "a")
	for _, actor := range []string{bob, "Ann", "ann "} {
		_, err := s.store.Extend(s.ctx, idOf("x"), actor, time.Hour)
		s.notTheirs(err, "x", actor, "extending another's")
	}
	s.advance(past)
	s.place("y", bob, "a")
	_, err := s.store.Extend(s.ctx, idOf("x"), bob, time.Hour)
	s.notTheirs(err, "x", bob, "extending another's that has expired")
}

func releaseCases() []Case[Harness] {
	return []Case[Harness]{
		plain("releasing-frees-what-is-held-once", releaseFrees),
		plain("releasing-what-has-expired-is-success-and-says-so", releaseExpired),
		plain("F33-what-is-confirmed-or-late-is-not-released", releaseSold),
		plain("only-its-actor-releases-a-hold", releaseActor),
	}
}

func releaseFrees(s *stage) {
	s.stock(1, "a")
	s.stock(5, "b")
	s.placed(requestOf("x", ann, line("a", 1), line("b", 3)))
	s.release("x", ann, hold.Released)
	s.item("a", 1, 0, 0)
	s.item("b", 5, 0, 0)
	s.placed(requestOf("y", bob, line("a", 1), line("b", 5)))
	s.release("x", ann, hold.Released) // again: it frees nothing of another's
	s.item("a", 1, 0, 1)
	s.item("b", 5, 0, 5)
	s.taken(request("z", ann, "a"), "a", 1, 0)
	_, err := s.store.Release(s.ctx, idOf("none"), ann)
	s.kind(err, hold.ErrNotFound, "releasing nothing")
	s.advance(past)
	h := s.at("x", hold.Released, "")
	s.want(near(-h.Ended, -past), "it was released %v ago; want %v", h.Ended, past)
}

func releaseExpired(s *stage) {
	s.stock(1, "a")
	s.place("x", ann, "a")
	s.advance(past)
	s.release("x", ann, hold.Expired)
	s.place("y", bob, "a")
	s.release("x", ann, hold.Expired)
	s.item("a", 1, 0, 1)
	s.confirm(paid("x", ann, "r"), hold.Late) // a payment is known all the same
	s.sell("y", bob)
}

func releaseSold(s *stage) {
	s.stock(9, "a")
	s.place("sold", ann, "a")
	s.place("late", ann, "a")
	s.sell("sold", ann)
	s.advance(past)
	s.confirm(paid("late", ann, "r"), hold.Late)
	for name, state := range map[string]hold.State{"sold": hold.Confirmed, "late": hold.Late} {
		for range 2 {
			_, err := s.store.Release(s.ctx, idOf(name), ann)
			s.over(err, idOf(name), state, "releasing what is "+state.String())
		}
	}
	s.at("sold", hold.Confirmed, "pays sold")
	s.at("late", hold.Late, "r")
	s.item("a", 9, 1, 0)
}

func releaseActor(s *stage) {
	s.stock(1, "a")
	s.place("x", ann, "a")
	_, err := s.store.Release(s.ctx, idOf("x"), bob)
	s.notTheirs(err, "x", bob, "releasing another's")
	s.item("a", 1, 0, 1)
	s.sell("x", ann)
	_, err = s.store.Release(s.ctx, idOf("x"), bob)
	s.notTheirs(err, "x", bob, "releasing another's that is sold")
}
