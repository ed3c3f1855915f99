package outboxtest

import (
	"github.com/tenure-go/tenure/outbox"
)

func claimCases() []Case[Harness] {
	return []Case[Harness]{
		plain("what-is-appended-is-handed-out-once", handedOutOnce),
		plain("F27-a-claim-is-over-at-its-deadline-and-not-earlier", claimOver),
		plain("F28-a-late-verdict-changes-nothing-and-is-told", lateVerdict),
		plain("B55-a-verdict-after-the-deadline-counts-while-nobody-else-has-claimed", expiredVerdict),
		plain("F29-every-delivery-of-a-message-has-the-same-id", sameID),
		plain("a-verdict-may-be-said-again", settledAgain),
		plain("what-is-returned-untried-is-not-counted", returnedUncounted),
		plain("what-has-failed-is-handed-out-after-its-back-off", backedOff),
	}
}

func handedOutOnce(s *stage) {
	s.append(notes("a", "b", "c")...)
	s.take("x", "a", "b", "c")
	s.none("y")
	s.publish("x", "a", "b", "c")
	s.none("z")
	s.advance(past)
	s.none("w")
	s.at("a", outbox.Delivered, 1)
}

func claimOver(s *stage) {
	s.append(notes("a", "b")...)
	s.take("x", "a", "b")
	s.publish("x", "a")
	s.advance(within)
	s.none("y")
	i := s.at("b", outbox.Pending, 1)
	s.want(near(i.Claimed, ttl-within) && i.Relay == "relay x", "after %v: %+v", within, i)
	s.advance(past - within)
	i = s.at("b", outbox.Pending, 1)
	s.want(i.Claimed == 0, "after %v: %+v", past, i)
	got := s.take("z", "b")
	s.want(s.failed() || got.Deliveries[0].Attempt == 2, "handed out again: %+v", got)
	s.errorsOf(s.at("b", outbox.Pending, 2), "1 "+outbox.Expired)
	s.publish("z", "b")
	s.at("b", outbox.Delivered, 2)
}

func lateVerdict(s *stage) {
	s.append(notes("a", "b", "c", "d")...)
	s.take("x", "a", "b", "c", "d")
	s.advance(past)
	s.take("y", "a", "b", "c", "d")
	s.late("x", outbox.Published, "a")
	s.late("x", outbox.Failed, "b")
	s.late("x", outbox.Returned, "c")
	dead := s.verdict("d", outbox.Failed)
	dead.Dead = true
	s.settles("x", []string{"d"}, dead)
	for _, name := range []string{"a", "b", "c", "d"} {
		i := s.at(name, outbox.Pending, 2)
		s.want(near(i.Claimed, ttl), "after a late verdict: %+v", i)
		s.errorsOf(i, "1 "+outbox.Expired)
	}
	s.none("z")
	s.publish("y", "a")
	s.settle("y", outbox.Failed, "b")
	s.late("x", outbox.Failed, "a")
	s.late("x", outbox.Published, "b")
	s.at("a", outbox.Delivered, 2)
	s.at("b", outbox.Pending, 2)
	s.take("z", "b")
}

func expiredVerdict(s *stage) {
	s.append(notes("a", "b", "c")...)
	s.take("x", "a", "b", "c")
	s.advance(past)
	s.publish("x", "a")
	s.settle("x", outbox.Failed, "b")
	s.at("a", outbox.Delivered, 1)
	s.errorsOf(s.at("b", outbox.Pending, 1), "1 no b")
	s.settle("x", outbox.Returned, "c")
	s.errorsOf(s.at("c", outbox.Pending, 0))
	s.take("y", "b", "c")
}

func sameID(s *stage) {
	s.append(outbox.Message{Topic: mail, Payload: []byte("a")})
	first := s.claim(request("x"))
	s.want(s.failed() || len(first.Deliveries) == 1 && !first.Deliveries[0].ID.IsZero(), "handed out: %+v", first)
	for i := 0; i < 3 && !s.failed(); i++ {
		s.advance(past)
		again := s.claim(request("y" + string(rune('0'+i))))
		s.want(len(again.Deliveries) == 1 && same(&again.Deliveries[0].Message, &first.Deliveries[0].Message) && again.Deliveries[0].Position == first.Deliveries[0].Position && again.Deliveries[0].Attempt == i+2,
			"handed out again: %+v; before: %+v", again, first)
	}
}

func settledAgain(s *stage) {
	s.append(notes("a", "b", "c")...)
	s.take("x", "a", "b", "c")
	for range 2 {
		s.publish("x", "a")
		s.settle("x", outbox.Failed, "b")
		s.settle("x", outbox.Returned, "c")
	}
	s.at("a", outbox.Delivered, 1)
	s.errorsOf(s.at("b", outbox.Pending, 1), "1 no b")
	s.at("c", outbox.Pending, 0)
	s.take("y", "b", "c")
	s.late("x", outbox.Failed, "b")
	s.late("x", outbox.Returned, "c")
	s.publish("x", "a")
	s.at("b", outbox.Pending, 2)
}

func returnedUncounted(s *stage) {
	s.append(notes("a")...)
	for range 2 * attempts {
		got := s.take("x", "a")
		s.want(s.failed() || got.Deliveries[0].Attempt == 1, "handed out: %+v", got)
		s.settle("x", outbox.Returned, "a")
		s.errorsOf(s.at("a", outbox.Pending, 0))
		s.want(s.failed() || s.last["a"].Attempt == 1, "%+v", s.last["a"])
	}
}

func backedOff(s *stage) {
	s.append(notes("a", "b", "c")...)
	s.take("x", "a", "b", "c")
	a, b := s.verdict("a", outbox.Failed), s.verdict("b", outbox.Returned)
	a.RetryIn, b.RetryIn = ttl, ttl
	s.settles("x", nil, a, b, s.verdict("c", outbox.Failed))
	s.take("y", "c")
	i := s.at("a", outbox.Pending, 1)
	s.want(near(i.DueIn, ttl) && i.Claimed == 0, "backing off: %+v", i)
	s.advance(within)
	s.none("z")
	s.publish("y", "c")
	s.advance(past - within)
	got := s.take("w", "a", "b")
	s.want(s.failed() || got.Deliveries[0].Attempt == 2 && got.Deliveries[1].Attempt == 1, "after its back-off: %+v", got)
}
