package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/budget"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"least": {Least: -1}, "most": {Most: -1}, "first": {First: -1}, "kept": {Kept: -1}, "queue": {Queue: -1}, "huge": {Most: 1 << 40}, "least above most": {Least: 9, Most: 8}, "first above most": {First: 9, Most: 8},
		"first below least": {Least: 9, First: 8}, "wait": {Wait: -1}, "a long wait": {Wait: 2 * time.Hour}, "minimum": {Minimum: -1}, "retry after": {RetryAfter: -1},
	} {
		if l, err := New(o); !errors.Is(err, budget.ErrInvalid) || l != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		o     Options
		limit int
	}{"defaults": {Options{}, 20}, "most below the usual first": {Options{Most: 5}, 5}, "least above it": {Options{Least: 30}, 30}, "more than the usual most": {Options{Least: 2000}, 2000}, "one": {Options{Least: 1, Most: 1}, 1}} {
		if n := limiter(t, c.o).Numbers(); n.Limit != c.limit {
			t.Errorf("%s: %+v", name, n)
		}
	}
	l := limiter(t, Options{})
	for _, p := range []Priority{0, -1, Work + 1} {
		if _, err := l.Acquire(t.Context(), p); !errors.Is(err, budget.ErrInvalid) {
			t.Errorf("%v: %v", p, err)
		}
	}
}

// one is a limiter in whose single place something runs.
func one(t *testing.T, o Options) (l *Limiter, release func(Outcome)) {
	t.Helper()
	o.Least, o.Most = 1, 1
	l = limiter(t, o)
	release, err := l.Acquire(t.Context(), Work)
	if err != nil {
		t.Fatal(err)
	}
	return l, release
}

// shed is the facts of an error, after it was found to be what callers go by.
func shed(t *testing.T, err error, class budget.Class) *ShedError {
	t.Helper()
	var known *budget.Error
	var s *ShedError
	if !errors.As(err, &known) || !errors.As(err, &s) || !errors.Is(err, ErrShed) || known.Class != class || budget.ClassOf(err) != class || known.NoRetry ||
		known.Again != (class == budget.Refused) || (known.RetryAfter > 0) != (class == budget.Refused) {
		t.Fatalf("%#v", err)
	}
	return s
}

// TestOrder: whoever comes first by priority, then by arrival, goes first, and each of a queue's places is used.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, release := one(t, Options{Queue: 2, Kept: 1})
		beyond, err := l.Acquire(t.Context(), Status) // the one that is kept
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		var wg sync.WaitGroup
		for i, p := range []Priority{Work, Status, Renewal, Work, Renewal, Status} {
			wg.Go(func() {
				release, err := l.Acquire(t.Context(), p)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, fmt.Sprint(p, i)) // one at a time
				<-time.After(time.Millisecond)
				release(Succeeded)
			})
			synctest.Wait()
		}
		for p := Renewal; p <= Work; p++ {
			_, err := l.Acquire(t.Context(), p)
			if s := shed(t, err, budget.Refused); s.Why != Full || s.Priority != p || s.Queued != 2 || s.InFlight != 2 || s.Limit != 1 {
				t.Errorf("%+v", s)
			}
		}
		if n := l.Numbers(); n.InFlight != 2 || n.Kept != 1 || n.Limit != 1 || n.By[Work] != (Counts{Queued: 2, Admitted: 1, Shed: 1}) || n.By[Renewal] != (Counts{Queued: 2, Shed: 1}) {
			t.Errorf("%+v", n)
		}
		release(Succeeded)
		wg.Wait()
		if want := []string{"renewal 2", "renewal 4", "status 1", "status 5", "work 0", "work 3"}; !slices.Equal(order, want) {
			t.Errorf("%v", order)
		}
		beyond(Succeeded)
		if n := l.ended.Load(); n != 3 {
			t.Errorf("the limit learns from %d; want the three of work alone", n)
		}
		if n := l.Numbers(); n.InFlight != 0 || n.Kept != 0 || n.By[Work].Queued != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// TestNewcomersDoNotPush: a place that is being given back is not taken by one who comes in that moment, before those who wait.
func TestNewcomersDoNotPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, Options{Least: 1, Most: 1})
		l.mu.Lock()
		g := l.takeLocked(Work)
		l.mu.Unlock()
		var order []int
		var wg sync.WaitGroup
		enter := func(n int) {
			wg.Go(func() {
				if release, err := l.Acquire(t.Context(), Work); err != nil {
					t.Error(err)
				} else {
					order = append(order, n)
					<-time.After(time.Millisecond)
					release(Succeeded)
				}
			})
			synctest.Wait()
		}
		enter(1)
		g.permit.Drop() // and now, in the middle of release
		enter(2)
		l.mu.Lock()
		l.inFlight--
		l.pumpLocked()
		l.mu.Unlock()
		if wg.Wait(); !slices.Equal(order, []int{1, 2}) {
			t.Errorf("%v", order)
		}
	})
}

// TestKept: work that hangs in every place does not keep renewals and queries out, and new work has none of what is kept for them.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := one(t, Options{Kept: 2})
		for _, p := range []Priority{Renewal, Status} {
			if _, err := l.Acquire(t.Context(), p); err != nil {
				t.Error(err)
			}
		}
		for _, p := range []Priority{Renewal, Status, Work} {
			begun := time.Now()
			_, err := l.Acquire(t.Context(), p)
			if s := shed(t, err, budget.Refused); s.Why != Waited || s.Waited != time.Second || time.Since(begun) != time.Second {
				t.Errorf("%+v", s)
			}
		}
	})
}

// leaver is one who waits and may not be started.
type leaver struct {
	o     Options
	ends  func(ctx context.Context) (context.Context, context.CancelFunc)
	free  time.Duration // when the place is free, and before that
	then  func(cancel context.CancelFunc)
	why   Why
	class budget.Class
	is    error
	after time.Duration // it is told
}

// play has the leaver wait for a place, and one who comes after it and must get that.
func (c leaver) play(t *testing.T) {
	t.Helper()
	l, release := one(t, c.o)
	begun := time.Now()
	ctx, cancel := c.ends(t.Context())
	defer cancel()
	var next time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		synctest.Wait()
		release, err := l.Acquire(t.Context(), Work)
		if err != nil {
			t.Error(err)
			return
		}
		next = time.Since(begun)
		release(Succeeded)
	})
	time.AfterFunc(c.free, func() {
		if c.then != nil {
			c.then(cancel)
		}
		release(Succeeded)
	})
	_, err := l.Acquire(ctx, Work)
	if s := shed(t, err, c.class); s.Why != c.why || !errors.Is(err, c.is) || time.Since(begun) != c.after || s.Waited != c.after {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
	wg.Wait()
	if n := l.Numbers(); next != c.free || n.InFlight != 0 || n.By[Work].Queued != 0 || n.By[Work].Admitted != 2 {
		t.Errorf("the next one after %v, %+v", next, n)
	}
}

// TestNobodyIsStartedTooLate: what has no time left is not started, wherever it ends, and somebody else gets its place.
func TestNobodyIsStartedTooLate(t *testing.T) {
	within := func(d time.Duration) func(ctx context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	}
	cause := errors.New("gone")
	leaves := func(after func(cancel func())) func(ctx context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			after(func() { cancel(cause) })
			return ctx, func() { cancel(cause) }
		}
	}
	for name, c := range map[string]leaver{
		"it ended before":                        {ends: leaves(func(cancel func()) { cancel() }), free: time.Second / 2, why: NoTime, class: budget.NotSent, is: cause},
		"it has too little":                      {o: Options{Minimum: time.Second}, ends: within(time.Second - 1), free: time.Second / 2, why: NoTime, class: budget.NotSent, is: budget.ErrNoTime},
		"it leaves":                              {ends: leaves(func(cancel func()) { time.AfterFunc(time.Second/4, cancel) }), free: time.Second / 2, why: NoTime, class: budget.NotSent, is: cause, after: time.Second / 4},
		"it leaves as its place comes free":      {ends: leaves(func(func()) {}), free: time.Second / 2, then: func(cancel context.CancelFunc) { cancel() }, why: NoTime, class: budget.NotSent, is: cause, after: time.Second / 2},
		"a quarter of its time is over":          {ends: within(time.Second), free: time.Second / 2, why: Waited, class: budget.Refused, is: ErrShed, after: time.Second / 4},
		"a quarter is over, and too little left": {o: Options{Minimum: 800 * time.Millisecond}, ends: within(time.Second), free: time.Second / 2, why: NoTime, class: budget.NotSent, is: budget.ErrNoTime, after: time.Second / 4},
		"its place comes when it has too little": {o: Options{Minimum: 900 * time.Millisecond}, ends: within(time.Second), free: time.Second / 5, why: NoTime, class: budget.NotSent, is: budget.ErrNoTime, after: time.Second / 5},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.play) })
	}
}

