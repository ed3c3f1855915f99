package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

func inputCases() []Case[Harness] {
	return []Case[Harness]{
		plain("a-message-that-makes-no-sense-is-refused", messageInput),
		plain("a-claim-that-makes-no-sense-is-refused", claimInput),
		plain("a-settlement-that-makes-no-sense-is-refused-whole", settleInput),
		plain("what-an-operator-asks-that-makes-no-sense-is-refused", officeInput),
		plain("a-call-whose-context-has-ended-changes-nothing", endedContext),
	}
}

// noText are texts that no store keeps, for a limit.
func noText(most int) map[string]string {
	return map[string]string{
		"a long one": strings.Repeat("x", most+1), "a NUL": "a\x00b", "a line feed": "a\nb", "a C1 control": "a\u0085b", "no UTF-8": "a\xff", "half a surrogate": "a\xed\xa0\x80",
	}
}

func messageInput(s *stage) {
	refused := func(what string, spoil func(m *outbox.Message)) {
		m := ordered("a", mail, "k")
		spoil(&m)
		_ = s.refused(outbox.ErrInvalid, "with "+what, note("b", mail), m)
	}
	for what, text := range noText(outbox.MaxTopic) {
		refused("as topic "+what, func(m *outbox.Message) { m.Topic = text })
	}
	for what, text := range noText(outbox.MaxKey) {
		refused("as key "+what, func(m *outbox.Message) { m.Key = text })
	}
	for what, text := range noText(outbox.MaxHeaderName) {
		refused("as header "+what, func(m *outbox.Message) { m.Headers[text] = "v" })
	}
	refused("no topic", func(m *outbox.Message) { m.Topic = "" })
	refused("an order and no key", func(m *outbox.Message) { m.Key = "" })
	refused("a nameless header", func(m *outbox.Message) { m.Headers[""] = "v" })
	refused("a NUL in a header", func(m *outbox.Message) { m.Headers["n"] = "a\x00b" })
	refused("a header of no UTF-8", func(m *outbox.Message) { m.Headers["n"] = "a\xff" })
	refused("a large payload", func(m *outbox.Message) { m.Payload = make([]byte, outbox.MaxPayload+1) })
	refused("large headers", func(m *outbox.Message) { m.Headers["n"] = strings.Repeat("v", outbox.MaxHeaderBytes) })
	refused("many headers", func(m *outbox.Message) {
		for i := range outbox.MaxHeaders {
			m.Headers[fmt.Sprint("n", i)] = ""
		}
	})
	_ = s.refused(outbox.ErrInvalid, "nothing")
	_ = s.refused(outbox.ErrInvalid, "too many", slices.Repeat([]outbox.Message{{Topic: mail}}, outbox.MaxAppend+1)...)
	_ = s.refused(outbox.ErrInvalid, "too many bytes", slices.Repeat([]outbox.Message{{Topic: mail, Payload: make([]byte, outbox.MaxPayload)}}, outbox.MaxAppendBytes/outbox.MaxPayload+1)...)
	s.list(outbox.ListRequest{})
}

