package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencehttp"
)

const patience = 20 * time.Second

func claimed(name string, token fence.Token) fence.Claim {
	return fence.Claim{Authority: fence.ID{1}, Name: name, Acquisition: fence.ID{2, byte(token)}, Token: token}
}

// service knows nothing of leases. A request with the header Block waits, whatever becomes of its connection.
type service struct {
	*httptest.Server
	proceed chan struct{}
	began   chan string

	mu   sync.Mutex
	done []string
	last *http.Request
	body string
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{proceed: make(chan struct{}), began: make(chan string, 100)}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	element := r.Header.Get("Element")
	s.began <- element
	switch r.Header.Get("Block") {
	case "before":
		<-s.proceed
	case "in the answer":
		fmt.Fprint(w, "a part")
		_ = http.NewResponseController(w).Flush()
		<-s.proceed
	}
	s.mu.Lock()
	s.done = append(s.done, element)
	s.last, s.body = r, string(body)
	s.mu.Unlock()
	w.Header().Set("Connection", "X-Hop")
	w.Header().Set("X-Hop", "1")
	fmt.Fprint(w, "done")
}

func (s *service) elements() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.done)
}

// world is a guard before a service, both on real sockets.
type world struct {
	*service
	guard *httptest.Server
	g     *Guard
	turns *fencehttp.Serializer
	log   *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

type builder func(Config) (*Guard, error)

func start(t *testing.T, build builder, change func(*Config)) *world {
	t.Helper()
	w := &world{service: newService(t), log: new(lockedBuffer)}
	marks, err := fencehttp.NewMarks(100)
	if err != nil {
		t.Fatal(err)
	}
	if w.turns, err = fencehttp.NewSerializer(fencehttp.SerializeOptions{Wait: patience}); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(w.URL + "/base")
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Upstream: to, Check: marks, Turns: w.turns, Timeout: patience, MaxBody: 1 << 20}
	change(&c)
	if w.g, err = build(c); err != nil {
		t.Fatal(err)
	}
	w.guard = httptest.NewServer(w.g)
	t.Cleanup(func() {
		w.guard.CloseClientConnections()
		w.guard.Close()
		w.g.Close()
	})
	return w
}

func asIs(*Config) {}

type got struct {
	status int
	body   string
	head   http.Header
	err    error
}

func (w *world) send(ctx context.Context, method, path string, change func(*http.Request)) got {
	r, err := http.NewRequestWithContext(ctx, method, w.guard.URL+path, strings.NewReader("a body"))
	if err != nil {
		return got{err: err}
	}
	change(r)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()
	refusal := fencehttp.ErrorOf(resp)
	body, err := io.ReadAll(resp.Body)
	return got{resp.StatusCode, string(body), resp.Header, errors.Join(refusal, err)}
}

// write is a change of orders/7.
func (w *world) write(ctx context.Context, element, block string, token fence.Token) got {
	return w.send(ctx, http.MethodPut, "/orders/7", func(r *http.Request) {
		r.Header.Set("Element", element)
		r.Header.Set("Block", block)
		r.Header.Set(fencehttp.ClaimHeader, claimed("orders/7", token).String())
	})
}

func (w *world) later(ctx context.Context, element, block string, token fence.Token) <-chan got {
	c := make(chan got, 1)
	go func() { c <- w.write(ctx, element, block, token) }()
	return c
}

func (w *world) begins(t *testing.T, element string) {
	t.Helper()
	select {
	case e := <-w.began:
		if e != element {
			t.Fatalf("%q began, want %q", e, element)
		}
	case <-time.After(patience):
		t.Fatalf("%q did not begin", element)
	}
}

// waits reports that a request waits for its turn, or false when one is at work instead.
func (w *world) waits() bool {
	for range int(patience / time.Millisecond) {
		if _, waiting := w.turns.Busy(); waiting > 0 {
			return true
		}
		select {
		case <-w.began:
			return false
		case <-time.After(time.Millisecond):
		}
	}
	return false
}

