package testdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/testdb/pgserver"
)

// limit bounds each single act on a server: long enough for a machine that does ten other things, short enough that
// a test's own time limit is not what ends it.
const limit = time.Minute

// home is what the tests of one binary share.
type home struct {
	mu     sync.Mutex
	data   *pgserver.Data // initialised once, copied for each server
	shared *Server
	failed error // why there is no data folder, or no shared server: the same for every test
}

// binary is this test binary's home: go test gives a test nothing else that outlives it and that others reach.
var binary home

// Main runs the tests, then stops the shared server, if one was started, and removes its folder. Callers give the
// result to os.Exit. A binary that does not come so far leaves nothing behind either, see package pgserver.
func Main(m *testing.M) int {
	code := m.Run()
	if err := binary.close(); err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
		code = max(code, 1)
	}
	return code
}

func (h *home) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	if h.shared != nil {
		err = h.shared.server.Close()
	}
	if h.data != nil {
		err = errors.Join(err, h.data.Close())
	}
	h.data, h.shared = nil, nil
	return err
}

// start starts a server on a copy of the data folder, which the first call makes.
func (h *home) start(ctx context.Context, o Options) (*pgserver.Server, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.startLocked(ctx, o)
}

func (h *home) startLocked(ctx context.Context, o Options) (*pgserver.Server, error) {
	if h.failed != nil {
		return nil, h.failed
	}
	if h.data == nil {
		h.data, h.failed = pgserver.Init(ctx)
		if h.failed != nil {
			return nil, h.failed
		}
	}
	return h.data.Start(ctx, o)
}

// Shared is the server that all tests of the binary use, started by the first that asks. A test takes a database
// of its own from it, by [Server.Database] or [Server.Template], and may do nothing that another test would notice:
// who stops a server starts one by [Start].
func Shared(t testing.TB) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	binary.mu.Lock()
	defer binary.mu.Unlock()
	if binary.shared == nil {
		server, err := binary.startLocked(ctx, Options{})
		if err != nil {
			binary.failed = err
			fatal(t, err)
		}
		binary.shared = &Server{server: server, shared: true}
	}
	return binary.shared
}

// fatal ends the test, and says what to do where that is known.
func fatal(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, pgserver.ErrNotInstalled) {
		t.Fatalf("%v\nrun: sudo make services", err)
	}
	t.Fatal(err)
}
