package postgres

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tenure-go/tenure/client"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
	"github.com/tenure-go/tenure/server"
)

// served is a database behind a server on a real socket, and a client of it.
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

func (s *served) Store() lease.Store           { return s.client.Leases() }
func (s *served) Operator() leasetest.Operator { return s.client.Leases() }

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

// TestServedConformance: what the database keeps, its server's clients are kept too, and what they are granted is what resources in the database ask for.
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
	for _, c := range leasetest.ResourceCases() {
		play(t, c.Name, c.Run, fresh)
	}
}
