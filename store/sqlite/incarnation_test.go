package sqlite

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// A file starts at token 1 for the process that made it; every later process that comes alone jumps at its
// first grant, and not before.
func TestLoneOpenJumpsAtItsFirstGrant(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	h := newHands()
	s := openWith(t, h.config(path, "one"))
	p := join(t, s, time.Minute)
	for want := fence.Token(1); want <= 3; want++ {
		c := p.take("a")
		if c.Token != want {
			t.Errorf("token %d, want %d", c.Token, want)
		}
		p.drop(c)
	}
	p.take("held")
	shutDown(t, s)

	h.pass(5 * time.Millisecond)
	s = openWith(t, h.config(path, "one"))
	p = join(t, s, time.Minute)
	if _, err := s.Get(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(t.Context(), lease.ListRequest{Limit: 10}); err != nil {
		t.Fatal(err)
	}
	if err := p.renew(); err != nil {
		t.Fatal(err)
	}
	waiter := join(t, s, time.Minute)
	if _, err := waiter.s.Acquire(t.Context(), lease.AcquireRequest{Session: waiter.session, ID: waiter.ids.New(), Names: []string{"z", "held"}}); !errors.Is(err, lease.ErrHeld) {
		t.Errorf("a held name: %v", err)
	}
	if got := issued(t, path); got != 4 {
		t.Errorf("without a grant the counter went to %d", got)
	}
	if got := p.take("b").Token; got != 5<<10+1 {
		t.Errorf("the first grant 5 ms after the founding has token %d, want %d", got, 5<<10+1)
	}
	if got := p.take("c").Token; got != 5<<10+2 {
		t.Errorf("the second grant jumped too: %d", got)
	}
	shutDown(t, s)

	s = openWith(t, h.config(path, "one")) // no time has passed: what was issued still counts
	if got := join(t, s, time.Minute).take("d").Token; got != 5<<10+4 {
		t.Errorf("token %d, want one above the jump above %d", got, 5<<10+2)
	}
}

// However many were issued before, the jump goes above them as long as they were fewer than 1,024 a millisecond,
// also those that a lost branch of the file's history issued.
func TestJumpGoesAboveWhatALostBranchIssued(t *testing.T) {
	t.Parallel()
	h := newHands()
	path := newPath(t)
	shutDown(t, openWith(t, h.config(path, "one")))
	copied := vacuumCopy(t, path)

	h.pass(time.Millisecond)
	s := openWith(t, h.config(path, "one"))
	p := join(t, s, time.Hour)
	var last fence.Token
	for i := range 1100 { // a little more than 1,024, over 2 ms
		if i == 600 {
			h.pass(time.Millisecond)
		}
		last = p.take("a/" + strconv.Itoa(i)).Token
	}
	h.pass(time.Millisecond)
	shutDown(t, s)
	restore(t, copied, path)
	s = openWith(t, h.config(path, "one"))
	if got := join(t, s, time.Hour).take("b").Token; got <= last {
		t.Errorf("token %d after %d was issued on the lost branch", got, last)
	}
}

// Processes that have the file open at once are one incarnation: their tokens follow each other.
func TestProcessesShareAnIncarnation(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openPath(t, path)
	p := join(t, s, time.Minute)
	worker := start(t, "worker", job{Path: path})
	if got := worker.hear("ready"); got != s.current.String() {
		t.Errorf("incarnations %s and %s", got, s.current)
	}
	for i := range 4 {
		name := "a/" + strconv.Itoa(i)
		if got := p.take(name).Token; got != fence.Token(2*i+1) {
			t.Errorf("own grant %d has token %d", i, got)
		}
		worker.tell("take b/" + strconv.Itoa(i))
		if got := worker.hear("ok"); got != strconv.Itoa(2*i+2) {
			t.Errorf("the other's grant %d has token %s", i, got)
		}
	}
	shutDown(t, s) // the other goes on as the same incarnation, and whoever comes joins it
	again := openPath(t, path)
	if again.current != s.current {
		t.Error("a new incarnation began beside one that lives")
	}
	if got := join(t, again, time.Minute).take("c").Token; got != 9 {
		t.Errorf("token %d, want 9", got)
	}
}

// Raising the epoch goes above what it is told, and above the clock.
func TestRaiseEpoch(t *testing.T) {
	t.Parallel()
	h := newHands()
	s := openWith(t, h.config(newPath(t), "one"))
	p := join(t, s, time.Hour)
	h.pass(3 * time.Millisecond)
	for _, c := range []struct{ above, floor fence.Token }{{0, 3 << 10}, {1 << 40, 1 << 40}, {5, 1<<40 + 2}, {1 << 62, 1 << 62}} {
		floor, err := s.RaiseEpoch(t.Context(), c.above)
		if err != nil || floor != c.floor {
			t.Errorf("above %d: floor %d, want %d (%v)", c.above, floor, c.floor, err)
		}
		grant := p.take("a")
		if grant.Token != floor+1 {
			t.Errorf("token %d after floor %d", grant.Token, floor)
		}
		p.drop(grant)
	}
	for _, absurd := range []fence.Token{-1, 1<<62 + 1, 1<<63 - 1} {
		_, err := s.RaiseEpoch(t.Context(), absurd)
		wantKind(t, err, lease.ErrInvalid)
	}
}
