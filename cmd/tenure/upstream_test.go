//go:build unix

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/fence/fencehttp"
	"github.com/tenure-go/tenure/internal/testdb"
)

// ordersService knows nothing of leases, and tells what reached it.
func ordersService(t *testing.T, reached chan<- string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		reached <- r.Method + " " + r.URL.Path + " " + string(body) + r.Header.Get(fencehttp.ClaimHeader)
	}))
	t.Cleanup(s.Close)
	return s
}

// address is where a guard says that it listens.
func (p *process) address() string {
	p.t.Helper()
	p.await("guarding")
	m := regexp.MustCompile(`"listen":"([^"]+)"`).FindStringSubmatch(p.errout.String())
	if m == nil {
		p.t.Fatalf("no address in %s", p.errout)
	}
	return "http://" + m[1]
}

func put(t *testing.T, to, claim, body string) (int, fencehttp.Problem) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPut, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if claim != "" {
		r.Header.Set(fencehttp.ClaimHeader, claim)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p fencehttp.Problem
	if len(text) > 0 {
		if err := json.Unmarshal(text, &p); err != nil {
			t.Fatalf("%d %s: %v", resp.StatusCode, text, err)
		}
	}
	return resp.StatusCode, p
}

// TestGuard: two owners one after the other, under `tenure run`, before a service that knows nothing of them.
func TestGuard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mode, store string }{{"strict", "sqlite"}, {"high-water", "sqlite"}, {"strict", "postgres"}, {"high-water", "postgres"}} {
		t.Run(c.mode+" on "+c.store, func(t *testing.T) {
			t.Parallel()
			mode, w := c.mode, newWorld(t)
			if c.store == "postgres" {
				w, _ = postgresWorld(t, testdb.Shared(t))
			}
			reached := make(chan string, 10)
			service := ordersService(t, reached)
			w.ok("run", "orders/7", "--", "true") // makes the store
			g := w.start("guard", "--upstream", service.URL, "--listen", "127.0.0.1:0", "--mode", mode, "--json")
			to := g.address() + "/orders/7"
			if status, p := put(t, to, "", "x"); status != 428 || p.Code != fencehttp.CodeMissing {
				t.Errorf("without a claim: %d %+v", status, p)
			}
			first := strings.TrimSpace(w.ok("run", "orders/7", "--", "sh", "-c", "echo $TENURE_CLAIM"))
			if mode == "high-water" { // the mark knows of no end
				if status, p := put(t, to, first, "first"); status != 200 {
					t.Fatalf("the first: %d %+v", status, p)
				}
				if got := <-reached; got != "PUT /orders/7 first" {
					t.Errorf("reached: %q", got)
				}
			} else if status, p := put(t, to, first, "over"); status != 412 || p.Why != "released" {
				t.Errorf("the first, which has released: %d %+v", status, p)
			}
			// The second holds while it writes.
			writing := w.gate("writing")
			second := w.start("run", "orders/7", "--", "sh", "-c", "echo $TENURE_CLAIM; read x <"+writing.path)
			claim := second.line()
			if status, p := put(t, to, claim, "second"); status != 200 {
				t.Fatalf("the second: %d %+v", status, p)
			}
			if got := <-reached; got != "PUT /orders/7 second" {
				t.Errorf("reached: %q", got)
			}
			if status, p := put(t, to, first, "late"); status != 412 || p.Newer == 0 || p.Seen == 0 || p.Why != "superseded" {
				t.Errorf("the first is late: %d %+v", status, p)
			}
			writing.open()
			g.signal(syscall.SIGTERM)
			if e := g.wait(); e.code != 0 || len(reached) > 0 || strings.Contains(e.stderr, secret) {
				t.Errorf("exit %d, reached besides: %d, the password must not be told\n%s", e.code, len(reached), e.stderr)
			}
		})
	}
}

// TestGuardRefusesToStart: a command line that makes no sense, and a store without leases.
func TestGuardRefusesToStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	up := "http://127.0.0.1:9"
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "--upstream", []string{"guard"}},
		{exitUsage, "http://", []string{"guard", "--upstream", "ftp://x", "--mode", "high-water"}},
		{exitUsage, "rule for resources", []string{"guard", "--upstream", up, "--resource", "query"}},
		{exitUsage, "strict and high-water", []string{"guard", "--upstream", up, "--mode", "lax"}},
		{exitUsage, "--wait must be positive", []string{"guard", "--upstream", up, "--wait", "0s"}},
		{exitUsage, "is no path", []string{"guard", "--upstream", up, "--mode", "high-water", "--only", "orders"}},
		{exitNoStore, "there is no store", []string{"guard", "--upstream", up, "--store", "sqlite:" + filepath.Join(w.dir, "none.db")}},
		{exitNoStore, "127.0.0.1:1", []string{"guard", "--upstream", up, "--store", "postgres://u:" + secret + "@127.0.0.1:1/x"}},
		{exitFailed, "--listen", []string{"guard", "--upstream", up, "--mode", "high-water", "--listen", "203.0.113.1:1"}},
	} {
		if e := w.do(c.args...); e.code != c.code || !strings.Contains(e.last(), c.says) || strings.Contains(e.stderr, secret) {
			t.Errorf("%q: exit %d, %s", c.args, e.code, e.stderr)
		}
	}
}
