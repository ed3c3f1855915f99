package lease

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// overLocked reads the clock, ends what is past its deadline, and returns the cause of the session's end or nil.
// Every use of a claim asks it: the watchdog may have slept through a suspend.
func (s *Session) overLocked() error {
	if s.cause != nil {
		return s.cause
	}
	now := s.o.Clock()
	if now >= s.deadline {
		s.endLocked(&UncertainError{Err: s.lastErr})
		return s.cause
	}
	for len(s.holds) > 0 && now >= s.holds[0].hold {
		s.endLeaseLocked(s.holds[0], &UncertainError{MaxHold: true})
	}
	return nil
}

// endLocked ends the session and all its leases, once.
func (s *Session) endLocked(cause error) {
	if s.cause != nil {
		return
	}
	s.cause = cause
	if errors.Is(cause, ErrUncertain) && !s.warned {
		s.warnLocked(0) // the watcher slept past it
	}
	held := len(s.leases)
	s.end(cause) // and with it the contexts of the leases, its children
	s.leases, s.holds = nil, nil
	if errors.Is(cause, ErrLost) {
		s.o.Logger.Info("lease: session over", "session", s.id, "cause", cause, "leases", held)
		return
	}
	s.o.Logger.Error("lease: session over", "session", s.id, "cause", cause, "leases", held)
}

// endLeaseLocked ends one lease's context. It stays in s.leases until its release, so that a
// revocation that is told later still finds the names to close it with.
func (s *Session) endLeaseLocked(l *Lease, cause error) {
	if l.at >= 0 && l.at < len(s.holds) && s.holds[l.at] == l {
		heap.Remove(&s.holds, l.at)
	}
	l.end(cause)
}

// believeLocked takes in a reply that says how much of the TTL was left. Each reply is a lower bound by itself, so
// the latest deadline counts, whatever the order in which replies come in. It never revives.
func (s *Session) believeLocked(sent, left time.Duration) {
	if s.overLocked() != nil {
		return
	}
	s.deadline = max(s.deadline, safeDeadline(sent, min(left, s.o.TTL), s.o.Margin))
	if s.deadline-s.o.Clock() > s.o.Warn {
		s.warned = false
	}
}

// loseLocked takes in the authority's word that the session is over.
func (s *Session) loseLocked(err error) {
	lost := &LostError{How: EndForgotten}
	var ended *EndedError
	if errors.As(err, &ended) && ended.How != 0 {
		lost = &LostError{How: ended.How, Reason: ended.Reason}
	}
	s.endLocked(lost)
}

// warnLocked tells the caller, on a goroutine of its own, that the session is about to be lost.
func (s *Session) warnLocked(left time.Duration) {
	s.warned = true
	if s.o.OnWarn == nil {
		return
	}
	go func() {
		defer func() {
			if r := recover(); r != nil {
				s.o.Logger.Error("lease: OnWarn panicked", "session", s.id, "panic", fmt.Sprint(r))
			}
		}()
		s.o.OnWarn(left)
	}()
}

// goLocked runs f on a goroutine that Close waits for.
func (s *Session) goLocked(f func()) {
	s.running++
	go func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.running--
			s.quitLocked()
		}()
		f()
	}()
}

// quitLocked tells Close that nothing runs any more. None starts after Close began.
func (s *Session) quitLocked() {
	if s.running > 0 || s.life.Err() == nil {
		return
	}
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}

// concluded is the answer of a call to a session or lease whose context has ended with cause. [EndedError.How] is 0
// in it if the authority has not said that it is over: the client concluded so.
func concluded(what string, id fence.ID, cause error) error {
	var lost *LostError
	if errors.As(cause, &lost) {
		return &EndedError{What: what, ID: id, How: lost.How, Reason: lost.Reason}
	}
	return &concludedError{EndedError{What: what, ID: id}, cause}
}

// watch is the watchdog: it ends contexts on time whatever the loop that renews does, and calls no store.
// Its sleeps are short, because timers stand still while a machine sleeps and the clock does not.
func (s *Session) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		timer.Reset(s.look())
	}
}

// look ends what is over, warns of what is about to be, and returns when to look again.
func (s *Session) look() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overLocked() != nil {
		return 0
	}
	left := s.deadline - s.o.Clock()
	next := min(left, tick(s.o.Margin))
	switch {
	case left <= s.o.Warn && !s.warned:
		s.warnLocked(max(left, 0))
	case left > s.o.Warn:
		next = min(next, left-s.o.Warn)
	}
	if len(s.holds) > 0 {
		next = min(next, s.holds[0].hold-s.o.Clock())
	}
	return max(next, 0)
}

// holdHeap orders the leases with MaxHold by their deadline.
type holdHeap []*Lease

func (h holdHeap) Len() int           { return len(h) }
func (h holdHeap) Less(i, j int) bool { return h[i].hold < h[j].hold }
func (h holdHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push is for package heap.
func (h *holdHeap) Push(x any) {
	l, _ := x.(*Lease)
	l.at = len(*h)
	*h = append(*h, l)
}

// Pop is for package heap.
func (h *holdHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.at = -1
	return l
}

// keepLocked takes in a grant whose request was sent at sent. It returns an [*EndedError] if nothing of it is left.
func (s *Session) keepLocked(req AcquireRequest, sent time.Duration, grants []Grant) (*Lease, error) {
	l := &Lease{session: s, id: req.ID, names: req.Names, maxHold: req.MaxHold > 0, at: -1}
	left, hold := s.o.TTL, req.MaxHold
	for _, g := range grants {
		left, hold = min(left, g.Remaining), min(hold, g.HoldLeft)
		l.claims = append(l.claims, g.Claim)
	}
	s.believeLocked(sent, left)
	if s.overLocked() != nil {
		return nil, concluded("session", s.id, s.cause)
	}
	if l.maxHold {
		l.hold = safeDeadline(sent, hold, s.o.Margin)
		if s.o.Clock() >= l.hold {
			return nil, concluded("acquisition", l.id, &UncertainError{MaxHold: true})
		}
		heap.Push(&s.holds, l)
		if s.holds[0] == l {
			s.wakeWatch()
		}
	}
	l.ctx, l.end = context.WithCancelCause(s.ctx)
	s.leases[l.id] = l
	return l, nil
}

// wakeWatch makes the watchdog look at once; one such call waits at most.
func (s *Session) wakeWatch() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
