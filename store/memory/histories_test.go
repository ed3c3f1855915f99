package memory

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/histories"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
)

// inside is a harness whose check looks into the core. Its clock moves by Advance alone.
type inside struct{ s *Store }

func newInside() inside {
	return inside{New(Options{Clock: func() time.Duration { return 0 }})}
}

func (h inside) Store() lease.Store           { return h.s }
func (h inside) Operator() leasetest.Operator { return h.s }
func (h inside) Tolerance() time.Duration     { return 0 }
func (h inside) Check(context.Context) error  { return h.s.core.check() }

func (h inside) Advance(_ context.Context, d time.Duration) error {
	h.s.Advance(d)
	return nil
}

// check is what must hold of a core at any time.
func (c *core) check() error {
	rows := map[*acquisition]int{}
	for name, r := range c.rows {
		rows[r.latest]++
		at := -1
		for i, n := range r.latest.names {
			if n == name {
				at = i
			}
		}
		switch {
		case at < 0 || r.latest.tokens[at] != r.token:
			return fmt.Errorf("the row of %q has token %d, its acquisition %v %v", name, r.token, r.latest.names, r.latest.tokens)
		case r.token <= 0 || r.token > c.counter:
			return fmt.Errorf("the row of %q has token %d, the counter stands at %d", name, r.token, c.counter)
		case c.endOf(r.latest) == 0 && c.acquisitions[r.latest.id] != r.latest:
			return fmt.Errorf("%q is held by an acquisition that would not be known", name)
		}
	}
	for id, a := range c.acquisitions {
		switch {
		case a.id != id || a.rows != rows[a]:
			return fmt.Errorf("acquisition %s counts %d rows; there are %d", id, a.rows, rows[a])
		case c.endOf(a) == 0 && a.rows != len(a.names):
			return fmt.Errorf("acquisition %s is valid and holds %d of %d names", id, a.rows, len(a.names))
		case c.endOf(a) == 0 && c.sessions[a.session.id] != a.session:
			return fmt.Errorf("acquisition %s is valid in a session that would not be known", id)
		}
	}
	return nil
}

// TestHistories demands that the core holds together after every operation of random histories.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := histories.Draw(rt, newInside(), histories.Options{Steps: 80, Operator: true})
		h := newInside()
		p := leasetest.NewPlayer(h)
		for i, op := range ops {
			p.Play(t.Context(), op)
			if err := h.Check(t.Context()); err != nil {
				rt.Fatalf("after step %d, %v: %v", i, op, err)
			}
		}
	})
}

// TestHistoriesKeepAway demands that the drawn operations happen as far from every expiry as was asked.
func TestHistoriesKeepAway(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := histories.Draw(rt, newInside(), histories.Options{Steps: 60, Away: time.Second, Operator: true})
		h := newInside()
		p := leasetest.NewPlayer(h)
		for i, op := range ops {
			if near := h.s.core.nearest(); op.Advance == 0 && near < time.Second {
				rt.Fatalf("step %d, %v, happens %v from an expiry", i, op, near)
			}
			p.Play(t.Context(), op)
		}
	})
}

// nearest is how far the nearest expiry is, past or future.
func (c *core) nearest() time.Duration {
	least := time.Duration(1<<63 - 1)
	for _, s := range c.sessions {
		if s.ttl > 0 {
			least = min(least, (s.expiry - c.now).Abs())
		}
	}
	for _, a := range c.acquisitions {
		if a.maxHold > 0 {
			least = min(least, (a.holdExpiry - c.now).Abs())
		}
	}
	return least
}

// TestForgets demands that what is kept does not grow with the number of cycles, as long as clients say which
// ids they have done with (L69), and that pruning leaves nothing of what is over.
func TestForgets(t *testing.T) {
	const cycles = 10_000
	c := newCore(lease.NewID(), 0)
	var ids lease.IDs
	session := ids.New()
	must(t, second(c.open(lease.OpenRequest{ID: session, TTL: time.Hour})))
	for i := range cycles {
		id, name := ids.New(), fmt.Sprintf("n%d", i%10)
		must(t, second(c.acquire(lease.AcquireRequest{Session: session, ID: id, Names: []string{name}, ClosedBelow: id})))
		must(t, second(c.release(lease.ReleaseRequest{Session: session, ID: id, Names: []string{name}})))
		if i%100 == 0 { // one whose acquire never arrived
			must(t, second(c.release(lease.ReleaseRequest{Session: session, ID: ids.New(), Names: []string{name}})))
		}
	}
	if kept := len(c.acquisitions) + len(c.sessions[session].closed); kept > 40 {
		t.Errorf("after %d cycles over 10 names %d acquisitions are kept", cycles, kept)
	}
	must(t, c.close(session))
	c.advance(2 * lease.MinPruneAge)
	must(t, second(c.prune(lease.MinPruneAge, lease.MaxPrune)))
	if kept := len(c.acquisitions) + len(c.rows) + len(c.sessions); kept != 0 {
		t.Errorf("after pruning %d are kept", kept)
	}
	if c.counter < fence.Token(cycles) {
		t.Errorf("the counter fell to %d", c.counter)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }
