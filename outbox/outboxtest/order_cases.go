package outboxtest

import (
	"slices"

	"github.com/tenure-go/tenure/outbox"
)

func orderCases() []Case[Harness] {
	return []Case[Harness]{
		plain("an-ordered-key-is-handed-out-in-order", keyInOrder),
		plain("a-live-claim-holds-up-its-key-and-no-other", keyBlocked),
		plain("what-backs-off-holds-up-its-key-and-no-other", keyBacksOff),
		plain("what-fails-or-is-returned-takes-those-behind-with-it", takesThoseBehind),
		plain("what-is-dead-lets-its-key-go-on", deadLetsGo),
		plain("unordered-messages-of-a-key-do-not-wait", unorderedKey),
	}
}

func keyInOrder(s *stage) {
	s.append(line("k", "1", "2")...)
	s.append(note("u", mail))
	s.append(slices.Concat(line("k", "3"), line("l", "4", "5"))...)
	req := request("x")
	req.Limit = 2
	for i, want := range [][]string{{"1", "2"}, {"3"}} {
		req.Claim = claimOf([]string{"x", "y"}[i])
		req.Topics = []string{mail}
		got := s.claim(req)
		var of []string
		for _, d := range got.Deliveries {
			if d.Key == "k" {
				of = append(of, nameOf(d.ID))
			}
		}
		s.want(s.failed() || len(of) <= len(want) && len(got.Deliveries) == 2, "handed out %q", delivered(got))
		for _, d := range got.Deliveries {
			s.publish([]string{"x", "y"}[i], nameOf(d.ID))
		}
	}
}

func keyBlocked(s *stage) {
	s.append(slices.Concat(line("k", "1", "2"), line("l", "3"))...)
	s.take("x", "1", "2", "3")
	s.publish("x", "1", "3")
	s.append(slices.Concat(line("k", "4"), line("l", "5"), []outbox.Message{ordered("6", bill, "k")})...)
	s.take("y", "5", "6")
	s.publish("x", "2")
	s.take("z", "4")
}

func keyBacksOff(s *stage) {
	s.append(slices.Concat(line("k", "1", "2"), line("l", "3", "4"))...)
	s.take("x", "1", "2", "3", "4")
	failed := s.verdict("1", outbox.Failed)
	failed.RetryIn = ttl
	s.settles("x", nil, failed, s.verdict("3", outbox.Published), s.verdict("4", outbox.Published))
	s.append(slices.Concat(line("k", "5"), line("l", "6"))...)
	s.take("y", "6")
	s.publish("y", "6")
	s.advance(within)
	s.none("z")
	s.advance(past - within)
	got := s.take("w", "1", "2", "5")
	s.want(s.failed() || got.Deliveries[0].Attempt == 2 && got.Deliveries[1].Attempt == 1, "after the back-off: %+v", got)
}

func takesThoseBehind(s *stage) {
	for _, o := range []outbox.Outcome{outbox.Failed, outbox.Returned} {
		name := func(n string) string { return o.String() + n }
		key := o.String()
		s.append(slices.Concat(line(key, name("1"), name("2"), name("3"), name("4")), line("l"+key, name("5")), []outbox.Message{note(name("6"), mail)})...)
		all := []string{name("1"), name("2"), name("3"), name("4"), name("5"), name("6")}
		s.take("x"+key, all...)
		s.publish("x"+key, name("1"))
		s.settle("x"+key, o, name("2"))
		s.at(name("3"), outbox.Pending, 0)
		i := s.at(name("4"), outbox.Pending, 0)
		s.want(i.Claimed == 0 && i.DueIn == 0, "behind what has %v: %+v", o, i)
		s.take("y"+key, all[1:4]...)
		s.late("x"+key, outbox.Published, name("3"))
		s.publish("y"+key, all[1:4]...)
		s.publish("x"+key, all[4:]...)
	}
}

func deadLetsGo(s *stage) {
	s.append(line("k", "1", "2", "3")...)
	s.take("x", "1", "2", "3")
	dead := s.verdict("1", outbox.Failed)
	dead.Dead = true
	s.settles("x", nil, dead)
	s.errorsOf(s.at("1", outbox.Dead, 1), "1 no 1")
	got := s.take("y", "2", "3")
	s.want(s.failed() || got.Deliveries[0].Attempt == 1, "behind a dead one: %+v", got)
	s.publish("y", "2", "3")
	s.append(line("k", "4")...)
	s.take("z", "4")
}

func unorderedKey(s *stage) {
	for _, name := range []string{"1", "2", "3"} {
		m := note(name, mail)
		m.Key = "k"
		s.append(m)
	}
	req := request("x")
	req.Limit = 1
	s.want(s.failed() || len(s.claim(req).Deliveries) == 1, "nothing was handed out")
	s.append(ordered("4", mail, "k"))
	got := s.claim(request("y"))
	s.want(s.failed() || len(got.Deliveries) == 3, "beside a claimed message of the key %q were handed out; want three", delivered(got))
	for name := range s.last {
		if name != "4" && slices.Contains(delivered(got), name) {
			s.settle("y", outbox.Failed, name)
		}
	}
	s.append(ordered("5", mail, "k"))
	got = s.claim(request("z"))
	s.want(s.failed() || len(got.Deliveries) == 2 && !slices.Contains(delivered(got), "5"), "two have failed, and %q were handed out; want these two", delivered(got))
}
