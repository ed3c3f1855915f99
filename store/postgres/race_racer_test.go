package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// racer is one session and its workers.
type racer struct {
	*course
	store *Store
	id    fence.ID
	ids   lease.IDs
	names []string

	mu       sync.Mutex
	deadline time.Duration // the safe one
	closing  time.Duration // when the close was sent, 0: not yet
	told     []grantTold
	asking   map[fence.ID]bool      // acquires that may be asked for again
	past     []lease.AcquireRequest // of those that were released, the latest
}

// request makes an acquire with an id of its own, and with the bound as it is now: all below it is settled.
func (r *racer) request(names []string, hold time.Duration) lease.AcquireRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.ids.New()
	r.asking[id] = true
	return lease.AcquireRequest{Session: r.id, ID: id, Names: names, MaxHold: hold, ClosedBelow: r.boundLocked()}
}

func (r *racer) boundLocked() fence.ID {
	lowest := r.ids.New()
	for id := range r.asking {
		if id.Less(lowest) {
			lowest = id
		}
	}
	return lowest
}

func (r *racer) bound() fence.ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boundLocked()
}

// settled notes that a request is not asked for again.
func (r *racer) settled(req lease.AcquireRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asking, req.ID)
}

// over keeps a request that was released, for a duplicate of it to arrive late.
func (r *racer) over(req lease.AcquireRequest) {
	const most = 64
	r.mu.Lock()
	defer r.mu.Unlock()
	r.past = append(r.past[max(0, len(r.past)-most+1):], req)
}

// replay lets a duplicate of an acquire arrive that was released meanwhile, with the bound that it had.
func (r *racer) replay() error {
	r.mu.Lock()
	if len(r.past) == 0 {
		r.mu.Unlock()
		return nil
	}
	req := r.past[rand.IntN(len(r.past))]
	r.mu.Unlock()
	r.counts[countReplays].Add(1)
	again, err := r.store.Acquire(context.Background(), req)
	if err == nil {
		r.t.Errorf("an id was granted again after its release: %v", again)
	}
	r.failUnlessOver("replay", err)
	return nil
}

func (r *racer) tell(g grantTold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, g)
}

// settle hands on what was believed: not beyond a close that came meanwhile.
func (r *racer) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.told {
		if r.closing > 0 {
			g.Until = min(g.Until, r.closing)
		}
		r.history.granted(g)
	}
}

// believe moves the safe deadline, unless it has passed: what has ended never comes back.
func (r *racer) believe(sent, remaining time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deadline > 0 && r.now() >= r.deadline {
		return false
	}
	r.deadline = max(r.deadline, sent+remaining-raceMargin)
	return r.now() < r.deadline
}

// until is when the session stopped to believe, or stops if nothing happens.
func (r *racer) until() (deadline time.Duration, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing > 0 && r.closing < r.deadline {
		return r.closing, true
	}
	return r.deadline, r.closing > 0
}

// live runs sessions one after another until the race is over.
func (c *course) live(s *Store, names []string) {
	for c.over.Err() == nil {
		r := &racer{course: c, store: s, id: lease.NewID(), names: names, asking: map[fence.ID]bool{}}
		sent := c.now()
		left, err := s.Open(context.Background(), lease.OpenRequest{ID: r.id, Owner: "o", TTL: raceTTL})
		if c.fail("open", err); err != nil || !r.believe(sent, left) {
			continue
		}
		stop := make(chan struct{})
		var workers sync.WaitGroup
		for range raceWorkers {
			workers.Go(func() { r.work(stop) })
		}
		r.renewFor(time.Duration(rand.IntN(1200)) * time.Millisecond)
		if rand.IntN(2) == 0 {
			r.close() // its workers are in mid-call
			close(stop)
		} else {
			c.counts[countAbandoned].Add(1)
			c.pause(raceTTL / 2)
			close(stop)
			c.pause(raceTTL)
			r.renew() // too late, unless it is early
		}
		workers.Wait()
		r.settle()
	}
}

func (r *racer) renewFor(life time.Duration) {
	for end := r.now() + life; r.now() < end; {
		if !r.pause(raceTTL/3) || !r.renew() {
			return
		}
	}
}

func (r *racer) renew() bool {
	sent := r.now()
	reply, err := r.store.Renew(context.Background(), lease.RenewRequest{Session: r.id, ClosedBelow: r.bound()})
	r.fail("renew", err)
	if err != nil {
		return errors.Is(err, lease.ErrUnknown) || errors.Is(err, lease.ErrUnavailable)
	}
	r.history.renewed(r.id, sent)
	return r.believe(sent, reply.Remaining)
}

