package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/client"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/server"
	"github.com/tenure-go/tenure/store/memory"
)

// nobody is an address at which nothing listens.
func nobody(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	return "http://" + l.Addr().String()
}

func TestDialRefuses(t *testing.T) {
	t.Parallel()
	for _, endpoints := range [][]string{nil, {""}, {"127.0.0.1:7420"}, {"ftp://h"}, {"http://u:secret@h"}, {"http://h?x"}, {"http://h#x"}, {"http://"}, make([]string, 17)} {
		_, err := client.Dial(t.Context(), client.Options{Endpoints: endpoints})
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%q: %v; want ErrInvalid", endpoints, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells a password: %v", err)
		}
	}
	if _, err := client.Dial(t.Context(), client.Options{Endpoints: []string{nobody(t)}}); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("nobody there: %v; want ErrUnreachable", err)
	}
}

func open(ctx context.Context, s lease.Store) (fence.ID, error) {
	id := lease.NewID()
	_, err := s.Open(ctx, lease.OpenRequest{ID: id, Owner: "w", TTL: time.Minute})
	return id, err
}

// A request that found nobody was certainly not applied, and the next server is asked; one of another authority never is.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := serve(t, w.options), serve(t, w.options)
	foreign := memory.New(memory.Options{})
	other := serve(t, server.Options{Authority: foreign.Authority(), Leases: foreign})
	c := dial(t, nil, nobody(t), first.URL, other.URL, second.URL)
	id, err := open(t.Context(), c.Leases())
	if err != nil {
		t.Fatal(err)
	}
	first.CloseClientConnections()
	first.Close()
	// The connection is gone, and whether the call got through may be unknown: then the next call asks elsewhere.
	if _, err = again(func() (lease.Renewal, error) { return c.Leases().Renew(t.Context(), lease.RenewRequest{Session: id}) }, lease.ErrUnknown); err != nil {
		t.Errorf("renewing at another server of the authority: %v", err)
	}
	second.CloseClientConnections()
	second.Close()
	for range 2 { // what was written to a connection that was being closed may have got there; after that there is none
		_, err = c.Leases().Renew(t.Context(), lease.RenewRequest{Session: id})
	}
	if !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("with the authority's servers gone: %v; want ErrUnavailable", err)
	}
	if infos, err := foreign.List(t.Context(), lease.ListRequest{Limit: 10}); err != nil || len(infos) > 0 {
		t.Errorf("the other authority was asked: %v, %v", infos, err)
	}
}

// What is between client and server may answer in its own words: then nothing is known of the request.
func TestAProxysAnswerProvesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, code := range []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInternalServerError, http.StatusOK, http.StatusFound} {
		var broken bool
		c := dial(t, roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := http.DefaultTransport.RoundTrip(req)
			if broken && err == nil {
				resp.StatusCode, resp.Status = code, http.StatusText(code)
				resp.Header.Set("Content-Type", "text/html")
			}
			return resp, err
		}), w.url)
		broken = true
		if _, err := open(t.Context(), c.Leases()); !errors.Is(err, lease.ErrUnknown) {
			t.Errorf("%d: %v; want ErrUnknown", code, err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// A call whose context has ended was not sent, or its outcome is unknown: never that it failed.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(ctx, w.client.Leases()); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("%v; want ErrUnavailable", err)
	}
}

// A session of package lease, with its renewals and its safe deadline, runs on a client as on a store.
func TestSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, err := lease.Start(t.Context(), w.client.Leases(), lease.Options{Owner: "w", TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	held, err := s.Acquire(t.Context(), lease.Want{Names: []string{"n"}})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := held.Claim()
	if err != nil || claim.Authority != w.leases.Authority() {
		t.Errorf("the claim is %v, %v; want one of authority %v", claim, err, w.leases.Authority())
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
