package fencehttp

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// SerializeOptions bound how requests wait for their turn.
type SerializeOptions struct {
	// Wait is how long a request waits for its turn at most; 0: 5 s.
	Wait time.Duration
	// Queue is how many requests wait for one resource at most; 0: 16.
	Queue int
	// Resources is for how many resources requests may be at work at a time; 0: 10,000.
	Resources int
}

const (
	defaultWait      = 5 * time.Second
	defaultQueue     = 16
	defaultResources = 10_000
)

// Serializer gives turns: one request a resource is at work at a time. Safe for concurrent use.
//
// A request finds the resource free and has the turn, or waits. When a turn ends, the request that has waited longest is looked at,
// and of all that wait under a claim to the same lease the one with the highest token goes first; equal tokens go in the
// order in which they came. So a newer owner waits for the request at work and for nothing else; an older one that waited
// behind it gets the turn after it, and is refused by the check then, which is made in the turn; and a second request of the same owner
// waits for the first. A request that is at work is never interrupted. Tokens order a queue and decide nothing.
//
// A request that waits longer than Wait, or comes when Queue requests wait whose tokens are not lower, is refused with a
// [*BusyError]; where one of them is lower, that one is refused in its place. A caller that goes away gives its place up.
type Serializer struct {
	o SerializeOptions

	mu    sync.Mutex
	lines map[string]*line // of resources that are at work
}

// line is a resource at work.
type line struct{ waiting []*waiter } // in the order in which they came

type waiter struct {
	claim fence.Claim
	ready chan error // of capacity 1: nil is the turn
}

// NewSerializer returns an error matching [ErrOption] for a negative bound.
func NewSerializer(o SerializeOptions) (*Serializer, error) {
	if o.Wait < 0 || o.Queue < 0 || o.Resources < 0 {
		return nil, fmt.Errorf("%w: a bound of waiting is negative", ErrOption)
	}
	if o.Wait == 0 {
		o.Wait = defaultWait
	}
	if o.Queue == 0 {
		o.Queue = defaultQueue
	}
	if o.Resources == 0 {
		o.Resources = defaultResources
	}
	return &Serializer{o: o, lines: map[string]*line{}}, nil
}

// Busy is how many resources have a request at work, and how many requests wait.
func (s *Serializer) Busy() (working, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		waiting += len(l.waiting)
	}
	return len(s.lines), waiting
}

// wait returns the turn, or an error after which there is nothing to give up.
func (s *Serializer) wait(ctx context.Context, resource string, claim fence.Claim) (*turn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	mine := &turn{of: s, resource: resource, held: 1}
	w, err := s.join(resource, claim)
	if w == nil {
		return mine, err
	}
	timer := time.NewTimer(s.o.Wait)
	defer timer.Stop()
	select {
	case err = <-w.ready:
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil: // gone at this very moment
			mine.release()
			return nil, context.Cause(ctx)
		}
		return mine, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = s.busy(resource, fmt.Sprintf("the turn did not come within %v", s.o.Wait))
	}
	if s.withdraw(resource, w) {
		return nil, err
	}
	if handed := <-w.ready; handed == nil { // handed over before it could be withdrawn
		mine.release()
	}
	return nil, err
}

func (s *Serializer) busy(resource, why string) error {
	return &BusyError{Resource: resource, Why: why, After: max(time.Second, s.o.Wait/4)}
}

// join takes the turn if the resource is free, and returns a place in its queue otherwise.
func (s *Serializer) join(resource string, claim fence.Claim) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[resource]
	if l == nil {
		if len(s.lines) >= s.o.Resources {
			return nil, s.busy(resource, "requests for too many other resources are")
		}
		s.lines[resource] = &line{}
		return nil, nil
	}
	w := &waiter{claim: claim, ready: make(chan error, 1)}
	if len(l.waiting) >= s.o.Queue {
		full := s.busy(resource, fmt.Sprintf("%d wait already", s.o.Queue))
		older := l.older(claim)
		if older < 0 {
			return nil, full
		}
		l.waiting[older].ready <- full
		l.waiting = slices.Delete(l.waiting, older, older+1)
	}
	l.waiting = append(l.waiting, w)
	return w, nil
}

// older is the waiter with the lowest token below the claim's, of the same lease: the last that came of such; or -1.
func (l *line) older(claim fence.Claim) int {
	found := -1
	for i, w := range l.waiting {
		if sameLease(w.claim, claim) && w.claim.Token < claim.Token && (found < 0 || w.claim.Token <= l.waiting[found].claim.Token) {
			found = i
		}
	}
	return found
}

// sameLease reports whether the tokens of two claims can be compared.
func sameLease(a, b fence.Claim) bool { return a.Authority == b.Authority && a.Name == b.Name }

// withdraw gives a place up, and reports whether there still was one.
func (s *Serializer) withdraw(resource string, w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[resource]
	if l == nil {
		return false
	}
	at := slices.Index(l.waiting, w)
	if at < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	return true
}

// nextLocked hands the turn on, or forgets a resource that nobody waits for.
func (s *Serializer) nextLocked(resource string) {
	l := s.lines[resource]
	if len(l.waiting) == 0 {
		delete(s.lines, resource)
		return
	}
	first := 0
	for i, w := range l.waiting {
		if sameLease(w.claim, l.waiting[first].claim) && w.claim.Token > l.waiting[first].claim.Token {
			first = i
		}
	}
	w := l.waiting[first]
	l.waiting = slices.Delete(l.waiting, first, first+1)
	w.ready <- nil
}

// turn is the right to be at work on a resource.
type turn struct {
	of       *Serializer
	resource string
	held     int // by whom it must be let go of; guarded by of.mu
}

// release lets go of a turn. Everybody who holds it calls it once.
func (t *turn) release() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.held--
	if t.held == 0 {
		t.of.nextLocked(t.resource)
	}
}

// Hold keeps the turn of the request that is being served until release is called, also after its handler has returned. It is for a
// handler that leaves work behind: a call to another server that it no longer waits for may still take effect there, and nobody
// newer may be let in before that is over. release may be called many times, from any goroutine; only the first counts. A
// turn that is never let go of blocks its resource for as long as the process lives.
//
// It must be called before the handler returns. Where nobody gives turns, Hold does nothing.
func Hold(ctx context.Context) (release func()) {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok {
		return func() {}
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.held == 0 { // too late: it is somebody else's
		return func() {}
	}
	t.held++
	return sync.OnceFunc(t.release)
}
