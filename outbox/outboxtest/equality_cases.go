package outboxtest

import (
	"time"

	"github.com/tenure-go/tenure/outbox"
)

func equalityCases() []Case[ManualHarness] {
	return []Case[ManualHarness]{
		named("a-claim-expires-at-equality-and-not-before", claimAtEquality),
		named("what-backs-off-is-due-at-equality-and-not-before", dueAtEquality),
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
