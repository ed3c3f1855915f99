package operationtest

import (
	"fmt"

	"github.com/tenure-go/tenure/operation"
)

func evidenceCases() []Case[Harness] {
	return []Case[Harness]{
		plain("O41-a-late-success-decides-what-is-uncertain", lateSuccess),
		plain("O14-a-late-success-against-a-decision-is-kept-and-the-decision-stays", lateConflict),
		plain("a-success-of-an-older-attempt-decides-while-another-runs", olderSucceeds),
		plain("a-refusal-of-an-older-attempt-leaves-the-current-one-at-work", olderRefused),
		plain("a-refusal-of-the-last-unknown-attempt-makes-it-pending", lastUnknownRefused),
		plain("evidence-of-the-operation-as-a-whole-decides", wholeFound),
		plain("a-refusal-of-the-whole-is-of-the-only-attempt", wholeRefused),
		plain("a-conflict-is-kept-once-and-each-is-counted-up-to-what-is-kept", conflictsKept),
		plain("evidence-that-agrees-is-no-conflict", agreesNoConflict),
		plain("the-same-evidence-again-changes-nothing", sameEvidence),
		plain("evidence-of-an-attempt-that-was-never-recorded-is-refused", strangeEvidence),
		plain("evidence-ends-the-claim-of-the-current-attempt", evidenceEndsClaim),
		plain("every-attempt-is-kept-whatever-follows-it", attemptsKept),
	}
}

func lateSuccess(s *stage) {
	s.complete(s.begun("idle", mute()), noAnswer())
	rec := s.get("idle")
	s.advance(long)
	rec = s.respond("idle", rec.Current(), effective("late"))
	s.standing(rec, operation.Succeeded, operation.Idle, operation.Effective)
	s.want(string(rec.Result) == "late" && rec.ConflictCount == 0, "decided late: %+v", rec)
	j := s.begun("repeats", repeating())
	s.advance(past)
	s.expire(1)
	s.respond("repeats", j.Number, effective("late"))
	s.nothing(repeating())
	s.at("repeats", operation.Succeeded, operation.Idle, operation.Effective)
}

func lateConflict(s *stage) {
	j := s.begun("o", asking())
	for range 4 { // its renewals are lost
		s.advance(past)
	}
	s.expire(1)
	s.found("o", operation.Closed, 0)
	s.at("o", operation.Failed, operation.Idle, operation.NoAnswer)
	s.stale(j, effective("late"), j.Number)
	rec := s.conflict("o", j.Number, effective("late"), 1)
	s.standing(rec, operation.Failed, operation.Idle, operation.Effective)
	s.want(s.failed() || len(rec.Conflicts) == 1 && rec.Conflicts[0].Attempt == j.Number && string(rec.Conflicts[0].Result) == "late" && rec.Conflicts[0].Reason != "", "the conflict: %+v", rec.Conflicts)
	s.at("o", operation.Failed, operation.Idle, operation.Effective)
	s.submit("cancelled")
	s.cancel("cancelled")
	rec = s.conflict("cancelled", 0, effective("all the same"), 1)
	s.standing(rec, operation.Cancelled, operation.Idle)
}

func olderSucceeds(s *stage) {
	old, now := s.takenOver("o")
	rec := s.respond("o", old.Number, effective("old"))
	s.standing(rec, operation.Succeeded, operation.Idle)
	s.want(string(rec.Result) == "old" && rec.Attempts[0].Known == operation.Effective, "decided by the older one: %+v", rec)
	s.renew([]operation.Ref{now.Ref}, now.Ref)
	s.stale(now, effective("now"), now.Number)
	s.advance(past)
	s.expire(0)
	rec = s.conflict("o", now.Number, effective("now"), 1) // what its worker had learned
	s.want(s.failed() || rec.Attempts[1].Known == operation.Effective && string(rec.Attempts[1].Result) == "now" && string(rec.Result) == "old", "both responses: %+v", rec)
}

func olderRefused(s *stage) {
	old, now := s.takenOver("o")
	rec, err := s.responding("o", old.Number, final("old"))
	s.staleError(err, old.Ref, now.Number)
	s.standing(rec, operation.Attempting, operation.Watch, operation.Refused, operation.Open)
	s.renew([]operation.Ref{now.Ref})
	s.complete(now, refused("not now"))
	s.at("o", operation.Pending, operation.Work, operation.Refused, operation.Refused)
}

