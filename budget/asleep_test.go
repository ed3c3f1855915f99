package budget

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// machine sleeps, and has a wall clock that is set, while Go's clock, the bubble's, does as it does: it stands still through the one and knows nothing of the other.
type machine struct {
	begun          time.Time
	slept, stepped time.Duration
}

func newMachine() *machine { return &machine{begun: time.Now()} }

func (m *machine) wall(t time.Time) int64 { return t.Add(m.slept + m.stepped).UnixNano() }

func (m *machine) boot() time.Duration { return time.Since(m.begun) + m.slept }

// clocks are what a budget reads.
type clocks func(m *machine) Option

func whole(m *machine) Option {
	return func(b *Budget) { b.asleep.boot, b.asleep.wall = m.boot, m.wall }
}

func collect(wrong *error) func(ok bool, format string, args ...any) {
	return func(ok bool, format string, args ...any) {
		if !ok {
			*wrong = errors.Join(*wrong, fmt.Errorf(format, args...))
		}
	}
}

// sleptThrough: after a sleep longer than the budget it is spent, nothing is started, nothing is sent, and its contexts have ended. What was cut off from it goes on.
func sleptThrough(c clocks) (wrong error) {
	m := newMachine()
	b, err := Start(context.Background(), 10*time.Second, Reserve(time.Second), Named("checkout"), c(m))
	if err != nil {
		return err
	}
	defer b.End()
	running, done, err := b.Attempt(b.Context(), Try{Name: "stock", Timeout: 5 * time.Second})
	if err != nil {
		return err
	}
	<-time.After(time.Second)
	m.slept = time.Minute
	want := collect(&wrong)
	w, err := Outgoing(running)
	want(errors.Is(err, context.DeadlineExceeded) && ClassOf(err) == NotSent, "the wire: %+v, %v", w, err)
	want(b.Remaining() == 0 && b.RemainingTotal() == 0, "%v and %v are left", b.Remaining(), b.RemainingTotal())
	calls := 0
	err = Do(b.Context(), Policy{}, func(context.Context) error { calls++; return nil })
	want(errors.Is(err, context.DeadlineExceeded) && calls == 0, "%d calls, %v", calls, err)
	_, _, err = b.Attempt(b.Context(), Try{})
	want(errors.Is(err, context.DeadlineExceeded), "an attempt: %v", err)
	for name, ctx := range map[string]context.Context{"budget": b.Context(), "attempt": running} {
		want(ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded), "the context of the %s: %v", name, context.Cause(ctx))
		_, err = Start(ctx, time.Hour)
		want(errors.Is(err, ErrNoTime), "a budget within that of the %s: %v", name, err)
	}
	done(running.Err())
	e := b.Explain()
	want(e.Slept == time.Minute && e.Spent == 10*time.Second && strings.Contains(e.String(), "the machine slept for 1m0s"), "%v", e)
	apart, cancel := context.WithTimeout(context.WithoutCancel(running), 30*time.Second)
	defer cancel()
	w, err = Outgoing(apart)
	want(err == nil && w.Remaining == 30*time.Second, "cut off: %+v, %v", w, err)
	return wrong
}

// sleptAWhile: after a sleep that leaves some of the budget, that is what there is, and not more is said to others.
func sleptAWhile(c clocks) (wrong error) {
	m := newMachine()
	b, err := Start(context.Background(), 10*time.Second, Reserve(time.Second), c(m))
	if err != nil {
		return err
	}
	defer b.End()
	split, err := b.Split(Part{Name: "all", Share: 1})
	if err != nil {
		return err
	}
	m.slept = 4 * time.Second
	<-time.After(time.Second)
	want := collect(&wrong)
	want(b.Remaining() == 4*time.Second, "%v are left", b.Remaining())
	w, err := Outgoing(b.Context())
	want(err == nil && w.Remaining == 5*time.Second, "the wire: %+v, %v", w, err)
	left := func(ctx context.Context) time.Duration {
		deadline, _ := ctx.Deadline()
		return time.Until(deadline)
	}
	ctx, done, err := b.Attempt(b.Context(), Try{Name: "stock"})
	if want(err == nil, "an attempt: %v", err); err == nil {
		want(left(ctx) == 4*time.Second, "an attempt has %v", left(ctx))
		done(nil)
	}
	err = Do(b.Context(), Policy{}, func(ctx context.Context) error {
		want(left(ctx) == 4*time.Second, "Do has %v", left(ctx))
		return nil
	})
	want(err == nil, "Do: %v", err)
	own, cancel := context.WithTimeout(b.Context(), 2*time.Second) // by Go's clock, after the sleep
	defer cancel()
	err = Do(own, Policy{}, func(ctx context.Context) error {
		want(left(ctx) == 2*time.Second, "Do with a deadline of its own has %v", left(ctx))
		return nil
	})
	want(err == nil, "Do with a deadline of its own: %v", err)
	inner, err := Start(b.Context(), time.Hour, c(m))
	if want(err == nil, "a budget within: %v", err); err == nil {
		want(inner.Total() == 5*time.Second && inner.RemainingTotal() == 5*time.Second, "a budget within has %v", inner.Total())
		inner.End()
	}
	part, err := split.Part("all", c(m))
	if want(err == nil, "a part: %v", err); err == nil {
		want(part.Total() == 4*time.Second, "a part has %v", part.Total())
		part.End()
	}
	return wrong
}

