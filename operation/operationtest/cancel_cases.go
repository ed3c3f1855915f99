package operationtest

import (
	"time"

	"github.com/tenure-go/tenure/operation"
)

func cancelCases() []Case[Harness] {
	return []Case[Harness]{
		plain("cancelling-succeeds-while-no-attempt-can-have-had-an-effect", cancelHarmless),
		plain("cancelling-while-an-attempt-may-have-an-effect-is-a-wish", cancelWish),
		plain("a-wish-is-granted-when-no-attempt-had-an-effect", wishGranted),
		plain("a-wish-for-what-happened-all-the-same-is-to-be-undone", wishUndone),
		plain("what-is-wished-away-is-asked-about-rather-than-attempted", wishAsks),
		plain("what-is-decided-is-not-cancelled", cancelDecided),
		plain("undone-is-noted-once-and-by-what-undoes-it", undoneNoted),
		plain("what-is-to-be-undone-is-held-as-an-inquiry-is", undoHeld),
		plain("a-compensation-of-what-is-undecided-is-refused-whatever-has-expired", compensateUndecided),
		plain("only-what-succeeded-is-compensated", compensateDecided),
	}
}

func cancelHarmless(s *stage) {
	s.submit("new")
	s.standing(s.cancel("new"), operation.Cancelled, operation.Idle)
	for _, a := range []operation.Answer{refused("not now"), notSent()} {
		id := a.Known.String()
		s.complete(s.begun(id, asking()), a)
		rec := s.cancel(id)
		s.standing(rec, operation.Cancelled, operation.Idle, a.Known)
		s.want(rec.Reason == "not wanted" && !rec.CancelWished, "cancelled: %+v", rec)
		rec = s.cancel(id) // again
		s.standing(rec, operation.Cancelled, operation.Idle, a.Known)
	}
	s.advance(long)
	s.nothing(asking())
}

func cancelWish(s *stage) {
	j := s.begun("at work", asking())
	for range 2 {
		rec := s.cancel("at work")
		s.standing(rec, operation.Attempting, operation.Watch, operation.Open)
		s.want(rec.CancelWished, "no wish is recorded: %+v", rec)
	}
	s.renew([]operation.Ref{j.Ref})
	s.complete(s.begun("unknown", asking()), noAnswer())
	rec := s.cancel("unknown")
	s.standing(rec, operation.Uncertain, operation.Ask, operation.NoAnswer)
	s.want(rec.CancelWished, "no wish is recorded: %+v", rec)
	s.found("unknown", operation.NotObserved, 0)
	s.at("unknown", operation.Uncertain, operation.Ask, operation.NoAnswer)
	s.found("unknown", operation.Closed, 0)
	s.at("unknown", operation.Failed, operation.Idle, operation.NoAnswer)
}

func wishGranted(s *stage) {
	for _, a := range []operation.Answer{refused("not now"), notSent()} {
		id := a.Known.String()
		j := s.begun(id, repeating())
		s.cancel(id)
		s.complete(j, a)
		s.at(id, operation.Cancelled, operation.Idle, a.Known)
		s.nothing(repeating())
	}
	j := s.begun("late", asking())
	s.cancel("late")
	s.advance(past)
	s.expire(1)
	s.at("late", operation.Uncertain, operation.Ask, operation.NoAnswer)
	s.standing(s.respond("late", j.Number, refused("no")), operation.Cancelled, operation.Idle, operation.Refused)
}

func wishUndone(s *stage) {
	j := s.begun("worker", asking())
	s.cancel("worker")
	s.completeIn(j, effective("r"), long) // what follows a decision does not wait
	s.complete(s.begun("found", asking()), noAnswer())
	s.cancel("found")
	s.due(long, "worker", "found")
	s.found("found", operation.Found, 0)
	j = s.begun("late", asking())
	s.cancel("late")
	s.complete(j, noAnswer())
	s.respond("late", j.Number, effective("r"))
	s.complete(s.begun("resolved", asking()), noAnswer())
	s.cancel("resolved")
	s.due(long, "found", "late", "resolved")
	s.resolve("resolved", operation.Succeeded)
	recs := s.due(long, "resolved")
	s.want(s.failed() || recs[0].Step == operation.Undo && recs[0].State == operation.Succeeded && recs[0].Inquiries == 1, "to be undone: %+v", recs)
	for _, id := range []string{"worker", "found", "late", "resolved"} {
		rec := s.at(id, operation.Succeeded, operation.Undo)
		s.want(rec.CancelWished, "the wish was forgotten: %+v", rec)
	}
	k := asking()
	k.Undoes = false
	j = s.begun("for ever", k)
	s.cancel("for ever")
	s.complete(j, effective("r"))
	s.at("for ever", operation.Succeeded, operation.Idle)
}

func wishAsks(s *stage) {
	s.complete(s.begun("asks", repeating()), noAnswer())
	s.at("asks", operation.Uncertain, operation.Work)
	s.standing(s.cancel("asks"), operation.Uncertain, operation.Ask, operation.NoAnswer)
	s.nothing(repeating())
	s.due(ttl, "asks")
	k := repeating()
	k.Asks = false
	s.complete(s.begun("mute", k), noAnswer())
	s.standing(s.cancel("mute"), operation.Uncertain, operation.Work, operation.NoAnswer) // only another attempt can tell
	s.complete(s.begin("mute", k), effective("r"))
	s.at("mute", operation.Succeeded, operation.Undo, operation.NoAnswer, operation.Effective)
}

