package fresh

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
)

// getter is what the cases try: a Cache, or a twin.
type getter interface {
	Get(ctx context.Context, key string) (Value[int], error)
}

// source is asked by the cases. Each load takes a second.
type source struct {
	mu    sync.Mutex
	loads int
	fail  bool
	panic bool
}

func (s *source) load(ctx context.Context, _ string) (int, error) {
	s.mu.Lock()
	s.loads++
	n, fail, panics := s.loads, s.fail, s.panic
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(time.Second):
	}
	if panics {
		panic("the source is broken")
	}
	if fail {
		return 0, errTest
	}
	return n, nil
}

type playable = func(ctx context.Context, g getter, s *source) error

func expect(v Value[int], err error, want Value[int]) error {
	want.Cause = v.Cause
	if v != want || err != nil {
		return fmt.Errorf("%+v and an error of %T; want %+v", v, err, want)
	}
	return nil
}

// cases are played with a TTL of 10 s and 20 s beyond it.
func cases() map[string]playable {
	all := casesOfAge()
	maps.Copy(all, casesOfFailure())
	return all
}

func casesOfAge() map[string]playable {
	return map[string]playable{
		"callers of a key share a load": func(ctx context.Context, g getter, s *source) error {
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() { _, _ = g.Get(ctx, "a") })
			}
			if wg.Wait(); s.loads != 1 {
				return fmt.Errorf("%d loads", s.loads)
			}
			return nil
		},
		"a caller that leaves takes nobody along": func(ctx context.Context, g getter, _ *source) error {
			first, leave := context.WithCancel(ctx)
			gone := make(chan error)
			go func() { _, err := g.Get(first, "a"); gone <- err }()
			synctest.Wait()
			time.AfterFunc(time.Second/2, leave)
			v, err := g.Get(ctx, "a")
			if left := <-gone; !errors.Is(left, context.Canceled) {
				return fmt.Errorf("the caller that left got %w", left)
			}
			return expect(v, err, Value[int]{V: 1, Age: time.Second, State: Fresh})
		},
		"age counts from before the load": func(ctx context.Context, g getter, _ *source) error {
			v, err := g.Get(ctx, "a")
			return expect(v, err, Value[int]{V: 1, Age: time.Second, State: Fresh})
		},
		"as old as the TTL is stale": func(ctx context.Context, g getter, s *source) error {
			_, _ = g.Get(ctx, "a")
			<-time.After(9*time.Second - 1)
			if v, err := g.Get(ctx, "a"); s.loads != 1 {
				return fmt.Errorf("loaded again too early: %+v, %w", v, err)
			}
			<-time.After(1)
			v, err := g.Get(ctx, "a")
			return expect(v, err, Value[int]{V: 2, Age: time.Second, State: Fresh})
		},
		"as old as the bound is too old": func(ctx context.Context, g getter, s *source) error {
			_, _ = g.Get(ctx, "a")
			s.fail = true
			<-time.After(28 * time.Second)
			if v, err := g.Get(ctx, "a"); !errors.Is(err, ErrAway) {
				return fmt.Errorf("%+v, and an error of %T", v, err)
			}
			return nil
		},
	}
}

func casesOfFailure() map[string]playable {
	return map[string]playable{
		"old data is served up to its bound, and says so": func(ctx context.Context, g getter, s *source) error {
			_, _ = g.Get(ctx, "a")
			s.fail = true
			<-time.After(28*time.Second - 1)
			v, err := g.Get(ctx, "a")
			if err := expect(v, err, Value[int]{V: 1, Age: 30*time.Second - 1, State: Stale}); err != nil {
				return err
			}
			if !errors.Is(v.Cause, errTest) {
				return fmt.Errorf("the cause is %w", v.Cause)
			}
			var away *AwayError
			if v, err := g.Get(ctx, "a"); !errors.As(err, &away) || !errors.Is(err, ErrAway) || !errors.Is(err, errTest) || !away.Old || away.Age != 31*time.Second-1 {
				return fmt.Errorf("beyond the bound: %+v, and an error of %T", v, err)
			}
			return nil
		},
		"errors are not kept": func(ctx context.Context, g getter, s *source) error {
			s.fail = true
			if _, err := g.Get(ctx, "a"); !errors.Is(err, errTest) {
				return err
			}
			s.fail = false
			v, err := g.Get(ctx, "a")
			return expect(v, err, Value[int]{V: 2, Age: time.Second, State: Fresh})
		},
		"a panic reaches every waiter, and the cache goes on": func(ctx context.Context, g getter, s *source) error {
			s.panic = true
			errs := make(chan error, 10)
			for range cap(errs) {
				go func() {
					defer func() {
						if p := recover(); p != nil {
							errs <- errors.New("a caller panicked")
						}
					}()
					within, cancel := context.WithTimeout(ctx, time.Minute)
					defer cancel()
					_, err := g.Get(within, "a")
					errs <- err
				}()
			}
			for range cap(errs) {
				var panicked *PanicError
				if err := <-errs; !errors.As(err, &panicked) || !errors.Is(err, ErrAway) || len(panicked.Stack) == 0 {
					return fmt.Errorf("a waiter got %w", err)
				}
			}
			s.panic = false
			_, err := g.Get(ctx, "a")
			return err
		},
		"who does not wait any more gets the old value": func(ctx context.Context, g getter, _ *source) error {
			_, _ = g.Get(ctx, "a")
			<-time.After(20 * time.Second)
			ctx, cancel := context.WithTimeout(ctx, time.Second/2)
			defer cancel()
			v, err := g.Get(ctx, "a")
			return expect(v, err, Value[int]{V: 1, Age: 21*time.Second + time.Second/2, State: Stale})
		},
	}
}