func lastUnknownRefused(s *stage) {
	old, now := s.takenOver("o")
	s.complete(now, refused("not now"))
	s.at("o", operation.Uncertain, operation.Work, operation.NoAnswer, operation.Refused)
	rec, err := s.responding("o", old.Number, refused("not then"))
	s.staleError(err, old.Ref, now.Number)
	s.standing(rec, operation.Pending, operation.Work, operation.Refused, operation.Refused)
	s.want(rec.StepIn == 0, "what follows evidence is due in %v", rec.StepIn)
	s.cancel("o")
	s.complete(s.begun("final", mute()), noAnswer())
	rec = s.get("final")
	rec = s.respond("final", rec.Current(), final("no funds"))
	s.standing(rec, operation.Failed, operation.Idle, operation.Refused)
	s.want(rec.Reason == "no funds", "it failed because of %q", rec.Reason)
}

func wholeFound(s *stage) {
	s.submit("pending")
	for _, id := range []string{"pending", "at work", "unknown"} {
		if id != "pending" {
			j := s.claims(claiming(of(other, asking())))
			_ = j
			job := s.begun(id, asking())
			if id == "unknown" {
				s.complete(job, noAnswer())
			}
		}
		rec := s.respond(id, 0, effective("as told"))
		s.standing(rec, operation.Succeeded, operation.Idle)
		s.want(string(rec.Result) == "as told", "%s: its result is %q", id, rec.Result)
	}
	s.nothing(asking())
	s.advance(past)
	s.expire(0)
}

func wholeRefused(s *stage) {
	s.submit("none yet")
	_, err := s.responding("none yet", 0, refused("no"))
	s.kind(err, operation.ErrInvalid, "a refusal of what was never attempted")
	s.cancel("none yet")
	s.complete(s.begun("one", asking()), noAnswer())
	rec := s.respond("one", 0, final("no funds"))
	s.standing(rec, operation.Failed, operation.Idle, operation.Refused)
	old, now := s.takenOver("several")
	s.complete(now, noAnswer())
	for range 2 {
		_, err = s.responding("several", 0, final("no funds"))
		s.kind(err, operation.ErrInvalid, "a refusal of one of several attempts, without saying which")
		s.at("several", operation.Uncertain, operation.Work, operation.NoAnswer, operation.NoAnswer)
	}
	for _, known := range []operation.Known{operation.NotSent, operation.NoAnswer, operation.Open, 0, 9} {
		_, err = s.responding("several", 0, operation.Answer{Known: known})
		s.kind(err, operation.ErrInvalid, "evidence of the whole that is %v", known)
		if known == operation.Open || known == 0 || known == 9 {
			_, err = s.responding("several", old.Number, operation.Answer{Known: known})
			s.kind(err, operation.ErrInvalid, "evidence that is %v", known)
		}
	}
}

func conflictsKept(s *stage) {
	j := s.begun("o", asking())
	s.complete(j, effective("first"))
	for range 3 { // a webhook is delivered again and again
		s.conflict("o", j.Number, effective("second"), 1)
		s.conflict("o", j.Number, effective("second"), 1)
	}
	for i := 2; i <= operation.MaxConflicts; i++ {
		s.conflict("o", j.Number, effective(fmt.Sprint("another ", i)), i)
	}
	s.conflict("o", j.Number, effective("second"), operation.MaxConflicts)
	for i := range 3 {
		rec := s.conflict("o", j.Number, effective(fmt.Sprint("too many ", i)), operation.MaxConflicts+1+i)
		s.want(len(rec.Conflicts) == operation.MaxConflicts && string(rec.Conflicts[0].Result) == "second" && string(rec.Result) == "first", "beyond what is kept: %+v", rec)
	}
	_, err := s.finding("o", operation.Closed, 0)
	s.kind(err, operation.ErrDecided, "a finding against the decision")
	rec := s.at("o", operation.Succeeded, operation.Idle, operation.Effective)
	s.want(rec.ConflictCount == operation.MaxConflicts+4, "%d conflicts; want %d", rec.ConflictCount, operation.MaxConflicts+4)
}

func agreesNoConflict(s *stage) {
	old, now := s.takenOver("o")
	s.complete(now, effective("r"))
	for _, a := range []operation.Answer{effective("r"), {Known: operation.Effective}, refused("no"), final("no"), notSent(), noAnswer()} {
		for _, number := range []operation.Job{old, now} {
			rec, err := s.responding("o", number.Number, a)
			s.want(err == nil, "evidence that attempt %d was %v: %v", number.Number, a.Known, err)
			s.want(rec.ConflictCount == 0 && rec.State == operation.Succeeded && string(rec.Result) == "r", "evidence that agrees: %+v", rec)
		}
	}
	s.respond("o", 0, effective("r"))
	s.found("o", operation.NotObserved, 0)
	f := s.begun("failed", asking())
	s.complete(f, final("no funds"))
	s.respond("failed", f.Number, final("no funds"))
	s.respond("failed", 0, refused("no funds"))
	s.found("failed", operation.Closed, 0)
	rec := s.at("failed", operation.Failed, operation.Idle, operation.Refused)
	s.want(rec.ConflictCount == 0 && rec.Reason == "no funds", "evidence that agrees: %+v", rec)
}

