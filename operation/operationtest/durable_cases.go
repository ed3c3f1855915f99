package operationtest

import (
	"github.com/tenure-go/tenure/operation"
)

// DurableCases is what a store keeps across the end of every process of it.
func DurableCases() []Case[DurableHarness] {
	return []Case[DurableHarness]{
		named("a-submission-survives-a-restart", submissionSurvives),
		named("an-attempt-survives-a-restart-as-one-that-may-have-sent", attemptSurvives),
		named("no-number-repeats-after-a-restart", numbersSurvive),
		named("what-was-decided-stays-decided-after-a-restart", decisionsSurvive),
		named("what-is-put-off-stays-so-across-a-restart", timesSurvive),
		named("what-was-forgotten-is-still-compared-after-a-restart", verdictsSurvive),
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

func submissionSurvives(s *stage, h DurableHarness) {
	req := ordered(kind, "first", "k")
	req.Priority = 2
	s.submitted(req)
	s.submitted(ordered(kind, "next", "k"))
	s.restart(h)
	s.again(req, operation.Pending)
	s.mismatch(requestOf(other, "first"), "kind", operation.Pending)
	j := s.begin("first", asking())
	s.want(j.Priority == 2 && j.Order == "k" && string(j.Request) == string(req.Request), "after a restart: %+v", j)
	s.restart(h)
	s.nothing(asking())
	s.complete(j, effective("r"))
	s.restart(h)
	s.begin("next", asking())
}

func attemptSurvives(s *stage, h DurableHarness) {
	j := s.begun("kept", asking())
	lost := s.begun("lost", repeating())
	s.restart(h)
	s.at("kept", operation.Attempting, operation.Watch, operation.Open)
	s.nothing(repeating())
	s.advance(within)
	s.renew([]operation.Ref{j.Ref})
	s.restart(h)
	s.advance(past - within)
	s.expire(1)
	s.at("lost", operation.Uncertain, operation.Work, operation.NoAnswer)
	s.restart(h)
	again := s.begin("lost", repeating())
	s.want(again.Unsure && again.Ordinal == 2, "after a restart: %+v", again)
	s.restart(h)
	s.stale(lost, effective("r"), again.Number)
	s.complete(j, effective("r"))
}

func numbersSurvive(s *stage, h DurableHarness) {
	s.submit("o")
	last := operation.Job{}
	for i := range 6 {
		j := s.begin("o", asking())
		s.want(j.Number > last.Number, "attempt %d comes after %d", j.Number, last.Number)
		last = j
		if i%2 == 0 {
			s.complete(j, notSent())
			s.restart(h)
			continue
		}
		s.restart(h)
		s.complete(j, notSent())
	}
	s.cancel("o")
	s.restart(h)
	j := s.begun("p", asking())
	s.want(j.Number > last.Number, "attempt %d of another comes after %d", j.Number, last.Number)
}

func decisionsSurvive(s *stage, h DurableHarness) {
	states := s.states()
	s.conflict("failed", 0, effective("after all"), 1)
	s.cancel("uncertain")
	for range 2 {
		s.restart(h)
		for _, state := range states {
			rec := s.get(state.String())
			s.want(rec.State == state, "%q is %v after a restart", rec.ID, rec.State)
		}
		s.conflict("failed", 0, effective("after all"), 1)
		s.want(s.get("uncertain").CancelWished && string(s.get("succeeded").Result) == "r", "a wish or a result was lost")
	}
	s.found("uncertain", operation.Found, 0)
	s.restart(h)
	s.due(ttl, "uncertain")
	s.submitted(compensation("undo", "uncertain"))
	_, err := s.store.Undone(s.ctx, "uncertain", "undo")
	s.want(err == nil, "undone: %v", err)
	s.restart(h)
	s.at("uncertain", operation.Succeeded, operation.Idle)
	s.want(s.get("uncertain").UndoneBy == "undo", "what undid it was lost")
}

func timesSurvive(s *stage, h DurableHarness) {
	req := request("later")
	req.RunIn = ttl
	s.submitted(req)
	s.complete(s.begun("asked", asking()), noAnswer())
	s.due(ttl, "asked")
	s.restart(h)
	s.advance(within)
	s.restart(h)
	s.nothing(asking())
	s.due(ttl)
	s.advance(past - within)
	s.restart(h)
	s.begin("later", asking())
	recs := s.due(ttl, "asked")
	s.want(s.failed() || recs[0].Inquiries == 2, "its inquiries were lost: %+v", recs)
}

func verdictsSurvive(s *stage, h DurableHarness) {
	s.complete(s.begun("o", asking()), effective("r"))
	s.advance(day)
	s.prune(0, day/2, 0, operation.Pruned{Records: 1})
	s.restart(h)
	s.again(request("o"), operation.Succeeded)
	s.mismatch(requestOf(other, "o"), "kind", operation.Succeeded)
	s.prune(0, 0, day, operation.Pruned{Forgotten: 1})
	s.restart(h)
	s.submit("o")
}
