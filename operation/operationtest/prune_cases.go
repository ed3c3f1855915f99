package operationtest

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/operation"
)

const day = 24 * time.Hour

func pruneCases() []Case[Harness] {
	return []Case[Harness]{
		plain("bodies-are-forgotten-before-records-and-records-before-the-operation", pruneStages),
		plain("what-is-undecided-is-never-forgotten", pruneUndecided),
		plain("what-is-to-be-undone-is-not-forgotten", pruneUndo),
		plain("what-undoes-is-not-forgotten-before-that-is-noted", pruneUndoing),
		plain("what-is-forgotten-but-for-its-verdict-is-still-compared", prunedCompared),
		plain("an-id-that-was-forgotten-is-a-new-operation", forgottenIsNew),
		plain("the-age-counts-from-the-decision", pruneFromDecision),
		plain("evidence-against-what-was-forgotten-is-still-a-conflict", prunedConflict),
		plain("prune-keeps-its-limit", pruneLimit),
		plain("what-was-forgotten-is-still-compensated", prunedCompensated),
	}
}

func (s *stage) prune(bodies, records, forget time.Duration, want operation.Pruned) {
	if s.failed() {
		return
	}
	got, err := s.store.Prune(s.ctx, operation.PruneRequest{Bodies: bodies, Records: records, Forget: forget, Limit: operation.MaxPrune})
	if err != nil {
		s.fail("pruning: %w", err)
	}
	s.want(got == want, "pruning bodies of %v, records of %v, all of %v: %+v; want %+v", bodies, records, forget, got, want)
}

func pruneStages(s *stage) {
	req := request("o")
	req.Priority, req.Order = 2, "k"
	s.submitted(req)
	j := s.begin("o", asking())
	s.complete(j, effective("r"))
	s.conflict("o", j.Number, effective("another"), 1)
	s.prune(time.Hour, day, 2*day, operation.Pruned{})
	s.advance(2 * time.Hour)
	s.prune(0, day, 0, operation.Pruned{})
	s.prune(time.Hour, day, 2*day, operation.Pruned{Bodies: 1})
	s.prune(time.Hour, day, 2*day, operation.Pruned{})
	rec := s.at("o", operation.Succeeded, operation.Idle, operation.Effective)
	s.want(rec.Kept == operation.WithoutBodies && !holdsBodies(rec), "without bodies: %+v", rec)
	s.want(s.failed() || rec.Attempts[0].Number == j.Number && len(rec.Conflicts) == 1 && rec.Priority == 2 && rec.Order == "k", "without bodies, the rest is gone too: %+v", rec)
	s.advance(day)
	s.prune(time.Hour, day, 2*day, operation.Pruned{Records: 1})
	s.prune(time.Hour, day, 2*day, operation.Pruned{})
	rec = s.at("o", operation.Succeeded, operation.Idle)
	s.want(rec.Kept == operation.VerdictOnly && rec.Kind == kind && rec.Fingerprint == req.Fingerprint, "the verdict: %+v", rec)
	s.want(len(rec.Attempts) == 0 && len(rec.Conflicts) == 0 && rec.Order == "" && !holdsBodies(rec) && rec.Reason == "", "only the verdict should be left: %+v", rec)
	s.advance(day)
	s.prune(time.Hour, day, 2*day, operation.Pruned{Forgotten: 1})
	_, err := s.store.Get(s.ctx, "o")
	s.kind(err, operation.ErrNotFound, "getting what was forgotten")
	s.complete(s.begun("all at once", asking()), final("no funds"))
	s.advance(day + time.Hour)
	s.prune(time.Hour, day, 0, operation.Pruned{Records: 1})
	s.at("all at once", operation.Failed, operation.Idle)
}

func pruneUndecided(s *stage) {
	s.states()
	s.complete(s.claims(claiming(mute()), "pending")[0], noAnswer())
	s.submit("new")
	s.advance(5 * day)
	s.prune(time.Hour, time.Hour, day, operation.Pruned{Forgotten: 3})
	s.list(operation.ListRequest{}, "attempting", "new", "pending", "uncertain")
	for _, rec := range s.list(operation.ListRequest{Bodies: true}, "attempting", "new", "pending", "uncertain") {
		s.want(!rec.State.Decided() && rec.Kept == operation.Whole && len(rec.Request) > 0, "undecided, and forgotten in part: %+v", rec)
	}
}

func pruneUndo(s *stage) {
	s.toUndo("o")
	s.advance(5 * day)
	s.prune(time.Hour, time.Hour, day, operation.Pruned{})
	rec := s.due(ttl, "o")
	s.want(s.failed() || rec[0].Kept == operation.Whole && len(rec[0].Request) > 0, "to be undone: %+v", rec)
	s.submitted(compensation("undo", "o"))
	_, err := s.store.Undone(s.ctx, "o", "undo")
	s.want(err == nil, "undone: %v", err)
	s.prune(time.Hour, 0, 0, operation.Pruned{Bodies: 1})
}

