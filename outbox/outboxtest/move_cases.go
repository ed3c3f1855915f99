package outboxtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

func moveCases() []Case[Harness] {
	return []Case[Harness]{
		plain("what-is-retried-is-pending-with-no-attempts", retried),
		plain("what-is-retried-goes-before-what-is-behind-it", retriedInOrder),
		plain("only-what-is-dead-is-retried-and-only-what-is-delivered-replayed", movedByState),
		plain("what-is-replayed-is-pending-as-new-with-its-id", replayed),
		plain("what-is-replayed-of-a-key-holds-up-the-key", replayedInOrder),
		plain("what-is-replayed-of-a-key-does-not-wait-for-what-was-put-off-behind-it", replayedBeforeWhatWasPutOff),
		plain("what-is-retried-of-a-key-does-not-wait-for-what-was-put-off-behind-it", retriedBeforeWhatWasPutOff),
		plain("a-retry-and-a-replay-are-of-what-matches-all-that-is-set", movedByWhich),
		plain("a-retry-and-a-replay-stop-at-their-limit", movedByLimit),
		plain("a-verdict-from-before-a-retry-or-a-replay-is-late", lateAfterMove),
	}
}

// kill gives up messages that are pending, by a claim of this name.
func (s *stage) kill(claim string, names ...string) {
	s.take(claim, names...)
	for _, name := range names {
		dead := s.verdict(name, outbox.Failed)
		dead.Dead = true
		s.settles(claim, nil, dead)
	}
}

func retried(s *stage) {
	s.append(notes("a", "b")...)
	s.take("x", "a", "b")
	s.publish("x", "b")
	s.settle("x", outbox.Failed, "a")
	for i := 2; i <= attempts; i++ {
		s.take(fmt.Sprint("y", i), "a")
		s.settle(fmt.Sprint("y", i), outbox.Failed, "a")
	}
	s.until("z", 1)
	s.retry(outbox.MoveRequest{}, 1)
	i := s.at("a", outbox.Pending, 0)
	s.want(s.failed() || i.DueIn == 0 && i.Ended == 0, "retried: %+v", i)
	for i := 1; i <= attempts; i++ {
		got := s.take(fmt.Sprint("w", i), "a")
		s.want(s.failed() || got.Deliveries[0].Attempt == i, "after a retry, attempt %d: %+v", i, got)
		s.settle(fmt.Sprint("w", i), outbox.Failed, "a")
	}
	s.until("v", 1)
	s.retry(outbox.MoveRequest{}, 1)
	s.take("u", "a")
	s.publish("u", "a")
}

func retriedInOrder(s *stage) {
	s.append(line("k", "1", "2")...)
	s.take("x", "1", "2")
	dead := s.verdict("1", outbox.Failed)
	dead.Dead = true
	s.settles("x", nil, dead)
	s.append(line("k", "3")...)
	req := request("y")
	req.Limit = 1
	s.takes(req, "2")
	s.retry(outbox.MoveRequest{}, 1)
	s.none("z") // 2 is under a live claim
	s.publish("y", "2")
	s.append(line("k", "4")...)
	s.take("w", "1", "3", "4")
}

func movedByState(s *stage) {
	s.append(notes("pending", "claimed", "published", "dead")...)
	s.take("x", "pending", "claimed", "published", "dead")
	s.settle("x", outbox.Failed, "pending")
	s.publish("x", "published")
	dead := s.verdict("dead", outbox.Failed)
	dead.Dead = true
	s.settles("x", nil, dead)
	ids := outbox.MoveRequest{IDs: []fence.ID{idOf("pending"), idOf("claimed"), idOf("published"), idOf("unknown")}}
	s.retry(ids, 0)
	ids.IDs[2] = idOf("dead")
	s.replay(ids, 0)
	s.at("pending", outbox.Pending, 1)
	s.want(s.failed() || s.at("claimed", outbox.Pending, 1).Claimed > 0, "a retry and a replay ended a claim")
	s.at("published", outbox.Delivered, 1)
	s.at("dead", outbox.Dead, 1)
	s.take("y", "pending")
}

func replayed(s *stage) {
	s.append(notes("a", "b")...)
	s.take("x", "a", "b")
	s.settle("x", outbox.Failed, "a")
	s.publish("x", "b")
	first := s.last["b"]
	s.take("y", "a")
	s.publish("y", "a")
	s.advance(past)
	s.replay(outbox.MoveRequest{}, 2)
	for _, name := range []string{"a", "b"} {
		i := s.at(name, outbox.Pending, 0)
		s.want(s.failed() || i.DueIn == 0 && i.Ended == 0, "replayed: %+v", i)
	}
	got := s.take("z", "a", "b")
	s.want(s.failed() || got.Deliveries[0].Attempt == 1 && same(&got.Deliveries[1].Message, &first.Message) && got.Deliveries[1].Position == first.Position, "replayed: %+v; was %+v", got, first)
	s.publish("z", "a", "b")
	s.at("b", outbox.Delivered, 1)
}

func replayedInOrder(s *stage) {
	s.append(line("k", "1", "2", "3")...)
	s.take("x", "1", "2", "3")
	s.publish("x", "1", "2", "3")
	s.append(line("k", "4")...)
	s.replay(outbox.MoveRequest{IDs: []fence.ID{idOf("1"), idOf("3")}}, 2)
	req := request("y")
	req.Limit = 2
	s.takes(req, "1", "3")
	s.settle("y", outbox.Failed, "1")
	s.take("z", "1", "3", "4")
}

