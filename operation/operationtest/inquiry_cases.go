package operationtest

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/operation"
)

func inquiryCases() []Case[Harness] {
	return []Case[Harness]{
		plain("what-an-inquiry-finds-decides-and-not-observed-does-not", findings),
		plain("that-the-instant-has-passed-is-refused-before-it-has", instantNotPassed),
		plain("that-the-instant-has-passed-is-refused-where-none-was-carried", instantNotCarried),
		plain("a-closing-says-nothing-of-an-attempt-that-has-begun-since", closingAsOf),
		plain("what-is-due-is-put-off-by-the-hold", dueHeld),
		plain("O45-inquiries-are-paced-by-who-asks", askIn),
		plain("due-keeps-its-kinds-and-its-limit", dueLimits),
		plain("a-finding-against-a-decision-is-a-conflict", findingConflicts),
		plain("a-finding-decides-also-while-an-attempt-is-at-work", findingWhileAttempting),
		plain("resolving-needs-an-uncertain-operation-and-a-reason", resolving),
	}
}

func findings(s *stage) {
	for f, state := range map[operation.Finding]operation.State{operation.Found: operation.Succeeded, operation.Closed: operation.Failed, operation.NotObserved: operation.Uncertain} {
		for name, k := range map[string]operation.KindClaim{"asks": asking(), "idle": mute(), "repeats": repeating()} {
			id := fmt.Sprint(name, f)
			s.complete(s.begun(id, k), noAnswer())
			before := s.get(id)
			for range 2 {
				rec := s.found(id, f, 0)
				step := before.Step
				if state.Decided() {
					step = operation.Idle
				}
				s.standing(rec, state, step, operation.NoAnswer)
				s.want(state != operation.Succeeded || string(rec.Result) == "as found", "%s: its result is %q", id, rec.Result)
				s.want(state != operation.Failed || rec.Reason == "asked", "%s: it failed because of %q", id, rec.Reason)
			}
			if !state.Decided() {
				s.respond(id, 0, effective("r"))
			}
		}
	}
}

func closingAsOf(s *stage) {
	k := repeating()
	k.NotAfter = time.Minute
	first := s.begun("o", k)
	s.complete(first, noAnswer())
	second := s.begin("o", k)
	s.advance(2 * time.Minute)
	for _, f := range []operation.Finding{operation.Closed, operation.PastInstant} {
		if s.failed() {
			return
		}
		rec, err := s.store.Inquired(s.ctx, operation.Inquiry{ID: "o", Finding: f, AsOf: first.Number})
		s.want(err == nil && !rec.State.Decided(), "as of attempt %d, finding %d: %v, %v; attempt %d has begun since", first.Number, f, rec.State, err, second.Number)
	}
	if !s.failed() {
		rec, err := s.store.Inquired(s.ctx, operation.Inquiry{ID: "o", Finding: operation.Closed, AsOf: second.Number})
		s.want(err == nil && rec.State == operation.Failed, "as of the current attempt: %v, %v", rec.State, err)
	}
}

func instant(after time.Duration) operation.KindClaim {
	k := asking()
	k.NotAfter = after
	return k
}

func instantNotPassed(s *stage) {
	j := s.begun("o", instant(10*time.Minute))
	s.complete(j, noAnswer())
	for range 3 {
		_, err := s.finding("o", operation.PastInstant, 0)
		s.kind(err, operation.ErrInvalid, "that the instant has passed, before it has")
		s.at("o", operation.Uncertain, operation.Ask, operation.NoAnswer)
		s.advance(3 * time.Minute)
	}
	s.advance(2 * time.Minute)
	rec := s.found("o", operation.PastInstant, 0)
	s.standing(rec, operation.Failed, operation.Idle, operation.NoAnswer)
	s.conflict("o", j.Number, effective("after all"), 1)
}

func instantNotCarried(s *stage) {
	s.complete(s.begun("o", asking()), noAnswer())
	k := repeating()
	s.complete(s.begun("later", k), noAnswer())
	k.NotAfter = time.Minute
	s.complete(s.begin("later", k), noAnswer()) // the first attempt carried none
	s.advance(long)
	for _, id := range []string{"o", "later"} {
		_, err := s.finding(id, operation.PastInstant, 0)
		s.kind(err, operation.ErrInvalid, "that the instant has passed, where an attempt of %q carried none", id)
		rec := s.get(id)
		s.want(rec.State == operation.Uncertain && rec.NotAfter.IsZero(), "after it: %+v", rec)
	}
}

func dueHeld(s *stage) {
	s.submit("a", "b")
	for _, j := range s.claims(claiming(asking()), "a", "b") {
		s.complete(j, noAnswer())
	}
	recs := s.due(ttl, "a", "b")
	for i, rec := range recs {
		s.want(rec.Step == operation.Ask && near(rec.StepIn, ttl) && rec.Inquiries == 1 && len(rec.Request) > 0, "due and held for %v, %d: %+v", ttl, i, rec)
	}
	s.due(ttl)
	s.advance(within)
	s.due(ttl)
	s.advance(past - within)
	recs = s.due(ttl, "a", "b") // whoever took them is gone
	s.want(s.failed() || recs[0].Inquiries == 2, "handed out twice, it counts %d inquiries", s.get("a").Inquiries)
}

