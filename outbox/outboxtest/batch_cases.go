package outboxtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

func batchCases() []Case[Harness] {
	return []Case[Harness]{
		plain("a-claim-gets-no-more-than-its-limit", limitOfClaim),
		plain("a-limit-takes-the-first-of-a-key", firstOfKey),
		plain("a-claim-gets-no-more-bytes-than-its-limit", bytesOfClaim),
		plain("one-message-always-fits", oneFits),
		plain("a-claim-gets-the-topics-that-it-names", topicsOfClaim),
		plain("a-claim-lasts-as-long-as-it-asked", lastsAsAsked),
		plain("what-fails-again-and-again-does-not-keep-others-back", failingKeepsNobody),
		plain("what-is-returned-each-time-keeps-nobody-waiting", func(s *stage) {
			s.append(notes("1", "2", "3", "last")...)
			s.comes("last")
		}),
		plain("a-key-that-is-returned-each-time-keeps-nobody-waiting", func(s *stage) {
			s.append(slices.Concat(line("k", "1", "2", "3"), notes("last"))...)
			s.comes("last")
		}),
		plain("what-was-lost-twice-does-not-wait-for-what-is-returned-each-time", lostKeepsItsTurn),
	}
}

func limitOfClaim(s *stage) {
	s.append(notes("a", "b", "c", "d", "e", "f", "g")...)
	got := map[string]bool{}
	for i, want := range []int{3, 3, 1, 0} {
		req := request(fmt.Sprint("x", i))
		req.Limit = 3
		b := s.claim(req)
		s.want(s.failed() || len(b.Deliveries) == want, "claim %d of seven messages, three at a time: %q", i, delivered(b))
		for _, name := range delivered(b) {
			got[name] = true
		}
	}
	s.want(s.failed() || len(got) == 7, "handed out: %v; want all seven", got)
}

func firstOfKey(s *stage) {
	s.append(slices.Concat(line("k", "1", "2", "3", "4", "5"), line("l", "6", "7", "8"))...)
	got := map[string][]string{}
	for i := range 8 {
		name := fmt.Sprint("x", i)
		req := request(name)
		req.Limit = 3
		b := s.claim(req)
		for _, d := range b.Deliveries {
			got[d.Key] = append(got[d.Key], nameOf(d.ID))
			s.publish(name, nameOf(d.ID))
		}
	}
	s.want(s.failed() || slices.Equal(got["k"], []string{"1", "2", "3", "4", "5"}) && slices.Equal(got["l"], []string{"6", "7", "8"}), "three at a time, there came %v", got)
}

func bytesOfClaim(s *stage) {
	for i := range 9 {
		m := note(fmt.Sprint("m", i), mail)
		m.Payload = make([]byte, 400)
		s.append(m)
	}
	s.append(outbox.Message{ID: idOf("empty"), Topic: mail})
	got := map[string]bool{}
	for i := 0; i < 20 && !s.failed() && len(got) < 10; i++ {
		req := request(fmt.Sprint("x", i))
		req.Bytes = 1000
		b := s.claim(req)
		size := 0
		for _, d := range b.Deliveries {
			size += len(d.Payload)
			got[nameOf(d.ID)] = true
		}
		s.want(s.failed() || size <= 1000 && len(b.Deliveries) > 0, "with a limit of 1000 bytes %d messages of %d bytes were handed out", len(b.Deliveries), size)
	}
	s.want(s.failed() || len(got) == 10, "handed out: %v; want ten", got)
}

func oneFits(s *stage) {
	m := note("a", mail)
	m.Payload = make([]byte, outbox.MaxPayload)
	s.append(m, ordered("b", mail, "k"), ordered("c", mail, "k"))
	got := map[string]bool{}
	for i := range 3 {
		req := request(fmt.Sprint("x", i))
		req.Bytes = 1
		b := s.claim(req)
		s.want(s.failed() || len(b.Deliveries) == 1, "with a limit of one byte %d messages were handed out; want one", len(b.Deliveries))
		for _, name := range delivered(b) {
			got[name] = true
			s.publish(fmt.Sprint("x", i), name)
		}
	}
	s.want(s.failed() || len(got) == 3, "one at a time, there came %v", got)
}

func topicsOfClaim(s *stage) {
	s.append(note("a", mail), note("b", bill), ordered("c", "other", "k"), ordered("d", mail, "k"), note("e", "Mail"), note("f", "mai"))
	req := request("x")
	req.Topics = []string{bill, "other", "unknown", bill}
	s.takes(req, "b", "c")
	req = request("y")
	req.Topics = []string{mail}
	s.takes(req, "a", "d")
	s.take("z", "e", "f")
}

func lastsAsAsked(s *stage) {
	s.append(notes("a", "b", "c")...)
	for _, c := range []struct {
		name string
		ttl  time.Duration
	}{{"long", outbox.MaxTTL}, {"short", 5 * time.Second}, {"mid", time.Minute}} {
		req := request(c.name)
		req.Limit, req.TTL = 1, c.ttl
		got := s.claim(req)
		s.want(s.failed() || len(got.Deliveries) == 1 && near(got.Left, c.ttl), "claimed for %v: %+v", c.ttl, got)
	}
	s.advance(10 * time.Second)
	for _, c := range []struct {
		claim string
		then  time.Duration
	}{{"x", time.Minute}, {"y", outbox.MaxTTL}, {"z", 0}} {
		again := s.claim(request(c.claim))
		s.want(s.failed() || len(again.Deliveries) == 1 && again.Deliveries[0].Attempt == 2, "claim %q: %+v; want the one whose claim has passed", c.claim, again)
		if !s.failed() {
			s.publish(c.claim, delivered(again)...)
		}
		s.advance(c.then)
	}
}

func failingKeepsNobody(s *stage) {
	var all []string
	for i := range 6 {
		all = append(all, fmt.Sprint("m", i))
	}
	s.append(notes(all...)...)
	got := map[string]bool{}
	for i := 0; i < 3*len(all) && !s.failed() && len(got) < len(all); i++ {
		name := fmt.Sprint("x", i)
		req := request(name)
		req.Limit, req.MaxAttempts = 2, outbox.MaxAttempts
		for _, n := range delivered(s.claim(req)) {
			got[n] = true
			failed := s.verdict(n, outbox.Failed)
			failed.RetryIn = 10 * time.Second // longer than the others take
			s.settles(name, nil, failed)
		}
		s.advance(time.Second)
	}
	s.want(s.failed() || len(got) == len(all), "two at a time, each failing, there came %v", got)
}

// comes demands that the message is handed out within some claims of two, while everything else is returned, as in an outage of its destination alone.
func (s *stage) comes(want string) {
	for i := 0; i < 6 && !s.failed(); i++ {
		req := request(fmt.Sprint("r", i))
		req.Limit = 2
		got := delivered(s.claim(req))
		if slices.Contains(got, want) {
			return
		}
		if len(got) > 0 {
			s.settle(fmt.Sprint("r", i), outbox.Returned, got...)
		}
		s.advance(time.Second)
	}
	s.fail("%q was handed out in none of some claims, while what was appended before was returned each time", want)
}

func lostKeepsItsTurn(s *stage) {
	s.append(notes("1", "2", "last")...)
	for i := range outbox.LostBefore {
		claim := fmt.Sprint("x", i)
		s.take(claim, "1", "2", "last")
		s.settle(claim, outbox.Returned, "1", "2")
		s.advance(past)
	}
	s.comes("last")
}
