package lease

import (
	"container/list"
	"context"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/fence"
)

const (
	// maxPending is how many releases may wait for the authority's confirmation before new Acquires are refused.
	maxPending = 4096
	// maxGiving is how many goroutines give acquisitions back at a time; the rest waits for the next renewals.
	maxGiving = 16
)

// asking holds the ids of the acquires in flight, in the order in which they were made, which is their own.
type asking struct {
	order list.List
	at    map[fence.ID]*list.Element
}

func (a *asking) add(id fence.ID) {
	if a.at == nil {
		a.at = map[fence.ID]*list.Element{}
	}
	a.at[id] = a.order.PushBack(id)
}

func (a *asking) remove(id fence.ID) {
	if e := a.at[id]; e != nil {
		a.order.Remove(e)
		delete(a.at, id)
	}
}

func (a *asking) lowest() (fence.ID, bool) {
	if e := a.order.Front(); e != nil {
		id, ok := e.Value.(fence.ID)
		return id, ok
	}
	return fence.ID{}, false
}

// pending holds the releases that the authority has not confirmed, oldest first.
type pending struct {
	order *list.List
	at    map[fence.ID]*list.Element
}

func newPending() pending { return pending{order: list.New(), at: map[fence.ID]*list.Element{}} }

func (p *pending) len() int { return len(p.at) }

func (p *pending) add(a Abandoned) {
	if p.at[a.ID] == nil {
		p.at[a.ID] = p.order.PushBack(a)
	}
}

func (p *pending) remove(id fence.ID) {
	if e := p.at[id]; e != nil {
		p.order.Remove(e)
		delete(p.at, id)
	}
}

// first returns the oldest, at most n of them.
func (p *pending) first(n int) []Abandoned {
	var out []Abandoned
	for e := p.order.Front(); e != nil && len(out) < n; e = e.Next() {
		if a, ok := e.Value.(Abandoned); ok {
			out = append(out, a)
		}
	}
	return out
}

// abandonLocked gives up an acquisition whose outcome nobody waits for any more: it is released at
// once by a goroutine of its own, where one of the few is free, and by every renewal until one is acknowledged. A lost
// release would not simply expire: the session's renewals would keep the lease alive.
func (s *Session) abandonLocked(a Abandoned) {
	if s.cause == nil {
		s.pending.add(a)
	}
	if s.life.Err() != nil || s.giving >= maxGiving {
		return // after Close nothing is left to give back
	}
	s.giving++
	s.goLocked(func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.giving--
		}()
		if err := s.giveBack(s.life, a); err != nil {
			s.o.Logger.Info("lease: giving back failed; the next renewals repeat it", "session", s.id, "acquisition", a.ID, "err", err)
		}
	})
}

// giveBack releases at the authority what no caller holds. It takes at most endBound.
func (s *Session) giveBack(ctx context.Context, a Abandoned) (err error) {
	ctx, cancel := context.WithTimeout(ctx, endBound(s.o.TTL))
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = unknown("release", a.ID, fmt.Errorf("the store panicked: %v", r))
		}
	}()
	return s.release(ctx, a)
}

// release asks the authority once and keeps the account of what is pending: an answer that closes the id
// removes it, any other leaves it to the next renewals.
func (s *Session) release(ctx context.Context, a Abandoned) error {
	confirmed := false
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if confirmed {
			s.pending.remove(a.ID)
		} else if s.cause == nil {
			s.pending.add(a)
		}
	}()
	s.mu.Lock()
	closedBelow := s.closedBelowLocked()
	s.mu.Unlock()
	_, err := s.store.Release(ctx, ReleaseRequest{Session: s.id, ID: a.ID, Names: a.Names, ClosedBelow: closedBelow})
	confirmed = err == nil || errors.Is(err, ErrEnded)
	if settled(err) {
		return err
	}
	return unknown("release", a.ID, err)
}
