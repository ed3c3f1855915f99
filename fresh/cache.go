package fresh

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/tenure-go/tenure/internal/clock"
)

// State is whether a value counts as current.
type State int

// The states. The zero value is none.
const (
	Fresh State = iota + 1 // younger than the TTL
	Stale                  // as old as the TTL or older: the source did not answer
)

// String is the state as texts and log attributes use it.
func (s State) String() string {
	switch s {
	case Fresh:
		return "fresh"
	case Stale:
		return "stale"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Value is what a cache knows of a key.
type Value[V any] struct {
	V     V
	Age   time.Duration // since just before its load was sent: it may be older, by what the source itself keeps
	State State
	Cause error // why a stale value is served: what became of asking for a newer one; nil for a fresh one
}

// Options say what a [Cache] asks, and for how long it counts.
type Options[K comparable, V any] struct {
	// Load asks the source. Its context ends after Timeout, and carries a budget of that; it has the values of the context of the caller that came first, and does not end with it. It is
	// of no attempt and carries no mark of budget.NoRetry, whatever that caller's is: others wait for it too.
	// The value is served to everybody who asks for the key, so the key holds all that the value depends on, such as whose it is. Values are shared: nobody changes one.
	Load func(ctx context.Context, key K) (V, error)
	// TTL is how long a value counts as current; more than 0, at most a year.
	TTL time.Duration
	// StaleIfError is how much longer it is served if the source does not answer; 0: not at all; at most a year.
	StaleIfError time.Duration
	// Timeout bounds a load, the wait for its turn included; 0: 10 s, or TTL where that is less. At most TTL, else a value could come too old to be current.
	Timeout time.Duration
	// Entries is how many keys are kept, about; 0: 10,000. Those beyond it that are used least are forgotten.
	Entries int
	// Loads is how many run at a time; 0: 64. As many as Queue, 0: 1,024, wait for their turn; one beyond them is not begun, and the source counts as away.
	Loads, Queue int
	// Judge says what a load's error means; nil: the source is away, and the next caller asks again.
	Judge func(error) Failure
	// Clock is a clock that never goes back; nil: one that also counts while the machine sleeps, so that a value does not stay young by it; for a cache
	// that is made in a testing/synctest bubble, the bubble's.
	Clock func() time.Duration
}

// Failure is what a load's error means.
type Failure struct {
	// Answer: the source has answered, for example that there is no such thing. The error is returned as it is, and what was known before is forgotten. Otherwise the source is away, and an
	// older value may be served.
	Answer bool
	// Keep is how long the error counts for its key, from when it came, without the source being asked again; 0: not at all.
	Keep time.Duration
}

const (
	maxDuration    = 366 * 24 * time.Hour
	maxNumber      = 1 << 30 // of entries, loads and loads that wait
	defaultTimeout = 10 * time.Second
)

// Cache keeps values of a source, each with its age. It holds no goroutine but those of its loads, so it is not closed. Safe for concurrent use.
type Cache[K comparable, V any] struct {
	o     Options[K, V]
	kept  *otter.Cache[K, *entry[V]]
	turns chan struct{} // one for each load that runs

	mu      sync.Mutex
	flights map[K]*flight[V]
	begun   int // loads that run or wait for their turn
}

// entry is what is known of a key. It is never changed.
type entry[V any] struct {
	value V
	has   bool          // a value
	at    time.Duration // just before its load was sent

	failed  *failure      // the last load, where its error is kept
	expires time.Duration // of that
}

// failure is a load that brought no value.
type failure struct {
	err    error
	answer bool // of the source
}

// New makes an empty cache. It returns an error matching [ErrInvalid] for options that make no sense.
func New[K comparable, V any](o Options[K, V]) (*Cache[K, V], error) {
	if o.Load == nil {
		return nil, &InvalidError{"load", "it is nil; want how to ask the source"}
	}
	if o.TTL <= 0 || o.TTL > maxDuration || o.StaleIfError < 0 || o.StaleIfError > maxDuration {
		return nil, &InvalidError{"ttl", fmt.Sprintf("TTL %v and %v beyond it; want a TTL above 0, nothing negative, and at most %v each", o.TTL, o.StaleIfError, maxDuration)}
	}
	if o.Timeout == 0 {
		o.Timeout = min(defaultTimeout, o.TTL)
	}
	if o.Timeout < 0 || o.Timeout > o.TTL {
		return nil, &InvalidError{"timeout", fmt.Sprintf("%v with a TTL of %v; want more than 0 and at most the TTL", o.Timeout, o.TTL)}
	}
	for _, x := range []struct {
		name  string
		value *int
		usual int
	}{{"entries", &o.Entries, 10_000}, {"loads", &o.Loads, 64}, {"queue", &o.Queue, 1024}} {
		if *x.value < 0 || *x.value > maxNumber {
			return nil, &InvalidError{x.name, fmt.Sprintf("%d; want 0 to %d", *x.value, maxNumber)}
		}
		if *x.value == 0 {
			*x.value = x.usual
		}
	}
	if o.Clock == nil {
		o.Clock = clock.Client()
	}
	kept, err := otter.New(&otter.Options[K, *entry[V]]{MaximumSize: o.Entries})
	if err != nil {
		return nil, &InvalidError{"entries", err.Error()}
	}
	return &Cache[K, V]{o: o, kept: kept, turns: make(chan struct{}, o.Loads), flights: map[K]*flight[V]{}}, nil
}

// Get is the value of key with its age: the one that is kept while it is fresh, else a new one from the source.
//
// Callers that ask for the same key wait for the same load. A caller waits until its context ends and no longer; the load goes on without it, for at most its Timeout. If the
// source does not answer (it failed, the load panicked, or this caller's wait ended), a value that is no older than TTL and StaleIfError together is returned as [Stale], with the
// cause in it and no error.
//
// Get returns an [*AwayError] if there is no such value, and the load's own error where Judge calls it an answer of the source.
func (c *Cache[K, V]) Get(ctx context.Context, key K) (Value[V], error) {
	known, _ := c.kept.GetIfPresent(key)
	if v, ok, err := c.answer(known); ok {
		return v, err
	}
	if ctx.Err() != nil {
		return c.instead(known, context.Cause(ctx))
	}
	f, known, err := c.join(ctx, key)
	switch {
	case err != nil:
		return c.instead(known, err)
	case f == nil: // another load has ended since, and what it brought may be old by now
		return c.Get(ctx, key)
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return c.instead(known, context.Cause(ctx))
	}
	switch {
	case f.failed == nil:
		return c.instead(f.loaded, errLate) // fresh, unless this process stood still since
	case f.failed.answer:
		return Value[V]{}, f.failed.err
	}
	return c.instead(known, f.failed.err)
}

// Forget drops what is kept of key, for example after a write: who asks from now on gets what a load beginning later brings. It does not tell other caches or processes. Loads that
// are running go on, for those who wait for them; what they bring is not kept.
func (c *Cache[K, V]) Forget(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, key)
	c.kept.Invalidate(key)
}

// answer is what is known, where that counts without a load: a fresh value, or a failure that is kept.
func (c *Cache[K, V]) answer(e *entry[V]) (v Value[V], ok bool, err error) {
	if e == nil {
		return v, false, nil
	}
	now := c.o.Clock()
	if e.has && now-e.at < c.o.TTL {
		return Value[V]{V: e.value, Age: now - e.at, State: Fresh}, true, nil
	}
	switch {
	case e.failed == nil || now >= e.expires:
		return v, false, nil
	case e.failed.answer:
		return v, true, e.failed.err
	}
	v, err = c.instead(e, e.failed.err)
	return v, true, err
}

// instead is what is returned because the source did not answer.
func (c *Cache[K, V]) instead(e *entry[V], cause error) (Value[V], error) {
	if e == nil || !e.has {
		return Value[V]{}, &AwayError{Cause: cause}
	}
	age := c.o.Clock() - e.at
	switch {
	case age < c.o.TTL:
		return Value[V]{V: e.value, Age: age, State: Fresh}, nil
	case age < c.o.TTL+c.o.StaleIfError:
		return Value[V]{V: e.value, Age: age, State: Stale, Cause: cause}, nil
	}
	return Value[V]{}, &AwayError{Old: true, Age: age, Cause: cause}
}