func cancelDecided(s *stage) {
	for _, state := range s.states() {
		if state != operation.Succeeded && state != operation.Failed {
			continue
		}
		_, err := s.store.Cancel(s.ctx, state.String(), "x")
		s.kind(err, operation.ErrDecided, "cancelling what is %v", state)
		rec := s.get(state.String())
		s.want(rec.State == state && !rec.CancelWished && rec.Step == operation.Idle, "a refused cancel changed %+v", rec)
	}
}

// compensation is the submission of what undoes another.
func compensation(id, of string) operation.SubmitRequest {
	req := requestOf(other, id)
	req.Compensates = of
	return req
}

// toUndo is an operation that is to be undone.
func (s *stage) toUndo(id string) {
	j := s.begun(id, asking())
	s.cancel(id)
	s.complete(j, effective("r"))
	s.at(id, operation.Succeeded, operation.Undo, operation.Effective)
}

func undoneNoted(s *stage) {
	s.toUndo("o")
	s.toUndo("p")
	undone := func(id, by string) (operation.Record, error) { return s.store.Undone(s.ctx, id, by) }
	_, err := undone("o", "none")
	s.kind(err, operation.ErrNotFound, "undone by what was never submitted")
	s.submitted(requestOf(other, "stranger"))
	s.submitted(compensation("undoes p", "p"))
	for _, by := range []string{"stranger", "undoes p", "o"} {
		_, err = undone("o", by)
		s.kind(err, operation.ErrInvalid, "undone by %q, which undoes something else", by)
	}
	s.at("o", operation.Succeeded, operation.Undo)
	sub := s.submitted(compensation("undoes o", "o"))
	s.want(sub.Compensates == "o", "it compensates %q", sub.Compensates)
	s.submitted(compensation("undoes o too", "o"))
	for range 2 {
		rec, err := undone("o", "undoes o")
		s.want(err == nil && rec.UndoneBy == "undoes o", "undone: %+v, %v", rec, err)
		s.standing(rec, operation.Succeeded, operation.Idle)
	}
	_, err = undone("o", "undoes o too")
	s.kind(err, operation.ErrMismatch, "undone by another")
	s.want(s.get("o").UndoneBy == "undoes o", "it is undone by %q", s.get("o").UndoneBy)
	s.due(ttl, "p")
}

func undoHeld(s *stage) {
	s.toUndo("o")
	recs := s.due(ttl, "o")
	s.want(s.failed() || recs[0].Inquiries == 0 && near(recs[0].StepIn, ttl), "held: %+v", recs)
	s.due(ttl)
	s.advance(within)
	s.due(ttl)
	s.advance(past - within)
	s.due(ttl, "o")
}

func compensateUndecided(s *stage) {
	refuse := func(id, when string) {
		_, err := s.store.Submit(s.ctx, compensation("undoes "+id, id))
		s.kind(err, operation.ErrUndecided, "compensating what is undecided, %s", when)
		_, err = s.store.Get(s.ctx, "undoes "+id)
		s.kind(err, operation.ErrNotFound, "getting a compensation that was refused, %s", when)
	}
	s.submit("o")
	refuse("o", "before its attempt")
	k := asking()
	k.Timeout, k.NotAfter = 2*ttl, time.Minute
	j := s.begin("o", k)
	refuse("o", "while it is attempted")
	s.advance(past)
	refuse("o", "after its claim")
	s.cancel("o")
	refuse("o", "when its cancelling is wished for")
	s.advance(long)
	refuse("o", "after its timeout and its instant")
	s.expire(1)
	refuse("o", "while it is uncertain")
	s.due(time.Second, "o")
	s.found("o", operation.NotObserved, 0)
	s.advance(operation.MaxDelay)
	refuse("o", "after a year")
	s.respond("o", j.Number, effective("late"))
	sub := s.submitted(compensation("undoes o", "o"))
	s.want(sub.Compensates == "o", "it compensates %q", sub.Compensates)
	s.again(compensation("undoes o", "o"), operation.Pending)
}

func compensateDecided(s *stage) {
	s.states()
	for id, want := range map[string]error{"failed": operation.ErrDecided, "cancelled": operation.ErrDecided, "none": operation.ErrNotFound} {
		_, err := s.store.Submit(s.ctx, compensation("undoes "+id, id))
		s.kind(err, want, "compensating what is %s", id)
		_, err = s.store.Get(s.ctx, "undoes "+id)
		s.kind(err, operation.ErrNotFound, "getting a compensation that was refused")
	}
	s.submitted(compensation("undoes it", "succeeded"))
	s.complete(s.begin("undoes it", of(other, asking())), effective("r"))
	rec := s.at("undoes it", operation.Succeeded, operation.Idle)
	s.want(rec.Compensates == "succeeded", "it compensates %q", rec.Compensates)
	s.mismatch(requestOf(kind, "undoes it"), "kind", operation.Succeeded) // the id was compared before anything else
	unknown := compensation("undoes it", "none")
	s.again(unknown, operation.Succeeded)
}
