//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
)

// serving is where a server says that it listens.
func (p *process) serving() string {
	p.t.Helper()
	p.await("msg\":\"serving")
	m := regexp.MustCompile(`"listen":"([^"]+)"`).FindStringSubmatch(p.errout.String())
	if m == nil {
		p.t.Fatalf("no address in %s", p.errout)
	}
	return "http://" + m[1]
}

// TestServe: what runs on a store runs on a server of it, and what is served is that store.
func TestServe(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if kind == "postgres" {
				w, _ = postgresWorld(t, testdb.Shared(t))
			}
			s := w.start("serve", "--listen", "127.0.0.1:0", "--json")
			url := s.serving()
			w.ok("run", "job", "--store", url, "--", "true")
			if direct, remote := w.ok("lease", "show", "job"), w.ok("lease", "show", "job", "--store", url); direct != remote || !strings.Contains(remote, "released") {
				t.Errorf("the store says\n%s\nand the server\n%s", direct, remote)
			}
			older := w.ok("run", "marked", "--store", url, "--", "sh", "-c", "echo $TENURE_CLAIM")
			newer := w.ok("run", "marked", "--store", url, "--", "sh", "-c", "echo $TENURE_CLAIM")
			marked(t, url, older, newer)
			var a, b authorityJSON
			for out, into := range map[string]*authorityJSON{w.ok("authority", "show", "--json"): &a, w.ok("authority", "show", "--json", "--store", url): &b} {
				if err := json.Unmarshal([]byte(out), into); err != nil {
					t.Fatal(err)
				}
			}
			if a.Authority != b.Authority || a.Authority.IsZero() {
				t.Errorf("the store is authority %v, and its server says %v", a.Authority, b.Authority)
			}
			w.ok("op", "submit", "charge", "charge-1", "--request", "{}", "--store", url)
			if out := w.ok("op", "show", "charge-1"); !strings.Contains(out, "pending") {
				t.Errorf("what was submitted to the server: %s", out)
			}
			if got := w.do("run", "--once", "1", "nightly", "--store", url, "--", "true"); got.code != 0 {
				t.Errorf("run --once: %d %s", got.code, got.stderr)
			}
			if got := w.do("lease", "revoke", "job", "--token", "99", "--reason", "test", "--store", url); got.code != exitFailed || !strings.Contains(got.stderr, "latest token") {
				t.Errorf("revoking under another token: %d %s", got.code, got.stderr)
			}
			s.signal(syscall.SIGTERM)
			if end := s.wait(); end.code != 0 {
				t.Errorf("the server ended with %d: %s", end.code, end.stderr)
			}
			if got := w.do("lease", "ls", "--store", url); got.code != exitNoStore || !strings.Contains(got.stderr, "tenure serve") {
				t.Errorf("with the server gone: %d %s", got.code, got.stderr)
			}
		})
	}
}

// marked enters a mark with a claim, and then with an older one, which is refused.
func marked(t *testing.T, url, older, newer string) {
	t.Helper()
	const stale = "failed_precondition"
	for _, c := range []struct{ call, code, claim string }{{"EnterMark", "", older}, {"EnterMark", "", newer}, {"AdmitMark", "", newer}, {"EnterMark", stale, older}, {"AdmitMark", stale, older}, {"VerifyClaim", stale, newer}} {
		claim, err := fence.ParseClaim(strings.TrimSpace(c.claim))
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"resource": "r", "claim": {"authority": %q, "name": %q, "acquisition": %q, "token": %q}}`, claim.Authority, claim.Name, claim.Acquisition, claim.Token)
		if c.call == "VerifyClaim" {
			body = strings.Replace(body, `"resource": "r", `, "", 1)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/tenure.v1.MarkService/"+c.call, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var reply struct{ Code, Message string }
		if err := errors.Join(json.NewDecoder(resp.Body).Decode(&reply), resp.Body.Close()); err != nil || reply.Code != c.code {
			t.Errorf("%s under token %d: %+v, %v; want %q", c.call, claim.Token, reply, err, c.code)
		}
	}
}

// TestServerIsKilled: what a killed server has answered holds, and another one goes on with it.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start("serve", "--listen", "127.0.0.1:0", "--json")
	second := w.start("serve", "--listen", "127.0.0.1:0", "--json")
	urls := first.serving() + "," + second.serving()
	g := w.gate("work")
	run := w.start("run", "job", "--ttl", "3s", "--store", urls, "--", "sh", "-c", "echo in; read word < "+g.path)
	if line := run.line(); line != "in" {
		t.Fatalf("the command says %q", line)
	}
	first.signal(syscall.SIGKILL)
	first.wait()
	if got := w.do("run", "job", "--wait", "100ms", "--store", urls, "--", "true"); got.code != exitNotAcquired {
		t.Errorf("beside the holder: %d %s", got.code, got.stderr)
	}
	g.open()
	if end := run.wait(); end.code != 0 {
		t.Errorf("the run whose first server was killed: %d %s", end.code, end.stderr)
	}
}

// TestServeRefuses: nobody but this machine, no store twice removed, no nonsense.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.start("serve", "--listen", "127.0.0.1:0", "--json")
	url := s.serving()
	for _, args := range [][]string{
		{"serve", "--listen", "0.0.0.0:0"}, {"serve", "--store", url}, {"serve", "--drain", "-1s"}, {"serve", "--at-once", "1"}, {"serve", "--most", "1ms"}, {"serve", "x"},
		{"migrate", "--store", url}, {"protect", "t", "'x'", "--store", url}, {"drill", "pause", "--store", url}, {"guard", "--upstream", "http://127.0.0.1:1", "--store", url},
		{"authority", "new", "--yes", "--store", url}, {"lease", "ls", "--store", "http://user:secret@127.0.0.1"}, {"lease", "ls", "--store", "http://127.0.0.1:1/?x"},
	} {
		got := w.do(args...)
		if got.code != exitUsage || strings.Contains(got.stderr, "secret") {
			t.Errorf("%q: %d %s", args, got.code, got.stderr)
		}
	}
	if got := w.do("serve", "--listen", "127.0.0.1:0", "--store", "sqlite:/dev/null/t.db"); got.code == 0 {
		t.Errorf("%d %s", got.code, got.stderr)
	}
	s.signal(syscall.SIGTERM)
	s.wait()
}
