package flakypay

import (
	"slices"
	"sync"
	"time"
)

// Clock is the provider's own. Safe for concurrent use.
type Clock interface {
	// Now is the time since an origin that is the provider's alone. It never goes back.
	Now() time.Duration
	// After closes the channel when d has passed. stop frees what waits, if anything still does.
	After(d time.Duration) (passed <-chan struct{}, stop func())
}

// realClock counts from the Unix epoch as it was read at the start, by the monotonic clock.
type realClock struct{ start time.Time }

func (c realClock) Now() time.Duration {
	return time.Duration(c.start.UnixNano()) + time.Since(c.start)
}

func (c realClock) After(d time.Duration) (<-chan struct{}, func()) {
	passed := make(chan struct{})
	t := time.AfterFunc(d, func() { close(passed) })
	return passed, func() { t.Stop() }
}

// ManualClock is a [Clock] that stands still until it is advanced. The zero value stands at zero. Safe for concurrent use.
type ManualClock struct {
	mu     sync.Mutex
	now    time.Duration
	alarms []*alarm
}

type alarm struct {
	at     time.Duration
	passed chan struct{}
}

// Now is how far the clock was advanced.
func (c *ManualClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After closes the channel when the clock was advanced by d; at once if d is not positive.
func (c *ManualClock) After(d time.Duration) (<-chan struct{}, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &alarm{c.now + d, make(chan struct{})}
	if d <= 0 {
		close(a.passed)
		return a.passed, func() {}
	}
	c.alarms = append(c.alarms, a)
	return a.passed, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.alarms = slices.DeleteFunc(c.alarms, func(other *alarm) bool { return other == a })
	}
}

// Advance lets d pass; a negative one does nothing.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += max(0, d)
	c.alarms = slices.DeleteFunc(c.alarms, func(a *alarm) bool {
		if a.at <= c.now {
			close(a.passed)
		}
		return a.at <= c.now
	})
}

// Waiting is how many wait for the clock.
func (c *ManualClock) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.alarms)
}
