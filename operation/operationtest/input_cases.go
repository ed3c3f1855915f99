package operationtest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tenure-go/tenure/operation"
)

func inputCases() []Case[Harness] {
	return []Case[Harness]{
		plain("a-submission-that-makes-no-sense-is-refused", submitInput),
		plain("a-claim-that-makes-no-sense-is-refused", claimInput),
		plain("whatever-else-makes-no-sense-is-refused", otherInput),
		plain("bodies-of-64-KiB-and-of-the-limit-are-kept-byte-by-byte", bigBodies),
		plain("a-body-beyond-the-limit-is-refused-before-anything-else", tooBig),
		plain("texts-of-any-letters-and-up-to-their-limits-are-kept", anyLetters),
		plain("a-call-whose-context-has-ended-changes-nothing", endedContext),
		plain("the-store-says-what-it-keeps", guaranteesTold),
		plain("empty-batches-are-fine", emptyBatches),
	}
}

func submitInput(s *stage) {
	for what, spoil := range map[string]func(*operation.SubmitRequest){
		"no id": func(r *operation.SubmitRequest) { r.ID = "" }, "a long id": func(r *operation.SubmitRequest) { r.ID = strings.Repeat("i", operation.MaxID+1) },
		"a control character": func(r *operation.SubmitRequest) { r.ID = "a\x00b" }, "no UTF-8": func(r *operation.SubmitRequest) { r.ID = "a\xff" },
		"no kind": func(r *operation.SubmitRequest) { r.Kind = "" }, "a long kind": func(r *operation.SubmitRequest) { r.Kind = strings.Repeat("k", operation.MaxKind+1) },
		"no fingerprint": func(r *operation.SubmitRequest) { r.Fingerprint = operation.Fingerprint{} }, "too urgent": func(r *operation.SubmitRequest) { r.Priority = operation.MaxPriority + 1 },
		"less than no priority": func(r *operation.SubmitRequest) { r.Priority = -1 }, "before now": func(r *operation.SubmitRequest) { r.RunIn = -1 },
		"too late": func(r *operation.SubmitRequest) { r.RunIn = operation.MaxDelay + 1 }, "a long order": func(r *operation.SubmitRequest) { r.Order = strings.Repeat("o", operation.MaxOrder+1) },
		"an order of control characters": func(r *operation.SubmitRequest) { r.Order = "a\nb" }, "it undoes itself": func(r *operation.SubmitRequest) { r.Compensates = r.ID },
		"it undoes nothing that can be": func(r *operation.SubmitRequest) { r.Compensates = "\x01" },
	} {
		req := request("o")
		spoil(&req)
		_, err := s.store.Submit(s.ctx, req)
		s.kind(err, operation.ErrInvalid, "submitting %s", what)
	}
	s.list(operation.ListRequest{})
	s.submit("o")
}

func claimInput(s *stage) {
	s.submit("o")
	for what, spoil := range map[string]func(*operation.ClaimRequest){
		"no TTL": func(r *operation.ClaimRequest) { r.TTL = 0 }, "a long TTL": func(r *operation.ClaimRequest) { r.TTL = operation.MaxTTL + 1 },
		"no limit": func(r *operation.ClaimRequest) { r.Limit = 0 }, "a high limit": func(r *operation.ClaimRequest) { r.Limit = operation.MaxBatch + 1 },
		"no kinds": func(r *operation.ClaimRequest) { r.Kinds = nil }, "too many kinds": func(r *operation.ClaimRequest) { r.Kinds = make([]operation.KindClaim, operation.MaxKinds+1) },
		"a kind twice": func(r *operation.ClaimRequest) { r.Kinds = append(r.Kinds, r.Kinds[0]) }, "no kind's name": func(r *operation.ClaimRequest) { r.Kinds[0].Kind = "" },
		"no limit of a kind": func(r *operation.ClaimRequest) { r.Kinds[0].Limit = 0 }, "no timeout": func(r *operation.ClaimRequest) { r.Kinds[0].Timeout = 0 },
		"a negative window": func(r *operation.ClaimRequest) { r.Kinds[0].Window = -1 }, "a long window": func(r *operation.ClaimRequest) { r.Kinds[0].Window = operation.MaxDelay + 1 },
		"a negative instant": func(r *operation.ClaimRequest) { r.Kinds[0].NotAfter = -1 }, "no attempts": func(r *operation.ClaimRequest) { r.Kinds[0].MaxAttempts = 0 },
		"too many attempts": func(r *operation.ClaimRequest) { r.Kinds[0].MaxAttempts = operation.MaxAttempts + 1 }, "a long worker": func(r *operation.ClaimRequest) { r.Worker = strings.Repeat("w", operation.MaxWorker+1) },
	} {
		req := claiming(asking())
		spoil(&req)
		_, err := s.store.Claim(s.ctx, req)
		s.kind(err, operation.ErrInvalid, "claiming with %s", what)
	}
	s.begin("o", asking())
}

