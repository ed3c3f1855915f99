// Package s3gateway gives tests an S3 server of their own: versitygw, on a loopback port, over a temporary folder, with keys drawn by chance. The server is
// built from the module internal/testdb/s3, which pins it and keeps its dependencies away from everybody else; go keeps what it built, so only the
// first test on a machine waits for that. A server that cannot be built or started fails the test; nothing is skipped.
package s3gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	buildBound = 10 * time.Minute // of the first build on a machine that does much else
	startBound = time.Minute
	startTries = 5 // another process may take the port in between
	startPoll  = 5 * time.Millisecond
)

// Gateway is a running server. Safe for concurrent use.
type Gateway struct {
	root, addr     string
	access, secret string
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Gateway {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for range startTries {
		g := &Gateway{root: t.TempDir(), access: chance(8), secret: chance(16)}
		stop, failed := g.start(program)
		if failed == nil {
			t.Cleanup(stop) // before TempDir's own, which removes the folder
			return g
		}
		err = failed
	}
	t.Fatalf("starting the S3 server %d times: %v", startTries, err)
	return nil
}

// Bucket makes a bucket and returns its URL, with the keys in it.
func (g *Gateway) Bucket(t testing.TB) string {
	t.Helper()
	name := "b-" + chance(6)
	if err := os.Mkdir(filepath.Join(g.root, name), 0o700); err != nil { // to this server a folder is a bucket
		t.Fatal(err)
	}
	return "http://" + g.access + ":" + g.secret + "@" + g.addr + "/" + name
}

// Addr is where the server listens.
func (g *Gateway) Addr() string { return g.addr }

// build returns the path of the server's program.
func build() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	ctx, cancel := context.WithTimeout(context.Background(), buildBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", "versitygw") // builds it, and says where it is instead of running it
	cmd.Dir = filepath.Join(filepath.Dir(file), "..", "s3")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building the S3 server in %s: %w: %s", cmd.Dir, err, says.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// keeper runs the server until its stdin ends, which it does also when the test's process is killed.
const keeper = `trap '' INT TERM HUP
"$@" </dev/null & server=$!
cat >/dev/null
kill -9 $server
wait $server`

// start returns how to stop the server.
func (g *Gateway) start(program string) (stop func(), err error) {
	if g.addr, err = freePort(); err != nil {
		return nil, err
	}
	health := "/" + chance(8) // nobody else answers to it
	cmd := exec.Command("sh", "-c", keeper, "sh", program, "--port", g.addr, "--health", health, "--quiet", "posix", g.root)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+g.access, "ROOT_SECRET_KEY="+g.secret)
	says := new(output)
	cmd.Stdout, cmd.Stderr = says, says
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = in.Close()
		_ = cmd.Wait() // it was killed
	}
	if err := g.awaitHealth(health); err != nil {
		stop()
		return nil, fmt.Errorf("%w; it said: %s", err, says.text())
	}
	return stop, nil
}

// awaitHealth waits until the server answers.
func (g *Gateway) awaitHealth(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ticker := time.NewTicker(startPoll)
	defer ticker.Stop()
	refused := 0
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.addr+path, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := client.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 4096))
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
			// Somebody else has the port.
			if refused++; refused > 100 {
				return fmt.Errorf("%s answers %s", g.addr, answer.Status)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("no answer within %v", startBound), err)
		}
	}
}

func freePort() (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String(), nil
}

func chance(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: the documentation of crypto/rand
	return hex.EncodeToString(b)
}

// output keeps the first of what the server says.
type output struct {
	mu   sync.Mutex
	said bytes.Buffer
}

const maxOutput = 16 << 10

// Write is for exec.Cmd.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room := maxOutput - o.said.Len(); room > 0 {
		o.said.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(o.said.String())
}
