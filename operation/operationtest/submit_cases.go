package operationtest

import (
	"bytes"
	"time"

	"github.com/tenure-go/tenure/operation"
)

func submitCases() []Case[Harness] {
	return []Case[Harness]{
		plain("a-submission-is-recorded-as-it-is", submissionRecorded),
		plain("the-same-submission-again-is-the-operation-as-it-stands", submittedAgain),
		plain("O53-another-request-is-a-mismatch-in-every-state", otherRequest),
		plain("O54-another-kind-is-a-mismatch-in-every-state", otherKind),
		plain("one-to-run-later-is-not-begun-before", runLater),
		plain("the-more-urgent-go-first", urgentFirst),
		plain("of-one-priority-the-longest-due-goes-first", longestDueFirst),
		plain("an-unknown-id-is-not-found", unknownID),
		plain("replies-and-requests-own-their-slices", ownSlices),
	}
}

func submissionRecorded(s *stage) {
	req := request("o")
	req.Priority, req.Order = 2, "account 7"
	sub := s.submitted(req)
	rec := s.get("o")
	for _, r := range []operation.Record{sub.Record, rec} {
		s.want(r.Kind == kind && r.Fingerprint == req.Fingerprint && bytes.Equal(r.Request, req.Request) && r.Priority == 2 && r.Order == "account 7" && r.Kept == operation.Whole, "submitted %+v; told %+v", req, r)
		s.want(len(r.Attempts) == 0 && r.StepIn == 0 && !r.CancelWished && r.Compensates == "" && r.NotAfter.IsZero() && r.Inquiries == 0 && !r.Blocked, "a new operation: %+v", r)
	}
	s.advance(long)
	rec = s.get("o")
	s.want(rec.Age >= long && rec.Age < long+time.Minute, "after an hour its age is %v", rec.Age)
}

func submittedAgain(s *stage) {
	for _, state := range s.states() {
		req := request(state.String())
		s.again(req, state)
		req.Priority, req.RunIn = 3, long // how it is to be done was settled by the first
		s.again(req, state)
		rec := s.get(state.String())
		s.want(rec.Priority == 0 && (rec.State.Decided() || rec.State == operation.Attempting || rec.StepIn == 0), "a submission that came again changed %+v", rec)
	}
}

func otherRequest(s *stage) {
	for _, state := range s.states() {
		req := request(state.String())
		req.Request = []byte("another one")
		req.Fingerprint = operation.FingerprintOf(kind, req.Request)
		s.mismatch(req, "request", state)
		rec := s.get(state.String())
		s.want(rec.State == state && bytes.Equal(rec.Request, request(state.String()).Request), "after a mismatch: %+v", rec)
		req.Request = request(state.String()).Request // redacted to the same, but the fingerprint says what it was
		s.mismatch(req, "request", state)
		s.again(request(state.String()), state)
	}
}

func otherKind(s *stage) {
	for _, state := range s.states() {
		req := requestOf(other, state.String())
		s.mismatch(req, "kind", state)
		req.Fingerprint = request(state.String()).Fingerprint
		s.mismatch(req, "kind", state)
		s.again(request(state.String()), state)
	}
	s.nothing(of(other, asking()))
}

func runLater(s *stage) {
	req := request("later")
	req.RunIn = ttl
	sub := s.submitted(req)
	s.want(near(sub.StepIn, ttl), "submitted to run in %v: its step is in %v", ttl, sub.StepIn)
	s.submit("now")
	s.begin("now", asking())
	s.nothing(asking())
	s.advance(within)
	s.nothing(asking())
	s.want(near(s.get("later").StepIn, ttl-within), "%v later its step is in %v", within, s.get("later").StepIn)
	s.advance(past - within)
	s.begin("later", asking())
}