func otherInput(s *stage) {
	j := s.begun("o", asking())
	invalid := func(err error, doing string) { s.kind(err, operation.ErrInvalid, "%s", doing) }
	_, err := s.store.Renew(s.ctx, operation.RenewRequest{Refs: []operation.Ref{j.Ref}})
	invalid(err, "renewing for no time")
	_, err = s.store.Renew(s.ctx, operation.RenewRequest{Refs: make([]operation.Ref, operation.MaxBatch+1), TTL: ttl})
	invalid(err, "renewing too many")
	_, err = s.store.Complete(s.ctx, make([]operation.Completion, operation.MaxBatch+1))
	invalid(err, "completing too many")
	for _, limit := range []int{-1, 0, operation.MaxBatch + 1} {
		_, err = s.store.Expire(s.ctx, limit)
		invalid(err, "expiring at most too many or none")
		_, err = s.store.Due(s.ctx, operation.DueRequest{Kinds: []string{kind}, Limit: limit, Hold: ttl})
		invalid(err, "asking for too much that is due, or nothing")
		_, err = s.store.List(s.ctx, operation.ListRequest{Limit: limit})
		invalid(err, "listing too many or none")
		_, err = s.store.Prune(s.ctx, operation.PruneRequest{Bodies: 1, Limit: limit * 100})
		invalid(err, "pruning too many or none")
	}
	_, err = s.store.Due(s.ctx, operation.DueRequest{Kinds: []string{kind}, Limit: 1})
	invalid(err, "due without a hold")
	_, err = s.store.Due(s.ctx, operation.DueRequest{Limit: 1, Hold: ttl})
	invalid(err, "due of no kind")
	for _, req := range []operation.PruneRequest{
		{Limit: 1}, {Limit: 1, Bodies: -1}, {Limit: 1, Forget: operation.MinForget - 1}, {Limit: 1, Bodies: 2, Records: 1}, {Limit: 1, Records: 2 * operation.MinForget, Forget: operation.MinForget},
	} {
		_, err = s.store.Prune(s.ctx, req)
		s.kind(err, operation.ErrInvalid, "pruning %+v", req)
	}
	for _, id := range []string{"", "a\x00", strings.Repeat("i", operation.MaxID+1)} {
		_, err = s.store.Get(s.ctx, id)
		invalid(err, "getting no id")
		_, err = s.store.Cancel(s.ctx, id, "x")
		invalid(err, "cancelling no id")
		_, err = s.store.Undone(s.ctx, "o", id)
		invalid(err, "undone by no id")
		_, err = s.finding(id, operation.Found, 0)
		invalid(err, "finding no id")
		_, err = s.responding(id, 1, effective("r"))
		invalid(err, "responding of no id")
	}
	for _, reason := range []string{"a\x00b", "\xff", strings.Repeat("r", operation.MaxReason+1)} {
		_, err = s.store.Cancel(s.ctx, "o", reason)
		invalid(err, "cancelling for a reason that is no text")
		invalid(s.completing(j.Ref, refused(reason), 0), "completing for a reason that is no text")
	}
	invalid(s.completing(j.Ref, noAnswer(), -1), "a retry before now")
	_, err = s.finding("o", 0, 0)
	invalid(err, "no finding")
	_, err = s.finding("o", operation.NotObserved, -1)
	invalid(err, "asking again before now")
	_, err = s.store.List(s.ctx, operation.ListRequest{Limit: 1, States: []operation.State{0}})
	invalid(err, "listing no state")
	rec := s.at("o", operation.Attempting, operation.Watch, operation.Open)
	s.want(!rec.CancelWished, "a refused cancel was recorded: %+v", rec)
}

// body is n bytes of every value.
func body(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	return b
}

func bigBodies(s *stage) {
	for id, n := range map[string]int{"64 KiB": 64 << 10, "limit": operation.MaxBody, "empty": 0, "one": 1} {
		req := operation.SubmitRequest{ID: id, Kind: kind, Request: body(n)}
		req.Fingerprint = operation.FingerprintOf(kind, req.Request)
		s.submitted(req)
		j := s.begin(id, asking())
		s.want(bytes.Equal(j.Request, req.Request), "the job's request of %s has %d bytes", id, len(j.Request))
		result := body(n)
		s.complete(j, operation.Answer{Known: operation.Effective, Result: result})
		rec := s.at(id, operation.Succeeded, operation.Idle, operation.Effective)
		s.want(s.failed() || bytes.Equal(rec.Request, req.Request) && bytes.Equal(rec.Result, result) && bytes.Equal(rec.Attempts[0].Result, result), "the bodies of %s have %d and %d bytes", id, len(rec.Request), len(rec.Result))
	}
}

