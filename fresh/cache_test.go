package fresh

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/internal/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errTest = errors.New("test")

type options = Options[string, int]

func open(t testing.TB, o options) *Cache[string, int] {
	t.Helper()
	if o.Clock == nil {
		o.Clock = clock.Monotonic()
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewRefuses(t *testing.T) {
	load := func(context.Context, string) (int, error) { return 0, nil }
	for name, o := range map[string]options{
		"no load": {TTL: 1}, "no TTL": {Load: load}, "a negative TTL": {Load: load, TTL: -1}, "a TTL of years": {Load: load, TTL: 1 << 62}, "a negative bound": {Load: load, TTL: 1, StaleIfError: -1},
		"a huge bound": {Load: load, TTL: 1, StaleIfError: 1 << 62}, "a negative timeout": {Load: load, TTL: 1, Timeout: -1}, "a timeout above the TTL": {Load: load, TTL: 1, Timeout: 2},
		"entries": {Load: load, TTL: 1, Entries: -1}, "loads": {Load: load, TTL: 1, Loads: -1}, "queue": {Load: load, TTL: 1, Queue: -1}, "too many loads": {Load: load, TTL: 1, Loads: 1 << 40},
	} {
		if _, err := New(o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c := open(t, options{Load: load, TTL: time.Second}); c.o.Timeout != time.Second || c.o.Entries != 10_000 || c.o.Loads != 64 || c.o.Queue != 1024 {
		t.Errorf("%+v", c.o)
	}
}

// TestLoadsAreBounded: as many run as are allowed, as many wait, and one beyond them fails at once and is not begun; one that waits too long is not begun either.
func TestLoadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, all atomic.Int32
		c := open(t, options{TTL: time.Minute, Timeout: 3 * time.Second, Loads: 2, Queue: 3, Load: func(context.Context, string) (int, error) {
			most.Store(max(most.Load(), running.Add(1)))
			all.Add(1)
			defer running.Add(-1)
			<-time.After(2 * time.Second) // nothing ends it
			return 1, nil
		}})
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			wg.Go(func() { _, errs[i] = c.Get(t.Context(), fmt.Sprint(i)) })
			synctest.Wait()
		}
		if !errors.Is(errs[5], ErrBusy) || !errors.Is(errs[5], ErrAway) {
			t.Errorf("the sixth: %v", errs[5])
		}
		wg.Wait()
		synctest.Wait()
		if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], ErrNoAnswer) || !errors.Is(errs[4], ErrBusy) || most.Load() != 2 || all.Load() != 4 {
			t.Errorf("%v; %d at a time, %d in all", errs, most.Load(), all.Load())
		}
		<-time.After(time.Minute / 2)
		if v, err := c.Get(t.Context(), "2"); err != nil || v.Age < 27*time.Second || all.Load() != 4 {
			t.Errorf("what came too late for its callers is kept: %+v, %v; %d loads", v, err, all.Load())
		}
		if c.begun != 0 || len(c.flights) != 0 || len(c.turns) != 0 {
			t.Errorf("left: %d begun, %d flights, %d turns", c.begun, len(c.flights), len(c.turns))
		}
	})
}

// TestHungSource: a load that returns neither in time nor when its context ends keeps its key: nobody asks again before it is back, and nobody waits for it.
func TestHungSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		back := make(chan struct{})
		c := open(t, options{TTL: time.Minute, Timeout: time.Second, Load: func(context.Context, string) (int, error) {
			n.Add(1)
			<-back
			return 7, nil
		}})
		for range 3 {
			if _, err := c.Get(t.Context(), "a"); !errors.Is(err, ErrAway) || !errors.Is(err, ErrNoAnswer) {
				t.Error(err)
			}
			<-time.After(time.Second)
		}
		close(back)
		synctest.Wait()
		if v, err := c.Get(t.Context(), "a"); v.V != 7 || v.Age != 4*time.Second || v.State != Fresh || err != nil || n.Load() != 1 {
			t.Errorf("%+v, %v, after %d loads", v, err, n.Load())
		}
	})
}

// TestExit: a load that ends its goroutine fails like any other.
func TestExit(t *testing.T) {
	c := open(t, options{TTL: time.Minute, Load: func(context.Context, string) (int, error) {
		runtime.Goexit()
		return 0, nil
	}})
	for range 2 {
		if _, err := c.Get(t.Context(), "a"); !errors.Is(err, ErrAway) {
			t.Error(err)
		}
	}
}

// TestJudge: what the source answered is not covered up by old data, and an error counts as long as it is said to, and no longer.
func TestJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errAbsent, errGone, errSlow := errors.New("no such thing"), errors.New("gone"), errors.New("slow")
		var next error
		n := 0
		c := open(t, options{TTL: time.Second, StaleIfError: time.Hour, Load: func(context.Context, string) (int, error) { n++; return n, next }, Judge: func(err error) Failure {
			return Failure{Answer: errors.Is(err, errAbsent) || errors.Is(err, errGone), Keep: map[error]time.Duration{errAbsent: 5 * time.Second, errSlow: 3 * time.Second}[err]}
		}})
		step := func(fail error, after time.Duration, want string) {
			t.Helper()
			next = fail
			<-time.After(after)
			v, err := c.Get(t.Context(), "a")
			if got := fmt.Sprintf("%d %v %v %v, %d loads", v.V, v.State, v.Cause, err, n); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
		step(nil, 0, "1 fresh <nil> <nil>, 1 loads")
		step(errTest, time.Second, "1 stale test <nil>, 2 loads")
		step(errSlow, 0, "1 stale slow <nil>, 3 loads")
		step(nil, 3*time.Second-1, "1 stale slow <nil>, 3 loads") // not asked again
		step(nil, 1, "4 fresh <nil> <nil>, 4 loads")
		step(errAbsent, time.Second, "0 State(0) <nil> no such thing, 5 loads")
		step(nil, 5*time.Second-1, "0 State(0) <nil> no such thing, 5 loads")
		step(errTest, 1, "0 State(0) <nil> fresh: the source did not answer, and there is no value to serve instead: test, 6 loads") // nothing older came back
		step(nil, 0, "7 fresh <nil> <nil>, 7 loads")
		step(errGone, time.Second, "0 State(0) <nil> gone, 8 loads")
		step(errTest, 0, "0 State(0) <nil> fresh: the source did not answer, and there is no value to serve instead: test, 9 loads") // nor here
	})
}

