//go:build unix

package http_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/server"
	"github.com/tenure-go/tenure/store/memory"
)

const limit = time.Minute

// world is a server that loses the replies it is told to, over the oracle.
type world struct {
	leases     *memory.Store
	operations *memory.Operations
	url        string
	lose       atomic.Int64 // every so manieth reply; 0: none
	calls      atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{leases: memory.New(memory.Options{}), operations: memory.NewOperations(memory.Options{})}
	h, err := server.Handler(server.Options{Authority: w.leases.Authority(), Leases: w.leases, Operations: w.operations})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if every := w.lose.Load(); every > 0 && w.calls.Add(1)%every == 0 {
			h.ServeHTTP(httptest.NewRecorder(), r) // it is done, and nobody is told
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(rw, r)
	}))
	t.Cleanup(s.Close)
	w.url = s.URL
	return w
}

// python runs worker.py. Its standard input is closed by the returned function, which waits for its end.
func python(t *testing.T, args ...string) (out *bufio.Reader, end func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	cmd := exec.CommandContext(ctx, "python3", append([]string{"worker.py"}, args...)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(pipe), func() error {
		defer cancel()
		err := in.Close()
		if _, copying := io.Copy(io.Discard, pipe); copying != nil {
			err = errors.Join(err, copying)
		}
		if err := errors.Join(err, cmd.Wait()); err != nil {
			return errors.Join(err, errors.New(complaint.String()))
		}
		return nil
	}
}

func says(t *testing.T, out *bufio.Reader, want string) {
	t.Helper()
	line, err := out.ReadString('\n')
	if strings.TrimSpace(line) != want {
		t.Errorf("worker.py says %q, %v; want %q", line, err, want)
	}
}

// A worker of another language holds a lease, is in nobody's way when it is refused, and gives back what it held; also where every third reply is lost.
func TestLease(t *testing.T) {
	t.Parallel()
	for _, lose := range []int64{0, 3} {
		w := newWorld(t)
		w.lose.Store(lose)
		out, end := python(t, w.url, "lease", "nightly")
		says(t, out, "holds nightly under token 1")
		other, otherEnd := python(t, w.url, "lease", "nightly")
		line, err := other.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "held: ") || !strings.Contains(line, "worker.py") {
			t.Errorf("the second worker says %q, %v", line, err)
		}
		if err := otherEnd(); err == nil {
			t.Error("the second worker ends with success")
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		if info, err := w.leases.Get(t.Context(), "nightly"); err != nil || info.Held || info.End != lease.EndReleased {
			t.Errorf("afterwards: %+v, %v", info, err)
		}
	}
}

// It does an operation, and reports it once however often it has to.
func TestOperations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.operations.Submit(t.Context(), operation.SubmitRequest{ID: "c1", Kind: "charge", Request: []byte("{}"), Fingerprint: operation.FingerprintOf("charge", []byte("{}"))}); err != nil {
		t.Fatal(err)
	}
	w.lose.Store(2) // the first reply to the report
	out, end := python(t, w.url, "operations", "charge")
	says(t, out, "c1: done")
	if err := end(); err != nil {
		t.Error(err)
	}
	rec, err := w.operations.Get(t.Context(), "c1")
	if err != nil || rec.State != operation.Succeeded || len(rec.Attempts) != 1 || len(rec.Conflicts) != 0 || string(rec.Result) != "{}" {
		t.Errorf("%+v, %v", rec, err)
	}
}
