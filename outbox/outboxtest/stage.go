package outboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// The times of most cases. Between them and every Advance lies a second or more.
const (
	ttl     = 10 * time.Second
	within  = 7 * time.Second  // after it, a claim of ttl has 3 s left
	past    = 13 * time.Second // after it, a claim of ttl is over for 3 s
	rounded = time.Millisecond // what a store may round a duration by
)

// The topics of most cases, and how often they hand out a message.
const (
	mail     = "mail"
	bill     = "bill"
	attempts = 5
)

// stage is one run of a case. Its methods are the steps; the first step that finds something wrong is kept, and every later one does nothing, so that a case reads as what it does
// and not as what may fail. A stage belongs to one goroutine.
type stage struct {
	ctx   context.Context // of the case: a stage lives no longer than the call that made it
	h     Harness
	store *watch
	last  map[string]outbox.Delivery // by name of the message: as it was handed out last
	err   error
}

// named makes a case of steps.
func named[H Harness](name string, steps func(s *stage, h H)) Case[H] {
	return Case[H]{Name: name, Run: func(ctx context.Context, h H) error {
		s := &stage{ctx: ctx, h: h, store: newWatch(h), last: map[string]outbox.Delivery{}}
		steps(s, h)
		if s.err != nil {
			return errors.Join(s.err, s.store.found())
		}
		return s.store.finish(ctx)
	}}
}

// plain makes a case that needs nothing beside the store.
func plain(name string, steps func(s *stage)) Case[Harness] {
	return named(name, func(s *stage, _ Harness) { steps(s) })
}

func (s *stage) failed() bool { return s.err != nil }

// fail records the first thing that was found wrong.
func (s *stage) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// want fails unless ok.
func (s *stage) want(ok bool, format string, args ...any) {
	if !ok {
		s.fail(format, args...)
	}
}

// advance lets d pass.
func (s *stage) advance(d time.Duration) {
	if s.failed() {
		return
	}
	if err := s.store.Advance(s.ctx, d); err != nil {
		s.fail("advancing by %v: %w", d, err)
	}
}

// idOf is the id of a name of at most 16 bytes.
func idOf(name string) fence.ID {
	var id fence.ID
	copy(id[:], name)
	return id
}

// nameOf is the name of an id that idOf made.
func nameOf(id fence.ID) string { return strings.TrimRight(string(id[:]), "\x00") }

// claimOf is the id of a claim, by a name of at most 14 bytes.
func claimOf(name string) fence.ID { return idOf("c " + name) }

// note is a message without a key.
func note(name, topic string) outbox.Message {
	return outbox.Message{ID: idOf(name), Topic: topic, Headers: map[string]string{"name": name}, Payload: []byte("this is " + name)}
}

// ordered is a message of a key, in order.
func ordered(name, topic, key string) outbox.Message {
	m := note(name, topic)
	m.Key, m.Ordered = key, true
	return m
}

// notes are messages without a key, of topic mail.
func notes(names ...string) []outbox.Message {
	all := make([]outbox.Message, 0, len(names))
	for _, name := range names {
		all = append(all, note(name, mail))
	}
	return all
}

// line are messages of one key of topic mail, in order.
func line(key string, names ...string) []outbox.Message {
	all := make([]outbox.Message, 0, len(names))
	for _, name := range names {
		all = append(all, ordered(name, mail, key))
	}
	return all
}

// append must be done.
func (s *stage) append(messages ...outbox.Message) {
	if s.failed() {
		return
	}
	ids, err := s.store.Append(s.ctx, messages)
	if err != nil {
		s.fail("appending %q: %w", names(messages), err)
		return
	}
	s.want(len(ids) == len(messages), "appending %d messages told %d ids", len(messages), len(ids))
	for i := 0; i < len(ids) && !s.failed(); i++ {
		s.want(ids[i] == messages[i].ID || messages[i].ID.IsZero() && !ids[i].IsZero(), "appending %v told the id %v", messages[i].ID, ids[i])
	}
}

func names(messages []outbox.Message) []string {
	all := make([]string, 0, len(messages))
	for i := range messages {
		all = append(all, nameOf(messages[i].ID))
	}
	return all
}

// refused must be refused with an error of this kind.
func (s *stage) refused(kind error, doing string, messages ...outbox.Message) error {
	if s.failed() {
		return s.err
	}
	_, err := s.store.Append(s.ctx, messages)
	s.kind(err, kind, "appending %s", doing)
	return err
}

// request is what most cases claim: all that is due.
func request(claim string) outbox.ClaimRequest {
	return outbox.ClaimRequest{Claim: claimOf(claim), Relay: "relay " + claim, Limit: outbox.MaxBatch, Bytes: outbox.MaxBatchBytes, TTL: ttl, MaxAttempts: attempts}
}

