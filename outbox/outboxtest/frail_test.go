package outboxtest_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxtest"
)

// frail is a store of messages written for this test, apart from the oracle, that has transactions and one fault at most. Each fault is one place where it asks s.is.
type frail struct {
	fault string
	clock func() time.Duration

	mu     sync.Mutex
	skew   time.Duration // that was advanced
	ids    int           // that were chosen
	next   int64
	cursor int64 // the highest position that a claim has seen
	rows   []*row
	paused map[string]string
	locked map[key]*frailTx // keys to which an open transaction has appended
	ended  *sync.Cond       // a transaction has
	hint   chan struct{}
	fresh  bool // something came since the last claim
}

type row struct {
	m        outbox.Message
	position int64
	born     time.Duration
	state    outbox.State
	over     time.Duration
	tries    int
	lost     int
	claim    fence.ID
	relay    string
	deadline time.Duration
	verdict  bool // the claim has had one
	due      time.Duration
	errors   []outbox.Failure // Age: when
	skipped  bool             // by the cursor
}

func newFrail(fault string, clock func() time.Duration) *frail {
	s := &frail{fault: fault, clock: clock, paused: map[string]string{}, locked: map[key]*frailTx{}, hint: make(chan struct{})}
	s.ended = sync.NewCond(&s.mu)
	return s
}

func (s *frail) is(fault string) bool { return s.fault == fault }

func (s *frail) now() time.Duration { return s.clock() + s.skew }

func (s *frail) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += d
}

// begin takes the lock, and is undone by what it returns.
func (s *frail) begin(ctx context.Context, op string) (func(), error) {
	if ctx.Err() != nil && !s.is("an ended context is ignored") {
		return nil, &outbox.UnavailableError{Op: op, Err: context.Cause(ctx)}
	}
	s.mu.Lock()
	return s.mu.Unlock, nil
}

// yield lets other calls in, as a statement of its own does.
func (s *frail) yield() {
	s.mu.Unlock()
	<-time.After(time.Millisecond)
	s.mu.Lock()
}

func (s *frail) wake() {
	if s.is("an append wakes nobody") {
		return
	}
	s.fresh = true
	close(s.hint)
	s.hint = make(chan struct{})
}

func (s *frail) Await(ctx context.Context, atMost time.Duration) (bool, error) {
	if err := outbox.CheckAwait(atMost); err != nil {
		return false, err
	}
	if s.is("a wait never waits") {
		return true, nil
	}
	s.mu.Lock()
	hint, fresh := s.hint, s.fresh
	s.mu.Unlock()
	if fresh {
		return true, nil
	}
	done := ctx.Done()
	if s.is("a wait outlives its context") {
		done = nil
		atMost = min(atMost, 3200*time.Millisecond)
	}
	if s.is("an append wakes nobody") {
		atMost = min(atMost, time.Second)
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-hint:
		return true, nil
	case <-timer.C:
	case <-done:
	}
	return false, nil
}

func (s *frail) find(id fence.ID) *row {
	for _, r := range s.rows {
		if r.m.ID == id {
			return r
		}
	}
	return nil
}

func (s *frail) check(messages []outbox.Message, more []*row) error {
	for i := range messages {
		m := &messages[i]
		r := s.find(m.ID)
		for _, o := range more {
			if o.m.ID == m.ID {
				r = o
			}
		}
		if r == nil || m.ID.IsZero() || s.is("a mismatch is missed") {
			continue
		}
		for _, d := range []struct {
			what    string
			differs bool
		}{
			{"topic", r.m.Topic != m.Topic},
			{"key", r.m.Key != m.Key},
			{"order", r.m.Ordered != m.Ordered},
			{"headers", !maps.Equal(r.m.Headers, m.Headers) && !s.is("headers are not compared")},
			{"payload", !bytes.Equal(r.m.Payload, m.Payload)},
		} {
			if d.differs {
				return &outbox.MismatchError{ID: m.ID, What: d.what}
			}
		}
	}
	return nil
}

