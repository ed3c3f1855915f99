package s3gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// childVariable makes this binary a process that starts a server and waits to be killed.
const childVariable = "TENURE_S3GATEWAY_CHILD"

// TestChild is that process.
func TestChild(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		return
	}
	fmt.Println("at " + Start(t).Addr())
	_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent does, if that was killed before it killed this process
}

// TestEndsWithItsTest: the server answers, refuses who has no key, and is gone when the test that started it has ended.
func TestEndsWithItsTest(t *testing.T) {
	var addr string
	t.Run("answers", func(t *testing.T) {
		g := Start(t)
		addr = g.Addr()
		_, bucket, _ := strings.Cut(g.Bucket(t), "@")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+bucket, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("without a key: %s", answer.Status)
		}
	})
	if listens(addr) {
		t.Errorf("%s still answers", addr)
	}
}

// TestEndsWithItsProcess: also when the process of the test is killed.
func TestEndsWithItsProcess(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestChild$")
	cmd.Env = append(os.Environ(), childVariable+"=1", "TMPDIR="+t.TempDir()) // which it cannot remove itself
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe() // held open
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		_, addr, _ = strings.Cut(lines.Text(), "at ")
	}
	if !listens(addr) {
		t.Errorf("nobody answers at %q", addr)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ticker := time.NewTicker(startPoll)
	defer ticker.Stop()
	for listens(addr) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s still answers 20 s after its owner was killed", addr)
		}
	}
}

func listens(addr string) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