// pruneUndoing: whoever compensates is stopped between the submission and its note. Who goes on a week later finds the same compensation, and makes no second one.
func pruneUndoing(s *stage) {
	s.toUndo("o")
	s.submitted(compensation("undo", "o"))
	s.complete(s.begin("undo", of(other, asking())), effective("refunded"))
	s.advance(7 * day)
	s.prune(time.Hour, time.Hour, day, operation.Pruned{})
	s.again(compensation("undo", "o"), operation.Succeeded)
	_, err := s.store.Undone(s.ctx, "o", "undo")
	s.want(err == nil, "noted a week later: %v", err)
	s.prune(time.Hour, time.Hour, day, operation.Pruned{Forgotten: 2})
}

func prunedCompared(s *stage) {
	s.complete(s.begun("o", asking()), effective("r"))
	s.advance(day)
	otherRequest := request("o")
	otherRequest.Request = []byte("another")
	otherRequest.Fingerprint = operation.FingerprintOf(kind, otherRequest.Request)
	for _, forget := range []func(){
		func() { s.prune(time.Hour, 0, 0, operation.Pruned{Bodies: 1}) }, func() { s.prune(0, time.Hour, 0, operation.Pruned{Records: 1}) },
	} {
		forget()
		s.mismatch(otherRequest, "request", operation.Succeeded)
		s.mismatch(requestOf(other, "o"), "kind", operation.Succeeded)
		s.again(request("o"), operation.Succeeded)
		s.nothing(asking())
	}
}

func forgottenIsNew(s *stage) {
	s.complete(s.begun("o", asking()), effective("r"))
	s.advance(day - time.Hour)
	s.prune(time.Hour, time.Hour, day, operation.Pruned{Records: 1})
	s.again(request("o"), operation.Succeeded)
	s.advance(2 * time.Hour)
	s.again(request("o"), operation.Succeeded)
	s.prune(time.Hour, time.Hour, day, operation.Pruned{Forgotten: 1})
	req := requestOf(other, "o")
	s.submitted(req)
	j := s.begin("o", of(other, asking()))
	s.want(j.Ordinal == 1 && !j.Unsure, "an attempt of a new operation: %+v", j)
	s.complete(j, final("no"))
	s.at("o", operation.Failed, operation.Idle, operation.Refused)
}

func pruneFromDecision(s *stage) {
	s.submit("o")
	s.advance(5 * day)
	s.complete(s.begin("o", asking()), noAnswer())
	s.advance(5 * day)
	s.found("o", operation.Found, 0)
	s.advance(time.Hour)
	s.prune(2*time.Hour, 3*time.Hour, day, operation.Pruned{})
	s.advance(time.Hour + time.Minute)
	s.prune(2*time.Hour, 3*time.Hour, day, operation.Pruned{Bodies: 1})
	s.advance(time.Hour)
	s.prune(2*time.Hour, 3*time.Hour, day, operation.Pruned{Records: 1})
}

func prunedConflict(s *stage) {
	no := s.begun("no", asking())
	s.complete(no, final("no funds"))
	yes := s.begun("yes", asking())
	s.complete(yes, effective("r"))
	s.advance(day)
	s.prune(time.Hour, time.Hour, 0, operation.Pruned{Records: 2})
	s.respond("no", no.Number, refused("no funds")) // what contradicts nothing
	s.respond("no", no.Number, noAnswer())
	s.respond("yes", yes.Number, effective("r"))
	s.respond("yes", 0, effective("r"))
	rec := s.conflict("no", no.Number, effective("after all"), 1)
	s.want(rec.State == operation.Failed && rec.Kept == operation.VerdictOnly, "against what was forgotten: %+v", rec)
	s.list(operation.ListRequest{Conflicts: true}, "no")
	s.conflict("no", no.Number, effective("after all"), 1)
	s.at("no", operation.Failed, operation.Idle)
	s.kind(s.completing(no.Ref, effective("late"), 0), operation.ErrInvalid, "completing an attempt that was forgotten")
	_, err := s.store.Cancel(s.ctx, "yes", "x")
	s.kind(err, operation.ErrDecided, "cancelling what was forgotten")
}

func pruneLimit(s *stage) {
	for i := range 7 {
		id := fmt.Sprint("o", i)
		s.complete(s.begun(id, asking()), effective("r"))
	}
	s.advance(day)
	got := operation.Pruned{}
	for _, want := range []int{3, 3, 1, 0} {
		if s.failed() {
			return
		}
		p, err := s.store.Prune(s.ctx, operation.PruneRequest{Records: time.Hour, Limit: 3})
		s.want(err == nil && p == operation.Pruned{Records: want}, "pruning at most 3: %+v, %v; want %d", p, err, want)
		got.Records += p.Records
	}
	s.want(got.Records == 7, "%d were pruned; want 7", got.Records)
}

func prunedCompensated(s *stage) {
	s.complete(s.begun("yes", asking()), effective("r"))
	s.complete(s.begun("no", asking()), final("no funds"))
	s.advance(day)
	s.prune(time.Hour, time.Hour, 0, operation.Pruned{Records: 2})
	s.submitted(compensation("undoes yes", "yes"))
	_, err := s.store.Submit(s.ctx, compensation("undoes no", "no"))
	s.kind(err, operation.ErrDecided, "compensating what has failed")
}