// putOff fails a message, so that its key is put off for an hour, and lets a claim see that.
func (s *stage) putOff(claim, name string) {
	v := s.verdict(name, outbox.Failed)
	v.RetryIn = time.Hour
	s.settles(claim, nil, v)
	s.none(claim + "+")
}

func replayedBeforeWhatWasPutOff(s *stage) {
	s.append(line("k", "1", "2", "3")...)
	s.take("x", "1", "2", "3")
	s.publish("x", "1")
	s.putOff("x", "2")
	s.replay(outbox.MoveRequest{}, 1)
	s.take("y", "1")
	s.publish("y", "1")
	s.none("z") // 2 is not due yet
	s.advance(time.Hour + past)
	s.take("w", "2", "3")
}

func retriedBeforeWhatWasPutOff(s *stage) {
	s.append(line("k", "1")...)
	s.kill("x", "1")
	s.append(line("k", "2")...)
	s.take("y", "2")
	s.putOff("y", "2")
	s.retry(outbox.MoveRequest{}, 1)
	s.take("z", "1")
	s.putOff("z", "1")
	s.advance(time.Hour + past)
	s.take("w", "1", "2")
}

func movedByWhich(s *stage) {
	s.append(ordered("a", mail, "k"), ordered("b", mail, "l"), ordered("c", bill, "k"), note("d", mail), note("e", bill))
	all := []string{"a", "b", "c", "d", "e"}
	move := func(move func(outbox.MoveRequest, int), over func(claim string, names ...string), round string) {
		over("x"+round, all...)
		at := func(name string) int64 { return s.last[name].Position }
		for i, c := range []struct {
			req  outbox.MoveRequest
			want []string
		}{
			{outbox.MoveRequest{Topic: mail}, []string{"a", "b", "d"}},
			{outbox.MoveRequest{Topic: "Mail"}, nil},
			{outbox.MoveRequest{Key: "k"}, []string{"a", "c"}},
			{outbox.MoveRequest{Topic: bill, Key: "k"}, []string{"c"}},
			{outbox.MoveRequest{From: at("b"), To: at("d")}, []string{"b", "c", "d"}},
			{outbox.MoveRequest{From: at("d")}, []string{"d", "e"}},
			{outbox.MoveRequest{To: at("a")}, []string{"a"}},
			{outbox.MoveRequest{Within: 30 * time.Minute}, nil}, // what each round has ended is from before
			{outbox.MoveRequest{IDs: []fence.ID{idOf("e"), idOf("a"), idOf("e"), idOf("unknown")}}, []string{"a", "e"}},
			{outbox.MoveRequest{IDs: []fence.ID{idOf("a"), idOf("b")}, Topic: mail, Key: "l", From: at("a"), To: at("e"), Within: 24 * time.Hour}, []string{"b"}},
			{outbox.MoveRequest{IDs: []fence.ID{idOf("a")}, Topic: bill}, nil},
			{outbox.MoveRequest{}, all},
		} {
			s.advance(time.Hour)
			move(c.req, len(c.want))
			over(fmt.Sprint("z", i, round), c.want...)
		}
		s.advance(time.Hour)
		move(outbox.MoveRequest{Topic: bill, Within: 24 * time.Hour}, 2)
		over("v"+round, "c", "e")
		move(outbox.MoveRequest{Within: 30 * time.Minute}, 2)
		over("w"+round, "c", "e")
	}
	publish := func(claim string, names ...string) {
		s.take(claim, names...)
		if len(names) > 0 {
			s.publish(claim, names...)
		}
	}
	move(s.replay, publish, "p")
	s.replay(outbox.MoveRequest{}, 5)
	move(s.retry, s.kill, "k")
}

func movedByLimit(s *stage) {
	s.append(notes("a", "b", "c", "d", "e")...)
	s.take("x", "a", "b", "c", "d", "e")
	s.publish("x", "a", "b", "c", "d", "e")
	s.replay(outbox.MoveRequest{Limit: 2}, 2)
	s.replay(outbox.MoveRequest{Limit: 2}, 2)
	s.replay(outbox.MoveRequest{Limit: 2}, 1)
	s.replay(outbox.MoveRequest{Limit: 2}, 0)
	s.kill("y", "a", "b", "c", "d", "e")
	s.retry(outbox.MoveRequest{Limit: 4}, 4)
	s.retry(outbox.MoveRequest{Limit: 4}, 1)
	s.take("z", "a", "b", "c", "d", "e")
}

func lateAfterMove(s *stage) {
	s.append(slices.Concat(notes("a", "b"), line("k", "1"))...)
	s.take("x", "a", "b", "1")
	s.publish("x", "a", "1")
	dead := s.verdict("b", outbox.Failed)
	dead.Dead = true
	s.settles("x", nil, dead)
	s.replay(outbox.MoveRequest{}, 2)
	s.retry(outbox.MoveRequest{}, 1)
	s.late("x", outbox.Published, "a")
	s.late("x", outbox.Published, "b")
	s.late("x", outbox.Returned, "1")
	s.at("a", outbox.Pending, 0)
	s.at("b", outbox.Pending, 0)
	s.at("1", outbox.Pending, 0)
	s.take("y", "a", "b", "1")
	s.late("x", outbox.Failed, "a")
}
