package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/server"
	"github.com/tenure-go/tenure/store/memory"
)

// A server that was known, and comes back at its address with the store of another authority, is asked for nothing, whichever kind of call it is.
func TestAServerThatComesBackAsAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	foreign, operations := memory.New(memory.Options{}), memory.NewOperations(memory.Options{})
	var now atomic.Pointer[http.Handler]
	become := func(o server.Options) {
		h, err := server.Handler(o)
		if err != nil {
			t.Fatal(err)
		}
		now.Store(&h)
	}
	become(w.options)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { (*now.Load()).ServeHTTP(rw, r) }))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	c := dial(t, nil, s.URL)
	if _, err := open(t.Context(), c.Leases()); err != nil {
		t.Fatal(err)
	}
	become(server.Options{Authority: foreign.Authority(), Leases: foreign, Operations: operations})
	if _, err := open(t.Context(), c.Leases()); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), foreign.Authority().String()) {
		t.Errorf("a session at another authority: %v; want ErrUnavailable that names it", err)
	}
	body := []byte("x")
	if _, err := c.Operations().Submit(t.Context(), operation.SubmitRequest{ID: "o", Kind: "k", Request: body, Fingerprint: operation.FingerprintOf("k", body)}); !errors.Is(err, operation.ErrUnavailable) {
		t.Errorf("an operation at another authority: %v; want ErrUnavailable", err)
	}
	for range 5 { // as a call, and on a stream
		if _, err := c.Leases().Renew(t.Context(), lease.RenewRequest{Session: lease.NewID()}); !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown) {
			t.Errorf("a renewal at another authority: %v", err)
		}
	}
	become(w.options)
	if _, err := open(t.Context(), c.Leases()); err != nil {
		t.Errorf("when it is what it was: %v", err)
	}
}