func claimInput(s *stage) {
	s.append(notes("a")...)
	refused := func(what string, spoil func(r *outbox.ClaimRequest)) {
		if s.failed() {
			return
		}
		req := request("x")
		spoil(&req)
		got, err := s.store.Claim(s.ctx, req)
		s.kind(err, outbox.ErrInvalid, "claiming with %s (%+v)", what, got)
	}
	for what, text := range noText(outbox.MaxRelay) {
		refused("as relay "+what, func(r *outbox.ClaimRequest) { r.Relay = text })
	}
	for what, text := range noText(outbox.MaxTopic) {
		refused("as topic "+what, func(r *outbox.ClaimRequest) { r.Topics = []string{mail, text} })
	}
	for what, spoil := range map[string]func(r *outbox.ClaimRequest){
		"no claim": func(r *outbox.ClaimRequest) { r.Claim = fence.ID{} }, "an empty topic": func(r *outbox.ClaimRequest) { r.Topics = []string{""} },
		"many topics": func(r *outbox.ClaimRequest) { r.Topics = slices.Repeat([]string{mail}, outbox.MaxTopics+1) },
		"no limit":    func(r *outbox.ClaimRequest) { r.Limit = 0 }, "a negative limit": func(r *outbox.ClaimRequest) { r.Limit = -1 }, "a great limit": func(r *outbox.ClaimRequest) { r.Limit = outbox.MaxBatch + 1 },
		"no bytes": func(r *outbox.ClaimRequest) { r.Bytes = 0 }, "negative bytes": func(r *outbox.ClaimRequest) { r.Bytes = -1 }, "many bytes": func(r *outbox.ClaimRequest) { r.Bytes = outbox.MaxBatchBytes + 1 },
		"no time": func(r *outbox.ClaimRequest) { r.TTL = 0 }, "little time": func(r *outbox.ClaimRequest) { r.TTL = outbox.MinTTL - 1 }, "much time": func(r *outbox.ClaimRequest) { r.TTL = outbox.MaxTTL + 1 },
		"negative time": func(r *outbox.ClaimRequest) { r.TTL = -ttl }, "no attempts": func(r *outbox.ClaimRequest) { r.MaxAttempts = 0 },
		"many attempts": func(r *outbox.ClaimRequest) { r.MaxAttempts = outbox.MaxAttempts + 1 },
	} {
		refused(what, spoil)
	}
	s.at("a", outbox.Pending, 0)
	s.take("x", "a")
}

func settleInput(s *stage) {
	s.append(notes("a", "b")...)
	s.take("x", "a", "b")
	if s.failed() {
		return
	}
	good := s.verdict("a", outbox.Published)
	with := func(change func(v *outbox.Verdict)) []outbox.Verdict {
		v := s.verdict("b", outbox.Failed)
		change(&v)
		return []outbox.Verdict{good, v}
	}
	for what, verdicts := range map[string][]outbox.Verdict{
		"none": nil, "one position twice": {good, good}, "no outcome": with(func(v *outbox.Verdict) { v.Outcome = 0 }), "another outcome": with(func(v *outbox.Verdict) { v.Outcome = outbox.Returned + 1 }),
		"a negative back-off": with(func(v *outbox.Verdict) { v.RetryIn = -1 }), "a long back-off": with(func(v *outbox.Verdict) { v.RetryIn = outbox.MaxRetryIn + 1 }),
		"one published and dead": with(func(v *outbox.Verdict) { v.Outcome, v.Dead = outbox.Published, true }), "one returned and dead": with(func(v *outbox.Verdict) { v.Outcome, v.Dead = outbox.Returned, true }),
		"too many": slices.Repeat([]outbox.Verdict{good}, outbox.MaxBatch+1),
	} {
		got, err := s.h.Store().Settle(s.ctx, outbox.SettleRequest{Claim: claimOf("x"), Verdicts: verdicts})
		s.kind(err, outbox.ErrInvalid, "settling with verdicts: %s (%+v)", what, got)
	}
	_, err := s.h.Store().Settle(s.ctx, outbox.SettleRequest{Verdicts: []outbox.Verdict{good}})
	s.kind(err, outbox.ErrInvalid, "settling without a claim")
	for what, text := range noText(outbox.MaxRelay) {
		_, err := s.h.Store().Settle(s.ctx, outbox.SettleRequest{Claim: claimOf("x"), Relay: text, Verdicts: []outbox.Verdict{good}})
		s.kind(err, outbox.ErrInvalid, "settling as relay %s", what)
	}
	s.at("a", outbox.Pending, 1)
	v := s.verdict("b", outbox.Failed)
	v.RetryIn = outbox.MaxRetryIn
	s.settles("x", nil, good, v)
}

