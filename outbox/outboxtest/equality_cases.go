package outboxtest

import (
	"time"

	"github.com/tenure-go/tenure/outbox"
)

func equalityCases() []Case[ManualHarness] {
	return []Case[ManualHarness]{
		named("a-claim-expires-at-equality-and-not-before", claimAtEquality),
		named("what-backs-off-is-due-at-equality-and-not-before", dueAtEquality),
		named("what-is-old-enough-is-forgotten-at-equality", overAtEquality),
	}
}

// grain is the finest difference in time that every store keeps.
const grain = time.Microsecond

// tick moves the clock.
func (s *stage) tick(h ManualHarness, d time.Duration) {
	s.store.passed(d)
	h.Tick(d)
}

func claimAtEquality(s *stage, h ManualHarness) {
	s.append(note("a", mail), ordered("b", mail, "k"), ordered("c", mail, "k"))
	got := s.take("x", "a", "b", "c")
	s.want(got.Left == ttl, "it has %v left; want %v", got.Left, ttl)
	s.tick(h, ttl-grain)
	s.none("y")
	i := s.at("a", outbox.Pending, 1)
	s.want(i.Claimed == grain, "just before: %+v", i)
	s.tick(h, grain)
	i = s.at("a", outbox.Pending, 1)
	s.want(i.Claimed == 0, "at its deadline: %+v", i)
	s.take("z", "a", "b", "c")
	s.late("x", outbox.Published, "a")
}

func dueAtEquality(s *stage, h ManualHarness) {
	s.append(note("a", mail))
	s.take("x", "a")
	failed := s.verdict("a", outbox.Failed)
	failed.RetryIn = ttl
	s.settles("x", nil, failed)
	s.tick(h, ttl-grain)
	s.none("y")
	i := s.at("a", outbox.Pending, 1)
	s.want(i.DueIn == grain, "just before: %+v", i)
	s.tick(h, grain)
	s.take("z", "a")
}

func overAtEquality(s *stage, h ManualHarness) {
	s.append(notes("a", "b")...)
	s.take("x", "a", "b")
	s.publish("x", "a")
	dead := s.verdict("b", outbox.Failed)
	dead.Dead = true
	s.settles("x", nil, dead)
	req := outbox.PruneRequest{Delivered: time.Hour, Dead: time.Hour}
	s.tick(h, time.Hour-grain)
	s.prune(req, 0)
	s.tick(h, grain)
	i := s.at("a", outbox.Delivered, 1)
	s.want(i.Ended == time.Hour && i.Age == time.Hour, "after an hour: %+v", i)
	within := outbox.MoveRequest{Within: time.Hour - grain}
	s.replay(within, 0)
	s.retry(within, 0)
	within.Within = time.Hour
	s.retry(within, 1)
	s.prune(req, 1)
	s.gone("a")
}
