package operationtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// The times of most cases. Between them and every Advance lies a second or more.
const (
	ttl     = 10 * time.Second
	long    = time.Hour
	within  = 7 * time.Second  // after it, a claim of ttl has 3 s left
	past    = 13 * time.Second // after it, a claim of ttl is over for 3 s
	rounded = time.Millisecond // what a store may round a duration by
)

// The kinds of most cases.
const (
	kind  = "charge"
	other = "refund"
)

// stage is one run of a case. Its methods are the steps; the first step that finds something wrong is kept, and every later one does nothing, so that a case reads as what it does
// and not as what may fail. A stage belongs to one goroutine.
type stage struct {
	ctx   context.Context // of the case: a stage lives no longer than the call that made it
	h     Harness
	store *watch
	err   error
}

// named makes a case of steps.
func named[H Harness](name string, steps func(s *stage, h H)) Case[H] {
	return Case[H]{Name: name, Run: func(ctx context.Context, h H) error {
		s := &stage{ctx: ctx, h: h, store: newWatch(h)}
		steps(s, h)
		return errors.Join(s.err, s.store.finish(ctx))
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
	if err := s.h.Advance(s.ctx, d); err != nil {
		s.fail("advancing by %v: %w", d, err)
	}
}

// request is the submission of most cases.
func request(id string) operation.SubmitRequest { return requestOf(kind, id) }

func requestOf(kind, id string) operation.SubmitRequest {
	body := []byte("the request of " + id)
	return operation.SubmitRequest{ID: id, Kind: kind, Request: body, Fingerprint: operation.FingerprintOf(kind, body)}
}

// submit records new operations, in this order.
func (s *stage) submit(ids ...string) {
	for _, id := range ids {
		s.submitted(request(id))
	}
}

// submitted must be recorded as new.
func (s *stage) submitted(req operation.SubmitRequest) operation.Submitted {
	if s.failed() {
		return operation.Submitted{}
	}
	sub, err := s.store.Submit(s.ctx, req)
	if err != nil {
		s.fail("submitting %q: %w", req.ID, err)
		return sub
	}
	s.want(!sub.Known && sub.ID == req.ID && sub.State == operation.Pending && sub.Step == operation.Work, "submitting %q: %+v; want it new and pending", req.ID, sub)
	return sub
}

// again must be answered with the operation as it stands.
func (s *stage) again(req operation.SubmitRequest, state operation.State) {
	if s.failed() {
		return
	}
	sub, err := s.store.Submit(s.ctx, req)
	if err != nil {
		s.fail("submitting %q again while it is %v: %w", req.ID, state, err)
		return
	}
	s.want(sub.Known && sub.ID == req.ID && sub.State == state, "submitting %q again while it is %v: %+v", req.ID, state, sub)
}

// mismatch must be refused, saying what differs.
func (s *stage) mismatch(req operation.SubmitRequest, what string, while operation.State) {
	if s.failed() {
		return
	}
	sub, err := s.store.Submit(s.ctx, req)
	s.kind(err, operation.ErrMismatch, "submitting %q with another %s while it is %v (%+v)", req.ID, what, while, sub)
	var m *operation.MismatchError
	s.want(s.failed() || errors.As(err, &m) && m.What == what && m.ID == req.ID, "submitting %q with another %s: %v", req.ID, what, err)
}

// asking is what most workers know of a kind: it can be asked about, undone, and never attempted again after an unknown outcome.
func asking() operation.KindClaim {
	return operation.KindClaim{Kind: kind, Limit: 100, Timeout: long, MaxAttempts: 10, Asks: true, Undoes: true}
}

// mute is a kind whose provider cannot be asked.
func mute() operation.KindClaim {
	k := asking()
	k.Asks = false
	return k
}

// repeating is a kind that may be attempted again whatever became of an attempt.
func repeating() operation.KindClaim {
	k := asking()
	k.Window = operation.Forever
	return k
}

// of is the same for another kind.
func of(kind string, k operation.KindClaim) operation.KindClaim {
	k.Kind = kind
	return k
}

func claiming(kinds ...operation.KindClaim) operation.ClaimRequest {
	return operation.ClaimRequest{Worker: "w", TTL: ttl, Limit: 100, Kinds: kinds}
}

// claim must be answered, with whatever there is.
func (s *stage) claim(req operation.ClaimRequest) []operation.Job {
	if s.failed() {
		return nil
	}
	jobs, err := s.store.Claim(s.ctx, req)
	if err != nil {
		s.fail("claiming: %w", err)
	}
	return jobs
}

// claims must be of exactly these, in this order.
func (s *stage) claims(req operation.ClaimRequest, ids ...string) []operation.Job {
	jobs := s.claim(req)
	got := idsOf(jobs, func(j operation.Job) string { return j.ID })
	s.want(slices.Equal(got, ids), "claimed %q; want %q", got, ids)
	if s.failed() {
		return make([]operation.Job, len(ids))
	}
	return jobs
}

func idsOf[T any](all []T, id func(T) string) []string {
	ids := []string{}
	for _, one := range all {
		ids = append(ids, id(one))
	}
	return ids
}

// begin must claim exactly this one.
func (s *stage) begin(id string, k operation.KindClaim) operation.Job {
	return s.claims(claiming(k), id)[0]
}

// nothing must be there to claim.
func (s *stage) nothing(kinds ...operation.KindClaim) { s.claims(claiming(kinds...)) }

// begun submits an operation and begins its first attempt.
func (s *stage) begun(id string, k operation.KindClaim) operation.Job {
	s.submitted(requestOf(k.Kind, id))
	return s.begin(id, k)
}

// The answers of most cases.
func effective(result string) operation.Answer {
	return operation.Answer{Known: operation.Effective, Result: []byte(result)}
}
func refused(reason string) operation.Answer {
	return operation.Answer{Known: operation.Refused, Reason: reason}
}
func final(reason string) operation.Answer {
	return operation.Answer{Known: operation.Refused, Reason: reason, Final: true}
}
func noAnswer() operation.Answer {
	return operation.Answer{Known: operation.NoAnswer, Reason: "no answer"}
}
func notSent() operation.Answer {
	return operation.Answer{Known: operation.NotSent, Reason: "not sent"}
}

// completing reports an answer, whatever becomes of it.
func (s *stage) completing(ref operation.Ref, a operation.Answer, retryIn time.Duration) error {
	if s.failed() {
		return s.err
	}
	errs, err := s.store.Complete(s.ctx, []operation.Completion{{Ref: ref, Answer: a, RetryIn: retryIn}})
	if err != nil {
		s.fail("completing %v: %w", ref, err)
		return err
	}
	return errs[0]
}

// complete must be recorded.
func (s *stage) complete(j operation.Job, a operation.Answer) { s.completeIn(j, a, 0) }

func (s *stage) completeIn(j operation.Job, a operation.Answer, retryIn time.Duration) {
	if err := s.completing(j.Ref, a, retryIn); err != nil {
		s.fail("completing attempt %d of %q as %v: %w", j.Number, j.ID, a.Known, err)
	}
}

// stale must be refused as such.
func (s *stage) stale(j operation.Job, a operation.Answer, newer fence.Token) {
	if s.failed() {
		return
	}
	s.staleError(s.completing(j.Ref, a, 0), j.Ref, newer)
}

func (s *stage) staleError(err error, ref operation.Ref, newer fence.Token) {
	s.kind(err, operation.ErrStale, "a report of attempt %d of %q", ref.Number, ref.ID)
	var st *operation.StaleError
	s.want(s.failed() || errors.As(err, &st) && st.ID == ref.ID && st.Attempt == ref.Number && st.Newer == newer, "attempt %d of %q, the current one being %d: %v", ref.Number, ref.ID, newer, err)
}

func (s *stage) get(id string) operation.Record {
	if s.failed() {
		return operation.Record{}
	}
	rec, err := s.store.Get(s.ctx, id)
	if err != nil {
		s.fail("looking at %q: %w", id, err)
	}
	return rec
}

// at must stand so.
func (s *stage) at(id string, state operation.State, step operation.Step, known ...operation.Known) operation.Record {
	rec := s.get(id)
	s.standing(rec, state, step, known...)
	return rec
}

func (s *stage) standing(rec operation.Record, state operation.State, step operation.Step, known ...operation.Known) {
	if s.failed() {
		return
	}
	got := []operation.Known{}
	for _, a := range rec.Attempts {
		got = append(got, a.Known)
	}
	s.want(rec.State == state && rec.Step == step, "%q is %v, its step %v; want %v and %v: %+v", rec.ID, rec.State, rec.Step, state, step, rec)
	s.want(len(known) == 0 || slices.Equal(got, known), "of the attempts of %q is known %v; want %v", rec.ID, got, known)
}

// expire must end exactly n attempts.
func (s *stage) expire(n int) {
	if s.failed() {
		return
	}
	got, err := s.store.Expire(s.ctx, operation.MaxBatch)
	if err != nil {
		s.fail("expiring: %w", err)
	}
	s.want(got == n, "%d attempts expired; want %d", got, n)
}

// respond must be recorded without an error.
func (s *stage) respond(id string, number fence.Token, a operation.Answer) operation.Record {
	rec, err := s.responding(id, number, a)
	if err != nil {
		s.fail("responding of attempt %d of %q: %w", number, id, err)
	}
	return rec
}

func (s *stage) responding(id string, number fence.Token, a operation.Answer) (operation.Record, error) {
	if s.failed() {
		return operation.Record{}, s.err
	}
	return s.store.Respond(s.ctx, operation.Response{ID: id, Number: number, Answer: a})
}

// conflict must be recorded against the decision, as the nth.
func (s *stage) conflict(id string, number fence.Token, a operation.Answer, count int) operation.Record {
	rec, err := s.responding(id, number, a)
	if s.failed() {
		return rec
	}
	s.want(errors.Is(err, operation.ErrStale) || errors.Is(err, operation.ErrDecided), "evidence against the decision of %q: %v; want ErrStale or ErrDecided", id, err)
	s.want(rec.ID == id && rec.ConflictCount == count, "evidence against the decision of %q: %d conflicts; want %d: %+v", id, rec.ConflictCount, count, rec)
	return rec
}

// due must hand out exactly these, in this order.
func (s *stage) due(hold time.Duration, ids ...string) []operation.Record {
	return s.dueOf(operation.DueRequest{Kinds: []string{kind}, Limit: 100, Hold: hold}, ids...)
}

func (s *stage) dueOf(req operation.DueRequest, ids ...string) []operation.Record {
	if s.failed() {
		return nil
	}
	all, err := s.store.Due(s.ctx, req)
	if err != nil {
		s.fail("asking what is due: %w", err)
	}
	got := idsOf(all, func(r operation.Record) string { return r.ID })
	s.want(slices.Equal(got, ids), "due were %q; want %q", got, ids)
	return all
}

// found must be applied without an error.
func (s *stage) found(id string, f operation.Finding, askIn time.Duration) operation.Record {
	rec, err := s.finding(id, f, askIn)
	if err != nil {
		s.fail("an inquiry about %q finding %d: %w", id, f, err)
	}
	return rec
}

func (s *stage) finding(id string, f operation.Finding, askIn time.Duration) (operation.Record, error) {
	if s.failed() {
		return operation.Record{}, s.err
	}
	inq := operation.Inquiry{ID: id, Finding: f, Reason: "asked", AskIn: askIn}
	if f == operation.Found {
		inq.Result = []byte("as found")
	}
	return s.store.Inquired(s.ctx, inq)
}

// cancel must be answered without an error.
func (s *stage) cancel(id string) operation.Record {
	if s.failed() {
		return operation.Record{}
	}
	rec, err := s.store.Cancel(s.ctx, id, "not wanted")
	if err != nil {
		s.fail("cancelling %q: %w", id, err)
	}
	return rec
}

// resolve must be recorded.
func (s *stage) resolve(id string, state operation.State) operation.Record {
	if s.failed() {
		return operation.Record{}
	}
	rec, err := s.store.Resolve(s.ctx, operation.Verdict{ID: id, State: state, Result: []byte("as resolved"), Reason: "seen in the provider's list"})
	if err != nil {
		s.fail("resolving %q: %w", id, err)
	}
	return rec
}

// near reports whether a duration is what it should be, up to what the steps of a case may take.
func near(got, want time.Duration) bool {
	return got <= want+rounded && got > want-2*time.Second
}

// kind demands an error of exactly one kind.
func (s *stage) kind(err, kind error, doing string, args ...any) {
	s.want(errors.Is(err, kind), "%s: %v; want an error that matches %q", fmt.Sprintf(doing, args...), err, kind)
	for _, other := range []error{
		operation.ErrInvalid, operation.ErrMismatch, operation.ErrDecided, operation.ErrUndecided, operation.ErrStale, operation.ErrNotFound, operation.ErrUnknown, operation.ErrUnavailable,
	} {
		s.want(!errors.Is(err, other) || errors.Is(kind, other), "%s: %v matches %q and %q", fmt.Sprintf(doing, args...), err, kind, other)
	}
}

// states brings one operation into each state, and names it after that; each was submitted by request, and may be attempted again.
func (s *stage) states() []operation.State {
	all := []operation.State{operation.Pending, operation.Attempting, operation.Uncertain, operation.Succeeded, operation.Failed, operation.Cancelled}
	jobs := map[operation.State]operation.Job{}
	for _, state := range all[1:5] {
		jobs[state] = s.begun(state.String(), asking())
	}
	s.complete(jobs[operation.Uncertain], noAnswer())
	s.complete(jobs[operation.Succeeded], effective("r"))
	s.complete(jobs[operation.Failed], final("no funds"))
	s.submit(operation.Pending.String(), operation.Cancelled.String())
	s.cancel(operation.Cancelled.String())
	for _, state := range all {
		rec := s.get(state.String())
		s.want(rec.State == state, "%q is %v", rec.ID, rec.State)
	}
	return all
}