func tooBig(s *stage) {
	over := body(operation.MaxBody + 1)
	j := s.begun("o", asking())
	req := operation.SubmitRequest{ID: "o", Kind: kind, Request: over, Fingerprint: operation.FingerprintOf(kind, over)} // a mismatch, if it were looked at
	_, err := s.store.Submit(s.ctx, req)
	s.kind(err, operation.ErrInvalid, "submitting more than the limit")
	req.ID = "p"
	_, err = s.store.Submit(s.ctx, req)
	s.kind(err, operation.ErrInvalid, "submitting more than the limit")
	_, err = s.store.Get(s.ctx, "p")
	s.kind(err, operation.ErrNotFound, "getting what was refused")
	big := operation.Answer{Known: operation.Effective, Result: over}
	s.kind(s.completing(j.Ref, big, 0), operation.ErrInvalid, "completing with more than the limit")
	s.kind(s.completing(operation.Ref{ID: "none", Number: 1}, big, 0), operation.ErrInvalid, "completing what is not known with more than the limit")
	_, err = s.responding("none", 1, big)
	s.kind(err, operation.ErrInvalid, "responding with more than the limit")
	_, err = s.store.Inquired(s.ctx, operation.Inquiry{ID: "none", Finding: operation.Found, Result: over})
	s.kind(err, operation.ErrInvalid, "finding more than the limit")
	_, err = s.store.Resolve(s.ctx, operation.Verdict{ID: "none", State: operation.Succeeded, Reason: "x", Result: over})
	s.kind(err, operation.ErrInvalid, "resolving with more than the limit")
	s.at("o", operation.Attempting, operation.Watch, operation.Open)
	s.complete(j, effective("r"))
}

func anyLetters(s *stage) {
	ids := []string{strings.Repeat("i", operation.MaxID), "日本 語", "a'b\"c\\d%_", "e\u0301", "\u00e9", " ", "😀"}
	for _, id := range ids {
		req := request(id)
		req.Kind, req.Order = "kind "+id[:min(len(id), operation.MaxKind-5)], id
		if len(id) < operation.MaxID {
			req.Kind = "kind " + id
		}
		s.submitted(req)
		k := of(req.Kind, asking())
		claim := claiming(k)
		claim.Worker = id
		j := s.claims(claim, id)[0]
		s.want(j.Kind == req.Kind && j.Order == id, "the job of %q: %+v", id, j)
		s.complete(j, refused(strings.Repeat("r", operation.MaxReason)))
		s.complete(s.claims(claim, id)[0], final(id))
		rec := s.at(id, operation.Failed, operation.Idle, operation.Refused, operation.Refused)
		s.want(s.failed() || rec.ID == id && rec.Kind == req.Kind && rec.Order == id && rec.Reason == id && rec.Attempts[0].Worker == id && len(rec.Attempts[0].Reason) == operation.MaxReason, "of %q: %+v", id, rec)
	}
	all, err := s.store.List(s.ctx, operation.ListRequest{Limit: 100})
	s.want(err == nil && len(all) == len(ids), "%d of %d are listed, %v", len(all), len(ids), err)
}

func endedContext(s *stage) {
	j := s.begun("o", asking())
	s.submit("p")
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	for doing, call := range map[string]func() error{
		"submit": func() error { _, err := s.store.Submit(ctx, request("q")); return err }, "get": func() error { _, err := s.store.Get(ctx, "o"); return err },
		"cancel": func() error { _, err := s.store.Cancel(ctx, "p", "x"); return err }, "claim": func() error { _, err := s.store.Claim(ctx, claiming(asking())); return err },
		"complete": func() error {
			_, err := s.store.Complete(ctx, []operation.Completion{{Ref: j.Ref, Answer: effective("r")}})
			return err
		},
		"respond": func() error {
			_, err := s.store.Respond(ctx, operation.Response{ID: "o", Number: j.Number, Answer: effective("r")})
			return err
		},
		"list": func() error { _, err := s.store.List(ctx, operation.ListRequest{Limit: 1}); return err }, "stats": func() error { _, err := s.store.Stats(ctx); return err },
		"expire": func() error { _, err := s.store.Expire(ctx, 1); return err },
	} {
		err := call()
		s.want(errors.Is(err, operation.ErrUnavailable) || errors.Is(err, operation.ErrUnknown), "%s with a context that has ended: %v; want ErrUnavailable, or ErrUnknown", doing, err)
	}
	s.at("o", operation.Attempting, operation.Watch, operation.Open)
	s.at("p", operation.Pending, operation.Work)
	_, err := s.store.Get(s.ctx, "q")
	s.kind(err, operation.ErrNotFound, "getting what was submitted with a context that had ended")
}

func guaranteesTold(s *stage) {
	g := s.store.Guarantees()
	s.want(g.Store != "" && g.MaxBody >= 64<<10 && g.MaxBody <= operation.MaxBody && g.Deduplicates >= operation.MinForget, "it guarantees %+v", g)
}

func emptyBatches(s *stage) {
	s.submit("o")
	s.renew([]operation.Ref{})
	errs, err := s.store.Complete(s.ctx, nil)
	s.want(err == nil && len(errs) == 0, "completing nothing: %v, %v", errs, err)
	req := claiming(asking())
	req.Kinds = []operation.KindClaim{of(other, asking())}
	jobs := s.claim(req)
	s.want(len(jobs) == 0, "claimed %v", jobs)
	s.expire(0)
	s.due(time.Second)
}
