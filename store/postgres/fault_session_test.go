package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// TestL48ReleaseWithAnEndedContext: it releases all the same.
func TestL48ReleaseWithAnEndedContext(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.session(ctx, r.store, lease.Options{})
	l, err := session.Acquire(ctx, lease.Want{Names: []string{"n"}})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := l.Release(ended); err != nil {
		t.Fatal(err)
	}
	if r.get(ctx, "n").Held {
		t.Fatal("it is held")
	}
}

func (r *rig) session(ctx context.Context, s lease.Store, o lease.Options) *lease.Session {
	r.t.Helper()
	session, err := lease.Start(ctx, s, o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = session.Close(context.Background()) }) // it may be over
	return session
}

// watchedStore counts the renewals that are sent after the session's close was answered.
type watchedStore struct {
	*Store
	closed atomic.Bool
	late   atomic.Int64
}

func (w *watchedStore) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	if w.closed.Load() {
		w.late.Add(1)
	}
	return w.Store.Renew(ctx, req)
}

// TestL38L40CyclesBesideRenewals: acquires and releases in a loop, with renewals in flight all the while, then a close. What was released stays
// so, and no renewal follows the close or revives anything.
func TestL38L40CyclesBesideRenewals(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	watched := &watchedStore{Store: r.store}
	session := r.session(ctx, watched, lease.Options{TTL: 2 * time.Second, Margin: 200 * time.Millisecond})
	const clients, cycles = 8, 60
	var all sync.WaitGroup
	stop := make(chan struct{})
	all.Go(func() { // one renewal after another, beside the session's own
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session.ID()}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var cyclers sync.WaitGroup
	for c := range clients {
		cyclers.Go(func() {
			for range cycles {
				l, err := session.Acquire(ctx, lease.Want{Names: []string{fmt.Sprint("n", c)}})
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	cyclers.Wait()
	close(stop)
	all.Wait()
	if held := r.number(ctx, `SELECT count(*) FROM tenure.lease WHERE over = 0`); held > 0 {
		t.Errorf("%d leases are held after their releases", held)
	}
	if err := session.Close(ctx); err != nil {
		t.Fatal(err)
	}
	watched.closed.Store(true)
	_, err := r.store.Renew(ctx, lease.RenewRequest{Session: session.ID()})
	var ended *lease.EndedError
	if !errors.As(err, &ended) || ended.How != lease.EndClosed {
		t.Errorf("a renewal after the close: %v", err)
	}
	if late := watched.late.Load(); late > 0 {
		t.Errorf("%d renewals were sent after the close", late)
	}
}

// TestL5ASessionFindsItsOwnGrant: the answer to the acquire is lost, and the session asks again by itself: it is no stranger to its own grant.
func TestL5ASessionFindsItsOwnGrant(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l := newLossy(t, Options{})
	session := l.session(ctx, l.store, lease.Options{})
	lost := l.lose("tenure.acquire_one", nil)
	held, err := session.Acquire(ctx, lease.Want{Names: []string{"n"}})
	if err != nil {
		t.Fatal(err)
	}
	lost()
	claim, err := held.Claim()
	if err != nil || claim.Token != 1 {
		t.Errorf("claim %v, %v; want the grant of the first request", claim, err)
	}
	lost = l.lose("tenure.release_one", nil)
	if err := held.Release(ctx); err != nil && !errors.Is(err, lease.ErrUnknown) {
		t.Fatal(err)
	}
	lost()
	if err := held.Release(ctx); err != nil { // L2: it is repeatable
		t.Fatal(err)
	}
	if l.get(ctx, "n").Held {
		t.Error("it is held after a release whose answer was lost")
	}
}
