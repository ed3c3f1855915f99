package sqlite

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// look is what Get says of a name.
func look(t *testing.T, s *Store, name string) lease.Info {
	t.Helper()
	info, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// The wall clock is stepped while one boot lasts, with the file open and closed: nothing changes.
func TestWallStepChangesNothing(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Hour, -time.Hour, 1000 * time.Hour} {
		h := newHands()
		path := newPath(t)
		s := openWith(t, h.config(path, "one"))
		p := join(t, s, time.Minute)
		c := p.take("a")
		h.wall.Add(int64(step))
		if got := look(t, s, "a"); !got.Held || got.Remaining != time.Minute {
			t.Errorf("step %v: %+v", step, got)
		}
		h.pass(10 * time.Second)
		shutDown(t, s)
		h.wall.Add(int64(step))
		s = openWith(t, h.config(path, "one"))
		if got := look(t, s, "a"); !got.Held || got.Remaining != 50*time.Second {
			t.Errorf("step %v, reopened: %+v", step, got)
		}
		q := join(t, s, time.Minute)
		if _, err := q.ask("a"); !errors.Is(err, lease.ErrHeld) {
			t.Errorf("step %v: a held name: %v", step, err)
		}
		h.pass(50 * time.Second)
		h.wall.Add(-3 * int64(step))
		if got := q.take("a"); got.Token <= c.Token {
			t.Errorf("step %v: token %d after %d", step, got.Token, c.Token)
		}
	}
}

