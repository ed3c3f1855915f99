package outboxtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/outbox"
)

func deadCases() []Case[Harness] {
	return []Case[Harness]{
		plain("F31-what-fails-is-given-up-after-so-many-attempts", failsTooOften),
		plain("F31-what-its-relays-do-not-survive-is-given-up-too", lostTooOften),
		plain("B40-one-that-always-fails-among-a-thousand-is-given-up-alone", failsAmongMany),
		plain("what-was-lost-twice-is-handed-out-alone", lostAlone),
		plain("a-verdict-ends-what-was-lost-in-a-row", lostInARow),
		plain("the-newest-errors-are-kept-and-cut", errorsKept),
		plain("the-last-attempt-may-be-returned-and-had-again", lastReturned),
		plain("what-is-given-up-is-dead-until-somebody-retries-it", deadForGood),
	}
}

func failsTooOften(s *stage) {
	s.append(slices.Concat(line("k", "1", "2"), notes("3"))...)
	s.take("x", "1", "2", "3")
	s.publish("x", "3")
	s.settle("x", outbox.Failed, "1")
	for i := 2; i <= attempts; i++ {
		claim := fmt.Sprint("y", i)
		got := s.take(claim, "1", "2")
		s.want(s.failed() || got.Deliveries[0].Attempt == i && got.Deliveries[1].Attempt == 1, "attempt %d: %+v", i, got)
		s.settle(claim, outbox.Failed, "1")
	}
	by := s.until("z", 1, "2")
	i := s.at("1", outbox.Dead, attempts)
	s.errorsOf(i, "1 no 1", "2 no 1", "3 no 1", "4 no 1", "5 no 1")
	s.want(s.failed() || nearAge(i.Ended, 0) && i.Errors[0].Relay == "relay x" && i.Errors[4].Relay == "relay y5", "given up: %+v", i)
	s.late("y5", outbox.Published, "1")
	if !s.failed() {
		s.publish(by["2"], "2")
	}
}

func lostTooOften(s *stage) {
	s.append(notes("a")...)
	for i := 1; i <= attempts; i++ {
		got := s.take(fmt.Sprint("x", i), "a")
		s.want(s.failed() || got.Deliveries[0].Attempt == i, "attempt %d: %+v", i, got)
		s.advance(past)
	}
	s.until("y", 1)
	i := s.at("a", outbox.Dead, attempts)
	var want []string
	for n := 1; n <= attempts; n++ {
		want = append(want, fmt.Sprint(n, " ", outbox.Expired))
	}
	s.errorsOf(i, want...)
	s.want(s.failed() || i.Errors[attempts-1].Relay == "relay x5", "lost: %+v", i)
	s.late(fmt.Sprint("x", attempts), outbox.Published, "a")
	s.at("a", outbox.Dead, attempts)
	s.none("z")
}

func failsAmongMany(s *stage) {
	const many = 1000
	var all []outbox.Message
	for i := range many {
		all = append(all, note(fmt.Sprint("m", i), mail))
	}
	s.append(all[:many/2]...)
	s.append(slices.Concat(line("k", "bad", "behind"), line("l", "other"))...)
	s.append(all[many/2:]...)
	got := 0
	for i := 0; i < 30 && !s.failed(); i++ {
		claim := fmt.Sprint("x", i)
		req := request(claim)
		req.Limit = 100
		b := s.claim(req)
		var good []string
		for _, name := range delivered(b) {
			if name != "bad" {
				good = append(good, name)
			}
		}
		if slices.Contains(delivered(b), "bad") {
			s.settle(claim, outbox.Failed, "bad")
			good = slices.DeleteFunc(good, func(name string) bool { return name == "behind" }) // given back with it
		}
		if len(good) > 0 {
			s.publish(claim, good...)
		}
		got += len(good)
	}
	s.want(s.failed() || got == many+2, "of %d healthy messages %d were delivered", many+2, got)
	s.errorsOf(s.at("bad", outbox.Dead, attempts), "1 no bad", "2 no bad", "3 no bad", "4 no bad", "5 no bad")
}