// TestReleaseTwice gives back one place.
func TestReleaseTwice(t *testing.T) {
	l := limiter(t, Options{Least: 2, Most: 2})
	first, err := l.Acquire(t.Context(), Work)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), Work); err != nil {
		t.Fatal(err)
	}
	first(Succeeded)
	first(Failed)
	if n := l.Numbers(); n.InFlight != 1 {
		t.Errorf("%+v", n)
	}
}

// TestRepeatsAreCounted: a repetition is told apart in the numbers, and in nothing else. The hints of when to come again are spread.
func TestRepeatsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, release := one(t, Options{Wait: time.Millisecond})
		b, err := budget.Start(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer b.End()
		err = budget.Do(b.Context(), budget.Policy{}, func(ctx context.Context) error {
			_, err := l.Acquire(ctx, Work)
			return err
		})
		if !errors.Is(err, budget.ErrAttempts) || !errors.Is(err, ErrShed) {
			t.Error(err)
		}
		if n := l.Numbers(); n.By[Work] != (Counts{Admitted: 1, Shed: 3, Repeats: 2}) {
			t.Errorf("%+v", n)
		}
		hints := map[time.Duration]bool{}
		for range 200 {
			var known *budget.Error
			if _, err := l.Acquire(t.Context(), Work); !errors.As(err, &known) || known.RetryAfter < time.Second || known.RetryAfter > 3*time.Second {
				t.Fatal(err)
			}
			hints[known.RetryAfter.Round(100*time.Millisecond)] = true
		}
		if len(hints) < 15 {
			t.Errorf("%d different hints", len(hints))
		}
		release(Succeeded)
	})
}

// TestLimitFollows: it falls while much of what runs outlives its callers, or takes longer than usual, does not heed what failed at once, and rises again.
func TestLimitFollows(t *testing.T) {
	work := func(l *Limiter, seconds int, took time.Duration, o Outcome) int {
		for range seconds * int(time.Second/took) {
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					if release, err := l.Acquire(context.Background(), Work); err == nil {
						<-time.After(took)
						release(o)
					}
				})
			}
			wg.Wait()
		}
		return l.Numbers().Limit
	}
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, Options{})
		usual := work(l, 60, 100*time.Millisecond, Succeeded)
		if usual < 25 {
			t.Fatalf("a limit of %d", usual)
		}
		if n := work(l, 60, 10*time.Millisecond, Failed); n > usual+1 { // the samples that were there already
			t.Errorf("failures changed it from %d to %d", usual, n)
		}
		slow := work(l, 20, 500*time.Millisecond, Succeeded)
		if slow >= usual {
			t.Errorf("slow work changed it from %d to %d", usual, slow)
		}
		if n := work(l, 300, time.Second, TimedOut); n != 4 { // a step for every 50 that end
			t.Errorf("late work left it at %d", n)
		}
		if n := work(l, 120, 100*time.Millisecond, Succeeded); n <= 20 {
			t.Errorf("after it was well again: %d", n)
		}
	})
}

// TestRace: at any moment no more run than may, and at the end nothing is left, whatever leaves at whatever moment.
func TestRace(t *testing.T) {
	l := limiter(t, Options{Least: 3, Most: 3, Kept: 2, Queue: 5, Wait: time.Millisecond})
	var running, most atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*100*time.Microsecond)
				release, err := l.Acquire(ctx, Priority(1+(g+i)%3))
				if err == nil {
					if n := running.Add(1); n > most.Load() {
						most.Store(n)
					}
					running.Add(-1)
					release(Outcome(i % 4))
				} else if !errors.Is(err, ErrShed) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	n := l.Numbers()
	if n.InFlight != 0 || n.Kept != 0 || most.Load() > 5 {
		t.Errorf("%+v, %d at a time", n, most.Load())
	}
	var all uint64
	for _, c := range n.By {
		if all += c.Admitted + c.Shed + c.NoTime; c.Queued != 0 {
			t.Errorf("%+v", n)
		}
	}
	if all != 16*500 {
		t.Errorf("%d of %d counted", all, 16*500)
	}
	if release, err := l.Acquire(t.Context(), Work); err != nil {
		t.Error(err)
	} else {
		release(Succeeded)
	}
}