func (r *racer) close() {
	r.counts[countClosed].Add(1)
	r.mu.Lock()
	r.closing = r.now()
	r.mu.Unlock()
	r.fail("close", r.store.Close(context.Background(), r.id))
}

// work acquires and releases until the session is over.
func (r *racer) work(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if until, _ := r.until(); r.now() >= until {
			return
		}
		var err error
		switch rand.IntN(9) {
		case 8:
			err = r.replay()
		case 0:
			err = r.overtake()
		case 1:
			err = r.cycle(r.pick(3), 40*time.Millisecond)
		case 2, 3:
			err = r.cycle(r.pick(3), 0)
		default:
			err = r.cycle(r.pick(1), 0)
		}
		if errors.Is(err, lease.ErrEnded) {
			return
		}
	}
}

// pick draws up to n names, in whatever order.
func (r *racer) pick(n int) []string {
	names := make([]string, 0, n)
	for _, i := range rand.Perm(len(r.names))[:1+rand.IntN(n)] {
		names = append(names, r.names[i])
	}
	return names
}

// cycle acquires names, holds them for a moment, and releases them; an acquisition with a bound is sometimes left to it.
func (r *racer) cycle(names []string, hold time.Duration) error {
	ctx := context.Background()
	req := r.request(names, hold)
	defer r.settled(req)
	sent := r.now()
	grants, err := r.store.Acquire(ctx, req)
	from := r.now()
	r.failUnlessOver("acquire", err)
	if err != nil {
		if errors.Is(err, lease.ErrUnknown) {
			_ = r.release(req) // what became of it is no matter, it is over
		}
		return err
	}
	r.counts[countGrants].Add(int64(len(grants)))
	if rand.IntN(4) == 0 {
		r.pause(time.Duration(rand.IntN(20)) * time.Millisecond)
	}
	at := r.now() // before it is looked whether a close was sent
	end, givenUp := r.until()
	if hold > 0 {
		end = min(end, sent+grants[0].HoldLeft-raceMargin)
	}
	abandon := hold > 0 && rand.IntN(2) == 0
	if !abandon {
		end, givenUp = min(end, at), true
	}
	for _, g := range grants {
		r.tell(grantTold{Name: g.Claim.Name, Session: r.id, ID: req.ID, Token: g.Claim.Token, Sent: sent, From: from, Until: end,
			GivenUp: givenUp, Bounded: hold > 0})
	}
	if !abandon {
		return r.release(req)
	}
	return nil
}

// failUnlessOver: the end of a session ends the acquires that wait beside it; their outcome is unknown, and no matter.
func (r *racer) failUnlessOver(op string, err error) {
	if until, closed := r.until(); (closed || r.now() >= until) && (errors.Is(err, lease.ErrUnknown) || errors.Is(err, lease.ErrUnavailable)) {
		return
	}
	r.fail(op, err)
}

func (r *racer) release(req lease.AcquireRequest) error {
	for {
		_, err := r.store.Release(context.Background(), lease.ReleaseRequest{Session: req.Session, ID: req.ID, Names: req.Names, ClosedBelow: r.bound()})
		r.fail("release", err)
		if err == nil {
			r.over(req)
		}
		if !r.lenient || !errors.Is(err, lease.ErrUnknown) && !errors.Is(err, lease.ErrUnavailable) {
			return err
		}
	}
}

// overtake releases an id beside its acquire. Whichever came first, the id is over, and nothing is held under it.
func (r *racer) overtake() error {
	ctx := context.Background()
	r.counts[countTombstones].Add(1)
	req := r.request(r.pick(2), 0)
	defer r.settled(req)
	acquired := start(func() error {
		_, err := r.store.Acquire(ctx, req)
		r.failUnlessOver("overtaken acquire", err)
		return err
	})
	released := r.release(req)
	err := <-acquired
	if errors.Is(err, lease.ErrUnknown) {
		released = r.release(req)
	}
	if released != nil {
		return released // the session is over
	}
	for _, name := range req.Names {
		info, err := r.store.Get(ctx, name)
		r.fail("get", err)
		if err == nil && info.Held && info.Acquisition == req.ID {
			r.t.Errorf("%s is held under an id that was released", name)
		}
	}
	if again, err := r.store.Acquire(ctx, req); err == nil {
		r.t.Errorf("an id was granted after its release: %v", again)
	}
	return nil
}