// claim must be answered.
func (s *stage) claim(req outbox.ClaimRequest) outbox.Batch {
	if s.failed() {
		return outbox.Batch{}
	}
	got, err := s.store.Claim(s.ctx, req)
	if err != nil {
		s.fail("claiming as %q: %w", nameOf(req.Claim), err)
	}
	for _, d := range got.Deliveries {
		s.last[nameOf(d.ID)] = d
	}
	return got
}

func delivered(b outbox.Batch) []string {
	all := make([]string, 0, len(b.Deliveries))
	for i := range b.Deliveries {
		all = append(all, nameOf(b.Deliveries[i].ID))
	}
	return all
}

// take must hand out exactly these, in this order, and give nothing up.
func (s *stage) take(claim string, want ...string) outbox.Batch {
	return s.takes(request(claim), want...)
}

func (s *stage) takes(req outbox.ClaimRequest, want ...string) outbox.Batch {
	got := s.claim(req)
	s.want(s.failed() || slices.Equal(delivered(got), want), "claiming as %q handed out %q; want %q", nameOf(req.Claim), delivered(got), want)
	s.want(s.failed() || got.Dead == 0, "claiming as %q gave up %d messages; want none", nameOf(req.Claim), got.Dead)
	return got
}

// until claims up to some times, each time as claim, a number and a dot, until these were handed out, in this order, and so many given up; nothing else may be. It returns by name which claim handed it out.
func (s *stage) until(claim string, dead int, want ...string) map[string]string {
	const times = 6
	by := map[string]string{}
	var got []string
	gone := 0
	for i := 0; i < times && !s.failed() && (len(got) < len(want) || gone < dead); i++ {
		name := fmt.Sprint(claim, i, ".")
		b := s.claim(request(name))
		gone += b.Dead
		for _, n := range delivered(b) {
			by[n] = name
			got = append(got, n)
		}
	}
	s.want(s.failed() || slices.Equal(got, want) && gone == dead, "claiming as %q handed out %q and gave up %d; want %q and %d", claim, got, gone, want, dead)
	return by
}

// none must hand out nothing, nor give anything up.
func (s *stage) none(claim string) { s.take(claim) }

// verdict says what became of a message at the position that it was handed out with last.
func (s *stage) verdict(name string, o outbox.Outcome) outbox.Verdict {
	v := outbox.Verdict{Position: s.last[name].Position, Outcome: o}
	if o == outbox.Failed {
		v.Error = "no " + name
	}
	return v
}

// settles must be answered, with exactly these late.
func (s *stage) settles(claim string, late []string, verdicts ...outbox.Verdict) {
	if s.failed() {
		return
	}
	got, err := s.store.Settle(s.ctx, outbox.SettleRequest{Claim: claimOf(claim), Relay: "relay " + claim, Verdicts: verdicts})
	if err != nil {
		s.fail("settling %+v as %q: %w", verdicts, claim, err)
	}
	var want []int64
	for _, name := range late {
		want = append(want, s.last[name].Position)
	}
	slices.Sort(want)
	s.want(slices.Equal(got.Late, want) && got.Applied == len(verdicts)-len(want), "settling %+v as %q: %+v; want %d applied, %v late", verdicts, claim, got, len(verdicts)-len(want), want)
}

// settle must be applied to all of these.
func (s *stage) settle(claim string, o outbox.Outcome, names ...string) {
	verdicts := make([]outbox.Verdict, 0, len(names))
	for _, name := range names {
		verdicts = append(verdicts, s.verdict(name, o))
	}
	s.settles(claim, nil, verdicts...)
}

// publish must be applied to all of these.
func (s *stage) publish(claim string, names ...string) { s.settle(claim, outbox.Published, names...) }

// late must change nothing and be told.
func (s *stage) late(claim string, o outbox.Outcome, name string) {
	s.settles(claim, []string{name}, s.verdict(name, o))
}

// at must stand so.
func (s *stage) at(name string, state outbox.State, attempts int) outbox.Info {
	if s.failed() {
		return outbox.Info{}
	}
	i, err := s.store.Get(s.ctx, idOf(name))
	if err != nil {
		s.fail("looking at %q: %w", name, err)
	}
	s.want(i.ID == idOf(name) && i.State == state && i.Attempts == attempts, "%q: %+v; want it %v after %d attempts", name, i, state, attempts)
	return i
}

// gone must be unknown.
func (s *stage) gone(name string) {
	if s.failed() {
		return
	}
	_, err := s.store.Get(s.ctx, idOf(name))
	var n *outbox.NotFoundError
	s.kind(err, outbox.ErrNotFound, "looking at %q", name)
	s.want(s.failed() || errors.As(err, &n) && n.ID == idOf(name), "looking at %q: %v", name, err)
}

