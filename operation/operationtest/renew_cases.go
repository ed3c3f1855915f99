package operationtest

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/operation"
)

func renewCases() []Case[Harness] {
	return []Case[Harness]{
		plain("O5-a-handler-three-times-longer-than-its-claim-runs-once", renewedRuns),
		plain("what-is-not-the-open-current-attempt-is-not-renewed", lostTold),
		plain("O10-a-claim-is-not-renewed-beyond-the-timeout-of-its-attempt", notBeyondTimeout),
		plain("a-claim-past-its-time-that-nobody-ended-is-renewed", pastRenewed),
		plain("an-expired-claim-is-not-renewed", expiredNotRenewed),
	}
}

// renew must lose exactly these.
func (s *stage) renew(refs []operation.Ref, lost ...operation.Ref) {
	if s.failed() {
		return
	}
	got, err := s.store.Renew(s.ctx, operation.RenewRequest{Refs: refs, TTL: ttl})
	if err != nil {
		s.fail("renewing: %w", err)
		return
	}
	same := len(got) == len(lost)
	for _, ref := range lost {
		same = same && slices.Contains(got, ref)
	}
	s.want(same, "renewing %v: %v lost; want %v", refs, got, lost)
}

func renewedRuns(s *stage) {
	j := s.begun("o", repeating())
	for range 5 {
		s.advance(within)
		s.renew([]operation.Ref{j.Ref})
		s.want(near(s.get("o").StepIn, ttl), "a renewed claim ends in %v; want %v", s.get("o").StepIn, ttl)
		s.expire(0)
		s.nothing(repeating())
	}
	s.complete(j, effective("r"))
	s.at("o", operation.Succeeded, operation.Idle, operation.Effective)
}

func lostTold(s *stage) {
	s.submit("kept", "done", "again", "answered")
	jobs := s.claims(claiming(repeating()), "kept", "done", "again", "answered")
	s.complete(jobs[1], effective("r"))
	s.complete(jobs[2], noAnswer())
	again := s.begin("again", repeating())
	s.respond("answered", jobs[3].Number, noAnswer())
	none := operation.Ref{ID: "none", Number: 1}
	strange := operation.Ref{ID: "kept", Number: jobs[0].Number + 1000}
	foreign := operation.Ref{ID: "kept", Number: again.Number}
	s.advance(within)
	refs := []operation.Ref{jobs[0].Ref, jobs[1].Ref, jobs[2].Ref, jobs[3].Ref, again.Ref, none, strange, foreign}
	s.renew(refs, jobs[1].Ref, jobs[2].Ref, jobs[3].Ref, none, strange, foreign)
	s.want(near(s.get("kept").StepIn, ttl) && near(s.get("again").StepIn, ttl), "the renewed claims end in %v and %v", s.get("kept").StepIn, s.get("again").StepIn)
	s.at("done", operation.Succeeded, operation.Idle)
	s.at("answered", operation.Uncertain, operation.Work)
	s.renew(nil)
}

func notBeyondTimeout(s *stage) {
	k := repeating()
	k.Timeout = ttl + 5*time.Second
	j := s.begun("o", k)
	s.advance(within)
	s.renew([]operation.Ref{j.Ref})
	s.want(near(s.get("o").StepIn, k.Timeout-within), "renewed %v after it began, with a timeout of %v, it ends in %v", within, k.Timeout, s.get("o").StepIn)
	s.advance(within)
	s.renew([]operation.Ref{j.Ref})
	s.advance(3 * time.Second)
	s.renew([]operation.Ref{j.Ref}, j.Ref) // its timeout has passed
	s.expire(1)
	s.at("o", operation.Uncertain, operation.Work, operation.NoAnswer)
	s.begin("o", k)
}

func pastRenewed(s *stage) {
	j := s.begun("o", repeating())
	s.advance(past)
	s.renew([]operation.Ref{j.Ref})
	s.expire(0)
	s.advance(within)
	s.complete(j, effective("r"))
}

func expiredNotRenewed(s *stage) {
	j := s.begun("o", repeating())
	s.advance(past)
	s.expire(1)
	s.renew([]operation.Ref{j.Ref}, j.Ref)
	s.at("o", operation.Uncertain, operation.Work, operation.NoAnswer)
	again := s.begin("o", repeating())
	s.renew([]operation.Ref{j.Ref, again.Ref}, j.Ref)
}
