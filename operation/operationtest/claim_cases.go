package operationtest

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

func claimCases() []Case[Harness] {
	return []Case[Harness]{
		plain("a-job-tells-what-was-submitted", jobTold),
		plain("an-attempt-is-recorded-before-it-is-told", attemptRecorded),
		plain("O18-numbers-rise-across-operations-and-attempts", numbersRise),
		plain("O9-nothing-is-claimed-while-it-is-claimed", claimedOnce),
		plain("a-claim-keeps-its-limits", claimLimits),
		plain("a-claim-of-one-operation-takes-no-other", claimOne),
		plain("O4-unknown-kinds-are-left-alone", unknownKinds),
		plain("nothing-decided-is-claimed", decidedNotClaimed),
		plain("attempts-without-effect-are-bounded", attemptsBounded),
		plain("attempts-that-were-not-sent-do-not-count", unsentDoNotCount),
		plain("an-operation-past-its-instant-has-failed-if-it-has-had-no-effect", pastInstantFails),
		plain("retry-in-puts-the-next-attempt-off", retryIn),
	}
}

func jobTold(s *stage) {
	req := request("o")
	req.Priority, req.Order = 3, "k"
	s.submitted(req)
	k := asking()
	k.Timeout = ttl + time.Minute
	j := s.begin("o", k)
	s.want(j.Kind == kind && string(j.Request) == string(req.Request) && j.Priority == 3 && j.Order == "k" && j.Ordinal == 1 && !j.Unsure && j.NotAfter.IsZero(), "submitted %+v; the job is %+v", req, j)
	s.want(near(j.Remaining, ttl) && near(j.TimeLeft, k.Timeout), "claimed for %v, the attempt for %v: %v and %v remain", ttl, k.Timeout, j.Remaining, j.TimeLeft)
	s.complete(j, refused("not now"))
	short := k
	short.Timeout = ttl / 2
	j = s.begin("o", short)
	s.want(j.Ordinal == 2 && !j.Unsure && near(j.Remaining, ttl/2) && near(j.TimeLeft, ttl/2), "the second attempt, for %v: %+v", ttl/2, j)
}

func attemptRecorded(s *stage) {
	j := s.begun("o", asking())
	rec := s.at("o", operation.Attempting, operation.Watch, operation.Open)
	if s.failed() {
		return
	}
	a := rec.Attempts[0]
	s.want(a.Number == j.Number && a.Worker == "w" && rec.Current() == j.Number, "attempt %d by w is recorded as %+v", j.Number, a)
	s.want(near(rec.StepIn, ttl), "its claim ends in %v; want %v", rec.StepIn, ttl)
	s.advance(within)
	s.complete(j, effective("r"))
	s.advance(within)
	rec = s.at("o", operation.Succeeded, operation.Idle, operation.Effective)
	if s.failed() {
		return
	}
	a = rec.Attempts[0]
	s.want(near(-a.Began, -2*within) && near(-a.Ended, -within) && near(-rec.Decided, -within), "it began %v and ended %v ago, decided %v ago; want %v and %v", a.Began, a.Ended, rec.Decided, 2*within, within)
}

func numbersRise(s *stage) {
	var last fence.Token
	rises := func(jobs ...operation.Job) {
		for _, j := range jobs {
			s.want(j.Number > last, "attempt %d of %q comes after %d", j.Number, j.ID, last)
		}
		for _, j := range jobs {
			last = max(last, j.Number)
		}
	}
	s.submit("a", "b")
	for i := range 4 {
		jobs := s.claim(claiming(asking()))
		s.want(len(jobs) == 2, "%d were claimed; want 2", len(jobs))
		if s.failed() {
			return
		}
		rises(jobs...)
		for _, j := range jobs {
			s.complete(j, notSent())
		}
		rec := s.get("a")
		s.want(len(rec.Attempts) == i+1, "%d attempts; want %d", len(rec.Attempts), i+1)
	}
	s.cancel("a")
	s.cancel("b")
	rises(s.begun("c", asking()))
}

func claimedOnce(s *stage) {
	s.submit("a", "b")
	s.claims(claiming(repeating()), "a", "b")
	for range 3 {
		s.nothing(repeating())
		s.advance(within) // also past the claim's own time: nobody has ended it
	}
	s.nothing(repeating())
}

func claimLimits(s *stage) {
	for i := range 10 {
		s.submitted(requestOf(kind, fmt.Sprintf("c%d", i)))
		s.submitted(requestOf(other, fmt.Sprintf("r%d", i)))
	}
	few, many := asking(), of(other, asking())
	few.Limit = 2
	count := func(req operation.ClaimRequest, wantFew, wantMany int) {
		n := map[string]int{}
		for _, j := range s.claim(req) {
			n[j.Kind]++
		}
		s.want(n[kind] == wantFew && n[other] == wantMany, "claimed %v; want %d of %s and %d of %s", n, wantFew, kind, wantMany, other)
	}
	req := claiming(few, many)
	req.Limit = 5
	n := s.claim(req)
	s.want(len(n) == 5, "%d were claimed with a limit of 5", len(n))
	few.Limit = 1
	req = claiming(few)
	count(req, 1, 0)
	few.Limit, many.Limit = 3, 2
	count(claiming(few, many), 3, 2)
}

