//go:build unix

package js_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/server"
	"github.com/tenure-go/tenure/store/memory"
)

// behaviour is what the tests in JavaScript ask of the server.
type behaviour struct {
	api         http.Handler
	leases      *memory.Store
	lose        atomic.Int64 // every so manieth reply
	calls       atomic.Int64
	hang, proxy atomic.Bool
}

// ServeHTTP serves the API, in the way that was asked for.
func (b *behaviour) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	every := b.lose.Load()
	switch {
	case b.hang.Load():
		if _, err := io.Copy(io.Discard, r.Body); err == nil { // while a body is unread, nobody notices that the caller has gone
			<-r.Context().Done()
		}
	case b.proxy.Load():
		http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
	case every > 0 && b.calls.Add(1)%every == 0:
		b.api.ServeHTTP(httptest.NewRecorder(), r) // it is done, and nobody is told
		panic(http.ErrAbortHandler)
	default:
		b.api.ServeHTTP(w, r)
	}
}

func (b *behaviour) control(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch r.PathValue("what") {
	case "lose":
		b.lose.Store(int64(n))
	case "hang":
		b.hang.Store(n == 1)
	case "proxy":
		b.proxy.Store(n == 1)
	case "expire":
		b.leases.Advance(time.Hour)
	default:
		http.NotFound(w, r)
	}
}

// claim answers with the text form of a claim.
func claim(w http.ResponseWriter, r *http.Request) {
	var c fence.Claim
	if err := json.Unmarshal([]byte(r.PathValue("claim")), &c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprint(w, c)
}

// started is a server as the tests in JavaScript want it.
func started(t *testing.T) string {
	t.Helper()
	mem := memory.New(memory.Options{})
	api, err := server.Handler(server.Options{Authority: mem.Authority(), Leases: mem})
	if err != nil {
		t.Fatal(err)
	}
	b := &behaviour{api: api, leases: mem}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /control/{what}/{n}", b.control)
	mux.HandleFunc("GET /control/claim/{claim}", claim)
	mux.Handle("/", b)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// node runs the tests in a folder: all of them, or the one of that name.
func node(t *testing.T, folder, name string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := []string{"--test", "--test-reporter=tap"}
	if name != "" {
		args = append(args, "--test-name-pattern="+name)
	}
	cmd := exec.CommandContext(ctx, "node", append(args, "client.test.js")...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "TENURE_URL="+started(t))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestJavaScript(t *testing.T) {
	t.Parallel()
	out, err := node(t, ".", "")
	if err != nil || !strings.Contains(out, "# pass 8\n") || !strings.Contains(out, "# skipped 0\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestBrokenClientsAreCaught: each is index.js with one thing wrong, and the test that is named fails.
func TestBrokenClientsAreCaught(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("index.js")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("client.test.js")
	if err != nil {
		t.Fatal(err)
	}
	for name, twin := range map[string]struct{ right, wrong, test string }{
		"validity without a margin, and more": {"remaining - margin(this.ttl)", "remaining + 1000", "whatever hangs"},
		"what hangs is waited for":            {"this.#deadline = setTimeout(", "this.#deadline = (() => 0)(", "whatever hangs"},
		"never renewed":                       {"this.#next(ttl / 3);", "", "a session is renewed"},
		"the monotonic clock alone":           {"Math.max(performance.now() - this.monotonic, Date.now() - this.wall)", "performance.now() - this.monotonic", "a wall clock"},
		"the wall clock alone":                {"Math.max(performance.now() - this.monotonic, Date.now() - this.wall)", "Date.now() - this.wall + (Date.now() < this.wall ? 1e9 : 0)", "a wall clock"},
		"a lost reply is a failure":           {"!(error instanceof Unknown) || ", "true || ", "replies that are lost"},
		"a proxy's words are the authority's": {"throw new Unknown(`${method}: HTTP ${status} without an answer of the authority`, { cause });", "throw new Refused('invalid', text);", "says nothing"},
		"ids by a clock that can be set back": {"Math.max(now, (newId.last ?? 0) + 1)", "now", "ids rise"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := strings.Replace(string(text), twin.right, twin.wrong, 1)
			if broken == string(text) {
				t.Fatalf("index.js has no %q", twin.right)
			}
			folder := t.TempDir()
			for file, content := range map[string]string{"index.js": broken, "client.test.js": string(tests), "package.json": `{"type": "module"}`} {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := node(t, folder, twin.test); err == nil || !strings.Contains(out, "# fail 1\n") {
				t.Errorf("the test %q does not catch it: %v\n%s", twin.test, err, out)
			}
		})
	}
}
