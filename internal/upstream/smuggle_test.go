package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/fence/fencehttp"
)

// raw sends text as it stands, which no client of this language would, and returns the status of the answer.
func (w *world) raw(t *testing.T, text string) int {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.guard.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestNoWayRound: requests that name a protected resource in a way that the service understands, and a careless guard does not.
func TestNoWayRound(t *testing.T) {
	t.Parallel()
	header, err := ParseRule("header:X-Order")
	if err != nil {
		t.Fatal(err)
	}
	claim := fencehttp.ClaimHeader + ": " + claimed("7", 7).String() + "\r\n"
	for name, c := range map[string]struct {
		line, headers string
		status        int
		byHeader      bool
	}{
		"a target within a target":           {"PUT http:http://service/orders/7", "", 400, false},
		"a read by such a target":            {"GET http:http://service/orders/7", "", 400, false},
		"a target without a slash":           {"PUT http:orders/7", "", 400, false},
		"a target with a host":               {"PUT http://elsewhere/orders/7", "", 428, false},
		"a NUL in the path":                  {"PUT /orders%00/7", "", 400, false},
		"a tab in the path":                  {"PUT /orders%09/7", "", 400, false},
		"a slash of two bytes":               {"PUT /x%C0%AF..%C0%AForders/7", "", 400, false},
		"a hidden method":                    {"GET /orders/7", "X_HTTP_Method_Override: DELETE\r\n", 428, false},
		"another HTTP on the connection":     {"GET /login", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n", 501, false},
		"another HTTP beside a websocket":    {"GET /login", "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n", 501, false},
		"a header with underscores besides":  {"PUT /orders/7", claim + "X-Order: 7\r\nX_Order: 8\r\n", 400, true},
		"a header with underscores alone":    {"PUT /orders/7", claim + "X_Order: 7\r\n", 400, true},
		"a header that is not to be passed":  {"PUT /orders/7", claim + "X-Order: 7\r\nConnection: close, x-order\r\n", 400, true},
		"a header that is passed on, though": {"PUT /orders/7", claim + "X-Order: 7\r\n", 200, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, New, func(config *Config) {
				config.Only = []string{"/orders"}
				if c.byHeader {
					config.Rule = header
				}
			})
			got := w.raw(t, c.line+" HTTP/1.1\r\nHost: shop\r\nContent-Length: 1\r\n"+c.headers+"\r\nx")
			if reached := len(w.elements()) > 0; got != c.status || reached != (c.status == 200) {
				t.Errorf("%d, reached the service: %v; want %d", got, reached, c.status)
			}
		})
	}
	w := start(t, New, func(c *Config) { c.Only = []string{"/orders"} })
	w.raw(t, "PUT /login HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\nX-Original-URL: /orders/7\r\nX_Rewrite_URL: /orders/7\r\nX-Other: 1\r\n\r\n")
	if h := w.last.Header; len(valuesOf(h, "X-Original-Url"))+len(valuesOf(h, "X-Rewrite-Url")) != 0 || h.Get("X-Other") != "1" {
		t.Errorf("headers: %v", h)
	}
}

// TestSentBeforeItIsNotReached: a request that was sent, and sent again because its connection broke, may have been done, though the second
// reached nobody.
func TestSentBeforeItIsNotReached(t *testing.T) {
	t.Parallel()
	for _, turns := range []bool{true, false} {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		broke := make(chan error, 1)
		go func() { broke <- answerOnce(listener) }()
		w := start(t, New, func(c *Config) {
			c.Upstream = &url.URL{Scheme: "http", Host: listener.Addr().String()}
			if !turns {
				c.Turns = nil
			}
		})
		for i, status := range []int{200, 502} {
			a := w.send(t.Context(), http.MethodPut, "/orders/7", func(r *http.Request) {
				r.Header.Set(fencehttp.ClaimHeader, claimed("orders/7", 7).String())
				r.Header.Set("Idempotency-Key", "1")
			})
			if a.status != status || i == 1 && (!strings.Contains(a.body, "may have done what was asked") || strings.Contains(a.body, "nothing was passed on")) {
				t.Errorf("turns %v, request %d: %+v", turns, i, a)
			}
		}
		if err := <-broke; err != nil {
			t.Error(err)
		}
	}
}

// answerOnce answers one request, reads another on the same connection, and is gone.
func answerOnce(listener net.Listener) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	from := bufio.NewReader(conn)
	for i := range 2 {
		r, err := http.ReadRequest(from)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return err
		}
		if i == 0 {
			if _, err := fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
				return err
			}
		}
	}
	return errors.Join(listener.Close(), conn.Close())
}