// errorsOf demands these errors, oldest first, of these attempts.
func (s *stage) errorsOf(i outbox.Info, want ...string) {
	if s.failed() {
		return
	}
	var got []string
	for _, f := range i.Errors {
		got = append(got, fmt.Sprint(f.Attempt, " ", f.Text))
	}
	s.want(slices.Equal(got, want), "the errors of %q are %q; want %q", nameOf(i.ID), got, want)
}

// list must hold these, in this order.
func (s *stage) list(req outbox.ListRequest, want ...string) []outbox.Info {
	if s.failed() {
		return nil
	}
	if req.Limit == 0 {
		req.Limit = outbox.MaxList
	}
	all, err := s.store.List(s.ctx, req)
	if err != nil {
		s.fail("listing %+v: %w", req, err)
	}
	got := make([]string, 0, len(all))
	for i := range all {
		got = append(got, nameOf(all[i].ID))
	}
	s.want(slices.Equal(got, want), "listing %+v: %q; want %q", req, got, want)
	return all
}

// moves must change so many.
func (s *stage) moves(doing string, move func(context.Context, outbox.MoveRequest) (int, error), req outbox.MoveRequest, want int) {
	if s.failed() {
		return
	}
	if req.Limit == 0 {
		req.Limit = outbox.MaxMove
	}
	n, err := move(s.ctx, req)
	if err != nil {
		s.fail("%s %+v: %w", doing, req, err)
	}
	s.want(n == want, "%s %+v changed %d; want %d", doing, req, n, want)
}

func (s *stage) retry(req outbox.MoveRequest, want int) {
	s.moves("retrying", s.store.Retry, req, want)
}
func (s *stage) replay(req outbox.MoveRequest, want int) {
	s.moves("replaying", s.store.Replay, req, want)
}

// pause must be done.
func (s *stage) pause(topic string, paused bool, reason string) {
	if s.failed() {
		return
	}
	if err := s.store.Pause(s.ctx, outbox.PauseRequest{Topic: topic, Paused: paused, Reason: reason}); err != nil {
		s.fail("pausing %q, %v: %w", topic, paused, err)
	}
}

// topics must be these; their ages are looked at by the caller.
func (s *stage) topics(want ...outbox.TopicInfo) []outbox.TopicInfo {
	if s.failed() {
		return nil
	}
	all, err := s.store.Topics(s.ctx, "")
	if err != nil {
		s.fail("listing topics: %w", err)
	}
	bare := slices.Clone(all)
	for i := range bare {
		bare[i].Oldest = 0
	}
	s.want(slices.Equal(bare, want), "topics: %+v; want %+v", bare, want)
	return all
}

// prune must forget so many.
func (s *stage) prune(req outbox.PruneRequest, want int) {
	if s.failed() {
		return
	}
	if req.Limit == 0 {
		req.Limit = outbox.MaxMove
	}
	n, err := s.store.Prune(s.ctx, req)
	if err != nil {
		s.fail("pruning %+v: %w", req, err)
	}
	s.want(n == want, "pruning %+v forgot %d; want %d", req, n, want)
}

// near reports whether a duration is what it should be, up to what the steps of a case may take.
func near(got, want time.Duration) bool { return got <= want+rounded && got > want-2*time.Second }

// nearAge is near for what grows while the steps go on.
func nearAge(got, want time.Duration) bool { return got >= want-rounded && got < want+2*time.Second }

func kinds() []error {
	return []error{outbox.ErrInvalid, outbox.ErrMismatch, outbox.ErrNotFound, outbox.ErrUnknown, outbox.ErrUnavailable, outbox.ErrOutage, outbox.ErrRefused}
}

// kind demands an error of exactly one kind.
func (s *stage) kind(err, kind error, doing string, args ...any) {
	s.want(errors.Is(err, kind), "%s: %v; want an error that matches %q", fmt.Sprintf(doing, args...), err, kind)
	for _, other := range kinds() {
		s.want(!errors.Is(err, other) || errors.Is(kind, other), "%s: %v matches %q and %q", fmt.Sprintf(doing, args...), err, kind, other)
	}
}

// same reports whether two messages are one in all that was asked for.
func same(a, b *outbox.Message) bool {
	return a.ID == b.ID && a.Topic == b.Topic && a.Key == b.Key && a.Ordered == b.Ordered && maps.Equal(a.Headers, b.Headers) && bytes.Equal(a.Payload, b.Payload)
}

// atOnce runs n calls at the same time, and demands that none fails.
func (s *stage) atOnce(n int, call func(i int) error) {
	if s.failed() {
		return
	}
	errs := make([]error, n)
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-gate
			errs[i] = call(i)
		})
	}
	close(gate)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.fail("at once: %w", err)
	}
}