// TestPassesOn: what arrives at the service, and what its client gets.
func TestPassesOn(t *testing.T) {
	w := start(t, New, asIs)
	a := w.send(t.Context(), http.MethodPut, "/orders/7?q=a;b", func(r *http.Request) {
		r.Header.Set(fencehttp.ClaimHeader, claimed("orders/7", 7).String())
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
		r.Header.Set("Connection", "X-Mine")
		r.Header.Set("X-Mine", "1")
	})
	r := w.last
	if a.status != 200 || a.body != "done" || a.head.Get("X-Hop") != "" || r.URL.Path != "/base/orders/7" || r.URL.RawQuery != "q=a;b" || w.body != "a body" {
		t.Errorf("%+v: %s %q", a, r.URL, w.body)
	}
	if r.Header.Get(fencehttp.ClaimHeader) != "" || r.Header.Get("X-Mine") != "" || r.Header.Get("X-Forwarded-For") != "127.0.0.1" || r.Header.Get("X-Forwarded-Host") == "" {
		t.Errorf("headers: %v", r.Header)
	}
	if a := w.send(t.Context(), http.MethodGet, "/anything", func(*http.Request) {}); a.status != 200 {
		t.Errorf("a read: %+v", a)
	}
	w = start(t, New, func(c *Config) { c.PassClaim, c.TrustForwarded = true, true })
	w.send(t.Context(), http.MethodPut, "/orders/7", func(r *http.Request) {
		r.Header.Set(fencehttp.ClaimHeader, claimed("orders/7", 7).String())
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
		r.Header.Set("X-Forwarded-Host", "shop.example")
	})
	if h := w.last.Header; h.Get(fencehttp.ClaimHeader) == "" || h.Get("X-Forwarded-For") != "203.0.113.9, 127.0.0.1" || h.Get("X-Forwarded-Host") != "shop.example" {
		t.Errorf("headers: %v", h)
	}
}

