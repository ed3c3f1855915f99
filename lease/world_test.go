package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/memory"
)

const (
	ttl    = 15 * time.Second
	margin = ttl / 10
)

// world is one authority and its clients, in a bubble of virtual time.
type world struct {
	t         *testing.T
	authority *memory.Store
	skew      atomic.Int64 // by how much the clock has jumped while timers stood still

	// What a broken twin replaces; see both.
	wrap    func(lease.Store) lease.Store // between a client and its proxy
	do      func(context.Context, *lease.Session, string, func(context.Context, *lease.Lease) error) error
	release func(context.Context, *lease.Lease) error
	holding func(*lease.Lease) holding
}

// holding is what a worker asks before it acts.
type holding interface {
	Claim() (fence.Claim, error)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t:       t,
		wrap:    func(s lease.Store) lease.Store { return s },
		do:      lease.Do,
		release: func(ctx context.Context, l *lease.Lease) error { return l.Release(ctx) },
		holding: func(l *lease.Lease) holding { return l },
	}
	w.authority = memory.New(memory.Options{Clock: w.clock()})
	return w
}

// clock is one that counts while the machine sleeps: virtual time plus the jumps.
func (w *world) clock() func() time.Duration {
	running := clock.Monotonic()
	return func() time.Duration { return running() + time.Duration(w.skew.Load()) }
}

// suspend lets the machine sleep: clocks go on by d, timers do not. Everybody waits on a timer or on another then.
func (w *world) suspend(d time.Duration) {
	synctest.Wait()
	w.skew.Add(int64(d))
}

// client starts a session with a proxy of its own. It is closed with the test.
func (w *world) client(o lease.Options) (*lease.Session, *proxy) {
	w.t.Helper()
	p := newProxy(w.authority)
	if o.Clock == nil {
		o.Clock = w.clock()
	}
	if o.Owner == "" {
		o.Owner = "a"
	}
	s, err := lease.Start(w.t.Context(), w.wrap(p), o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		p.heal()
		_ = s.Close(context.Background())
	})
	return s, p
}

// mustAcquire takes one name, or ends the test.
func (w *world) mustAcquire(s *lease.Session, name string) *lease.Lease {
	w.t.Helper()
	l, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{name}, Try: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// info is what the authority says of a name.
func (w *world) info(name string) lease.Info {
	w.t.Helper()
	info, err := w.authority.Get(context.Background(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

// free returns an error unless nobody holds name.
func (w *world) free(name string) error {
	if info := w.info(name); info.Held {
		return fmt.Errorf("%q is still held under token %d, for %v", name, info.Token, info.Remaining)
	}
	return nil
}

// pass lets virtual time go by, and everybody come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// bubble runs f in a world of its own.
func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t)) })
}

// sound runs a check on the library as it is.
func sound(t *testing.T, check func(w *world) error) {
	t.Helper()
	bubble(t, func(w *world) {
		if err := check(w); err != nil {
			t.Error(err)
		}
	})
}

// both runs a check on the library as it is, and demands that it catches a twin broken in one place.
func both(t *testing.T, check func(w *world) error, breaks func(w *world)) {
	t.Helper()
	sound(t, check)
	bubble(t, func(w *world) {
		breaks(w)
		err := check(w)
		if err == nil {
			t.Fatal("the broken twin was not caught")
		}
		t.Log("the twin was caught by:", err)
	})
}

// want returns an error unless err is of kind.
func want(kind, err error) error {
	if !errors.Is(err, kind) {
		return fmt.Errorf("got %w, want %s", orNone(err), kind.Error())
	}
	return nil
}

var errNone = errors.New("no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// endsWithin returns an error unless ctx ends with a cause of kind, no later than d from now and not
// before least.
func endsWithin(ctx context.Context, least, d time.Duration, kind error) error {
	start := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(d + time.Hour):
	}
	if took := time.Since(start); took < least || took > d {
		return fmt.Errorf("ended after %v (%w), want %v to %v", took, orNone(context.Cause(ctx)), least, d)
	}
	return want(kind, context.Cause(ctx))
}
