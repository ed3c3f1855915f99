package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// passOn is how a lane runs what waits in it.
type passOn func(l *lane, s *Store, many func(context.Context, []*call))

// answersLate is a lane that answers a batch when the next one has come back.
func answersLate(l *lane, s *Store, many func(context.Context, []*call)) {
	go func() {
		var last []*call
		for batch := l.take(); batch != nil; batch = l.take() {
			many(s.ctx, batch)
			answer(last)
			last = batch
		}
		answer(last)
	}()
}

// keepsLast is a lane that forgets those it was about to answer, once it has more to send.
func keepsLast(l *lane, s *Store, many func(context.Context, []*call)) {
	go func() {
		for batch := l.take(); batch != nil; batch = l.take() {
			many(s.ctx, batch)
			if l.waiting() <= len(batch) {
				answer(batch)
			}
		}
	}()
}

func TestLaneAnswersBesideTheNextBatch(t *testing.T) {
	t.Parallel()
	if err := answersBeside(t.Context(), (*lane).next); err != nil {
		t.Error(err)
	}
}

func TestLaneTwins(t *testing.T) {
	t.Parallel()
	for name, twin := range map[string]passOn{"a batch is answered after the next": answersLate, "a batch is not answered": keepsLast} {
		var lost *ruleError
		if err := answersBeside(t.Context(), twin); !errors.As(err, &lost) {
			t.Errorf("%s: not caught: %v", name, err)
		}
	}
}

// answersBeside: more calls wait than the last batch held, so the next is sent; and while it is under way, the last one's caller has its answer.
func answersBeside(ctx context.Context, run passOn) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s, l := &Store{ctx: ctx}, &lane{busy: true}
	calls := make([]*call, 4)
	for i := range calls {
		calls[i] = &call{op: "acquire", name: fmt.Sprint(i)}
	}
	sent, back := make(chan []*call), make(chan struct{})
	l.enqueueLocked(calls[0])
	run(l, s, func(_ context.Context, batch []*call) {
		sent <- batch
		<-back
	})
	if first := <-sent; !slices.Equal(first, calls[:1]) {
		return broken("the first batch has %d calls", len(first))
	}
	l.mu.Lock()
	for _, c := range calls[1:] {
		l.enqueueLocked(c)
	}
	l.mu.Unlock()
	back <- struct{}{}
	second := <-sent
	var err error
	select {
	case <-calls[0].done:
	case <-time.After(time.Second): // only a twin comes to that
		err = broken("the first batch is not answered while the second is under way")
	}
	back <- struct{}{}
	if !slices.Equal(second, calls[1:]) {
		return broken("the second batch has %d calls", len(second))
	}
	if err == nil {
		for _, c := range second {
			<-c.done
		}
		s.work.Wait()
		if l.atWork() {
			err = broken("the lane is at work still")
		}
	}
	return err
}

// TestLaneAnswersEachCall: whatever callers do, each has its answer or left in time, and the lane comes to rest.
func TestLaneAnswersEachCall(t *testing.T) {
	t.Parallel()
	s, l := &Store{ctx: t.Context()}, &lane{}
	var ran, left atomic.Int64
	single := func(_ context.Context, c *call) { c.released = true; ran.Add(1) }
	many := func(ctx context.Context, batch []*call) {
		for _, c := range batch {
			single(ctx, c)
		}
	}
	const callers, each = 64, 200
	var all sync.WaitGroup
	for g := range callers {
		all.Go(func() {
			for i := range each {
				ctx, cancel := context.WithCancel(t.Context())
				if (g+i)%3 == 0 {
					go cancel() // at some moment
				}
				c := &call{op: "release", name: fmt.Sprint(i % 5)}
				s.work.Add(1) // as enter and leave
				err := l.do(ctx, s, c, single, many)
				s.work.Done()
				cancel()
				switch {
				case err == nil && !c.released:
					t.Error("a call was answered that did not run")
				case errors.Is(err, lease.ErrUnavailable):
					left.Add(1)
				case err != nil && !errors.Is(err, lease.ErrUnknown):
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s.work.Wait()
	if l.atWork() || l.waiting() > 0 || ran.Load()+left.Load() != callers*each {
		t.Errorf("at work: %v; waiting: %d; %d calls ran and %d left, of %d", l.atWork(), l.waiting(), ran.Load(), left.Load(), callers*each)
	}
}
