package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/server"
)

// counting counts the calls of each route.
type counting struct {
	next http.Handler
	mu   sync.Mutex
	n    map[string]int
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.n[r.URL.Path]++
	c.mu.Unlock()
	c.next.ServeHTTP(w, r)
}

func (c *counting) of(route string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n["/tenure.v1.LeaseService/"+route]
}

// served is a server over leases, whose calls are counted.
func served(t testing.TB, o server.Options) (*httptest.Server, *counting) {
	t.Helper()
	h, err := server.Handler(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &counting{next: h, n: map[string]int{}}
	s := httptest.NewUnstartedServer(c)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections() // of HTTP/2, which Close would wait for
		s.Close()
	})
	return s, c
}

// renewed renews until the stream carries it, and returns how many calls it took beside.
func renewed(t testing.TB, s lease.Store, id fence.ID, n int) {
	t.Helper()
	for range n {
		if _, err := s.Renew(t.Context(), lease.RenewRequest{Session: id}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRenewalsAreOneStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, counted := served(t, w.options)
	c := dial(t, nil, s.URL)
	var ids []fence.ID
	for range 20 {
		id, err := open(t.Context(), c.Leases())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for range 50 {
		for _, id := range ids {
			renewed(t, c.Leases(), id, 1)
		}
	}
	if calls, streams := counted.of("RenewSession"), counted.of("KeepSession"); streams != 1 || calls > 500 {
		t.Errorf("1,000 renewals: %d calls beside %d streams; want few, and one", calls, streams)
	}
	if _, err := c.Leases().Renew(t.Context(), lease.RenewRequest{Session: lease.NewID()}); !errors.Is(err, lease.ErrEnded) {
		t.Errorf("renewing an unknown session on the stream: %v; want ErrEnded", err)
	}
}

// stuck is a store whose renewals of one session hang.
type stuck struct {
	lease.Store
	id   atomic.Pointer[fence.ID]
	hang chan struct{}
}

func (s *stuck) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	if id := s.id.Load(); id != nil && *id == req.Session {
		select {
		case <-s.hang:
		case <-ctx.Done():
		}
	}
	return s.Store.Renew(ctx, req)
}

// One session's renewal that hangs holds up no other session's on the stream.
func TestAStreamsStrangersShareNoFate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow := &stuck{Store: w.leases, hang: make(chan struct{})}
	o := w.options
	o.Leases = slow
	s, counted := served(t, o)
	c := dial(t, nil, s.URL)
	first, err := open(t.Context(), c.Leases())
	if err != nil {
		t.Fatal(err)
	}
	second, err := open(t.Context(), c.Leases())
	if err != nil {
		t.Fatal(err)
	}
	for counted.of("KeepSession") == 0 {
		renewed(t, c.Leases(), second, 1)
	}
	slow.id.Store(&first)
	hung := make(chan error, 1)
	go func() {
		_, err := c.Leases().Renew(t.Context(), lease.RenewRequest{Session: first})
		hung <- err
	}()
	renewed(t, c.Leases(), second, 100)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Leases().Renew(ctx, lease.RenewRequest{Session: first}); !errors.Is(err, lease.ErrUnknown) {
		t.Errorf("a renewal whose wait ended: %v; want ErrUnknown", err)
	}
	renewed(t, c.Leases(), second, 1)
	close(slow.hang)
	if err := <-hung; err != nil && !errors.Is(err, lease.ErrUnknown) {
		t.Errorf("the renewal that hung: %v", err)
	}
}

// When the server goes away, what was pending is unknown, and the next renewal asks elsewhere.
func TestAStreamThatBreaks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, counted := served(t, w.options)
	second, _ := served(t, w.options)
	c := dial(t, nil, first.URL, second.URL)
	id, err := open(t.Context(), c.Leases())
	if err != nil {
		t.Fatal(err)
	}
	for counted.of("KeepSession") == 0 {
		renewed(t, c.Leases(), id, 1)
	}
	first.CloseClientConnections()
	first.Close()
	if _, err := again(func() (lease.Renewal, error) { return c.Leases().Renew(t.Context(), lease.RenewRequest{Session: id}) }, lease.ErrUnknown); err != nil {
		t.Errorf("%v", err)
	}
}

// Calls that travel together have their own answers, and a caller that goes away takes nobody along.
func TestCallsTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, counted := served(t, w.options)
	l := dial(t, nil, s.URL).Leases()
	id, err := open(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	other, err := open(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), lease.AcquireRequest{Session: other, ID: lease.NewID(), Names: []string{"taken"}}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var held, granted, gone atomic.Int64
	for i := range 500 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req := lease.AcquireRequest{Session: id, ID: lease.NewID(), Names: []string{"n" + string(rune('0'+i%10)) + string(rune('a'+i/10%26)) + string(rune('a'+i/260))}}
			switch i % 10 {
			case 0:
				req.Names = []string{"taken"}
			case 1:
				cancel()
			}
			_, err := l.Acquire(ctx, req)
			switch {
			case err == nil:
				granted.Add(1)
			case errors.Is(err, lease.ErrHeld) && i%10 == 0:
				held.Add(1)
			case i%10 == 1 && (errors.Is(err, lease.ErrUnknown) || errors.Is(err, lease.ErrUnavailable)):
				gone.Add(1)
			default:
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	all.Wait()
	if held.Load() != 50 || granted.Load() < 400 {
		t.Errorf("%d held, %d granted, %d gone", held.Load(), granted.Load(), gone.Load())
	}
	if n := counted.of("Exchange"); n == 0 || n > 400 {
		t.Errorf("%d exchanges for 500 calls at once", n)
	}
}