func sameEvidence(s *stage) {
	j := s.begun("o", asking())
	s.complete(j, noAnswer())
	for range 3 {
		s.respond("o", j.Number, noAnswer())
		s.at("o", operation.Uncertain, operation.Ask, operation.NoAnswer)
	}
	for range 3 {
		rec := s.respond("o", j.Number, refused("not then"))
		s.standing(rec, operation.Pending, operation.Work, operation.Refused)
	}
	rec := s.respond("o", j.Number, noAnswer()) // less than what is known
	s.standing(rec, operation.Pending, operation.Work, operation.Refused)
	rec = s.respond("o", j.Number, notSent())
	s.standing(rec, operation.Pending, operation.Work, operation.Refused)
	for range 3 {
		rec = s.respond("o", j.Number, effective("after all")) // who said before that it did not was wrong
		s.standing(rec, operation.Succeeded, operation.Idle, operation.Effective)
	}
}

func strangeEvidence(s *stage) {
	j := s.begun("o", asking())
	foreign := s.begun("p", asking())
	for _, a := range []operation.Answer{effective("r"), final("no")} {
		_, err := s.responding("o", j.Number+1000, a)
		s.kind(err, operation.ErrInvalid, "evidence of an attempt that was never recorded")
		_, err = s.responding("o", foreign.Number, a)
		s.kind(err, operation.ErrInvalid, "evidence of another operation's attempt")
		_, err = s.responding("o", -1, a)
		s.kind(err, operation.ErrInvalid, "evidence of attempt -1")
	}
	s.at("o", operation.Attempting, operation.Watch, operation.Open)
}

func evidenceEndsClaim(s *stage) {
	for _, c := range []struct {
		answer operation.Answer
		state  operation.State
		step   operation.Step
	}{
		{effective("r"), operation.Succeeded, operation.Idle}, {final("no"), operation.Failed, operation.Idle}, {noAnswer(), operation.Uncertain, operation.Ask},
		{refused("not now"), operation.Pending, operation.Work},
	} {
		id := c.answer.Known.String() + fmt.Sprint(c.answer.Final)
		j := s.begun(id, asking())
		rec := s.respond(id, j.Number, c.answer)
		s.standing(rec, c.state, c.step, c.answer.Known)
		s.want(rec.StepIn == 0, "what follows evidence is due in %v", rec.StepIn)
		s.renew([]operation.Ref{j.Ref}, j.Ref)
		s.stale(j, effective("the worker's"), j.Number)
		s.advance(past)
		s.expire(0)
		s.at(id, c.state, c.step, c.answer.Known)
	}
}

func attemptsKept(s *stage) {
	const n = 40
	s.submit("o")
	var jobs []operation.Job
	k := repeating()
	k.MaxAttempts = operation.MaxAttempts
	answers := []operation.Answer{notSent(), refused("not now"), noAnswer()}
	for i := range n {
		req := claiming(k)
		req.Worker = fmt.Sprint("w", i)
		j := s.claims(req, "o")[0]
		s.want(j.Ordinal == i+1 && j.Unsure == (i > 2), "attempt %d: %+v", i+1, j)
		a := answers[i%3]
		a.Reason = fmt.Sprint("reason ", i)
		s.complete(j, a)
		jobs = append(jobs, j)
	}
	_, err := s.responding("o", jobs[5].Number, refused("after all"))
	s.staleError(err, jobs[5].Ref, jobs[n-1].Number)
	rec := s.respond("o", jobs[8].Number, effective("the ninth"))
	s.want(rec.State == operation.Succeeded && string(rec.Result) == "the ninth" && len(rec.Attempts) == n, "after %d attempts: %+v", n, rec)
	for i, a := range s.get("o").Attempts {
		want := operation.Attempt{Number: jobs[i].Number, Worker: fmt.Sprint("w", i), Known: answers[i%3].Known, Reason: fmt.Sprint("reason ", i)}
		switch i {
		case 5:
			want.Known, want.Reason = operation.Refused, "after all"
		case 8:
			want.Known, want.Reason = operation.Effective, ""
		}
		s.want(a.Number == want.Number && a.Worker == want.Worker && a.Known == want.Known && a.Reason == want.Reason && (string(a.Result) == "the ninth") == (i == 8), "attempt %d is kept as %+v; want %+v", i+1, a, want)
	}
}
