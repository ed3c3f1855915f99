package operationtest

import (
	"fmt"

	"github.com/tenure-go/tenure/operation"
)

func expiryCases() []Case[Harness] {
	return []Case[Harness]{
		plain("an-attempt-whose-claim-expired-is-unknown-and-never-not-done", expiredUnknown),
		plain("O1-a-completion-before-anybody-acts-on-the-expiry-counts", completionFirst),
		plain("a-completion-after-the-expiry-is-stale", completionAfterExpiry),
		plain("O3-the-claims-of-dead-workers-move-again", deadWorkers),
		plain("O7-claims-of-a-worker-that-came-back-under-its-name-expire", sameName),
		plain("expire-ends-what-is-over-and-at-most-so-many", expireLimit),
		plain("O47-an-expired-attempt-is-asked-about-and-decided", askedAfterExpiry),
	}
}

func expiredUnknown(s *stage) {
	s.submit("asks", "wished", "repeats", "idle")
	one := func(k operation.KindClaim, id string) operation.Job {
		req := claiming(k)
		req.Limit = 1
		return s.claims(req, id)[0]
	}
	one(asking(), "asks")
	one(asking(), "wished")
	one(repeating(), "repeats")
	one(mute(), "idle")
	s.cancel("wished")
	s.advance(within)
	s.expire(0)
	s.advance(past - within)
	s.at("asks", operation.Attempting, operation.Watch, operation.Open) // it is a verdict that is written
	s.expire(4)
	s.expire(0)
	rec := s.at("asks", operation.Uncertain, operation.Ask, operation.NoAnswer)
	s.want(s.failed() || rec.Attempts[0].Reason != "", "the attempt has no reason: %+v", rec)
	s.at("wished", operation.Uncertain, operation.Ask, operation.NoAnswer)
	s.at("repeats", operation.Uncertain, operation.Work, operation.NoAnswer)
	s.at("idle", operation.Uncertain, operation.Idle, operation.NoAnswer)
	s.begin("repeats", repeating())
}

func completionFirst(s *stage) {
	for _, a := range []operation.Answer{effective("r"), refused("no"), notSent(), noAnswer()} {
		j := s.begun(a.Known.String(), asking())
		s.advance(past)
		s.complete(j, a)
		s.expire(0)
		rec := s.get(a.Known.String())
		s.want(s.failed() || rec.Attempts[0].Known == a.Known && string(rec.Attempts[0].Result) == string(a.Result), "completed past its claim's time as %v: %+v", a.Known, rec)
		if !rec.State.Decided() {
			s.cancel(rec.ID)
		}
	}
}

func completionAfterExpiry(s *stage) {
	for _, a := range []operation.Answer{effective("r"), final("no"), notSent(), noAnswer()} {
		id := a.Known.String()
		j := s.begun(id, asking())
		s.advance(past)
		s.expire(1)
		s.stale(j, a, j.Number)
		s.at(id, operation.Uncertain, operation.Ask, operation.NoAnswer)
	}
}

func deadWorkers(s *stage) {
	const n = 300
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("o%03d", i)
		s.submit(ids[i])
	}
	claim := func() (all []operation.Job) {
		for w := range 10 {
			req := claiming(repeating())
			req.Worker, req.Limit = fmt.Sprintf("w%d", w), n/10
			all = append(all, s.claim(req)...)
		}
		return all
	}
	old := claim()
	s.want(len(old) == n, "%d were claimed; want %d", len(old), n)
	s.advance(past)
	s.expire(n)
	fresh := claim()
	s.want(len(fresh) == n, "%d were claimed again; want %d", len(fresh), n)
	if s.failed() {
		return
	}
	numbers := map[string]operation.Job{}
	var done []operation.Completion
	for _, j := range fresh {
		numbers[j.ID] = j
		done = append(done, operation.Completion{Ref: j.Ref, Answer: effective("fresh")})
	}
	var stale []operation.Completion
	for _, j := range old {
		s.want(numbers[j.ID].Number > j.Number, "%q was claimed as %d after %d", j.ID, numbers[j.ID].Number, j.Number)
		stale = append(stale, operation.Completion{Ref: j.Ref, Answer: effective("old")})
	}
	for _, batch := range [][]operation.Completion{stale, done} {
		errs, err := s.store.Complete(s.ctx, batch)
		if err != nil {
			s.fail("completing a batch: %w", err)
			return
		}
		for i, err := range errs {
			if batch[i].Number == numbers[batch[i].ID].Number {
				s.want(err == nil, "completing %q: %v", batch[i].ID, err)
			} else {
				s.staleError(err, batch[i].Ref, numbers[batch[i].ID].Number)
			}
		}
	}
}

func sameName(s *stage) {
	j := s.begun("o", repeating())
	s.submit("p")
	s.begin("p", repeating()) // it restarted, and claims under the same name
	s.advance(past)
	s.expire(2)
	s.nothing(asking())
	s.stale(j, effective("r"), j.Number)
}

func expireLimit(s *stage) {
	for i := range 5 {
		s.submit(fmt.Sprintf("o%d", i))
	}
	jobs := s.claim(claiming(asking()))
	s.want(len(jobs) == 5, "%d were claimed", len(jobs))
	s.advance(past)
	s.submit("fresh")
	s.begin("fresh", asking())
	for _, want := range []int{2, 2, 1, 0} {
		if s.failed() {
			return
		}
		n, err := s.store.Expire(s.ctx, 2)
		s.want(err == nil && n == want, "expiring at most 2: %d, %v; want %d", n, err, want)
	}
	s.at("fresh", operation.Attempting, operation.Watch)
}

func askedAfterExpiry(s *stage) {
	s.begun("o", asking())
	s.advance(past)
	s.expire(1)
	s.nothing(asking())
	recs := s.due(ttl, "o")
	s.want(s.failed() || recs[0].Step == operation.Ask && string(recs[0].Request) == string(request("o").Request), "due: %+v", recs)
	rec := s.found("o", operation.Found, 0)
	s.standing(rec, operation.Succeeded, operation.Idle)
	s.want(string(rec.Result) == "as found", "its result is %q", rec.Result)
	s.due(ttl)
}
