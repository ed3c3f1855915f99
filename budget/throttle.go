package budget

import (
	"fmt"
	"sync"
)

// Throttle bounds what is repeated, by destination: each has a bucket of tokens, a repetition takes some, more after a timeout, and a success gives one
// back. While the other side works, nothing is felt; while it fails, what is repeated dies down to a small part of what succeeds (after the client-side
// throttling of retries in gRPC's proposal A6 and in the SDKs of AWS). One is shared by all of a process that call the same destinations. Safe for concurrent use. A nil
// Throttle bounds nothing.
type Throttle struct {
	o    ThrottleOptions
	mu   sync.Mutex
	to   map[string]*int // those that are not full: a full bucket is as good as none
	rest *int            // of the destinations beyond those; nil: full
}

// ThrottleOptions are the numbers of a [Throttle]; 0 is the default of each.
type ThrottleOptions struct {
	Tokens  int // a full bucket; 500
	Repeat  int // what a repetition takes; 5
	Timeout int // what it takes after an attempt that timed out; 10
	Success int // what a success gives back; 1
	// Destinations is how many are kept apart, of those whose bucket is not full; 10,000. Those beyond it share one bucket.
	Destinations int
}

// NewThrottle makes a throttle whose buckets are full. It returns an error matching [ErrInvalid] for a negative number, and for a bucket that holds no repetition.
func NewThrottle(o ThrottleOptions) (*Throttle, error) {
	for _, x := range []struct {
		name  string
		value *int
		usual int
	}{{"tokens", &o.Tokens, 500}, {"repeat", &o.Repeat, 5}, {"timeout", &o.Timeout, 10}, {"success", &o.Success, 1}, {"destinations", &o.Destinations, 10_000}} {
		if *x.value < 0 {
			return nil, &InvalidError{x.name, fmt.Sprintf("%d is negative", *x.value)}
		}
		if *x.value == 0 {
			*x.value = x.usual
		}
	}
	if o.Tokens < max(o.Repeat, o.Timeout) {
		return nil, &InvalidError{"tokens", fmt.Sprintf("%d hold no repetition, which takes up to %d", o.Tokens, max(o.Repeat, o.Timeout))}
	}
	return &Throttle{o: o, to: map[string]*int{}}, nil
}

// bucketLocked is the tokens of a destination.
func (t *Throttle) bucketLocked(name string) *int {
	if left := t.to[name]; left != nil {
		return left
	}
	if len(t.to) >= t.o.Destinations {
		if t.rest == nil {
			t.rest = new(t.o.Tokens)
		}
		return t.rest
	}
	left := new(t.o.Tokens)
	t.to[name] = left
	return left
}

// allow takes the tokens of a repetition, if they are there.
func (t *Throttle) allow(name string, timedOut bool) bool {
	if t == nil {
		return true
	}
	takes := t.o.Repeat
	if timedOut {
		takes = t.o.Timeout
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	left := t.bucketLocked(name)
	if *left < takes {
		return false
	}
	*left -= takes
	return true
}

// succeeded gives back, up to a full bucket. A destination that has none needs none, unless it is one of those that share.
func (t *Throttle) succeeded(name string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	left, own := t.to[name]
	if !own {
		left = t.rest
	}
	switch {
	case left == nil:
	case *left < t.o.Tokens-t.o.Success:
		*left += t.o.Success
	case own:
		delete(t.to, name)
	default:
		t.rest = nil
	}
}

// Left is how many tokens a destination has, for metrics.
func (t *Throttle) Left(name string) int {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if left := t.to[name]; left != nil {
		return *left
	}
	if t.rest != nil && len(t.to) >= t.o.Destinations {
		return *t.rest
	}
	return t.o.Tokens
}
