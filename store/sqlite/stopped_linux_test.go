package sqlite

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/lease"
)

// stop is SIGSTOP, and waits until the process stands still.
func (c *child) stop() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	wait(c.t, func() bool { return processState(c.cmd.Process.Pid) == " (stopped)" })
}

func (c *child) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

// A process that is stopped while it has the turn, or is inside a fenced write, keeps everybody from writing:
// calls, Open and Shutdown end with their contexts, certainly not applied, and name it. Continued or
// killed, it lets go at once. Nothing is lost.
func TestStoppedWriter(t *testing.T) {
	t.Parallel()
	for _, inside := range []string{"turn", "fenced write"} {
		for _, end := range []syscall.Signal{syscall.SIGCONT, syscall.SIGKILL} {
			t.Run(inside+"/"+end.String(), func(t *testing.T) {
				t.Parallel()
				stoppedWriter(t, inside, end)
			})
		}
	}
}

func stoppedWriter(t *testing.T, inside string, end syscall.Signal) {
	t.Helper()
	path := newPath(t)
	s, second := openPath(t, path), openPath(t, path)
	p, q := join(t, s, time.Hour), join(t, second, time.Hour)
	mine := p.take("mine")
	plainExec(t, path, `CREATE TABLE ledger (token INTEGER, what TEXT)`)
	worker := start(t, "worker", job{Path: path})
	worker.hear("ready")
	worker.tell("take a")
	worker.hear("ok")
	if inside == "turn" {
		worker.tell("turn")
		worker.hear("in turn")
	} else {
		worker.tell("fenced a")
		worker.hear("inside")
	}
	worker.stop()

	names := []string{"pid " + strconv.Itoa(worker.cmd.Process.Pid), "(stopped)", "deadline exceeded"}
	short := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 100*time.Millisecond)
	}
	for range 2 {
		ctx, cancel := short()
		_, err := s.Renew(ctx, lease.RenewRequest{Session: p.session})
		cancel()
		wantKind(t, err, lease.ErrUnavailable, names...)
	}
	ctx, cancel := short()
	defer cancel()
	wantKind(t, s.Fenced(ctx, mine, func(context.Context, *Tx) error { return nil }), lease.ErrUnavailable, names...)
	_, err := Open(ctx, Config{Path: path})
	wantKind(t, err, lease.ErrUnavailable, names...)
	if info := look(t, s, "a"); !info.Held { // reading goes on
		t.Errorf("%+v", info)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- q.renew() }() // so that the writer stands in the queue
	waitQueued(t, second, 1)
	ctx, cancel = short()
	defer cancel()
	wantKind(t, second.Shutdown(ctx), context.DeadlineExceeded, names[:2]...)

	began := time.Now()
	worker.signal(end)
	if end == syscall.SIGCONT && inside == "turn" {
		worker.tell("") // it has not ended its turn by itself
	}
	if err := p.renew(); err != nil {
		t.Errorf("after %v: %v", end, err)
	}
	if took := time.Since(began); took > 5*time.Second { // a fenced write has up to a second left
		t.Errorf("after %v the turn was free after %v", end, took)
	}
	if err := <-waiting; err != nil { // served or shut down, as it happens
		wantKind(t, err, ErrShutDown)
	}
	shutDown(t, second)
	if info := look(t, s, "mine"); !info.Held || info.Token != mine.Token {
		t.Errorf("lost: %+v", info)
	}
	if info := look(t, s, "a"); !info.Held {
		t.Errorf("lost: %+v", info)
	}
	if n := plainValue(t, path, `SELECT count(*) FROM ledger`); n != "0" {
		t.Errorf("%s rows of an unfinished fenced write", n)
	}
}

// The side file says who has the turn; the process itself may be gone by then.
func TestProcessState(t *testing.T) {
	t.Parallel()
	if got := processState(os.Getpid()); got != "" {
		t.Errorf("a running process is %q", got)
	}
	worker := start(t, "worker", job{Path: newPath(t)})
	worker.hear("ready")
	worker.stop()
	worker.kill()
	if got := processState(worker.cmd.Process.Pid); !strings.Contains(got, "gone") {
		t.Errorf("a killed process is %q", got)
	}
}
