package payments_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/examples/payments"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
	"github.com/tenure-go/tenure/worker"
)

// jobVariable makes the test binary a worker: its value is a job.
const jobVariable = "PAYMENTS_TEST_JOB"

// job is what a worker process is to do.
type job struct {
	URL, Path   string // of the PostgreSQL database, or of the SQLite file
	Provider    string
	Book        string
	Terms       payments.Terms
	Pace        pace
	MaxAttempts int // 0: the default
	Reconciles  bool
	Twin        string // see twins_test.go
}

// pace is how fast a trial goes. Nothing that is judged depends on it.
type pace struct {
	TTL              time.Duration // of claims and leases
	Concurrency      int
	Base, Most       time.Duration // between attempts
	AskBase, AskMost time.Duration // between inquiries
	Rate             float64       // inquiries a second
}

// authority is a store with all that a worker needs of it.
type authority struct {
	ops    operation.Backend
	leases lease.Store
	shut   func(context.Context) error
}

// openAuthority opens the job's store, and waits for it while it is away.
func openAuthority(ctx context.Context, j job) (a authority, err error) {
	for ctx.Err() == nil {
		if j.URL == "" {
			s, err := sqlite.Open(ctx, sqlite.Config{Path: j.Path})
			if err == nil {
				return authority{s.Operations(), s, s.Shutdown}, nil
			}
			return a, err
		}
		s, failed := postgres.Open(ctx, j.URL, postgres.Options{})
		if failed == nil {
			return authority{s.Operations(), s, s.Shutdown}, nil
		}
		err = failed
		wait(ctx, 100*time.Millisecond)
	}
	return a, errors.Join(err, ctx.Err())
}

// wait is for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// handlers are those of the library, at the job's pace.
func handlers(j job, b *book) ([]*worker.Entry, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	client := payments.NewClient(j.Provider, &receiving{base: transport, book: b})
	charge, err := payments.ChargeHandler(client, j.Terms)
	if err != nil {
		return nil, err
	}
	refund, err := payments.RefundHandler(client, j.Terms)
	if err != nil {
		return nil, err
	}
	charge.MaxAttempts, charge.Concurrency, charge.Base, charge.Most, charge.AskBase, charge.AskMost = j.MaxAttempts, j.Pace.Concurrency, j.Pace.Base, j.Pace.Most, j.Pace.AskBase, j.Pace.AskMost
	refund.MaxAttempts, refund.Concurrency, refund.Base, refund.Most, refund.AskBase, refund.AskMost = j.MaxAttempts, j.Pace.Concurrency, j.Pace.Base, j.Pace.Most, j.Pace.AskBase, j.Pace.AskMost
	twin(j.Twin, &charge)
	return []*worker.Entry{worker.Handle(charge), worker.Handle(refund)}, nil
}

// work works, and reconciles where the job says so, until ctx ends. nil: all that is known was recorded.
func work(ctx context.Context, j job, a authority) error {
	b, err := openBook(j.Book)
	if err != nil {
		return err
	}
	defer b.file.Close()
	entries, err := handlers(j, b)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	w, err := worker.New(a.ops, worker.Options{Label: fmt.Sprint("pid ", os.Getpid()), TTL: j.Pace.TTL, Margin: j.Pace.TTL / 5, Poll: 100 * time.Millisecond, Logger: log}, entries...)
	if err != nil {
		return err
	}
	var both sync.WaitGroup
	defer both.Wait()
	if j.Reconciles {
		o := worker.ReconcilerOptions{Leases: a.leases, Session: lease.Options{TTL: 3 * j.Pace.TTL, Margin: j.Pace.TTL}, Name: "payments/reconciler", Every: 50 * time.Millisecond, Pace: worker.Pace{Concurrency: 32, Rate: j.Pace.Rate}}
		r, err := worker.NewReconciler(a.ops, o, entries...)
		if err != nil {
			return err
		}
		both.Go(func() { _ = r.Run(ctx) }) // it keeps nothing of its own
	}
	return w.Run(ctx)
}

// playWorker is the process. It ends well when it is told to, and at once when whoever started it is gone.
func playWorker(text string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	a, err := openAuthority(ctx, j)
	if err != nil {
		if ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "a worker has no store:", err)
		}
		return 2
	}
	fmt.Println("ready")
	err = work(ctx, j, a)
	end, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = a.shut(end) // what matters was recorded before
	if err != nil {
		fmt.Fprintln(os.Stderr, "a worker stops:", err)
		return 1
	}
	return 0
}

// process is a worker that a test started.
type process struct {
	cmd   *exec.Cmd
	job   job
	stdin io.Closer
	ready chan struct{} // closed once it works
	ended chan struct{}
	code  int // after that
}

func startProcess(t *testing.T, j job) *process {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, job: j, stdin: stdin, ready: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "" {
			close(p.ready)
		}
		_ = cmd.Wait() // one that was killed ends with an error, and is meant to
		p.code = cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(p.kill)
	return p
}

// kill is SIGKILL, and returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.ended
	_ = p.stdin.Close() // likewise
}

// stop tells it to end, and reports whether it says that it has recorded everything.
func (p *process) stop() bool {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	<-p.ended
	return p.code == 0
}