func askIn(s *stage) {
	s.complete(s.begun("o", asking()), noAnswer())
	for i := range 4 {
		s.due(time.Second*5, "o")
		wait := ttl << i
		rec := s.found("o", operation.NotObserved, wait)
		s.standing(rec, operation.Uncertain, operation.Ask, operation.NoAnswer)
		s.want(near(rec.StepIn, wait) && rec.Inquiries == i+1, "to be asked again in %v: in %v, after %d inquiries", wait, rec.StepIn, rec.Inquiries)
		s.advance(wait - 3*time.Second)
		s.due(ttl)
		s.advance(6 * time.Second)
	}
	s.completeIn(s.begun("p", asking()), noAnswer(), ttl)
	s.due(long, "o")
	s.advance(past)
	s.due(long, "p")
}

func dueLimits(s *stage) {
	k := of(other, asking())
	for i := range 3 {
		s.complete(s.begun(fmt.Sprint("c", i), asking()), noAnswer())
		s.complete(s.begun(fmt.Sprint("r", i), k), noAnswer())
	}
	req := operation.DueRequest{Kinds: []string{kind}, Limit: 2, Hold: long}
	s.dueOf(req, "c0", "c1")
	req.Kinds = []string{other, kind}
	s.dueOf(req, "r0", "r1")
	s.dueOf(req, "c2", "r2")
	s.dueOf(req)
}

func findingConflicts(s *stage) {
	s.complete(s.begun("ok", asking()), effective("r"))
	s.complete(s.begun("no", asking()), final("no funds"))
	for range 2 {
		for id, f := range map[string]operation.Finding{"ok": operation.Closed, "no": operation.Found} {
			before := s.get(id)
			rec, err := s.finding(id, f, 0)
			s.kind(err, operation.ErrDecided, "a finding against the decision of %q", id)
			s.want(rec.ID == id && rec.State == before.State && string(rec.Result) == string(before.Result) && rec.ConflictCount == 1 && len(rec.Conflicts) == 1 && rec.Conflicts[0].Attempt == 0, "a finding against a decision: %+v", rec)
			s.found(id, operation.NotObserved, 0)
		}
	}
	rec, err := s.finding("ok", operation.Found, 0) // with another result
	s.kind(err, operation.ErrDecided, "another result found")
	s.want(rec.ConflictCount == 2 && string(rec.Result) == "r", "another result found: %+v", rec)
}

func findingWhileAttempting(s *stage) {
	for f, state := range map[operation.Finding]operation.State{operation.Found: operation.Succeeded, operation.Closed: operation.Failed} {
		id := state.String()
		j := s.begun(id, asking())
		rec := s.found(id, operation.NotObserved, time.Minute)
		s.standing(rec, operation.Attempting, operation.Watch, operation.Open)
		s.want(near(rec.StepIn, ttl), "its claim ends in %v; want %v, whatever an inquiry says", rec.StepIn, ttl)
		rec = s.found(id, f, 0)
		s.standing(rec, state, operation.Idle)
		s.renew([]operation.Ref{j.Ref}, j.Ref)
		s.stale(j, effective("r"), j.Number)
		s.advance(past)
		s.expire(0)
	}
}

func resolving(s *stage) {
	states := s.states()
	for _, state := range states {
		id := state.String()
		rec, err := s.store.Resolve(s.ctx, operation.Verdict{ID: id, State: operation.Failed, Reason: "seen"})
		switch {
		case state == operation.Uncertain:
			s.want(err == nil, "resolving what is uncertain: %v", err)
			s.standing(rec, operation.Failed, operation.Idle, operation.NoAnswer)
			s.want(rec.Reason == "seen", "it failed because of %q", rec.Reason)
		case state.Decided():
			s.kind(err, operation.ErrDecided, "resolving what is %v", state)
		default:
			s.kind(err, operation.ErrUndecided, "resolving what is %v", state)
		}
		s.want(state == operation.Uncertain || s.get(id).State == state, "a refused verdict moved what was %v", state)
	}
	s.cancel(operation.Pending.String())
	j := s.begun("o", mute())
	s.complete(j, noAnswer())
	for _, v := range []operation.Verdict{{State: operation.Succeeded}, {State: operation.Succeeded, Reason: " \n"}, {State: operation.Cancelled, Reason: "x"}, {State: operation.Uncertain, Reason: "x"}, {Reason: "x"}} {
		v.ID = "o"
		_, err := s.store.Resolve(s.ctx, v)
		s.kind(err, operation.ErrInvalid, "the verdict %+v", v)
	}
	rec := s.resolve("o", operation.Succeeded)
	s.standing(rec, operation.Succeeded, operation.Idle, operation.NoAnswer)
	s.want(string(rec.Result) == "as resolved" && rec.Reason != "", "resolved: %+v", rec)
	s.conflict("o", j.Number, effective("the provider's"), 1)
}