// TestRefuses: what does not reach the service, and how it is answered.
func TestRefuses(t *testing.T) {
	path1, err := ParseRule("path:2")
	if err != nil {
		t.Fatal(err)
	}
	header, err := ParseRule("header:x-order")
	if err != nil {
		t.Fatal(err)
	}
	fixed, err := ParseRule("fixed:shop")
	if err != nil {
		t.Fatal(err)
	}
	under := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(fencehttp.ClaimHeader, claimed(name, 7).String()) }
	}
	with := func(changes ...func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) {
			for _, change := range changes {
				change(r)
			}
		}
	}
	set := func(key, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Add(key, value) }
	}
	for name, c := range map[string]struct {
		config       func(*Config)
		method, path string
		change       func(*http.Request)
		status       int
	}{
		"no claim":                        {asIs, "POST", "/orders/7", with(), 428},
		"a claim to another":              {asIs, "POST", "/orders/7", under("orders/8"), 409},
		"an upgrade":                      {asIs, "GET", "/orders/7", with(under("orders/7"), set("Connection", "Upgrade"), set("Upgrade", "websocket")), 501},
		"an upgrade without a claim":      {asIs, "GET", "/orders/7", with(set("Connection", "Upgrade"), set("Upgrade", "websocket")), 501},
		"a large body":                    {func(c *Config) { c.MaxBody = 3 }, "POST", "/orders/7", under("orders/7"), 413},
		"a hidden method":                 {asIs, "GET", "/orders/7", set("X-HTTP-Method-Override", "DELETE"), 428},
		"a made-up method":                {asIs, "get", "/orders/7", with(), 428},
		"not among the protected":         {func(c *Config) { c.Only = []string{"/orders"} }, "POST", "/login", with(), 200},
		"among the protected":             {func(c *Config) { c.Only = []string{"/orders"} }, "POST", "/orders/7", with(), 428},
		"only the same beginning":         {func(c *Config) { c.Only = []string{"/orders"} }, "POST", "/orders-old", with(), 200},
		"round about to the protected":    {func(c *Config) { c.Only = []string{"/orders"} }, "POST", "/login/../orders/7", with(), 400},
		"an escape to the protected":      {func(c *Config) { c.Only = []string{"/orders"} }, "POST", "/%6frders/7", with(), 400},
		"more slashes to the protected":   {func(c *Config) { c.Only = []string{"/orders"} }, "POST", "//orders/7", with(), 400},
		"by two segments":                 {func(c *Config) { c.Rule = path1 }, "POST", "/orders/7/items", under("orders/7"), 200},
		"by two segments, another":        {func(c *Config) { c.Rule = path1 }, "POST", "/orders/8/items", under("orders/7"), 409},
		"by a header":                     {func(c *Config) { c.Rule = header }, "POST", "/x", with(under("7"), set("X-Order", "7")), 200},
		"by a header that is not there":   {func(c *Config) { c.Rule = header }, "POST", "/x", under("7"), 400},
		"by a header that is there twice": {func(c *Config) { c.Rule = header }, "POST", "/x", with(under("7"), set("X-Order", "7"), set("X-Order", "8")), 400},
		"one resource":                    {func(c *Config) { c.Rule = fixed }, "POST", "/x/y", under("shop"), 200},
		"names with a prefix":             {func(c *Config) { c.NamePrefix = "eu/" }, "POST", "/orders/7", under("eu/orders/7"), 200},
		"names without their prefix":      {func(c *Config) { c.NamePrefix = "eu/" }, "POST", "/orders/7", under("orders/7"), 409},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, New, c.config)
			a := w.send(t.Context(), c.method, c.path, c.change)
			var p fencehttp.Problem
			if c.status != 200 && (json.Unmarshal([]byte(a.body), &p) != nil || p.Status != c.status || p.Detail == "") || a.status != c.status {
				t.Errorf("%+v", a)
			}
			if reached := len(w.elements()) > 0; reached != (c.status == 200) {
				t.Errorf("reached the service: %v", reached)
			}
		})
	}
}

