package sqlite

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tenure-go/tenure/client"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/hold/holdtest"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/operation/operationtest"
	"github.com/tenure-go/tenure/server"
)

// served is a file behind a server on a real socket, and a client of it.
type served struct {
	*harness
	server *httptest.Server
	client *client.Client
}

func serve(h *harness) *served {
	h.t.Helper()
	s := &served{harness: h}
	s.serve()
	h.t.Cleanup(s.away)
	return s
}

func (s *served) serve() {
	s.t.Helper()
	h, err := server.Handler(server.Options{Authority: s.store.Authority(), Leases: s.store, Holds: s.store.Holds(), Operations: s.store.Operations()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = httptest.NewUnstartedServer(h)
	s.server.Config.Protocols = new(http.Protocols)
	s.server.Config.Protocols.SetUnencryptedHTTP2(true)
	s.server.Start()
	if s.client, err = client.Dial(context.Background(), client.Options{Endpoints: []string{s.server.URL}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) away() {
	s.client.Close()
	s.server.CloseClientConnections()
	s.server.Close()
}

// Restart ends the server and its store, and starts both again.
func (s *served) Restart(ctx context.Context) error {
	s.away()
	if err := s.harness.Restart(ctx); err != nil {
		return err
	}
	s.serve()
	return nil
}

func (s *served) Store() lease.Store           { return s.client.Leases() }
func (s *served) Operator() leasetest.Operator { return s.client.Leases() }

// servedHolds and servedOperations are the same of what else a file keeps.
type (
	servedHolds struct {
		*served
		rig *holdHarness
	}
	servedOperations struct {
		*served
		rig *opHarness
	}
)

func (s servedHolds) Store() hold.Store             { return s.client.Holds() }
func (s servedHolds) Office() hold.Office           { return s.client.Holds() }
func (s servedOperations) Store() operation.Backend { return s.client.Operations() }
func (s servedHolds) Advance(ctx context.Context, d time.Duration) error {
	return s.rig.Advance(ctx, d)
}
func (s servedOperations) Advance(ctx context.Context, d time.Duration) error {
	return s.rig.Advance(ctx, d)
}
func (s servedHolds) Check(ctx context.Context) error      { return s.rig.Check(ctx) }
func (s servedOperations) Check(ctx context.Context) error { return s.rig.Check(ctx) }

// play runs a case of one of the suites on a harness of its own.
func play[H any](t *testing.T, name string, runs func(context.Context, H) error, fresh func(testing.TB) any) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		if err := runs(t.Context(), fresh(t).(H)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestServedConformance: what the file keeps, its server's clients are kept too, and what they are granted is what resources in the file ask for.
func TestServedConformance(t *testing.T) {
	fresh := func(tb testing.TB) any {
		tb.Helper()
		return serve(newHarness(tb))
	}
	for _, c := range leasetest.Cases() {
		play(t, c.Name, c.Run, fresh)
	}
	for _, c := range leasetest.OperatorCases() {
		play(t, c.Name, c.Run, fresh)
	}
	for _, c := range leasetest.DurableCases() {
		play(t, c.Name, c.Run, fresh)
	}
	for _, c := range leasetest.ResourceCases() {
		play(t, c.Name, c.Run, fresh)
	}
	for _, c := range leasetest.EqualityCases() {
		play(t, c.Name, c.Run, func(tb testing.TB) any {
			tb.Helper()
			return serve(newManualHarness(tb))
		})
	}
}

func TestServedHoldConformance(t *testing.T) {
	fresh := func(tb testing.TB) any {
		tb.Helper()
		h := newHoldHarness(tb)
		return servedHolds{serve(h.harness), h}
	}
	for _, c := range holdtest.Cases() {
		play(t, c.Name, c.Run, fresh)
	}
	for _, c := range holdtest.DurableCases() {
		play(t, c.Name, c.Run, fresh)
	}
}

func TestServedOperationConformance(t *testing.T) {
	fresh := func(tb testing.TB) any {
		tb.Helper()
		h := newOpHarness(tb)
		return servedOperations{serve(h.harness), h}
	}
	for _, c := range operationtest.Cases() {
		play(t, c.Name, c.Run, fresh)
	}
	for _, c := range operationtest.DurableCases() {
		play(t, c.Name, c.Run, fresh)
	}
}