// TestNoLoadTwice: who found an old value while another load ended does not begin one more, and who does not wait any more begins none.
func TestNoLoadTwice(t *testing.T) {
	n := 0
	now := time.Duration(0)
	var meanwhile func()
	c := open(t, options{TTL: time.Second, Load: func(context.Context, string) (int, error) { n++; return n, nil }, Clock: func() time.Duration {
		if do := meanwhile; do != nil {
			at := now
			meanwhile = nil
			do()
			return at
		}
		return now
	}})
	get := func() {
		t.Helper()
		if v, err := c.Get(t.Context(), "a"); err != nil || v.State != Fresh {
			t.Errorf("%+v, %v", v, err)
		}
	}
	get()
	now, meanwhile = time.Second, get
	if get(); n != 2 {
		t.Errorf("%d loads", n)
	}
	now = time.Hour
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := c.Get(ended, "a"); !errors.Is(err, ErrAway) || !errors.Is(err, context.Canceled) || c.begun != 0 || n != 2 {
		t.Errorf("%+v, %v, %d loads", v, err, n)
	}
}

// TestForget: a load that began before a key was forgotten does not bring back what was forgotten.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		c := open(t, options{TTL: time.Hour, Load: func(context.Context, string) (int, error) {
			v := int(n.Add(1))
			<-time.After(time.Second)
			return v, nil
		}})
		got := make(chan int)
		get := func() {
			v, err := c.Get(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			got <- v.V
		}
		go get()
		synctest.Wait()
		c.Forget("a")
		<-time.After(time.Second / 2)
		go get()
		first := <-got
		go get() // what the first load brought is not kept
		if second, third := <-got, <-got; first != 1 || second != 2 || third != 2 {
			t.Errorf("%d, then %d and %d", first, second, third)
		}
		if v, err := c.Get(t.Context(), "a"); v.V != 2 || err != nil {
			t.Errorf("%+v, %v", v, err)
		}
		c.Forget("a")
		if v, err := c.Get(t.Context(), "a"); v.V != 3 || err != nil {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// TestLoadsContext: a load has the values of its first caller, and a budget of its own.
func TestLoadsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		b, err := budget.Start(context.WithValue(t.Context(), key{}, "trace"), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer b.End()
		c := open(t, options{TTL: time.Minute, Load: func(ctx context.Context, _ string) (int, error) {
			own := budget.From(ctx)
			if ctx.Value(key{}) != "trace" || own == b || own.Total() != 10*time.Second {
				t.Errorf("%v, %+v", ctx.Value(key{}), own)
			}
			return 1, budget.Do(ctx, budget.Policy{}, func(context.Context) error { <-time.After(2 * time.Second); return nil })
		}})
		if _, err := c.Get(b.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-time.After(time.Second)
		synctest.Wait()
		if v, err := c.Get(t.Context(), "a"); v.V != 1 || v.Age != 2*time.Second || err != nil {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// TestEntriesAreBounded: the cache holds about as many as it is told to.
func TestEntriesAreBounded(t *testing.T) {
	c := open(t, options{TTL: time.Hour, Entries: 100, Load: func(context.Context, string) (int, error) { return 1, nil }})
	for i := range 10_000 {
		if _, err := c.Get(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	c.kept.CleanUp()
	if n := c.kept.EstimatedSize(); n > 100 {
		t.Errorf("%d entries", n)
	}
}

// TestRace has many callers, keys, failures and panics at once.
func TestRace(t *testing.T) {
	var n atomic.Int64
	c := open(t, options{TTL: time.Microsecond * 50, Timeout: 50 * time.Microsecond, StaleIfError: time.Millisecond, Entries: 8, Loads: 3, Queue: 2, Load: func(context.Context, string) (int, error) {
		switch v := n.Add(1); {
		case v%7 == 0:
			panic(v)
		case v%5 == 0:
			return 0, errTest
		default:
			return int(v), nil
		}
	}, Judge: func(error) Failure { return Failure{Answer: n.Load()%2 == 0, Keep: time.Duration(n.Load() % 3)} }})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				v, err := c.Get(t.Context(), fmt.Sprint(i%20))
				if err == nil && (v.V == 0 || v.State == 0) || err != nil && !errors.Is(err, ErrAway) && !errors.Is(err, errTest) {
					t.Errorf("%+v, %v", v, err)
				}
				if i%50 == g {
					c.Forget(fmt.Sprint(i % 20))
				}
			}
		})
	}
	wg.Wait()
}
