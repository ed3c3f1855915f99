package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// hold takes n leases under one session, every tenth with a MaxHold, and returns how many renewals a minute
// takes and how many goroutines the leases do.
func hold(w *world, n int) (renewals, goroutines int, err error) {
	s, p := w.client(lease.Options{})
	synctest.Wait()
	before := runtime.NumGoroutine()
	for i := range n {
		want := lease.Want{Names: []string{fmt.Sprint(i)}, Try: true}
		if i%10 == 0 {
			want.MaxHold = time.Hour + time.Duration(rand.N(1000))*time.Second
		}
		if _, err := s.Acquire(w.t.Context(), want); err != nil {
			return 0, 0, err
		}
	}
	pass(time.Minute)
	if held := s.Stats().Leases; held != n {
		return 0, 0, fmt.Errorf("%d leases are held, want %d", held, n)
	}
	return len(p.calls("renew")), runtime.NumGoroutine() - before, nil
}

// L80: renewing stays one call however many leases a session holds, and no lease has a goroutine.
func TestL80RenewalIsOneCall(t *testing.T) {
	check := func(n int) func(w *world) error {
		return func(w *world) error {
			renewals, goroutines, err := hold(w, n)
			if err == nil && (renewals < 12 || renewals > 14 || goroutines > 0) {
				err = fmt.Errorf("%d leases: %d renewals a minute, %d goroutines", n, renewals, goroutines)
			}
			return err
		}
	}
	both(t, check(100), func(w *world) {
		w.wrap = func(s lease.Store) lease.Store { return renewsEach{s} }
	})
	sound(t, check(50_000))
}

// L41: no goroutine or timer is left once a session was closed. The twin does not close.
func TestL41NothingIsLeft(t *testing.T) {
	check := func(end func(*lease.Session) error) func(w *world) error {
		return func(w *world) error {
			before := runtime.NumGoroutine()
			for i := range 20 {
				s, p := w.client(lease.Options{OnWarn: func(time.Duration) {}})
				p.next("release", loseReply)
				p.next("acquire", loseReply, loseRequest)
				l := w.mustAcquire(s, fmt.Sprint(i))
				_ = l.Release(w.t.Context())
				if err := end(s); err != nil {
					return err
				}
			}
			synctest.Wait()
			if n := runtime.NumGoroutine() - before; n > 0 {
				return fmt.Errorf("%d goroutines are left", n)
			}
			return nil
		}
	}
	sound(t, check(func(s *lease.Session) error { return s.Close(context.Background()) }))
	bubble(t, func(w *world) {
		if check(func(*lease.Session) error { return nil })(w) == nil {
			t.Error("the broken twin was not caught")
		}
	})
}

// Releases that wait for confirmation are bounded: beyond 4096 no new lease is taken on. Once the authority answers,
// they are worked off.
func TestPendingReleasesAreBounded(t *testing.T) {
	sound(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		var held []*lease.Lease
		for i := range 4096 {
			held = append(held, w.mustAcquire(s, fmt.Sprint(i)))
		}
		p.all(unavailable, "release")
		for _, l := range held {
			if err := want(lease.ErrUnavailable, l.Release(w.t.Context())); err != nil {
				return err
			}
		}
		for _, try := range []bool{true, false} {
			_, err := s.Acquire(w.t.Context(), lease.Want{Names: []string{"more"}, Try: try})
			if err := want(lease.ErrUnavailable, err); err != nil {
				return err
			}
		}
		pass(ttl)
		for _, c := range p.calls("renew") {
			if len(c.released) > lease.MaxRelease {
				return fmt.Errorf("a renewal carried %d releases", len(c.released))
			}
		}
		if n := s.Stats().PendingReleases; n != 0 {
			return fmt.Errorf("%d releases are pending after a TTL", n)
		}
		w.mustAcquire(s, "more")
		return w.free("0")
	})
}

// weather returns a rule that loses and delays by chance.
func weather(seed uint64) rule {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func(ctx context.Context, forward func(context.Context) error) error {
		mu.Lock()
		luck, delay := random.IntN(100), time.Duration(random.IntN(50))*time.Millisecond
		mu.Unlock()
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return unknownTo(context.Cause(ctx))
		}
		switch {
		case luck < 10:
			return loseReply(ctx, forward)
		case luck < 20:
			return loseRequest(ctx, forward)
		case luck < 25:
			return unavailable(ctx, forward)
		case luck < 30: // sent again by the network, or late
			time.AfterFunc(time.Second, func() { _ = forward(context.WithoutCancel(ctx)) })
			return unknownTo(errLost)
		}
		return forward(ctx)
	}
}

// Many workers of several sessions want the same few names, some with little patience, while replies and requests are
// lost, delayed and delivered late. Never do two believe that they hold a name; afterwards nothing is held.
func TestStorm(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			sound(t, func(w *world) error {
				var sessions []*lease.Session
				var proxies []*proxy
				var inside [3]atomic.Int64
				var done atomic.Int64
				var all sync.WaitGroup
				for i := range 4 {
					s, p := w.client(lease.Options{Owner: fmt.Sprint(i)})
					p.all(weather(seed*4+uint64(i)), "renew", "acquire", "release")
					sessions, proxies = append(sessions, s), append(proxies, p)
					for worker := range 8 {
						all.Go(func() {
							for cycle := range 10 {
								name := (worker + cycle) % len(inside)
								ctx, cancel := context.WithTimeout(w.t.Context(), time.Duration(1+worker)*time.Second)
								_ = w.do(ctx, s, fmt.Sprint(name), func(context.Context, *lease.Lease) error {
									if inside[name].Add(1) != 1 {
										t.Errorf("two hold %d", name)
									}
									<-time.After(30 * time.Millisecond)
									inside[name].Add(-1)
									done.Add(1)
									return nil
								})
								cancel()
							}
						})
					}
				}
				all.Wait()
				for _, p := range proxies {
					p.heal()
				}
				pass(ttl)
				var errs []error
				for i, s := range sessions {
					if stats := s.Stats(); stats.PendingReleases != 0 || stats.Leases != 0 {
						errs = append(errs, fmt.Errorf("session %d: %+v", i, stats))
					}
				}
				for name := range inside {
					errs = append(errs, w.free(fmt.Sprint(name)))
				}
				if n := done.Load(); n < 30 {
					errs = append(errs, fmt.Errorf("only %d of 320 worked", n))
				}
				return errors.Join(errs...)
			})
		})
	}
}

// BenchmarkCycle is one acquire and release on an authority in memory: what the client adds.
func BenchmarkCycle(b *testing.B) {
	w := newWorld(&testing.T{})
	s, err := lease.Start(b.Context(), w.authority, lease.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		l, err := s.Acquire(b.Context(), lease.Want{Names: []string{"a"}})
		if err == nil {
			err = l.Release(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
