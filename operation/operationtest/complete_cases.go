package operationtest

import (
	"fmt"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

func completeCases() []Case[Harness] {
	return []Case[Harness]{
		plain("each-answer-moves-the-operation-as-the-rules-say", answersMove),
		plain("a-refusal-proves-nothing-about-an-earlier-attempt", refusalProvesNothing),
		plain("O2-of-two-workers-the-current-one-decides", twoFinish),
		plain("O2b-a-stale-completion-moves-nothing", staleCompletion),
		plain("completing-twice-is-stale", completedTwice),
		plain("a-completion-of-what-was-never-recorded-is-refused", neverRecorded),
		plain("O23-strangers-in-a-batch-share-no-fate", batchOfStrangers),
		plain("one-attempt-twice-in-a-batch-counts-once", twiceInBatch),
	}
}

func answersMove(s *stage) {
	for _, c := range []struct {
		name   string
		answer operation.Answer
		state  operation.State
		step   operation.Step
	}{
		{"effective", effective("r"), operation.Succeeded, operation.Idle}, {"not now", refused("not now"), operation.Pending, operation.Work},
		{"for good", final("no funds"), operation.Failed, operation.Idle}, {"not sent", notSent(), operation.Pending, operation.Work},
		{"unknown", noAnswer(), operation.Uncertain, operation.Ask}, {"without a result", operation.Answer{Known: operation.Effective}, operation.Succeeded, operation.Idle},
	} {
		s.complete(s.begun(c.name, asking()), c.answer)
		rec := s.at(c.name, c.state, c.step, c.answer.Known)
		if s.failed() {
			return
		}
		a := rec.Attempts[0]
		s.want(string(a.Result) == string(c.answer.Result) && a.Reason == c.answer.Reason, "%s: the attempt is recorded as %+v", c.name, a)
		s.want(string(rec.Result) == string(c.answer.Result), "%s: its result is %q", c.name, rec.Result)
		if c.state == operation.Failed {
			s.want(rec.Reason == "no funds", "it failed because of %q", rec.Reason)
		}
		if !c.state.Decided() {
			s.cancel(c.name)
		}
	}
}

func refusalProvesNothing(s *stage) {
	s.complete(s.begun("o", repeating()), noAnswer())
	s.complete(s.begin("o", repeating()), final("no funds"))
	s.at("o", operation.Uncertain, operation.Work, operation.NoAnswer, operation.Refused)
	s.complete(s.begin("o", repeating()), notSent())
	s.at("o", operation.Uncertain, operation.Work, operation.NoAnswer, operation.Refused, operation.NotSent)
	s.cancel("o")
	s.at("o", operation.Uncertain, operation.Ask)
	s.found("o", operation.Closed, 0)
	s.at("o", operation.Failed, operation.Idle)
}

// takenOver is an operation whose first attempt was given up, and whose second is at work.
func (s *stage) takenOver(id string) (old, now operation.Job) {
	old = s.begun(id, repeating())
	s.advance(past)
	s.expire(1)
	return old, s.begin(id, repeating())
}

func twoFinish(s *stage) {
	old, now := s.takenOver("stale first")
	s.stale(old, effective("old"), now.Number)
	s.complete(now, effective("now"))
	rec := s.at("stale first", operation.Succeeded, operation.Idle, operation.NoAnswer, operation.Effective)
	s.want(string(rec.Result) == "now" && rec.ConflictCount == 0, "decided as %q with %d conflicts", rec.Result, rec.ConflictCount)
	old, now = s.takenOver("current first")
	s.complete(now, effective("now"))
	s.stale(old, effective("old"), now.Number)
	rec = s.conflict("current first", old.Number, effective("old"), 1) // what it had learned is kept as evidence
	s.want(string(rec.Result) == "now" && string(rec.Attempts[0].Result) == "old", "both responses: %+v", rec)
}

func staleCompletion(s *stage) {
	for _, a := range []operation.Answer{effective("old"), final("old"), notSent(), noAnswer()} {
		id := a.Known.String()
		old, now := s.takenOver(id)
		s.stale(old, a, now.Number)
		s.at(id, operation.Attempting, operation.Watch, operation.NoAnswer, operation.Open)
		s.complete(now, final("the real failure"))
		rec := s.at(id, operation.Uncertain, operation.Work, operation.NoAnswer, operation.Refused)
		s.want(s.failed() || rec.Attempts[1].Reason == "the real failure" && len(rec.Attempts[0].Result) == 0, "the current attempt's failure was lost: %+v", rec)
		s.stale(old, a, now.Number)
		s.cancel(id)
		s.respond(id, 0, effective("r"))
	}
}

func completedTwice(s *stage) {
	for _, first := range []operation.Answer{effective("r"), final("no"), notSent(), noAnswer()} {
		id := first.Known.String()
		j := s.begun(id, asking())
		s.complete(j, first)
		before := s.get(id)
		for _, second := range []operation.Answer{first, effective("other"), final("other"), notSent(), noAnswer()} {
			s.stale(j, second, j.Number)
		}
		after := s.get(id)
		s.want(after.State == before.State && string(after.Result) == string(before.Result) && after.ConflictCount == 0, "a second completion changed %+v to %+v", before, after)
		if !after.State.Decided() {
			s.cancel(id)
		}
	}
	s.submit("cancelled")
	s.cancel("cancelled")
	s.kind(s.completing(operation.Ref{ID: "cancelled", Number: 1}, effective("r"), 0), operation.ErrInvalid, "completing an attempt of what was cancelled before any")
}

func neverRecorded(s *stage) {
	j := s.begun("o", asking())
	foreign := s.begun("p", asking())
	for _, number := range []fence.Token{0, -1, j.Number + 1000, foreign.Number} {
		s.kind(s.completing(operation.Ref{ID: "o", Number: number}, effective("r"), 0), operation.ErrInvalid, "completing attempt %d, which was never recorded", number)
	}
	s.at("o", operation.Attempting, operation.Watch, operation.Open)
	s.complete(j, effective("r"))
}

func batchOfStrangers(s *stage) {
	const n = 50
	for i := range n {
		s.submit(fmt.Sprintf("o%02d", i))
	}
	jobs := s.claim(claiming(asking()))
	s.want(len(jobs) == n, "%d were claimed; want %d", len(jobs), n)
	if s.failed() {
		return
	}
	all := make([]operation.Completion, n)
	for i, j := range jobs {
		all[i] = operation.Completion{Ref: j.Ref, Answer: effective("r " + j.ID)}
	}
	wrong := map[int]error{7: operation.ErrInvalid, 13: operation.ErrNotFound, 20: operation.ErrStale, 33: operation.ErrInvalid, 41: operation.ErrInvalid}
	all[7].Known = operation.Open
	all[13].ID = "none"
	s.complete(jobs[20], noAnswer())
	all[33].Result = make([]byte, operation.MaxBody+1)
	all[41].ID = "with\x00control"
	errs, err := s.store.Complete(s.ctx, all)
	s.want(err == nil, "a batch with faults of its own: %v; want errors of the single ones", err)
	for i, err := range errs {
		if want := wrong[i]; want != nil {
			s.kind(err, want, "completion %d", i)
			continue
		}
		s.want(err == nil, "completion %d of %q: %v; want it recorded whatever the others are", i, all[i].ID, err)
		rec := s.at(jobs[i].ID, operation.Succeeded, operation.Idle, operation.Effective)
		s.want(string(rec.Result) == "r "+jobs[i].ID, "the result of %q is %q", rec.ID, rec.Result)
	}
	for i := range wrong {
		if rec := s.get(jobs[i].ID); i != 20 {
			s.standing(rec, operation.Attempting, operation.Watch, operation.Open)
		}
	}
}

func twiceInBatch(s *stage) {
	j := s.begun("o", asking())
	errs, err := s.store.Complete(s.ctx, []operation.Completion{{Ref: j.Ref, Answer: effective("first")}, {Ref: j.Ref, Answer: effective("second")}})
	s.want(err == nil && len(errs) == 2 && errs[0] == nil, "one attempt twice in a batch: %v, %v", errs, err)
	if s.failed() {
		return
	}
	s.staleError(errs[1], j.Ref, j.Number)
	rec := s.at("o", operation.Succeeded, operation.Idle, operation.Effective)
	s.want(string(rec.Result) == "first" && rec.ConflictCount == 0, "its result is %q, with %d conflicts", rec.Result, rec.ConflictCount)
}
