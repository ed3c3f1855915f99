package outboxtest

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

func listCases() []Case[Harness] {
	return []Case[Harness]{
		plain("a-list-holds-what-matches-all-that-is-set", listMatches),
		plain("a-list-goes-on-after-a-position", listPages),
		plain("bodies-are-told-when-asked-for", listBodies),
		plain("topics-are-counted-with-their-oldest", topicsCounted),
		plain("what-is-told-and-given-is-the-callers-own", ownedByCaller),
		plain("verdicts-about-nothing-known-are-late", unknownLate),
		plain("the-store-says-what-it-keeps", guaranteesTold),
	}
}

func listMatches(s *stage) {
	s.append(note("a", mail), ordered("b", mail, "k"), ordered("c", bill, "k"), note("d", bill), ordered("e", mail, "K"))
	s.take("x", "a", "b", "c", "d", "e")
	s.publish("x", "b", "d")
	dead := s.verdict("c", outbox.Failed)
	dead.Dead = true
	s.settles("x", nil, dead)
	s.list(outbox.ListRequest{}, "a", "b", "c", "d", "e")
	s.list(outbox.ListRequest{Topic: mail}, "a", "b", "e")
	s.list(outbox.ListRequest{Topic: "Mail"})
	s.list(outbox.ListRequest{Key: "k"}, "b", "c")
	s.list(outbox.ListRequest{Topic: mail, Key: "k"}, "b")
	s.list(outbox.ListRequest{States: []outbox.State{outbox.Pending}}, "a", "e")
	s.list(outbox.ListRequest{States: []outbox.State{outbox.Dead, outbox.Delivered, outbox.Dead}}, "b", "c", "d")
	s.list(outbox.ListRequest{States: []outbox.State{outbox.Delivered}, Topic: bill}, "d")
	s.list(outbox.ListRequest{States: []outbox.State{outbox.Delivered}, Key: "k", Topic: bill})
	s.gone("unknown")
	s.gone("")
}

func listPages(s *stage) {
	s.append(notes("a", "b", "c", "d", "e")...)
	all := s.list(outbox.ListRequest{}, "a", "b", "c", "d", "e")
	if s.failed() {
		return
	}
	s.list(outbox.ListRequest{Limit: 2}, "a", "b")
	s.list(outbox.ListRequest{After: all[1].Position, Limit: 2}, "c", "d")
	s.list(outbox.ListRequest{After: all[3].Position, Limit: 2}, "e")
	s.list(outbox.ListRequest{After: all[4].Position})
	s.list(outbox.ListRequest{After: 1<<63 - 1})
}

func listBodies(s *stage) {
	s.append(notes("a")...)
	for _, bodies := range []bool{false, true} {
		i := s.list(outbox.ListRequest{Bodies: bodies}, "a")
		want := note("a", mail)
		if !bodies {
			want.Headers, want.Payload = nil, nil
		}
		s.want(s.failed() || same(&i[0].Message, &want) && i[0].Bytes == len("this is a"), "with bodies %v: %+v", bodies, i)
	}
}

func topicsCounted(s *stage) {
	s.topics()
	s.append(note("a", mail), note("b", bill))
	s.advance(time.Minute)
	s.append(note("c", mail), note("d", "done"))
	s.advance(time.Minute)
	s.append(note("e", mail))
	s.take("x", "a", "b", "c", "d", "e")
	s.publish("x", "a", "d")
	dead := s.verdict("b", outbox.Failed)
	dead.Dead = true
	s.settles("x", nil, dead)
	all := s.topics(outbox.TopicInfo{Topic: bill, Dead: 1}, outbox.TopicInfo{Topic: mail, Pending: 2})
	s.want(s.failed() || all[0].Oldest == 0 && nearAge(all[1].Oldest, time.Minute), "topics: %+v; want the oldest pending of a minute", all)
	s.pause("paused", true, "")
	if s.failed() {
		return
	}
	page, err := s.store.Topics(s.ctx, bill)
	s.want(err == nil && len(page) == 2 && page[0].Topic == mail && page[1].Topic == "paused", "topics after %q: %+v, %v", bill, page, err)
	page, err = s.store.Topics(s.ctx, "paused")
	s.want(err == nil && len(page) == 0, "topics after the last: %+v, %v", page, err)
}

func ownedByCaller(s *stage) {
	m := note("a", mail)
	messages := []outbox.Message{m}
	s.append(messages...)
	spoil := func(m *outbox.Message) {
		m.Headers["name"], m.Headers["more"] = "spoilt", "spoilt"
		m.Payload[0] = '!'
	}
	spoil(&messages[0])
	for i := 0; i < 3 && !s.failed(); i++ {
		got := s.takes(request([]string{"x", "y", "z"}[i]), "a")
		one, err := s.store.Get(s.ctx, m.ID)
		listed := s.list(outbox.ListRequest{Bodies: true}, "a")
		want := note("a", mail)
		s.want(err == nil && !s.failed() && same(&got.Deliveries[0].Message, &want) && same(&one.Message, &want) && same(&listed[0].Message, &want), "told: %+v, %+v, %+v, %v", got, one, listed, err)
		if s.failed() {
			return
		}
		spoil(&got.Deliveries[0].Message)
		spoil(&one.Message)
		spoil(&listed[0].Message)
		for _, of := range [][]outbox.Failure{one.Errors, listed[0].Errors} {
			for n := range of {
				of[n].Text = "spoilt"
			}
		}
		s.settle([]string{"x", "y", "z"}[i], outbox.Failed, "a")
	}
	s.errorsOf(s.at("a", outbox.Pending, 3), "1 no a", "2 no a", "3 no a")
}

func unknownLate(s *stage) {
	s.append(notes("a", "b")...)
	s.take("x", "a", "b")
	if s.failed() {
		return
	}
	high, none := int64(1<<63-1), int64(-1)
	got, err := s.store.Settle(s.ctx, outbox.SettleRequest{Claim: claimOf("x"), Verdicts: []outbox.Verdict{
		{Position: high, Outcome: outbox.Published}, s.verdict("a", outbox.Published), {Position: none, Outcome: outbox.Failed}, {Position: 0, Outcome: outbox.Returned},
	}})
	s.want(err == nil && got.Applied == 1 && slices.Equal(got.Late, []int64{none, 0, high}), "settling one that is known: %+v, %v", got, err)
	s.at("a", outbox.Delivered, 1)
	s.late("unknown", outbox.Published, "b")
	s.at("b", outbox.Pending, 1)
}

func guaranteesTold(s *stage) {
	g := s.store.Guarantees()
	s.want(g.Store != "" && g == s.store.Guarantees(), "guarantees: %+v", g)
}
