package outboxtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

func durableCases() []Case[DurableHarness] {
	return []Case[DurableHarness]{
		named("messages-and-claims-survive-a-restart-and-time-goes-on", claimsSurvive),
		named("what-is-over-paused-or-lost-stays-so-after-a-restart", restSurvives),
	}
}

// restart ends every process of the store. What was told before must still be so.
func (s *stage) restart(h DurableHarness) {
	if s.failed() {
		return
	}
	if err := h.Restart(s.ctx); err != nil {
		s.fail("restarting: %w", err)
	}
}

func claimsSurvive(s *stage, h DurableHarness) {
	s.append(note("a", mail), ordered("b", mail, "k"), ordered("c", mail, "k"))
	s.restart(h)
	s.take("x", "a", "b", "c")
	s.restart(h)
	s.none("y")
	s.publish("x", "a")
	s.restart(h)
	s.at("a", outbox.Delivered, 1)
	s.settle("x", outbox.Failed, "b")
	s.restart(h)
	s.errorsOf(s.at("b", outbox.Pending, 1), "1 no b")
	s.take("z", "b", "c")
	s.advance(past)
	s.restart(h)
	s.late("x", outbox.Failed, "b")
	s.take("w", "b", "c")
	s.late("z", outbox.Published, "b")
}

func restSurvives(s *stage, h DurableHarness) {
	s.append(slices.Concat(notes("dead", "done", "lost"), line("k", "1", "2"))...)
	s.append(note("paused", bill))
	s.pause(bill, true, "why")
	s.take("x", "dead", "done", "lost", "1", "2")
	s.restart(h)
	dead, failed := s.verdict("dead", outbox.Failed), s.verdict("1", outbox.Failed)
	dead.Dead, failed.RetryIn = true, time.Hour
	s.settles("x", nil, dead, s.verdict("done", outbox.Published), failed)
	s.restart(h)
	s.topics(outbox.TopicInfo{Topic: bill, Pending: 1, Paused: true, Reason: "why"}, outbox.TopicInfo{Topic: mail, Pending: 3, Dead: 1})
	s.errorsOf(s.at("dead", outbox.Dead, 1), "1 no dead")
	s.append(note("done", mail)) // known, though it is over
	s.none("y")
	s.advance(past)
	s.take("z", "lost")
	s.advance(past)
	s.restart(h)
	s.append(notes("new")...)
	for i := range 2 { // what was lost twice comes alone, before or after
		got := s.claim(request(fmt.Sprint("w", i)))
		s.want(s.failed() || len(got.Deliveries) == 1, "lost twice, after a restart: %q", delivered(got))
	}
	s.pause(bill, false, "")
	s.retry(outbox.MoveRequest{}, 1)
	s.replay(outbox.MoveRequest{}, 1)
	s.restart(h)
	s.take("v", "dead", "done", "paused")
	s.advance(time.Hour)
	s.at("1", outbox.Pending, 1)
	s.at("2", outbox.Pending, 0)
}
