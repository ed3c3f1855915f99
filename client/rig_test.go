package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/client"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/server"
	"github.com/tenure-go/tenure/store/memory"
)

// world is the oracle behind a server on a real socket, for every suite.
type world struct {
	clock      *manual // nil where the clock runs
	leases     *memory.Store
	holds      *memory.Holds
	operations *memory.Operations
	options    server.Options
	url        string
	client     *client.Client
}

type manual struct {
	mu  sync.Mutex
	now time.Duration
}

func (m *manual) read() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (w *world) Tick(d time.Duration) {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	w.clock.now += d
}

func (w *world) Check(context.Context) error { return nil }
func (w *world) Tolerance() time.Duration    { return 50 * time.Millisecond }

func (w *world) Advance(_ context.Context, d time.Duration) error {
	w.leases.Advance(d)
	if d > 0 {
		w.holds.Advance(d)
		w.operations.Advance(d)
	}
	return nil
}

// What the suites ask for.
type (
	leaseWorld     struct{ *world }
	holdWorld      struct{ *world }
	operationWorld struct{ *world }
)

func (w leaseWorld) Store() lease.Store           { return w.client.Leases() }
func (w leaseWorld) Operator() leasetest.Operator { return w.client.Leases() }
func (w holdWorld) Store() hold.Store             { return w.client.Holds() }
func (w holdWorld) Office() hold.Office           { return w.client.Holds() }
func (w operationWorld) Store() operation.Backend { return w.client.Operations() }

// serve is a server of o on a real socket, with HTTP/2 without TLS as tenure serve has it.
func serve(t testing.TB, o server.Options) *httptest.Server {
	t.Helper()
	handler, err := server.Handler(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections() // of HTTP/2, which Close would wait for
		s.Close()
	})
	return s
}

func dial(t testing.TB, transport http.RoundTripper, urls ...string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Endpoints: urls, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOf(t, nil)
}

func newManualWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOf(t, &manual{})
}

func newWorldOf(t testing.TB, clock *manual) *world {
	t.Helper()
	o := memory.Options{}
	if clock != nil {
		o.Clock = clock.read
	}
	w := &world{clock: clock, leases: memory.New(o), holds: memory.NewHolds(o), operations: memory.NewOperations(o)}
	w.options = server.Options{Authority: w.leases.Authority(), Leases: w.leases, Holds: w.holds, Operations: w.operations}
	w.url = serve(t, w.options).URL
	w.client = dial(t, nil, w.url)
	return w
}