// stepped: a wall clock that is set, forwards and backwards, changes nothing, before a sleep or after it.
func stepped(c clocks) (wrong error) {
	m := newMachine()
	b, err := Start(context.Background(), 100*time.Second, c(m))
	if err != nil {
		return err
	}
	defer b.End()
	want := collect(&wrong)
	for i, step := range []time.Duration{time.Hour, -2 * time.Hour, 24 * 365 * time.Hour, 5 * time.Millisecond, -time.Minute} {
		m.stepped += step
		<-time.After(time.Second)
		left := 100*time.Second - time.Duration(i+1)*time.Second
		want(b.Remaining() == left, "a step of %v: %v are left, want %v", step, b.Remaining(), left)
		w, err := Outgoing(b.Context())
		want(err == nil && w.Remaining == left, "a step of %v: the wire: %+v, %v", step, w, err)
		err = Do(b.Context(), Policy{}, func(context.Context) error { return nil })
		want(err == nil, "a step of %v: %v", step, err)
	}
	m.slept, m.stepped = 20*time.Second, m.stepped-time.Hour
	want(b.Remaining() == 75*time.Second, "a sleep and a step: %v are left", b.Remaining())
	want(b.Explain().Slept == 20*time.Second, "%v", b.Explain())
	return wrong
}

func stories() map[string]func(c clocks) error {
	return map[string]func(c clocks) error{"slept through": sleptThrough, "slept for a while": sleptAWhile, "a clock that is set": stepped}
}

// TestClocks: what sleep does to a budget, and what steps do not.
func TestClocks(t *testing.T) {
	for name, story := range stories() {
		synctest.Test(t, func(t *testing.T) {
			if err := story(whole); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestWrongClocksAreCaught: each by the story that it belongs to.
func TestWrongClocksAreCaught(t *testing.T) {
	goAlone := func(m *machine) Option {
		return func(b *Budget) {
			b.asleep.boot, b.asleep.wall = func() time.Duration { return time.Since(m.begun) }, m.wall
		}
	}
	wallAlone := func(m *machine) Option {
		return func(b *Budget) {
			b.asleep.boot, b.asleep.wall = func() time.Duration { return time.Duration(m.wall(time.Now()) - m.begun.UnixNano()) }, m.wall
		}
	}
	for name, c := range map[string]struct {
		caught []string
		clocks clocks
	}{
		"Go's clock alone": {[]string{"slept through", "slept for a while"}, goAlone}, "the wall clock is believed": {[]string{"a clock that is set"}, wallAlone},
	} {
		for _, story := range c.caught {
			synctest.Test(t, func(t *testing.T) {
				if err := stories()[story](c.clocks); err == nil {
					t.Errorf("%s: %q does not catch it", name, story)
				}
			})
		}
	}
}

// TestRealClocks: the clocks of this machine agree that it has not slept, however often it is asked.
func TestRealClocks(t *testing.T) {
	b := start(t, time.Hour)
	for range 1000 {
		b.asleep.apart.Store(int64(time.Hour)) // as if the wall clock had been set
		if b.spent(); b.asleep.slept.Load() != 0 {
			t.Fatalf("slept for %v", time.Duration(b.asleep.slept.Load()))
		}
	}
}