func claimOne(s *stage) {
	s.submit("a", "b", "c")
	s.submitted(requestOf(other, "r"))
	s.submitted(ordered(kind, "first", "k"))
	s.submitted(ordered(kind, "next", "k"))
	one := func(id string) operation.ClaimRequest {
		req := claiming(asking())
		req.ID = id
		return req
	}
	j := s.claims(one("b"), "b")[0]
	for _, id := range []string{"b", "none", "r", "next"} { // claimed, unknown, of a kind that is not known here, blocked
		s.claims(one(id))
	}
	s.complete(j, noAnswer())
	s.claims(one("b"))
	s.claims(one("first"), "first")
	s.claims(claiming(asking()), "a", "c")
}

func unknownKinds(s *stage) {
	j := s.begun("claimed", asking())
	s.submit("o")
	strange := of("unheard of", asking())
	for range 3 {
		s.nothing(strange, of(other, asking()))
		s.dueOf(operation.DueRequest{Kinds: []string{"unheard of"}, Limit: 100, Hold: ttl})
		s.at("o", operation.Pending, operation.Work)
		s.advance(past)
	}
	s.expire(1) // whoever sweeps need not know the kind
	s.at("claimed", operation.Uncertain, operation.Ask, operation.NoAnswer)
	s.nothing(strange)
	s.dueOf(operation.DueRequest{Kinds: []string{"unheard of"}, Limit: 100, Hold: ttl})
	s.respond("claimed", j.Number, effective("r"))
	s.begin("o", asking())
}

func decidedNotClaimed(s *stage) {
	s.states()
	s.advance(long)
	s.complete(s.begin("pending", asking()), effective("r"))
	s.nothing(asking(), of(other, asking()))
}

func attemptsBounded(s *stage) {
	k := asking()
	k.MaxAttempts = 3
	s.submit("o")
	for range 3 {
		s.complete(s.begin("o", k), refused("not now"))
	}
	s.at("o", operation.Pending, operation.Work)
	s.nothing(k)
	rec := s.at("o", operation.Failed, operation.Idle, operation.Refused, operation.Refused, operation.Refused)
	s.want(rec.Reason != "", "it failed without a reason")
	k.MaxAttempts = 9
	s.nothing(k)
}

func unsentDoNotCount(s *stage) {
	k := repeating()
	k.MaxAttempts = 3
	s.submit("o")
	for range 4 {
		s.complete(s.begin("o", k), notSent())
	}
	s.complete(s.begin("o", k), noAnswer())
	s.complete(s.begin("o", k), notSent()) // the second that may be sent, while it is open
	s.complete(s.begin("o", k), noAnswer())
	j := s.begin("o", k)
	s.want(j.Ordinal == 8, "after 7 attempts, the next is attempt %d", j.Ordinal)
	s.complete(j, noAnswer())
	rec := s.get("o") // the third that may have been sent was the last
	s.want(rec.Step != operation.Work, "after %d that may have been sent there is to be another", k.MaxAttempts)
	s.nothing(k)
}

func pastInstantFails(s *stage) {
	k := asking()
	k.NotAfter = time.Minute
	j := s.begun("o", k)
	s.want(!j.NotAfter.IsZero(), "the attempt carries no instant")
	s.complete(j, notSent())
	rec := s.get("o")
	s.want(rec.NotAfter.Equal(j.NotAfter), "the record's instant is %v, the job's %v", rec.NotAfter, j.NotAfter)
	j = s.begin("o", asking()) // a worker that knows of none carries it all the same
	s.want(!j.NotAfter.IsZero() && j.NotAfter.Equal(rec.NotAfter), "the second attempt carries %v; want %v", j.NotAfter, rec.NotAfter)
	s.complete(j, refused("not now"))
	s.advance(2 * time.Minute)
	s.nothing(k)
	rec = s.at("o", operation.Failed, operation.Idle, operation.NotSent, operation.Refused)
	s.want(rec.Reason != "", "it failed without a reason")
}

func retryIn(s *stage) {
	for _, a := range []operation.Answer{notSent(), refused("not now"), noAnswer()} {
		id := a.Known.String()
		s.completeIn(s.begun(id, repeating()), a, ttl)
		rec := s.get(id)
		s.want(near(rec.StepIn, ttl) && rec.Step == operation.Work, "%v, again in %v: %v in %v", a.Known, ttl, rec.Step, rec.StepIn)
		s.advance(within)
		s.nothing(repeating())
		s.advance(past - within)
		s.complete(s.begin(id, repeating()), effective("r"))
	}
}
