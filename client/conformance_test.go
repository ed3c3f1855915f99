package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/client"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
	"github.com/tenure-go/tenure/server"
	"github.com/tenure-go/tenure/store/memory"
)

// harness is the oracle behind a server on a real socket.
type harness struct {
	mem    *memory.Store
	leases *client.Leases
	clock  *manual // nil where the clock runs
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

func (h *harness) Store() lease.Store           { return h.leases }
func (h *harness) Operator() leasetest.Operator { return h.leases }
func (h *harness) Check(context.Context) error  { return nil }
func (h *harness) Tolerance() time.Duration     { return 50 * time.Millisecond }

func (h *harness) Advance(_ context.Context, d time.Duration) error {
	h.mem.Advance(d)
	return nil
}

func (h *harness) Tick(d time.Duration) {
	h.clock.mu.Lock()
	defer h.clock.mu.Unlock()
	h.clock.now += d
}

// serve is a server of o on a real socket, with HTTP/2 without TLS as tenure serve has it.
func serve(t testing.TB, o server.Options) string {
	t.Helper()
	s := httptest.NewUnstartedServer(server.Handler(o))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

func dial(t testing.TB, urls ...string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Endpoints: urls})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newHarness(t testing.TB, clock *manual) *harness {
	t.Helper()
	o := memory.Options{}
	if clock != nil {
		o.Clock = clock.read
	}
	mem := memory.New(o)
	url := serve(t, server.Options{Authority: mem.Authority(), Leases: mem})
	return &harness{mem: mem, leases: dial(t, url).Leases(), clock: clock}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range leasetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := c.Run(t.Context(), newHarness(t, nil)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOperatorConformance(t *testing.T) {
	t.Parallel()
	for _, c := range leasetest.OperatorCases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := c.Run(t.Context(), newHarness(t, nil)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEqualityConformance(t *testing.T) {
	t.Parallel()
	for _, c := range leasetest.EqualityCases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := c.Run(t.Context(), newHarness(t, &manual{})); err != nil {
				t.Error(err)
			}
		})
	}
}
