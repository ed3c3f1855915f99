package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/server"
)

// within fails a test whose call does not come back.
func within(t testing.TB, most time.Duration, what string, call func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-done:
	case <-time.After(most):
		t.Fatalf("%s: not back after %v", what, most)
	}
}

// A stream that takes nothing, such as one whose connection is not made yet, holds a renewal no longer than its context.
func TestAStreamThatTakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := dial(t, roundTripper(func(req *http.Request) (*http.Response, error) {
		if strings.HasSuffix(req.URL.Path, "/KeepSession") {
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		}
		return http.DefaultTransport.RoundTrip(req)
	}), w.url)
	id, err := open(t.Context(), c.Leases())
	if err != nil {
		t.Fatal(err)
	}
	within(t, 30*time.Second, "renewing", func() {
		for stuck := false; !stuck; {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err := c.Leases().Renew(ctx, lease.RenewRequest{Session: id})
			stuck = err != nil
			if stuck && !errors.Is(err, lease.ErrUnknown) {
				t.Error(err)
			}
			cancel()
		}
		renewed(t, c.Leases(), id, 1) // as a call
	})
	within(t, 10*time.Second, "closing", c.Close)
}

// endless is a request's body that never ends: its server does not notice that the client has finished.
type endless struct {
	io.ReadCloser
	ctx context.Context
}

func (e endless) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		<-e.ctx.Done()
	}
	return n, err
}

// A stream that the client has left behind, and its server does not end, does not keep the client from closing.
func TestCloseWaitsForNoServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, err := server.Handler(w.options)
	if err != nil {
		t.Fatal(err)
	}
	var streams atomic.Int64
	first := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/KeepSession"):
			streams.Add(1)
			r.Body = endless{r.Body, r.Context()}
		case strings.HasSuffix(r.URL.Path, "/Acquire"): // as if something else had answered
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		h.ServeHTTP(rw, r)
	}))
	first.Config.Protocols = new(http.Protocols)
	first.Config.Protocols.SetUnencryptedHTTP2(true)
	first.Start()
	t.Cleanup(func() {
		first.CloseClientConnections()
		first.Close()
	})
	c := dial(t, nil, first.URL, w.url)
	id, err := open(t.Context(), c.Leases())
	if err != nil {
		t.Fatal(err)
	}
	for streams.Load() == 0 {
		renewed(t, c.Leases(), id, 1)
	}
	if _, err := c.Leases().Acquire(t.Context(), lease.AcquireRequest{Session: id, ID: lease.NewID(), Names: []string{"n"}}); !errors.Is(err, lease.ErrUnknown) {
		t.Errorf("%v; want ErrUnknown", err)
	}
	renewed(t, c.Leases(), id, 10) // with the other server
	within(t, 10*time.Second, "closing", c.Close)
}

// quiet is a proxy whose connections can be made to carry nothing more, without ending.
type quiet struct {
	net.Listener
	to    string
	mu    sync.Mutex
	conns []net.Conn
	hush  chan struct{} // closed: what was accepted before carries nothing more
}

func (q *quiet) serve(ctx context.Context) {
	for {
		in, err := q.Accept()
		if err != nil {
			return
		}
		out, err := new(net.Dialer).DialContext(ctx, "tcp", q.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		q.mu.Lock()
		q.conns = append(q.conns, in, out)
		hush := q.hush
		q.mu.Unlock()
		for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
			go func() {
				b := make([]byte, 32<<10)
				for {
					n, err := way[0].Read(b)
					select {
					case <-hush:
						return
					default:
					}
					if _, failed := way[1].Write(b[:n]); failed != nil || err != nil {
						return
					}
				}
			}()
		}
	}
}

// A connection that died without a word is noticed, and the calls after that take another.
func TestAConnectionThatDiesSilently(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	q := &quiet{Listener: l, to: strings.TrimPrefix(w.url, "http://"), hush: make(chan struct{})}
	go q.serve(t.Context())
	t.Cleanup(func() {
		_ = l.Close()
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, c := range q.conns {
			_ = c.Close()
		}
	})
	c := dial(t, nil, "http://"+l.Addr().String())
	id, err := open(t.Context(), c.Leases())
	if err != nil {
		t.Fatal(err)
	}
	q.mu.Lock()
	close(q.hush)
	q.hush = make(chan struct{})
	q.mu.Unlock()
	began := time.Now()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := c.Leases().Renew(ctx, lease.RenewRequest{Session: id})
		cancel()
		if err == nil {
			break
		}
		if time.Since(began) > 12*time.Second { // a session of the default TTL would be lost
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
	}
}
