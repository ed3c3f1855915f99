package operationtest

import (
	"time"

	"github.com/tenure-go/tenure/operation"
)

// EqualityCases is what happens at the very instant that matters: now >= expiry is expired. They need a store whose clock stands still.
func EqualityCases() []Case[ManualHarness] {
	return []Case[ManualHarness]{
		named("a-claim-expires-at-equality-and-not-before", expiryAtEquality),
		named("an-operation-is-begun-at-the-equality-of-its-time", runAtEquality),
		named("a-claim-ends-with-its-timeout-exactly", timeoutAtEquality),
		named("the-window-holds-at-equality", windowAtEquality),
		named("the-instant-has-passed-at-equality", instantAtEquality),
		named("what-is-due-is-due-at-equality", dueAtEquality),
		named("what-is-old-enough-is-forgotten-at-equality", pruneAtEquality),
		named("durations-are-exact", durationsExact),
	}
}

// grain is the finest difference in time that every store keeps.
const grain = time.Microsecond

func expiryAtEquality(s *stage, h ManualHarness) {
	j := s.begun("o", repeating())
	h.Tick(ttl - grain)
	s.expire(0)
	s.renew([]operation.Ref{j.Ref})
	h.Tick(ttl)
	s.expire(1)
	s.at("o", operation.Uncertain, operation.Work, operation.NoAnswer)
	s.begin("o", repeating())
}

func runAtEquality(s *stage, h ManualHarness) {
	req := request("o")
	req.RunIn = ttl
	s.submitted(req)
	h.Tick(ttl - grain)
	s.nothing(asking())
	h.Tick(grain)
	s.completeIn(s.begin("o", asking()), refused("not now"), ttl)
	h.Tick(ttl - grain)
	s.nothing(asking())
	h.Tick(grain)
	s.begin("o", asking())
}

func timeoutAtEquality(s *stage, h ManualHarness) {
	k := repeating()
	k.Timeout = ttl + time.Second
	j := s.begun("o", k)
	h.Tick(ttl + time.Second - grain)
	s.renew([]operation.Ref{j.Ref})
	s.want(s.get("o").StepIn == grain, "renewed just before its timeout, its claim ends in %v; want %v", s.get("o").StepIn, grain)
	h.Tick(grain)
	s.renew([]operation.Ref{j.Ref}, j.Ref)
	s.expire(1)
}

func windowAtEquality(s *stage, h ManualHarness) {
	k := window(10*time.Minute, time.Minute)
	s.submit("a", "b")
	for _, j := range s.claims(claiming(k), "a", "b") {
		s.complete(j, noAnswer())
	}
	h.Tick(9 * time.Minute) // an attempt now ends with the window
	one := claiming(k)
	one.Limit = 1
	s.complete(s.claims(one, "a")[0], noAnswer())
	s.at("a", operation.Uncertain, operation.Work)
	h.Tick(grain)
	s.nothing(k)
	s.at("a", operation.Uncertain, operation.Ask)
	s.at("b", operation.Uncertain, operation.Ask)
}

func instantAtEquality(s *stage, h ManualHarness) {
	k := instant(time.Minute)
	s.complete(s.begun("asked", k), noAnswer())
	s.completeIn(s.begun("begun", k), notSent(), ttl)
	s.complete(s.begun("late", k), notSent())
	h.Tick(time.Minute - grain)
	_, err := s.finding("asked", operation.PastInstant, 0)
	s.kind(err, operation.ErrInvalid, "that the instant has passed, just before")
	one := claiming(k)
	one.ID = "begun"
	s.complete(s.claims(one, "begun")[0], effective("r"))
	h.Tick(grain)
	s.nothing(k)
	s.at("late", operation.Failed, operation.Idle, operation.NotSent)
	s.standing(s.found("asked", operation.PastInstant, 0), operation.Failed, operation.Idle)
}

func dueAtEquality(s *stage, h ManualHarness) {
	s.completeIn(s.begun("o", asking()), noAnswer(), ttl)
	h.Tick(ttl - grain)
	s.due(ttl)
	h.Tick(grain)
	s.due(ttl, "o")
	h.Tick(ttl - grain)
	s.due(ttl)
	h.Tick(grain)
	s.due(ttl, "o")
	s.found("o", operation.NotObserved, 2*ttl)
	h.Tick(2*ttl - grain)
	s.due(ttl)
	h.Tick(grain)
	s.due(ttl, "o")
}

func pruneAtEquality(s *stage, h ManualHarness) {
	s.complete(s.begun("o", asking()), effective("r"))
	h.Tick(time.Hour - grain)
	s.prune(time.Hour, 0, 0, operation.Pruned{})
	h.Tick(grain)
	s.prune(time.Hour, 0, 0, operation.Pruned{Bodies: 1})
	h.Tick(time.Hour)
	s.prune(0, 2*time.Hour+grain, 0, operation.Pruned{})
	s.prune(0, 2*time.Hour, 0, operation.Pruned{Records: 1})
	h.Tick(22*time.Hour - grain)
	s.prune(0, 0, day, operation.Pruned{})
	h.Tick(grain)
	s.prune(0, 0, day, operation.Pruned{Forgotten: 1})
}

func durationsExact(s *stage, h ManualHarness) {
	req := request("o")
	req.RunIn = ttl
	sub := s.submitted(req)
	s.want(sub.StepIn == ttl && sub.Age == 0, "submitted: %+v", sub)
	h.Tick(ttl + 2*time.Second)
	j := s.begin("o", asking())
	s.want(j.Remaining == ttl && j.TimeLeft == long, "claimed: %v and %v", j.Remaining, j.TimeLeft)
	h.Tick(3 * time.Second)
	rec := s.get("o")
	s.want(s.failed() || rec.StepIn == ttl-3*time.Second && rec.Age == ttl+5*time.Second && rec.Attempts[0].Began == 3*time.Second && rec.Attempts[0].Ended == 0, "while it is attempted: %+v", rec)
	s.completeIn(j, noAnswer(), 4*time.Second)
	h.Tick(time.Second)
	rec = s.get("o")
	s.want(s.failed() || rec.StepIn == 3*time.Second && rec.Attempts[0].Began == 4*time.Second && rec.Attempts[0].Ended == time.Second, "while it is unknown: %+v", rec)
	s.found("o", operation.Closed, 0)
	h.Tick(time.Second)
	rec = s.get("o")
	s.want(s.failed() || rec.Decided == time.Second && rec.Age == ttl+7*time.Second && rec.Attempts[0].Ended == 2*time.Second, "when it is decided: %+v", rec)
	h.Tick(time.Hour)
	s.respond("o", j.Number, refused("no")) // an attempt ends once
	rec = s.get("o")
	s.want(s.failed() || rec.Attempts[0].Ended == time.Hour+2*time.Second && rec.Decided == time.Hour+time.Second, "after late evidence: %+v", rec)
}