// naive is a cache with one thing wrong.
type naive struct {
	wrong  string
	s      *source
	mu     sync.Mutex
	at     time.Time
	v      int
	has    bool
	err    error
	flight chan struct{}
}

func (c *naive) Get(ctx context.Context, key string) (Value[int], error) {
	c.mu.Lock()
	if age := time.Since(c.at); c.has && (age < 10*time.Second || c.wrong == "equality is fresh" && age == 10*time.Second) {
		defer c.mu.Unlock()
		return Value[int]{V: c.v, Age: age, State: Fresh}, nil
	}
	if c.err != nil && c.wrong == "errors are kept" {
		defer c.mu.Unlock()
		return Value[int]{}, c.err
	}
	if c.flight == nil || c.wrong == "each caller loads" {
		flight := make(chan struct{})
		c.flight = flight
		loadCtx := context.WithoutCancel(ctx)
		if c.wrong == "the load ends with its first caller" {
			loadCtx = ctx
		}
		go c.load(loadCtx, key, flight)
	}
	flight := c.flight
	c.mu.Unlock()
	var err error
	select {
	case <-flight:
		c.mu.Lock()
		defer c.mu.Unlock()
		err = c.err
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if err = ctx.Err(); c.wrong == "no old value for who leaves" {
			return Value[int]{}, err
		}
	}
	age := time.Since(c.at)
	if c.has && (err == nil || age < 30*time.Second || c.wrong == "the bound is included" && age == 30*time.Second || c.wrong == "old data without a bound") {
		v := Value[int]{V: c.v, Age: age, State: Fresh, Cause: err}
		if err != nil {
			v.State = Stale
		}
		return v, nil
	}
	return Value[int]{}, &AwayError{Old: c.has, Age: age, Cause: err}
}

func (c *naive) load(ctx context.Context, key string, flight chan struct{}) {
	at := time.Now()
	var v int
	err := errors.New("panicked")
	defer func() {
		if p := recover(); p != nil && c.wrong == "a panic is swallowed" {
			return // and whoever waits is left waiting
		} else if p != nil {
			err = &PanicError{Value: p, Stack: []byte("here")}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err = err; err == nil {
			if c.v, c.has, c.at = v, true, at; c.wrong == "age counts from the reply" {
				c.at = time.Now()
			}
		}
		c.flight = nil
		close(flight)
	}()
	v, err = c.s.load(ctx, key)
}

func play(t *testing.T, one playable, build func(s *source) getter) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		ctx, cancel := context.WithCancel(t.Context())
		err = one(ctx, build(s), s)
		cancel()
		<-time.After(time.Minute) // for loads that nobody waits for
	})
	return err
}

// TestCases plays every case on the cache, and on the naive one with nothing wrong, so that a twin is caught for what is wrong with it.
func TestCases(t *testing.T) {
	for name, one := range cases() {
		if err := play(t, one, func(s *source) getter {
			return open(t, options{Load: s.load, TTL: 10 * time.Second, StaleIfError: 20 * time.Second, Clock: clock.Monotonic()})
		}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := play(t, one, func(s *source) getter { return &naive{s: s} }); err != nil {
			t.Errorf("naive, %s: %v", name, err)
		}
	}
}

// TestTwins plays, for each twin, the case that must catch it.
func TestTwins(t *testing.T) {
	for wrong, caught := range map[string]string{
		"each caller loads":                   "callers of a key share a load",
		"the load ends with its first caller": "a caller that leaves takes nobody along",
		"age counts from the reply":           "age counts from before the load",
		"equality is fresh":                   "as old as the TTL is stale",
		"old data without a bound":            "old data is served up to its bound, and says so",
		"the bound is included":               "as old as the bound is too old",
		"errors are kept":                     "errors are not kept",
		"a panic is swallowed":                "a panic reaches every waiter, and the cache goes on",
		"no old value for who leaves":         "who does not wait any more gets the old value",
	} {
		one, ok := cases()[caught]
		if !ok {
			t.Fatalf("no case %q", caught)
		}
		err := play(t, one, func(s *source) getter { return &naive{wrong: wrong, s: s} })
		if err == nil {
			t.Errorf("%s: %q does not catch it", wrong, caught)
		}
		t.Logf("%s: %q says: %v", wrong, caught, err)
	}
}
