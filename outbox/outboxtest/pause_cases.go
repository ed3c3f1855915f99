package outboxtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

func pauseCases() []Case[Harness] {
	return []Case[Harness]{
		plain("a-paused-topic-is-not-claimed-and-loses-nothing", pausedTopic),
		plain("a-pause-of-every-topic-is-apart-from-that-of-one", pausedAll),
		plain("what-is-claimed-when-its-topic-is-paused-is-settled", pausedClaimed),
		plain("B52-what-is-over-for-long-enough-is-forgotten-and-nothing-else", prunedByAge),
		plain("forgetting-stops-at-its-limit", prunedByLimit),
		plain("an-id-that-was-forgotten-is-a-new-message", prunedID),
	}
}

func pausedTopic(s *stage) {
	s.append(note("a", mail), ordered("1", mail, "k"), note("b", bill))
	s.pause(mail, true, "for a while")
	s.take("x", "b")
	s.append(note("c", mail), ordered("2", mail, "k"), note("d", bill))
	s.publish("x", "b")
	s.take("y", "d")
	req := request("z")
	req.Topics = []string{mail}
	s.takes(req)
	s.topics(outbox.TopicInfo{Topic: bill, Pending: 1}, outbox.TopicInfo{Topic: mail, Pending: 4, Paused: true, Reason: "for a while"})
	s.pause(mail, true, "for longer")
	s.publish("y", "d")
	s.topics(outbox.TopicInfo{Topic: mail, Pending: 4, Paused: true, Reason: "for longer"})
	s.pause("unknown", true, "")
	s.pause(bill, false, "")
	s.topics(outbox.TopicInfo{Topic: mail, Pending: 4, Paused: true, Reason: "for longer"}, outbox.TopicInfo{Topic: "unknown", Paused: true})
	s.pause("unknown", false, "ignored")
	s.pause(mail, false, "ignored")
	s.pause(mail, false, "ignored")
	s.topics(outbox.TopicInfo{Topic: mail, Pending: 4})
	s.take("w", "a", "1", "c", "2")
}

func pausedAll(s *stage) {
	s.append(note("a", mail), note("b", bill))
	s.pause("", true, "everything")
	s.pause(mail, true, "mail too")
	s.none("x")
	s.append(note("c", "new"))
	s.none("y")
	s.topics(outbox.TopicInfo{Paused: true, Reason: "everything"}, outbox.TopicInfo{Topic: bill, Pending: 1}, outbox.TopicInfo{Topic: mail, Pending: 1, Paused: true, Reason: "mail too"},
		outbox.TopicInfo{Topic: "new", Pending: 1})
	s.pause("", false, "")
	s.take("z", "b", "c")
	s.pause("", true, "again")
	s.pause(mail, false, "")
	s.none("w")
	s.pause("", false, "")
	s.take("v", "a")
}

func pausedClaimed(s *stage) {
	s.append(slices.Concat(notes("a", "b", "c"), line("k", "1", "2"))...)
	s.take("x", "a", "b", "c", "1", "2")
	s.pause(mail, true, "")
	s.publish("x", "a", "1")
	s.settle("x", outbox.Failed, "b")
	s.advance(past)
	s.none("y")
	s.at("a", outbox.Delivered, 1)
	s.at("c", outbox.Pending, 1)
	s.publish("x", "2")
	s.pause(mail, false, "")
	s.take("z", "b", "c")
}

func prunedByAge(s *stage) {
	s.append(slices.Concat(notes("old", "dead", "pending", "claimed"), line("k", "1", "2"))...)
	s.take("x", "old", "dead", "pending", "claimed", "1", "2")
	s.publish("x", "old", "1")
	failed := s.verdict("pending", outbox.Failed)
	failed.RetryIn = 24 * time.Hour
	dead := s.verdict("dead", outbox.Failed)
	dead.Dead = true
	s.settles("x", nil, failed, dead)
	s.advance(time.Hour)
	s.publish("x", "2") // now: it was claimed an hour ago
	s.prune(outbox.PruneRequest{Delivered: 2 * time.Hour, Dead: 2 * time.Hour}, 0)
	s.prune(outbox.PruneRequest{Delivered: 30 * time.Minute}, 2)
	s.gone("old")
	s.gone("1")
	s.at("dead", outbox.Dead, 1)
	s.list(outbox.ListRequest{}, "dead", "pending", "claimed", "2")
	s.prune(outbox.PruneRequest{Delivered: 2 * time.Hour, Dead: 30 * time.Minute}, 1)
	s.gone("dead")
	s.advance(time.Hour)
	s.prune(outbox.PruneRequest{Delivered: outbox.MinPruneAge, Dead: outbox.MinPruneAge}, 1)
	s.list(outbox.ListRequest{}, "pending", "claimed")
	s.late("x", outbox.Published, "2")
	s.take("y", "claimed")
}

func prunedByLimit(s *stage) {
	var all []string
	for i := range 7 {
		all = append(all, fmt.Sprint("m", i))
	}
	s.append(notes(all...)...)
	s.take("x", all...)
	s.publish("x", all[:4]...)
	for _, name := range all[4:] {
		dead := s.verdict(name, outbox.Failed)
		dead.Dead = true
		s.settles("x", nil, dead)
	}
	s.advance(time.Hour)
	for _, want := range []int{3, 3, 1, 0} {
		s.prune(outbox.PruneRequest{Delivered: outbox.MinPruneAge, Dead: outbox.MinPruneAge, Limit: 3}, want)
	}
}

func prunedID(s *stage) {
	s.append(ordered("a", mail, "k"))
	s.take("x", "a")
	s.publish("x", "a")
	s.advance(time.Hour)
	s.prune(outbox.PruneRequest{Delivered: outbox.MinPruneAge}, 1)
	s.append(note("a", bill))
	s.append(ordered("b", mail, "k"))
	got := s.take("y", "a", "b")
	s.want(s.failed() || got.Deliveries[0].Attempt == 1 && nearAge(got.Deliveries[0].Age, 0), "as new: %+v", got)
}
