package fresh

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// flight is one load and those who wait for it. What it brought is written before done is closed, and never after.
type flight[V any] struct {
	done chan struct{}
	outcome[V]
}

// outcome is what a load brought: a value, or a failure.
type outcome[V any] struct {
	loaded *entry[V]
	failed *failure
	keep   time.Duration // the failure
}

func failedWith[V any](err error) outcome[V] { return outcome[V]{failed: &failure{err: err}} }

// join is the load of key, and what is known until it ends: the one that runs, or a new one. There is none where a load has ended since the caller looked, and left what answers now.
// It returns [ErrBusy] if no more may be begun.
//
// A load that did not return in time is found here until it does, so that a source that hangs is not asked again and again for the same key.
func (c *Cache[K, V]) join(ctx context.Context, key K) (*flight[V], *entry[V], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, _ := c.kept.GetIfPresent(key)
	if f := c.flights[key]; f != nil {
		return f, known, nil
	}
	if _, ok, _ := c.answer(known); ok {
		return nil, known, nil
	}
	if c.begun >= c.o.Loads+c.o.Queue {
		return nil, known, ErrBusy
	}
	c.begun++
	f := &flight[V]{done: make(chan struct{})}
	c.flights[key] = f
	go c.fly(budget.WithoutAttempt(context.WithoutCancel(ctx)), key, f, known)
	return f, known, nil
}

// fly is one load, apart from whoever asked for it first.
func (c *Cache[K, V]) fly(ctx context.Context, key K, f *flight[V], known *entry[V]) {
	b, err := budget.Start(ctx, c.o.Timeout, budget.Named("load")) // of its own: the caller's may end before
	if err != nil {
		c.end(key, f, known, failedWith[V](err))
		return
	}
	defer b.End()
	ctx = b.Context()
	select {
	case c.turns <- struct{}{}:
	case <-ctx.Done():
		c.end(key, f, known, failedWith[V](ErrBusy))
		return
	}
	came := make(chan outcome[V], 1)
	go func() {
		defer func() { <-c.turns }()
		c.load(ctx, key, came)
	}()
	select {
	case o := <-came:
		c.end(key, f, known, o)
	case <-ctx.Done():
		f.outcome = failedWith[V](ErrNoAnswer)
		close(f.done)
		c.landed(key, f, known, <-came)
	}
}

// end keeps what a load brought, then answers those who wait.
func (c *Cache[K, V]) end(key K, f *flight[V], known *entry[V], o outcome[V]) {
	c.landed(key, f, known, o)
	f.outcome = o
	close(f.done)
}

// load asks the source, and says in came what it brought: once, also if Load panics or ends this goroutine.
func (c *Cache[K, V]) load(ctx context.Context, key K, came chan<- outcome[V]) {
	brought := failedWith[V](errExited)
	defer func() {
		if p := recover(); p != nil {
			brought = failedWith[V](&PanicError{Value: p, Stack: debug.Stack()})
		}
		came <- brought
	}()
	at := c.o.Clock()
	value, err := c.o.Load(ctx, key)
	if err == nil {
		brought = outcome[V]{loaded: &entry[V]{value: value, has: true, at: at}}
		return
	}
	brought = failedWith[V](err)
	if c.o.Judge != nil {
		meaning := c.o.Judge(err)
		brought.failed.answer, brought.keep = meaning.Answer, min(meaning.Keep, maxDuration)
	}
}

// landed keeps what a load brought, unless its key was forgotten since it began.
func (c *Cache[K, V]) landed(key K, f *flight[V], known *entry[V], o outcome[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun--
	if c.flights[key] != f {
		return
	}
	delete(c.flights, key)
	switch {
	case o.failed == nil:
		c.kept.Set(key, o.loaded)
	case o.keep > 0:
		e := &entry[V]{failed: o.failed, expires: c.o.Clock() + o.keep}
		if known != nil && !o.failed.answer {
			e.value, e.has, e.at = known.value, known.has, known.at
		}
		c.kept.Set(key, e)
	case o.failed.answer:
		c.kept.Invalidate(key)
	}
}