// keepsTheTurn: a request that its client no longer waits for is still at work at the service, and a newer owner's waits for it. how
// is what the client does: it goes away, or is told that it took too long.
func keepsTheTurn(t *testing.T, build builder, block, how string) error {
	t.Helper()
	w := start(t, build, func(c *Config) {
		if how == "too long" {
			c.Timeout = 100 * time.Millisecond
		}
	})
	proceed := sync.OnceFunc(func() { close(w.proceed) })
	defer proceed()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	older := w.later(ctx, "older", block, 7)
	w.begins(t, "older")
	if how == "gone" {
		leave()
	}
	a := <-older
	if how == "too long" && block == "before" && (a.status != http.StatusGatewayTimeout || !strings.Contains(a.body, "may still do what was asked")) {
		return fmt.Errorf("the older: %+v", a)
	}
	newer := w.later(t.Context(), "newer", "", 8)
	waits := w.waits()
	proceed()
	b := <-newer
	if order := w.elements(); !waits || b.status != 200 || !slices.Equal(order, []string{"older", "newer"}) {
		return fmt.Errorf("the newer waited: %v; the order at the service: %q; %+v", waits, order, b)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return w.g.Wait(ctx)
}

func TestTheTurnLastsUntilTheServiceIsDone(t *testing.T) {
	for _, block := range []string{"before", "in the answer"} {
		for _, how := range []string{"gone", "too long"} {
			t.Run(block+", "+how, func(t *testing.T) {
				t.Parallel()
				if err := keepsTheTurn(t, New, block, how); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestHastyTurnsAreCaught: a guard whose turns end with its clients' patience does not pass
// [TestTheTurnLastsUntilTheServiceIsDone], nor does one without turns.
func TestHastyTurnsAreCaught(t *testing.T) {
	for name, twin := range map[string]builder{
		"until the client goes": func(c Config) (*Guard, error) { return build(c, false) },
		"none": func(c Config) (*Guard, error) {
			c.Turns = nil
			return New(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 { // when a server notices that a client has gone is its own affair
				if keepsTheTurn(t, twin, "before", "gone") != nil {
					return
				}
			}
			t.Error("it passes")
		})
	}
}

// TestServiceThatFails: what is known when the service does not answer.
func TestServiceThatFails(t *testing.T) {
	w := start(t, New, func(c *Config) { c.GiveUp = 200 * time.Millisecond })
	defer close(w.proceed)
	if a := w.write(t.Context(), "silent", "before", 7); a.status != 502 || !strings.Contains(a.body, "may have done") {
		t.Errorf("given up: %+v", a)
	}
	w.begins(t, "silent")
	if a := w.write(t.Context(), "next", "", 8); a.status != 200 { // the turn was given up with it
		t.Errorf("the next: %+v", a)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	listener.Close()
	w = start(t, New, func(c *Config) { c.Upstream = nobody })
	if a := w.write(t.Context(), "x", "", 7); a.status != 502 || !strings.Contains(a.body, "nothing was passed on") {
		t.Errorf("nobody there: %+v", a)
	}
	if working, _ := w.turns.Busy(); working != 0 {
		t.Error("a turn is left")
	}
}

// TestDrain: requests under way are answered, new ones are not taken, and what only the service is at work on is told.
func TestDrain(t *testing.T) {
	for _, c := range []struct{ left, turns bool }{{false, true}, {true, true}, {false, false}, {true, false}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			left := c.left
			w := start(t, New, func(config *Config) {
				if !c.turns {
					config.Turns = nil
				}
			})
			proceed := sync.OnceFunc(func() { close(w.proceed) })
			defer proceed()
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			w.guard.URL = "http://" + listener.Addr().String()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			drain := patience
			if left {
				drain = 100 * time.Millisecond
			}
			ended := make(chan error, 1)
			go func() { ended <- Serve(ctx, listener, w.g, 1<<16, drain) }()
			under := w.later(t.Context(), "under way", "before", 7)
			w.begins(t, "under way")
			stop()
			if !left {
				for { // until nothing new is taken
					conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
					if err != nil {
						break
					}
					conn.Close()
				}
				proceed()
			}
			a, err := <-under, <-ended
			if !left && (a.status != 200 || err != nil) || left && (a.err == nil || !errors.Is(err, ErrLeftBehind)) {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
}

func TestConfigMustFit(t *testing.T) {
	good := func() Config {
		marks, err := fencehttp.NewMarks(1)
		if err != nil {
			t.Fatal(err)
		}
		return Config{Upstream: &url.URL{Scheme: "http", Host: "x"}, Check: marks, Timeout: 1, MaxBody: 1}
	}
	if _, err := New(good()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no service": func(c *Config) { c.Upstream = nil }, "a file": func(c *Config) { c.Upstream.Scheme = "file" },
		"no host": func(c *Config) { c.Upstream.Host = "" }, "a query": func(c *Config) { c.Upstream.RawQuery = "a" },
		"a user": func(c *Config) { c.Upstream.User = url.User("x") }, "no check": func(c *Config) { c.Check = nil },
		"no bound": func(c *Config) { c.Timeout = 0 }, "no body": func(c *Config) { c.MaxBody = 0 }, "no giving up": func(c *Config) { c.GiveUp = -1 },
		"no path": func(c *Config) { c.Only = []string{"orders"} }, "a path with a slash": func(c *Config) { c.Only = []string{"/orders/"} },
	} {
		c := good()
		change(&c)
		if _, err := New(c); !errors.Is(err, ErrOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "paths", "path:", "path:0", "path:x", "header:", "header:a b", "fixed:", "fixed:\n"} {
		if _, err := ParseRule(text); !errors.Is(err, ErrOption) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