// After a reboot the kernel's clock starts anew. Authority time goes on from what was written last, or from the
// wall clock if that is later: a lease of before the reboot is judged by it.
func TestRebootNeverFallsBelowMark(t *testing.T) {
	t.Parallel()
	cases := []struct {
		wall time.Duration // how the wall clock stands after the reboot, against before
		left time.Duration // of a TTL of a minute, 10 s after the last write
	}{
		{30 * time.Second, 30 * time.Second},
		{-time.Hour, time.Minute}, // behind the mark: no time has passed that anybody knows of
		{0, time.Minute},
		{time.Minute, 0},
		{24 * time.Hour, 0},
	}
	for _, c := range cases {
		h := newHands()
		path := newPath(t)
		s := openWith(t, h.config(path, "one"))
		old := join(t, s, time.Minute).take("a")
		mark, err := strconv.ParseInt(plainValue(t, path, `SELECT mark FROM tenure_authority`), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		shutDown(t, s)

		h.kernel.Store(int64(3 * time.Second))
		h.wall.Add(int64(c.wall))
		s = openWith(t, h.config(path, "two"))
		got := look(t, s, "a")
		if got.Held != (c.left > 0) || got.Remaining != c.left {
			t.Errorf("wall %v: %+v, want %v left", c.wall, got, c.left)
		}
		h.pass(c.left)
		next := join(t, s, time.Minute).take("a")
		if next.Token <= old.Token {
			t.Errorf("wall %v: token %d after %d", c.wall, next.Token, old.Token)
		}
		if now := plainValue(t, path, `SELECT mark FROM tenure_authority`); now < strconv.FormatInt(mark, 10) {
			t.Errorf("wall %v: authority time fell from %d to %s", c.wall, mark, now)
		}
	}
}

// One kernel at a time: an opener under another one is refused while the file is in use, and so are the
// processes of the former kernel, if the anchor was changed under them all the same.
func TestOtherBoot(t *testing.T) {
	t.Parallel()
	h := newHands()
	path := newPath(t)
	s := openWith(t, h.config(path, "one"))
	p := join(t, s, time.Minute)
	claim := p.take("a")
	_, err := Open(t.Context(), h.config(path, "two"))
	wantKind(t, err, ErrOtherBoot, "one machine at a time", path)
	if err := p.renew(); err != nil {
		t.Errorf("the refused opener disturbed the other: %v", err)
	}

	plainExec(t, path, `UPDATE tenure_authority SET boot_id = 'two', anchor = anchor + 1000000000000`)
	before := plainValue(t, path, `SELECT mark FROM tenure_authority`)
	wantKind(t, p.renew(), ErrOtherBoot, "not applied")
	_, err = p.ask("b")
	wantKind(t, err, ErrOtherBoot)
	_, err = p.ask("a")
	wantKind(t, err, ErrOtherBoot)
	wantKind(t, p.release(claim), ErrOtherBoot)
	_, err = s.Get(t.Context(), "a")
	wantKind(t, err, ErrOtherBoot)
	called := false
	err = s.Fenced(t.Context(), claim, func(ctx context.Context, tx *Tx) error { called = true; return nil })
	wantKind(t, err, lease.ErrUnavailable)
	if called {
		t.Error("a fenced function ran by another kernel's clock")
	}
	if after := plainValue(t, path, `SELECT mark FROM tenure_authority`); after != before {
		t.Error("the file was written by another kernel's clock")
	}
}

// A clock below the mark under one boot id is another clock: a virtual machine that was resumed from a
// snapshot. Authority time goes on from the mark, and the tokens jump.
func TestClockBelowMarkStaysAtMarkAndJumps(t *testing.T) {
	t.Parallel()
	for _, reopen := range []bool{false, true} {
		h := newHands()
		path := newPath(t)
		s := openWith(t, h.config(path, "one"))
		h.pass(time.Hour)
		p := join(t, s, time.Minute)
		old := p.take("a")
		if old.Token != 1 {
			t.Fatalf("token %d", old.Token)
		}
		if reopen {
			shutDown(t, s)
		}
		h.kernel.Add(-int64(30 * time.Minute))
		if reopen {
			s = openWith(t, h.config(path, "one"))
		}
		q := join(t, s, time.Hour)
		next := q.take("b")
		if want := fence.Token(time.Hour.Milliseconds() << 10); next.Token <= want {
			t.Errorf("reopen %v: token %d, want a jump above %d", reopen, next.Token, want)
		}
		if got := look(t, s, "a"); !got.Held || got.Remaining != time.Minute {
			t.Errorf("reopen %v: time did not stand still at the mark: %+v", reopen, got)
		}
		h.pass(time.Minute)
		if got := look(t, s, "a"); got.Held {
			t.Errorf("reopen %v: time does not go on from the mark: %+v", reopen, got)
		}
		if got := q.take("a"); got.Token <= next.Token {
			t.Errorf("reopen %v: token %d after %d", reopen, got.Token, next.Token)
		}
	}
}

// Nobody writes but one who waits: his attempts alone must notice the clock that fell, or he would
// wait for as long as it fell.
func TestClockBelowMarkIsNoticedByAWaiter(t *testing.T) {
	t.Parallel()
	h := newHands()
	s := openWith(t, h.config(newPath(t), "one"))
	h.pass(time.Hour)
	p, q := join(t, s, time.Minute), join(t, s, time.Hour)
	p.take("a")
	h.kernel.Add(-int64(30 * time.Minute))
	_, err := q.ask("a")
	held, ok := errors.AsType[*lease.HeldError](err)
	if !ok || held.Left > time.Minute {
		t.Errorf("got %v, want held for at most a minute", err)
	}
	if got := look(t, s, "a"); got.Remaining > time.Minute {
		t.Errorf("%v left of a minute", got.Remaining)
	}
	h.pass(time.Minute)
	if _, err := q.ask("a"); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

// scene is a lease that is about to end, and what somebody does then.
type scene struct {
	s     *Store
	p     *party // the holder
	other *party // somebody who outlives it
	claim fence.Claim
}

type action struct {
	name    string
	do      func(scene) error
	during  error // what it returns one nanosecond before; nil: success
	after   error // at equality
	session bool  // it depends on the session alone, not on MaxHold
}

func (sc scene) acquire(p *party, id fence.ID, hold time.Duration, names ...string) error {
	_, err := sc.s.Acquire(p.t.Context(), lease.AcquireRequest{Session: p.session, ID: id, Names: names, MaxHold: hold})
	return err
}

// actions are all that decide by an expiry.
func actions() []action {
	return []action{
		{"renew", func(sc scene) error { return sc.p.renew() }, nil, lease.ErrEnded, true},
		{"acquire by its own session", func(sc scene) error { _, err := sc.p.ask("b"); return err }, nil, lease.ErrEnded, true},
		{"close", func(sc scene) error { return sc.s.Close(sc.p.t.Context(), sc.p.session) }, nil, lease.ErrEnded, true},
		{"repeat", func(sc scene) error { return sc.acquire(sc.p, sc.claim.Acquisition, 0, "a") }, nil, lease.ErrEnded, true},
		{"acquire by another", func(sc scene) error { _, err := sc.other.ask("a"); return err }, lease.ErrHeld, nil, false},
		{"acquire of two names by another", func(sc scene) error { return sc.acquire(sc.other, sc.other.ids.New(), 0, "z", "a") }, lease.ErrHeld, nil, false},
		{"release", func(sc scene) error { return sc.p.release(sc.claim) }, nil, lease.ErrEnded, false},
		{"fenced", func(sc scene) error {
			return sc.s.Fenced(sc.p.t.Context(), sc.claim, func(context.Context, *Tx) error { return nil })
		}, nil, fence.ErrRefused, false},
		{"revoke", func(sc scene) error {
			_, err := sc.s.Revoke(sc.p.t.Context(), lease.RevokeRequest{Name: "a", Token: sc.claim.Token, Reason: "test"})
			return err
		}, nil, lease.ErrEnded, false},
		{"get", func(sc scene) error {
			info, err := sc.s.Get(sc.p.t.Context(), "a")
			if err == nil && info.Held {
				err = lease.ErrHeld
			}
			return err
		}, lease.ErrHeld, nil, false},
	}
}

// now == expiry is expired, one nanosecond before it is not: for the session's TTL and for MaxHold, in every
// place that decides by either. The clock is turned by hand, the comparisons are those of the statements.
func TestEqualityIsExpired(t *testing.T) {
	t.Parallel()
	const ttl, hold = time.Minute, 10 * time.Second
	for _, a := range actions() {
		h := newHands()
		s := openWith(t, h.config(newPath(t), "one"))
		for _, byHold := range []bool{false, true} {
			for _, equal := range []bool{false, true} {
				if a.session && byHold {
					continue
				}
				bound, maxHold := ttl, time.Duration(0)
				if byHold {
					bound, maxHold = hold, hold
				}
				sc := scene{s: s, p: join(t, s, ttl), other: join(t, s, time.Hour)}
				grants, err := s.Acquire(t.Context(), lease.AcquireRequest{Session: sc.p.session, ID: sc.p.ids.New(), Names: []string{"a"}, MaxHold: maxHold})
				if err != nil {
					t.Fatal(err)
				}
				sc.claim = grants[0].Claim
				want := a.after
				h.pass(bound)
				if !equal {
					h.pass(-1)
					want = a.during
				}
				if err := a.do(sc); !errors.Is(err, want) {
					t.Errorf("%s, by MaxHold %v, equal %v: %v, want %v", a.name, byHold, equal, err, want)
				}
				h.pass(24 * time.Hour) // all of it is over before the next
			}
		}
	}
}