func officeInput(s *stage) {
	s.append(notes("a")...)
	s.take("x", "a")
	s.publish("x", "a")
	if s.failed() {
		return
	}
	refused := func(what string, err error) { s.kind(err, outbox.ErrInvalid, "%s", what) }
	list := func(what string, req outbox.ListRequest) {
		_, err := s.store.List(s.ctx, req)
		refused("listing with "+what, err)
	}
	moves := func(what string, req outbox.MoveRequest) {
		_, err := s.store.Retry(s.ctx, req)
		refused("retrying with "+what, err)
		_, err = s.store.Replay(s.ctx, req)
		refused("replaying with "+what, err)
	}
	for _, limit := range []int{0, -1, outbox.MaxMove + 1} {
		list(fmt.Sprint("limit ", limit), outbox.ListRequest{Limit: limit})
		moves(fmt.Sprint("limit ", limit), outbox.MoveRequest{Limit: limit})
		_, err := s.store.Prune(s.ctx, outbox.PruneRequest{Delivered: outbox.MinPruneAge, Limit: limit})
		refused(fmt.Sprint("pruning with limit ", limit), err)
	}
	list("a long limit", outbox.ListRequest{Limit: outbox.MaxList + 1})
	list("a negative position", outbox.ListRequest{Limit: 1, After: -1})
	list("no state", outbox.ListRequest{Limit: 1, States: []outbox.State{0}})
	list("another state", outbox.ListRequest{Limit: 1, States: []outbox.State{outbox.Dead + 1}})
	for what, text := range noText(outbox.MaxKey) {
		list("as topic "+what, outbox.ListRequest{Limit: 1, Topic: text})
		list("as key "+what, outbox.ListRequest{Limit: 1, Key: text})
		moves("as topic "+what, outbox.MoveRequest{Limit: 1, Topic: text})
		moves("as key "+what, outbox.MoveRequest{Limit: 1, Key: text})
		refused("pausing topic "+what, s.store.Pause(s.ctx, outbox.PauseRequest{Topic: text, Paused: true}))
		_, err := s.store.Topics(s.ctx, text)
		refused("topics after "+what, err)
	}
	for what, text := range noText(outbox.MaxReason) {
		refused("pausing because of "+what, s.store.Pause(s.ctx, outbox.PauseRequest{Topic: mail, Paused: true, Reason: text}))
	}
	moves("many ids", outbox.MoveRequest{Limit: 1, IDs: make([]fence.ID, outbox.MaxList+1)})
	moves("a negative beginning", outbox.MoveRequest{Limit: 1, From: -1})
	moves("a negative end", outbox.MoveRequest{Limit: 1, To: -1})
	moves("an end before its beginning", outbox.MoveRequest{Limit: 1, From: 2, To: 1})
	moves("a negative age", outbox.MoveRequest{Limit: 1, Within: -1})
	for _, req := range []outbox.PruneRequest{{}, {Delivered: outbox.MinPruneAge - 1}, {Delivered: -1}, {Delivered: outbox.MinPruneAge, Dead: 1}, {Delivered: outbox.MinPruneAge, Dead: -1}} {
		req.Limit = 1
		_, err := s.store.Prune(s.ctx, req)
		refused(fmt.Sprintf("pruning %+v", req), err)
	}
	s.topics()
	s.at("a", outbox.Delivered, 1)
}

func endedContext(s *stage) {
	s.append(notes("a")...)
	s.take("x", "a")
	if s.failed() {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	store, office := s.h.Store(), s.h.Office()
	_, appended := store.Append(ctx, notes("b"))
	_, claimed := store.Claim(ctx, request("y"))
	_, settled := store.Settle(ctx, outbox.SettleRequest{Claim: claimOf("x"), Verdicts: []outbox.Verdict{s.verdict("a", outbox.Published)}})
	_, got := office.Get(ctx, idOf("a"))
	_, listed := office.List(ctx, outbox.ListRequest{Limit: 1})
	_, topics := office.Topics(ctx, "")
	_, retried := office.Retry(ctx, outbox.MoveRequest{Limit: 1})
	_, replayed := office.Replay(ctx, outbox.MoveRequest{Limit: 1})
	_, pruned := office.Prune(ctx, outbox.PruneRequest{Delivered: outbox.MinPruneAge, Limit: 1})
	for what, err := range map[string]error{
		"append": appended, "claim": claimed, "settle": settled, "get": got, "list": listed, "topics": topics, "retry": retried, "replay": replayed, "prune": pruned,
		"pause": office.Pause(ctx, outbox.PauseRequest{Topic: mail, Paused: true}),
	} {
		s.kind(err, outbox.ErrUnavailable, "%s with a context that has ended", what)
		s.want(errors.Is(err, context.Canceled), "%s with a context that has ended: %v; want its cause within", what, err)
	}
	s.gone("b")
	s.at("a", outbox.Pending, 1)
	s.topics(outbox.TopicInfo{Topic: mail, Pending: 1})
}