func urgentFirst(s *stage) {
	for i, p := range []int{1, 3, 0, 2, 3} {
		req := request(string(rune('a' + i)))
		req.Priority = p
		s.submitted(req)
		s.advance(time.Second)
	}
	req := claiming(asking())
	req.Limit = 2
	s.claims(req, "b", "e")
	jobs := s.claims(claiming(asking()), "d", "a", "c")
	s.want(jobs[0].Priority == 2 && jobs[2].Priority == 0, "the jobs tell priorities %d and %d", jobs[0].Priority, jobs[2].Priority)
}

// longestDueFirst counts from when each was due, not from when it was submitted.
func longestDueFirst(s *stage) {
	for i, in := range []time.Duration{3 * time.Minute, time.Minute, 0, 2 * time.Minute} {
		req := requestOf([]string{kind, other}[i%2], string(rune('a'+i)))
		req.RunIn = in
		s.submitted(req)
	}
	s.advance(10 * time.Minute)
	both := claiming(of(other, asking()), asking())
	both.Limit = 1
	s.claims(both, "c")
	both.Limit = 3
	s.claims(both, "b", "d", "a")
}

func unknownID(s *stage) {
	if s.failed() {
		return
	}
	s.submit("o")
	_, err := s.store.Get(s.ctx, "none")
	s.kind(err, operation.ErrNotFound, "getting what was never submitted")
	_, err = s.store.Get(s.ctx, "O") // ids are compared byte by byte
	s.kind(err, operation.ErrNotFound, "getting an id in other letters")
	_, err = s.store.Cancel(s.ctx, "none", "x")
	s.kind(err, operation.ErrNotFound, "cancelling what was never submitted")
	_, err = s.responding("none", 1, effective("r"))
	s.kind(err, operation.ErrNotFound, "responding of what was never submitted")
	_, err = s.finding("none", operation.Found, 0)
	s.kind(err, operation.ErrNotFound, "finding what was never submitted")
	_, err = s.store.Resolve(s.ctx, operation.Verdict{ID: "none", State: operation.Failed, Reason: "x"})
	s.kind(err, operation.ErrNotFound, "resolving what was never submitted")
	_, err = s.store.Undone(s.ctx, "none", "o")
	s.kind(err, operation.ErrNotFound, "undoing what was never submitted")
	s.kind(s.completing(operation.Ref{ID: "none", Number: 1}, effective("r"), 0), operation.ErrNotFound, "completing what was never submitted")
}

func ownSlices(s *stage) {
	req := request("o")
	req.Request = bytes.Clone(req.Request)
	want := string(req.Request)
	scribble := func(bodies ...[]byte) {
		for _, b := range bodies {
			for i := range b {
				b[i] = '!'
			}
		}
	}
	sub := s.submitted(req)
	scribble(req.Request, sub.Request)
	j := s.begin("o", asking())
	s.want(string(j.Request) == want, "the job's request is %q; want %q", j.Request, want)
	scribble(j.Request)
	answer := effective("result")
	s.complete(j, answer)
	scribble(answer.Result)
	evidence := effective("another")
	s.conflict("o", j.Number, evidence, 1)
	scribble(evidence.Result)
	for range 2 {
		rec := s.get("o")
		if s.failed() {
			return
		}
		s.want(string(rec.Request) == want && string(rec.Result) == "result" && string(rec.Attempts[0].Result) == "result" && string(rec.Conflicts[0].Result) == "another", "it was changed from outside: %+v", rec)
		list, err := s.store.List(s.ctx, operation.ListRequest{Limit: 1, Bodies: true})
		s.want(err == nil && len(list) == 1, "listing: %+v, %v", list, err)
		if s.failed() {
			return
		}
		for _, r := range []operation.Record{rec, list[0]} {
			scribble(r.Request, r.Result, r.Attempts[0].Result, r.Conflicts[0].Result)
			r.Attempts[0].Known, r.Conflicts[0].Attempt = operation.NotSent, 77
		}
		s.store = newWatch(s.h) // what was scribbled on was the watch's too
	}
}
