package operationtest

import (
	"github.com/tenure-go/tenure/operation"
)

func orderCases() []Case[Harness] {
	return []Case[Harness]{
		plain("of-one-order-each-begins-when-the-one-before-is-decided", orderKept),
		plain("order-is-kept-whatever-the-priority-and-the-time", orderBeforeUrgency),
		plain("an-uncertain-one-blocks-its-order", uncertainBlocks),
		plain("order-is-kept-across-kinds", orderAcrossKinds),
		plain("other-orders-and-none-are-not-blocked", othersGoOn),
		plain("whatever-decides-lets-the-next-of-its-order-begin", decisionsUnblock),
	}
}

func ordered(kind, id, order string) operation.SubmitRequest {
	req := requestOf(kind, id)
	req.Order = order
	return req
}

func orderKept(s *stage) {
	ids := []string{"c", "a", "d", "b"} // in the order of submission, not of ids
	for _, id := range ids {
		s.submitted(ordered(kind, id, "k"))
	}
	for i, id := range ids {
		for j, later := range ids[i:] {
			s.want(s.get(later).Blocked == (j > 0), "while %q is the first, %q is told as blocked: %t", id, later, j == 0)
		}
		job := s.begin(id, asking())
		s.want(job.Order == "k", "the job's order is %q", job.Order)
		s.nothing(asking())
		s.completeIn(job, refused("not now"), ttl) // it is still the first
		s.nothing(asking())
		s.advance(past)
		s.complete(s.begin(id, asking()), effective("r"))
	}
	s.nothing(asking())
	s.submitted(ordered(kind, "e", "k"))
	s.begin("e", asking())
}

func orderBeforeUrgency(s *stage) {
	first := ordered(kind, "first", "k")
	first.RunIn = ttl
	urgent := ordered(kind, "urgent", "k")
	urgent.Priority = operation.MaxPriority
	s.submitted(first)
	s.submitted(urgent)
	s.nothing(asking())
	s.advance(past)
	s.complete(s.begin("first", asking()), effective("r"))
	s.begin("urgent", asking())
}

func uncertainBlocks(s *stage) {
	s.submitted(ordered(kind, "first", "k"))
	s.submitted(ordered(kind, "next", "k"))
	s.complete(s.begin("first", asking()), noAnswer())
	s.advance(long)
	s.nothing(asking())
	s.due(ttl, "first")
	s.found("first", operation.NotObserved, 0)
	s.nothing(asking())
	s.found("first", operation.Closed, 0)
	s.begin("next", asking())
}

func orderAcrossKinds(s *stage) {
	s.submitted(ordered(kind, "first", "k"))
	s.submitted(ordered(other, "next", "k"))
	s.nothing(of(other, asking()))
	s.want(s.get("next").Blocked, "it is not told as blocked by one of another kind")
	s.complete(s.begin("first", asking()), effective("r"))
	s.begin("next", of(other, asking()))
}

func othersGoOn(s *stage) {
	s.submitted(ordered(kind, "k1", "k"))
	s.submitted(ordered(kind, "k2", "k"))
	s.submitted(ordered(kind, "K1", "K"))
	s.submit("none1", "none2")
	jobs := s.claims(claiming(asking()), "k1", "K1", "none1", "none2")
	s.complete(jobs[1], effective("r"))
	s.nothing(asking())
	s.complete(jobs[0], effective("r"))
	s.begin("k2", asking())
}

func decisionsUnblock(s *stage) {
	decide := map[string]func(id string, j operation.Job){
		"failed":    func(_ string, j operation.Job) { s.complete(j, final("no funds")) },
		"cancelled": func(id string, j operation.Job) { s.complete(j, notSent()); s.cancel(id) },
		"wished":    func(id string, j operation.Job) { s.cancel(id); s.complete(j, notSent()) },
		"evidence":  func(id string, j operation.Job) { s.respond(id, j.Number, effective("r")) },
		"as a whole": func(id string, _ operation.Job) {
			s.respond(id, 0, effective("r"))
		},
		"late":     func(id string, j operation.Job) { s.complete(j, noAnswer()); s.respond(id, j.Number, effective("r")) },
		"found":    func(id string, j operation.Job) { s.complete(j, noAnswer()); s.found(id, operation.Found, 0) },
		"resolved": func(id string, j operation.Job) { s.complete(j, noAnswer()); s.resolve(id, operation.Failed) },
	}
	for how, do := range decide {
		s.submitted(ordered(kind, "1 "+how, how))
		s.submitted(ordered(kind, "2 "+how, how))
		do("1 "+how, s.begin("1 "+how, asking()))
		s.begin("2 "+how, asking())
	}
	s.submitted(ordered(kind, "1", "used"))
	s.submitted(ordered(kind, "2", "used"))
	once := asking()
	once.MaxAttempts = 1
	s.complete(s.begin("1", once), refused("not now"))
	s.nothing(once) // no attempt is left, so that it has failed
	s.begin("2", once)
}
