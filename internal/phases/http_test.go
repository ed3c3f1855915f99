//go:build unix

package phases

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgetconnect"
	"github.com/tenure-go/tenure/budget/budgethttp"
)

const (
	large = 16 << 20 // more than the buffers of all sockets between hold
	long  = 1 << 20  // an answer that does not come at once
)

// site is a service on a real socket, behind a proxy.
type site struct {
	*proxy
	calls     atomic.Int32
	transport *http.Transport
	scheme    string
	release   chan struct{} // what /hold waits for
	held      chan struct{} // it waits
}

func (s *site) count() int { return int(s.calls.Load()) }

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/hold" {
		s.held <- struct{}{}
		<-s.release
		return
	}
	s.calls.Add(1)
	_, _ = io.Copy(io.Discard, r.Body)
	if r.URL.Path == "/long" {
		_, _ = w.Write(make([]byte, long))
	}
}

func newSite(t *testing.T, http2 bool) *site {
	t.Helper()
	s := &site{release: make(chan struct{}), held: make(chan struct{}, 1), scheme: "http://"}
	mux := http.NewServeMux()
	mux.Handle("/", s)
	mux.Handle("/t.T/", connect.NewUnaryHandler("/t.T/Do", func(_ context.Context, req *connect.Request[wrapperspb.BytesValue]) (*connect.Response[wrapperspb.BytesValue], error) {
		s.calls.Add(1)
		if len(req.Msg.GetValue()) == 1 {
			return connect.NewResponse(wrapperspb.Bytes(make([]byte, long))), nil
		}
		return connect.NewResponse(wrapperspb.Bytes(nil)), nil
	}))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = http2
	if http2 {
		s.scheme = "https://"
		server.StartTLS()
	} else {
		server.Start()
	}
	var ok bool
	if s.transport, ok = server.Client().Transport.(*http.Transport); !ok {
		t.Fatal("another transport")
	}
	t.Cleanup(func() {
		s.transport.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	t.Cleanup(func() { close(s.release) })
	s.proxy = newProxy(t, server.Listener.Addr().String())
	return s
}

func (s *site) client() *http.Client {
	return &http.Client{Transport: &budgethttp.Transport{Base: s.transport}}
}

// caller makes one call of a kind ("work", "long", "large", "hold").
type caller func(ctx context.Context, client *http.Client, base, kind string) error

func overHTTP(ctx context.Context, client *http.Client, base, kind string) error {
	var body io.Reader = http.NoBody
	if kind == "large" {
		body = io.LimitReader(zeros{}, large)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/"+kind, body)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := budgethttp.ErrorOf(resp); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func overConnect(ctx context.Context, client *http.Client, base, kind string) error {
	if kind == "hold" { // not a call of the service, but one that takes the connection
		return overHTTP(ctx, client, base, kind)
	}
	c := connect.NewClient[wrapperspb.BytesValue, wrapperspb.BytesValue](client, base+"/t.T/Do", connect.WithInterceptors(budgetconnect.NewClient()), connect.WithAcceptCompression("gzip", nil, nil))
	_, err := c.CallUnary(ctx, connect.NewRequest(wrapperspb.Bytes(map[string][]byte{"long": {1}, "large": make([]byte, large)}[kind])))
	return err
}

// at is a scene at an address, before any connection is there; service is what would have done the call.
func at(call caller, http2 bool, scheme string, address func(t *testing.T) string, dial func(t *testing.T) *net.Dialer) player {
	return func(t *testing.T, slow patience) (func() int, error) {
		t.Helper()
		s := newSite(t, http2)
		s.transport.DialContext = new(net.Dialer).DialContext
		if dial != nil {
			s.transport.DialContext = dial(t).DialContext
		}
		base := scheme + address(t)
		ctx, cancel := context.WithTimeout(t.Context(), slow.times(soon))
		defer cancel()
		return s.count, call(ctx, s.client(), base, "work")
	}
}

// through is a scene on a connection through a proxy that does something.
func through(call caller, http2 bool, kind, stream, what string) player {
	return func(t *testing.T, slow patience) (func() int, error) {
		t.Helper()
		s := newSite(t, http2)
		if http2 { // a handshake is not what is to be disturbed
			if err := call(t.Context(), s.client(), s.scheme+s.Listen, "work"); err != nil {
				t.Fatal(err)
			}
			s.calls.Store(0)
		}
		s.does(stream, what)
		ctx, cancel := context.WithTimeout(t.Context(), slow.times(late))
		defer cancel()
		return s.count, call(ctx, s.client(), s.scheme+s.Listen, kind)
	}
}

// exhausted is a call that waits for the only connection, which another one has.
func exhausted(call caller) player {
	return func(t *testing.T, slow patience) (func() int, error) {
		t.Helper()
		s := newSite(t, false)
		s.transport.MaxConnsPerHost = 1
		over := make(chan struct{})
		held, end := context.WithCancel(t.Context())
		go func() {
			defer close(over)
			_ = call(held, s.client(), s.scheme+s.Listen, "hold") // how it ends is another scene's business
		}()
		t.Cleanup(func() { end(); <-over })
		<-s.held
		ctx, cancel := context.WithTimeout(t.Context(), slow.times(soon))
		defer cancel()
		return s.count, call(ctx, s.client(), s.scheme+s.Listen, "work")
	}
}

func named(*testing.T) string { return "service.test:80" }

func asking(server func(t *testing.T) string) func(t *testing.T) *net.Dialer {
	return func(t *testing.T) *net.Dialer { t.Helper(); return &net.Dialer{Resolver: resolver(server(t))} }
}

func httpScenes(http2 bool) []scene { return scenesOf(overHTTP, http2) }

func connectScenes() []scene { return scenesOf(overConnect, true) }

func scenesOf(call caller, http2 bool) []scene {
	scheme := "http://"
	if http2 {
		scheme = "https://"
	}
	nobodysDNS := func(t *testing.T) string { t.Helper(); return nobody(t) }
	scenes := []scene{
		{"the name server is silent", budget.NotSent, in(budget.PhaseDNS), false, at(call, http2, scheme, named, asking(silentDNS))},
		{"there is no name server", budget.NotSent, in(budget.PhaseDNS), false, at(call, http2, scheme, named, asking(nobodysDNS))},
		{"connecting gets no answer", budget.NotSent, in(budget.PhaseConnect), false, at(call, http2, scheme, full, nil)},
		{"connecting is refused", budget.NotSent, in(budget.PhaseConnect), false, at(call, http2, scheme, nobody, nil)},
		{"the handshake gets no answer", budget.NotSent, in(budget.PhaseTLS), false, at(call, http2, "https://", silent, nil)},
		{"the handshake is reset", budget.NotSent, in(budget.PhaseTLS), false, at(call, http2, "https://", resetting, nil)},
		{"sending does not come to its end", budget.Unknown, in(budget.PhaseSending), false, through(call, http2, "large", "upstream", stall)},
		{"sending is reset", budget.Unknown, in(budget.PhaseSending), false, through(call, http2, "large", "upstream", reset)},
		{"the request is lost", budget.Unknown, in(budget.PhaseAnswer), false, through(call, http2, "work", "upstream", swallow)},
		{"the answer is lost", budget.Unknown, in(budget.PhaseAnswer), true, through(call, http2, "work", "downstream", swallow)},
		{"the answer is a reset", budget.Unknown, in(budget.PhaseAnswer), true, through(call, http2, "work", "downstream", reset)},
		{"the answer does not come to its end", budget.Unknown, in(budget.PhaseReading), true, through(call, http2, "long", "downstream", stall)},
		{"the answer is cut short", budget.Unknown, in(budget.PhaseReading), true, through(call, http2, "long", "downstream", cutShort)},
	}
	if !http2 {
		scenes = append(scenes, scene{"no connection is free", budget.NotSent, in(budget.PhaseConnection), false, exhausted(call)})
	}
	return scenes
}

// deafHTTP is a service whose answers are lost.
func deafHTTP(http2 bool) func(t *testing.T) (func(context.Context) error, func() int) {
	return func(t *testing.T) (func(context.Context) error, func() int) {
		t.Helper()
		return deafSite(t, overHTTP, http2)
	}
}

func deafConnect(t *testing.T) (call func(context.Context) error, count func() int) {
	t.Helper()
	return deafSite(t, overConnect, false)
}

func deafSite(t *testing.T, call caller, http2 bool) (func(context.Context) error, func() int) {
	t.Helper()
	s := newSite(t, http2)
	if http2 {
		if err := call(t.Context(), s.client(), s.scheme+s.Listen, "work"); err != nil {
			t.Fatal(err)
		}
		s.calls.Store(0)
	}
	s.does("downstream", swallow)
	return func(ctx context.Context) error { return call(ctx, s.client(), s.scheme+s.Listen, "work") }, s.count
}
