package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/inbox"
)

// The consumers of most cases.
const (
	mailer = "mailer"
	ledger = "ledger"
)

// maxBegins bounds how often a transaction is begun again.
const maxBegins = 100

// patience is for what comes at once; on a store that takes so long nothing can be asserted.
const patience = 30 * time.Second

// stage is one run of a case. Its methods are the steps; the first step that finds something wrong is kept, and every later one does nothing, so that a case reads as what it does
// and not as what may fail. A stage belongs to one goroutine but for what is said to be safe.
type stage[H Harness] struct {
	ctx context.Context // of the case: a stage lives no longer than the call that made it
	h   H
	err error

	mu   sync.Mutex
	done map[string]int // effects by text, as their transactions were told to have committed
}

// named makes a case of steps.
func named[H Harness](name string, steps func(s *stage[H])) Case[H] {
	return Case[H]{Name: name, Run: func(ctx context.Context, h H) error {
		s := &stage[H]{ctx: ctx, h: h, done: map[string]int{}}
		steps(s)
		if s.err != nil {
			return s.err
		}
		s.effects()
		if s.err != nil {
			return s.err
		}
		return h.Check(ctx)
	}}
}

func (s *stage[H]) failed() bool { return s.err != nil }

// fail records the first thing that was found wrong.
func (s *stage[H]) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// want fails unless ok.
func (s *stage[H]) want(ok bool, format string, args ...any) {
	if !ok {
		s.fail(format, args...)
	}
}

// advance lets d pass.
func (s *stage[H]) advance(d time.Duration) {
	if s.failed() {
		return
	}
	if err := s.h.Advance(s.ctx, d); err != nil {
		s.fail("advancing by %v: %w", d, err)
	}
}

// effects demands that each effect is there as often as its message was done.
func (s *stage[H]) effects() {
	if s.failed() {
		return
	}
	all, err := s.h.Effects(s.ctx)
	if err != nil {
		s.fail("listing the effects: %w", err)
		return
	}
	var want []string
	s.mu.Lock()
	for text, n := range s.done {
		want = append(want, slices.Repeat([]string{text}, n)...)
	}
	s.mu.Unlock()
	slices.Sort(all)
	slices.Sort(want)
	s.want(slices.Equal(all, want), "the effects are %q; done was %q", all, want)
}

// usual begins a transaction at the usual level.
func (s *stage[H]) usual(ctx context.Context) (Tx, error) { return s.h.Begin(ctx, "") }

// begin must be granted.
func (s *stage[H]) begin() Tx {
	if s.failed() {
		return nil
	}
	tx, err := s.usual(s.ctx)
	if err != nil {
		s.fail("beginning a transaction: %w", err)
	}
	return tx
}

func effectOf(consumer, id string) string { return consumer + " did " + id }

// once does a message's work in tx: it writes the effect.
func once(ctx context.Context, tx Tx, consumer, id string) (inbox.Result, error) {
	calls := 0
	r, err := tx.Once(ctx, consumer, id, func(ctx context.Context) error {
		calls++
		return tx.Effect(ctx, effectOf(consumer, id))
	})
	if err == nil && (calls != 0) == r.Repeated || calls > 1 {
		return r, fmt.Errorf("the work was called %d times, and the result is %+v", calls, r)
	}
	if err == nil && (!r.Repeated && (r.Late || r.Age != 0) || r.Age < 0) {
		return r, fmt.Errorf("the result is %+v", r)
	}
	return r, err
}

// deliver runs a transaction that does a message's work and commits, again as often as the store wants. It is safe for concurrent use.
func (s *stage[H]) deliver(begin func(context.Context) (Tx, error), consumer, id string) (inbox.Result, error) {
	for range maxBegins {
		r, err := s.attempt(begin, consumer, id)
		if err == nil || !s.h.Again(err) {
			return r, err
		}
	}
	return inbox.Result{}, fmt.Errorf("delivering %q to %q: begun again %d times", id, consumer, maxBegins)
}

func (s *stage[H]) attempt(begin func(context.Context) (Tx, error), consumer, id string) (inbox.Result, error) {
	tx, err := begin(s.ctx)
	if err != nil {
		return inbox.Result{}, err
	}
	r, err := once(s.ctx, tx, consumer, id)
	if err == nil {
		err = tx.Commit(s.ctx)
	}
	if err != nil {
		return r, errors.Join(err, tx.Rollback(s.ctx))
	}
	if !r.Repeated {
		s.mu.Lock()
		s.done[effectOf(consumer, id)]++
		s.mu.Unlock()
	}
	return r, nil
}

// first must do it.
func (s *stage[H]) first(consumer, id string) {
	if s.failed() {
		return
	}
	r, err := s.deliver(s.usual, consumer, id)
	s.want(err == nil && !r.Repeated, "delivering %q to %q: %+v, %v; want it done", id, consumer, r, err)
}

// repeated must not do it.
func (s *stage[H]) repeated(consumer, id string) inbox.Result {
	if s.failed() {
		return inbox.Result{}
	}
	r, err := s.deliver(s.usual, consumer, id)
	s.want(err == nil && r.Repeated, "delivering %q to %q again: %+v, %v; want it repeated", id, consumer, r, err)
	return r
}

// end rolls back, or commits what must be committed.
func (s *stage[H]) end(tx Tx, commit bool) {
	if tx == nil {
		return
	}
	if s.failed() || !commit {
		if err := tx.Rollback(s.ctx); err != nil {
			s.fail("rolling back: %w", err)
		}
		return
	}
	if err := tx.Commit(s.ctx); err != nil {
		s.fail("committing: %w", err)
	}
}

// counted demands that the counts have grown by so much.
func (s *stage[H]) counted(was inbox.Stats, first, repeated, late int64) {
	if s.failed() {
		return
	}
	now := s.h.Store().Stats()
	got := inbox.Stats{First: now.First - was.First, Repeated: now.Repeated - was.Repeated, Late: now.Late - was.Late}
	want := inbox.Stats{First: first, Repeated: repeated, Late: late}
	s.want(got == want, "counted are %+v; want %+v", got, want)
}

// prune must forget so many.
func (s *stage[H]) prune(keep time.Duration, limit, want int) {
	if s.failed() {
		return
	}
	n, err := s.h.Store().Prune(s.ctx, keep, limit)
	if err != nil {
		s.fail("pruning what is older than %v: %w", keep, err)
	}
	s.want(n == want, "pruning at most %d older than %v forgot %d; want %d", limit, keep, n, want)
}

// near reports whether an age is what it should be, up to what the steps of a case may take.
func near(got, want time.Duration) bool {
	return got >= want-time.Millisecond && got < want+2*time.Second
}

// noText are texts that no store keeps, for a limit.
func noText(most int) map[string]string {
	return map[string]string{
		"none": "", "a long one": strings.Repeat("x", most+1), "a NUL": "a\x00b", "a line feed": "a\nb", "a C1 control": "a\u0085b", "no UTF-8": "a\xff", "half a surrogate": "a\xed\xa0\x80",
	}
}