func lostAlone(s *stage) {
	s.append(slices.Concat(notes("a", "b"), line("k", "1", "2"))...)
	for i := range outbox.LostBefore {
		s.take(fmt.Sprint("x", i), "a", "b", "1", "2")
		s.advance(past)
	}
	s.append(notes("c")...)
	got := map[string]bool{}
	for i := 0; i < 5 && !s.failed(); i++ { // in some order; the one that was never lost may come with none of them
		claim := fmt.Sprint("y", i)
		b := s.claim(request(claim))
		s.want(len(b.Deliveries) == 1, "what was lost %d times, or what never was, was handed out with others: %q", outbox.LostBefore, delivered(b))
		for _, name := range delivered(b) {
			s.want(!got[name] && (name == "c" || s.last[name].Attempt == outbox.LostBefore+1), "%+v was handed out", s.last[name])
			got[name] = true
			s.publish(claim, name)
		}
	}
	s.want(s.failed() || len(got) == 5, "one at a time, there came %v", got)
}

func lostInARow(s *stage) {
	s.append(notes("a", "b")...)
	for i := range outbox.LostBefore {
		s.take(fmt.Sprint("x", i), "a", "b")
		if i == outbox.LostBefore-1 {
			s.settle(fmt.Sprint("x", i), outbox.Failed, "a", "b")
		}
		s.advance(past)
	}
	s.take("y", "a", "b")
	s.advance(past)
	got := s.take("z", "a", "b")
	s.want(s.failed() || got.Deliveries[0].Attempt == outbox.LostBefore+2, "lost once since a verdict: %+v", got)
	s.settle("z", outbox.Returned, "a", "b")
	s.take("w", "a", "b")
}

func errorsKept(s *stage) {
	s.append(notes("a")...)
	texts := []string{"", strings.Repeat("x", outbox.MaxError), strings.Repeat("x", outbox.MaxError+1), strings.Repeat("ü", outbox.MaxError), "a\x00b", "a\xffb", "line\nfeed", "last"}
	const before = 4 // which are forgotten
	for i := range before + len(texts) {
		claim := fmt.Sprint("x", i)
		req := request(claim)
		req.MaxAttempts = outbox.MaxAttempts
		s.takes(req, "a")
		v := s.verdict("a", outbox.Failed)
		v.Error = "forgotten"
		if i >= before {
			v.Error = texts[i-before]
		}
		s.settles(claim, nil, v)
	}
	i := s.at("a", outbox.Pending, before+len(texts))
	var want []string
	for n, text := range texts {
		want = append(want, fmt.Sprint(before+n+1, " ", outbox.Text(text)))
	}
	s.errorsOf(i, want...)
	s.list(outbox.ListRequest{}, "a")
}

func lastReturned(s *stage) {
	s.append(notes("a")...)
	for i := 1; i <= attempts; i++ {
		s.take(fmt.Sprint("x", i), "a")
		if i < attempts {
			s.settle(fmt.Sprint("x", i), outbox.Failed, "a")
		}
	}
	s.settle(fmt.Sprint("x", attempts), outbox.Returned, "a")
	s.at("a", outbox.Pending, attempts-1)
	got := s.take("y", "a")
	s.want(s.failed() || got.Deliveries[0].Attempt == attempts, "its last attempt: %+v", got)
	s.settle("y", outbox.Failed, "a")
	s.until("z", 1)
}

func deadForGood(s *stage) {
	s.append(notes("a", "b")...)
	s.take("x", "a", "b")
	dead := s.verdict("a", outbox.Failed)
	dead.Dead, dead.Error, dead.RetryIn = true, "never", ttl
	for range 2 {
		s.settles("x", nil, dead)
	}
	i := s.at("a", outbox.Dead, 1)
	s.errorsOf(i, "1 never")
	s.want(s.failed() || i.DueIn == 0 && i.Claimed == 0, "given up: %+v", i)
	s.publish("x", "a") // it had its verdict
	s.at("a", outbox.Dead, 1)
	s.publish("x", "b")
	s.advance(2 * past)
	s.none("y")
	i = s.at("a", outbox.Dead, 1)
	s.want(s.failed() || nearAge(i.Ended, 2*past) && nearAge(i.Age, 2*past), "given up: %+v", i)
}
