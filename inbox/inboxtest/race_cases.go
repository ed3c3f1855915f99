package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/inbox"
)

func raceCases() []Case[Harness] {
	return []Case[Harness]{
		named("of-two-at-once-the-second-waits-and-is-told-that-it-repeats", func(s *stage[Harness]) { secondWaits(s, s.usual, true) }),
		named("of-two-at-once-the-second-does-what-the-first-rolled-back", func(s *stage[Harness]) { secondWaits(s, s.usual, false) }),
		named("of-many-at-once-one-does-it", func(s *stage[Harness]) { manyAtOnce(s, s.usual) }),
	}
}

func levelCases() []Case[LevelHarness] {
	return []Case[LevelHarness]{
		named("at-every-level-it-is-done-once", atLevels(func(s *stage[LevelHarness], begin beginning) {
			for i, want := range []bool{false, true, true} {
				r, err := s.deliver(begin, mailer, "a")
				s.want(err == nil && r.Repeated == want, "delivery %d: %+v, %v", i, r, err)
			}
		})),
		named("at-every-level-the-second-waits-and-is-told-that-it-repeats", atLevels(func(s *stage[LevelHarness], begin beginning) { secondWaits(s, begin, true) })),
		named("at-every-level-the-second-does-what-the-first-rolled-back", atLevels(func(s *stage[LevelHarness], begin beginning) { secondWaits(s, begin, false) })),
		named("at-every-level-of-many-at-once-one-does-it", atLevels(func(s *stage[LevelHarness], begin beginning) { manyAtOnce(s, begin) })),
		named("at-every-level-what-was-done-after-a-transaction-began-is-not-done-again", atLevels(snapshotBefore)),
		named("an-open-transaction-holds-up-only-its-own-message", openHoldsUpNobody),
	}
}

type beginning = func(context.Context) (Tx, error)

// atLevels runs steps at each level, each time with other messages.
func atLevels(steps func(s *stage[LevelHarness], begin beginning)) func(s *stage[LevelHarness]) {
	return func(s *stage[LevelHarness]) {
		for _, level := range s.h.Levels() {
			steps(s, func(ctx context.Context) (Tx, error) {
				tx, err := s.h.Begin(ctx, level)
				return levelled{tx, level}, err
			})
			if s.failed() {
				s.err = fmt.Errorf("at level %q: %w", level, s.err)
				return
			}
		}
	}
}

// levelled has consumers of its own.
type levelled struct {
	Tx
	level string
}

func (t levelled) Once(ctx context.Context, consumer, id string, fn func(context.Context) error) (inbox.Result, error) {
	return t.Tx.Once(ctx, consumer+" at "+t.level, id, fn)
}

// secondWaits lets a second transaction come while the first has done the work and not ended.
func secondWaits[H Harness](s *stage[H], begin beginning, commits bool) {
	if s.failed() {
		return
	}
	first, err := begin(s.ctx)
	if err != nil {
		s.fail("beginning: %w", err)
		return
	}
	r, err := once(s.ctx, first, mailer, "a")
	s.want(err == nil && !r.Repeated, "the first: %+v, %v", r, err)
	type reply struct {
		r   inbox.Result
		err error
	}
	second := make(chan reply, 1)
	go func() {
		r, err := s.deliver(begin, mailer, "a")
		second <- reply{r, err}
	}()
	select { // long enough that one which does not wait has answered
	case got := <-second:
		s.fail("the first has not ended, and the second is answered: %+v, %v", got.r, got.err)
		second <- got
	case <-time.After(100 * time.Millisecond):
	}
	s.end(first, commits)
	if commits && !s.failed() {
		s.mu.Lock()
		s.done[effectOf(mailer, "a")]++
		s.mu.Unlock()
	}
	select {
	case got := <-second:
		s.want(got.err == nil && got.r.Repeated == commits, "the second, the first having ended (committed: %v): %+v, %v", commits, got.r, got.err)
	case <-time.After(patience):
		s.fail("the first has ended, and the second waits")
	}
	s.effects()
}

func manyAtOnce[H Harness](s *stage[H], begin beginning) {
	const callers, messages = 8, 5
	if s.failed() {
		return
	}
	errs := make([]error, callers)
	firsts := make([]int, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for m := range messages {
				r, err := s.deliver(begin, ledger, fmt.Sprint("m", (i+m)%messages))
				errs[i] = errors.Join(errs[i], err)
				if err == nil && !r.Repeated {
					firsts[i]++
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range firsts {
		sum += n
	}
	err := errors.Join(errs...)
	s.want(err == nil && sum == messages, "%d callers did %d of %d messages: %v", callers, sum, messages, err)
	s.effects()
}

func snapshotBefore(s *stage[LevelHarness], begin beginning) {
	if s.failed() {
		return
	}
	early, err := begin(s.ctx)
	if err != nil {
		s.fail("beginning: %w", err)
		return
	}
	if err := early.Look(s.ctx); err != nil {
		s.fail("looking: %w", err)
	}
	r, err := s.deliver(begin, mailer, "s")
	s.want(err == nil && !r.Repeated, "while another is open: %+v, %v", r, err)
	r, err = once(s.ctx, early, mailer, "s")
	again := err != nil && s.h.Again(err)
	s.want(again || err == nil && r.Repeated, "in a transaction that began before: %+v, %v; want it repeated, or to be begun again", r, err)
	s.end(early, !again)
	r, err = s.deliver(begin, mailer, "s")
	s.want(err == nil && r.Repeated, "afterwards: %+v, %v", r, err)
}

func openHoldsUpNobody(s *stage[LevelHarness]) {
	open := s.begin()
	if s.failed() {
		return
	}
	r, err := once(s.ctx, open, mailer, "a")
	s.want(err == nil && !r.Repeated, "the first: %+v, %v", r, err)
	s.first(mailer, "b")
	s.repeated(mailer, "b")
	s.first(ledger, "a")
	s.advance(2 * Window)
	s.prune(Window, 10, 2)
	s.end(open, true)
	s.done[effectOf(mailer, "a")]++
	s.repeated(mailer, "a")
}
