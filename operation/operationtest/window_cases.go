package operationtest

import (
	"time"

	"github.com/tenure-go/tenure/operation"
)

func windowCases() []Case[Harness] {
	return []Case[Harness]{
		plain("without-a-window-an-unknown-outcome-is-asked-about", noWindow),
		plain("what-can-neither-be-attempted-nor-asked-about-is-idle", neither),
		plain("within-its-window-an-unknown-outcome-is-attempted-again", withinWindow),
		plain("beyond-its-window-no-attempt-follows", beyondWindow),
		plain("an-attempt-that-would-end-beyond-the-window-is-not-begun", attemptFitsWindow),
		plain("the-window-counts-from-the-first-attempt", windowFromFirst),
		plain("a-retry-put-off-beyond-the-window-is-an-inquiry", putOffBeyondWindow),
		plain("a-worker-with-a-narrower-window-turns-to-asking", narrowerWindow),
		plain("attempts-after-an-unknown-outcome-are-bounded", unknownBounded),
		plain("a-window-without-end-has-none", endlessWindow),
		plain("no-attempt-follows-after-the-instant-that-was-carried", instantEndsWindow),
	}
}

func window(d, timeout time.Duration) operation.KindClaim {
	k := asking()
	k.Window, k.Timeout = d, timeout
	return k
}

func noWindow(s *stage) {
	s.complete(s.begun("o", asking()), noAnswer())
	s.at("o", operation.Uncertain, operation.Ask, operation.NoAnswer)
	s.nothing(asking())
	s.nothing(repeating()) // what the attempt was recorded with counts
	s.due(ttl, "o")
}

func neither(s *stage) {
	s.complete(s.begun("o", mute()), noAnswer())
	s.at("o", operation.Uncertain, operation.Idle, operation.NoAnswer)
	s.advance(long)
	s.nothing(mute(), of(other, repeating()))
	s.nothing(repeating())
	s.due(ttl)
	s.expire(0)
	s.at("o", operation.Uncertain, operation.Idle, operation.NoAnswer)
}

func withinWindow(s *stage) {
	k := window(long, time.Minute)
	s.complete(s.begun("o", k), noAnswer())
	s.at("o", operation.Uncertain, operation.Work, operation.NoAnswer)
	s.due(ttl)
	s.advance(30 * time.Minute)
	j := s.begin("o", k)
	s.want(j.Unsure && j.Ordinal == 2, "the second attempt after an unknown one: %+v", j)
	s.at("o", operation.Attempting, operation.Watch, operation.NoAnswer, operation.Open)
	s.complete(j, effective("r"))
	s.at("o", operation.Succeeded, operation.Idle, operation.NoAnswer, operation.Effective)
}

func beyondWindow(s *stage) {
	k := window(10*time.Minute, time.Minute)
	s.submit("early", "late")
	jobs := s.claims(claiming(k), "early", "late")
	s.complete(jobs[0], noAnswer())
	s.advance(20 * time.Minute)
	s.expire(1) // the other one
	s.at("late", operation.Uncertain, operation.Ask, operation.NoAnswer)
	s.nothing(k) // it was due for another attempt, and now for an inquiry
	s.at("early", operation.Uncertain, operation.Ask, operation.NoAnswer)
	s.nothing(k)
	s.due(ttl, "early", "late")
	k.Asks = false
	s.complete(s.begun("mute", k), noAnswer())
	s.advance(20 * time.Minute)
	s.nothing(k)
	s.at("mute", operation.Uncertain, operation.Idle, operation.NoAnswer)
}

func attemptFitsWindow(s *stage) {
	k := window(10*time.Minute, 8*time.Minute)
	s.complete(s.begun("o", k), noAnswer())
	s.advance(time.Minute)
	s.complete(s.begin("o", k), noAnswer())
	s.at("o", operation.Uncertain, operation.Work, operation.NoAnswer, operation.NoAnswer)
	s.advance(2 * time.Minute) // an attempt now could last beyond the window
	s.nothing(k)
	s.at("o", operation.Uncertain, operation.Ask, operation.NoAnswer, operation.NoAnswer)
	s.complete(s.begun("never", window(time.Minute, 2*time.Minute)), noAnswer())
	s.at("never", operation.Uncertain, operation.Ask, operation.NoAnswer)
}

func windowFromFirst(s *stage) {
	k := window(10*time.Minute, time.Minute)
	s.complete(s.begun("o", k), notSent()) // recorded, it is the first all the same
	for range 3 {
		s.advance(2 * time.Minute)
		s.complete(s.begin("o", k), noAnswer())
		s.at("o", operation.Uncertain, operation.Work)
	}
	s.advance(4 * time.Minute)
	s.nothing(k)
	s.at("o", operation.Uncertain, operation.Ask)
}

func putOffBeyondWindow(s *stage) {
	k := window(10*time.Minute, time.Minute)
	s.completeIn(s.begun("o", k), noAnswer(), long)
	s.at("o", operation.Uncertain, operation.Ask, operation.NoAnswer)
	s.nothing(k)
	s.due(ttl)
	s.advance(long + time.Minute)
	s.nothing(k)
	s.due(ttl, "o")
}

func narrowerWindow(s *stage) {
	s.submit("asks", "idle", "attempts")
	for _, j := range s.claims(claiming(repeating()), "asks", "idle", "attempts") {
		s.complete(j, noAnswer())
	}
	take := func(id string, k operation.KindClaim, ids ...string) {
		req := claiming(k)
		req.Limit = 1
		s.claims(req, ids...)
		_ = id
	}
	take("asks", asking())
	s.at("asks", operation.Uncertain, operation.Ask)
	take("idle", mute())
	s.at("idle", operation.Uncertain, operation.Idle)
	take("attempts", repeating(), "attempts")
	s.nothing(repeating())
	s.due(ttl, "asks")
}

func unknownBounded(s *stage) {
	k := repeating()
	k.MaxAttempts = 3
	s.submit("o")
	for i := range 3 {
		s.complete(s.begin("o", k), noAnswer())
		step := operation.Work
		if i == 2 {
			step = operation.Ask
		}
		s.at("o", operation.Uncertain, step)
	}
	s.nothing(k)
	more := repeating()
	s.nothing(more)
	s.complete(s.begun("p", more), noAnswer())
	k.MaxAttempts = 1
	s.nothing(k) // this worker would not begin a second
	s.at("p", operation.Uncertain, operation.Ask, operation.NoAnswer)
}

func endlessWindow(s *stage) {
	s.complete(s.begun("o", repeating()), noAnswer())
	for range 3 {
		s.advance(operation.MaxDelay)
		j := s.begin("o", repeating())
		s.want(j.Unsure, "an attempt after an unknown one is told as sure")
		s.complete(j, noAnswer())
		s.at("o", operation.Uncertain, operation.Work)
	}
}

func instantEndsWindow(s *stage) {
	k := repeating()
	k.NotAfter = 10 * time.Minute
	s.complete(s.begun("o", k), noAnswer())
	s.complete(s.begin("o", k), noAnswer())
	s.advance(11 * time.Minute)
	s.nothing(k)
	s.at("o", operation.Uncertain, operation.Ask, operation.NoAnswer, operation.NoAnswer)
	s.due(ttl, "o")
	s.found("o", operation.PastInstant, 0)
	s.at("o", operation.Failed, operation.Idle, operation.NoAnswer, operation.NoAnswer)
}
