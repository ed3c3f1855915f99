package outboxtest

import "github.com/tenure-go/tenure/outbox"

func durableCases() []Case[DurableHarness] {
	return []Case[DurableHarness]{
		named("messages-and-claims-survive-a-restart-and-time-goes-on", claimsSurvive),
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