// write makes rows of what is new.
func (s *frail) write(messages []outbox.Message, more []*row) (ids []fence.ID, rows []*row) {
	for _, m := range messages {
		if m.ID.IsZero() {
			s.ids++
			copy(m.ID[:], fmt.Sprintf("chosen %d", s.ids))
			if s.is("chosen ids are the same") {
				m.ID = fence.ID{'c'}
			}
		}
		ids = append(ids, m.ID)
		known := s.find(m.ID) != nil || slices.ContainsFunc(more, func(r *row) bool { return r.m.ID == m.ID })
		if known && !s.is("one id twice is written twice") {
			continue
		}
		if !s.is("what is given is shared") {
			m.Headers, m.Payload = maps.Clone(m.Headers), bytes.Clone(m.Payload)
		}
		s.next++
		rows = append(rows, &row{m: m, position: s.next, born: s.now(), due: s.now(), state: outbox.Pending})
	}
	return ids, rows
}

// put makes rows visible.
func (s *frail) put(rows []*row) {
	for _, r := range rows {
		if _, paused := s.paused[r.m.Topic]; paused && s.is("a pause loses what is appended") {
			continue
		}
		r.skipped = r.position <= s.cursor && s.is("a cursor goes by the highest position")
		s.rows = append(s.rows, r)
	}
	slices.SortFunc(s.rows, func(a, b *row) int { return cmp.Compare(a.position, b.position) })
	s.wake()
}

func (s *frail) Append(ctx context.Context, messages []outbox.Message) ([]fence.ID, error) {
	if err := outbox.CheckAppend(messages); err != nil && !s.is("an append is not checked") {
		return nil, err
	}
	end, err := s.begin(ctx, "append")
	if err != nil {
		return nil, err
	}
	defer end()
	s.lock(messages, nil)
	if s.is("an append is written one by one") {
		var all []fence.ID
		for i := range messages {
			if err := s.check(messages[i:i+1], nil); err != nil {
				return nil, err
			}
			ids, rows := s.write(messages[i:i+1], nil)
			s.put(rows)
			all = append(all, ids...)
		}
		return all, nil
	}
	if err := s.check(messages, nil); err != nil {
		return nil, err
	}
	ids, rows := s.write(messages, nil)
	if s.is("an id is looked up before the lock") {
		s.yield()
	}
	s.put(rows)
	return ids, nil
}

// lock waits until no other transaction has appended to the keys, and takes them for t, if there is one.
func (s *frail) lock(messages []outbox.Message, t *frailTx) {
	if s.is("who appends to a key waits for nobody") {
		return
	}
	for _, m := range messages {
		k := key{m.Topic, m.Key}
		for m.Ordered && s.locked[k] != nil && s.locked[k] != t {
			s.ended.Wait()
		}
		if m.Ordered && t != nil {
			s.locked[k] = t
		}
	}
}

// unlock ends a transaction.
func (t *frailTx) unlock() {
	maps.DeleteFunc(t.s.locked, func(_ key, of *frailTx) bool { return of == t })
	t.s.ended.Broadcast()
}

// frailTx is a caller's transaction.
type frailTx struct {
	s    *frail
	rows []*row
}

func (s *frail) Begin() outboxtest.Tx { return &frailTx{s: s} }

func (t *frailTx) Append(_ context.Context, messages []outbox.Message) ([]fence.ID, error) {
	if err := outbox.CheckAppend(messages); err != nil {
		return nil, err
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.lock(messages, t)
	if err := t.s.check(messages, t.rows); err != nil {
		return nil, err
	}
	ids, rows := t.s.write(messages, t.rows)
	if t.s.is("what is in an open transaction is delivered") {
		t.s.put(rows)
	} else {
		t.rows = append(t.rows, rows...)
	}
	return ids, nil
}

func (t *frailTx) Commit(context.Context) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	defer t.unlock()
	if !t.s.is("what was committed is lost") {
		t.s.put(t.rows)
	}
	return nil
}

func (t *frailTx) Rollback(context.Context) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	defer t.unlock()
	if t.s.is("what was rolled back is delivered") {
		t.s.put(t.rows)
	}
	return nil
}

func (s *frail) Guarantees() outbox.Guarantees {
	if s.is("the store has no name") {
		return outbox.Guarantees{}
	}
	return outbox.Guarantees{Store: "frail", InTransaction: true}
}
