//go:build unix

package choosing_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

// Processes are real: the test binary starts itself again in a role, and answers by lines on stdout.

const (
	roleVariable = "TENURE_CHOOSING_TEST_ROLE"
	jobVariable  = "TENURE_CHOOSING_TEST_JOB"
)

// job is what a child is told at its start. Each role uses some of it.
type job struct {
	Path   string // of the file to lock, or of a store
	Kind   string // of the file lock, or "postgres" or "sqlite"
	Shared bool
	URL    string
	SQL    []string // run in turn before the child says "held"
	Then   string   // run after that
	Passed bool     // the connection is descriptor 3
	TTL    time.Duration
}

// stage is a child's view of its parent.
type stage struct {
	job job
	in  *bufio.Scanner
	out io.Writer
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// await waits for the parent's next line; false when there is none any more.
func (s *stage) await() bool { return s.in.Scan() }

func roles() map[string]func(context.Context, *stage) error {
	return map[string]func(context.Context, *stage) error{
		"lock":  playLock,
		"heir":  playHeir,
		"probe": playProbe,
		"sql":   playSQL,
		"lease": playLease,
	}
}

// playRole is the main function of a child.
func playRole(role string, in io.Reader, out io.Writer) int {
	s := &stage{in: bufio.NewScanner(in), out: out}
	play, ok := roles()[role]
	if !ok {
		s.say("no role %q", role)
		return 1
	}
	if err := json.Unmarshal([]byte(os.Getenv(jobVariable)), &s.job); err != nil {
		s.say("no job: %v", err)
		return 1
	}
	if err := play(context.Background(), s); err != nil {
		s.say("failed: %v", err)
		return 1
	}
	return 0
}

// playLock locks a file and keeps it until its stdin ends.
func playLock(_ context.Context, s *stage) error {
	_, err := lockedFile(s.job)
	if err != nil {
		return err
	}
	s.say("held")
	for s.await() {
		if s.in.Text() != "open and close" {
			return fmt.Errorf("told %q", s.in.Text())
		}
		other, err := os.Open(s.job.Path)
		if err != nil {
			return err
		}
		if err := other.Close(); err != nil {
			return err
		}
		s.say("closed")
	}
	return nil
}

// playHeir locks a file and starts a process that gets the open descriptor and lives until descriptor 3, its stdin, ends.
func playHeir(ctx context.Context, s *stage) error {
	file, err := lockedFile(s.job)
	if err != nil {
		return err
	}
	cat := exec.CommandContext(ctx, "cat")
	cat.Stdin = os.NewFile(3, "until")
	cat.ExtraFiles = []*os.File{file}
	if err := cat.Start(); err != nil {
		return err
	}
	s.say("held")
	s.await()
	return nil
}

func lockedFile(j job) (*os.File, error) {
	file, err := os.OpenFile(j.Path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	kind, ok := fileLocks()[j.Kind]
	if !ok {
		return nil, fmt.Errorf("no kind %q", j.Kind)
	}
	got, err := kind.try(file, j.Shared)
	if err == nil && !got {
		err = errors.New("it is locked")
	}
	return file, err
}

// playProbe says at each line whether the file can be locked by a process that has nothing to do with the holder.
func playProbe(_ context.Context, s *stage) error {
	for s.await() {
		file, err := os.OpenFile(s.job.Path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		got, err := fileLocks()[s.job.Kind].try(file, s.in.Text() == "shared")
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
		if got {
			s.say("free")
		} else {
			s.say("locked")
		}
	}
	return nil
}

// playSQL holds what its statements lock until its stdin ends, or as long as one more statement runs.
func playSQL(ctx context.Context, s *stage) error {
	config, err := pgx.ParseConfig(s.job.URL)
	if err != nil {
		return err
	}
	if s.job.Passed {
		config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
			return net.FileConn(os.NewFile(3, "connection"))
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	for _, statement := range s.job.SQL {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	s.say("held")
	if s.job.Then != "" {
		_, err = conn.Exec(ctx, s.job.Then)
		s.say("done %v", err)
	}
	s.await()
	return conn.Close(ctx)
}

// playLease holds a lease that it does not renew, so that a signal never meets it at a write.
func playLease(ctx context.Context, s *stage) error {
	store, shut, err := openStore(ctx, s.job)
	if err != nil {
		return err
	}
	session := lease.NewID()
	if _, err := store.Open(ctx, lease.OpenRequest{ID: session, Owner: "holder", TTL: s.job.TTL}); err != nil {
		return err
	}
	grants, err := store.Acquire(ctx, lease.AcquireRequest{Session: session, ID: lease.NewID(), Names: []string{name}})
	if err != nil {
		return err
	}
	s.say("held %s", grants[0].Claim)
	s.await()
	return shut(ctx)
}

// openStore opens a child's authority.
func openStore(ctx context.Context, j job) (lease.Store, func(context.Context) error, error) {
	if j.Kind == "sqlite" {
		store, err := sqlite.Open(ctx, sqlite.Config{Path: j.Path})
		if err != nil {
			return nil, nil, err
		}
		return store, store.Shutdown, nil
	}
	pool, err := pgxpool.New(ctx, j.URL)
	if err != nil {
		return nil, nil, err
	}
	store, err := postgres.New(ctx, pool, postgres.Options{})
	if err != nil {
		return nil, nil, err
	}
	return store, store.Shutdown, nil
}

// child is a process that a test started.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // closed at the end of the child's output
	ended chan struct{}
}

const maxLines = 64 // of one child that nobody has heard yet; then it waits

// start starts the test binary in a role, with files as its descriptors from 3 on. It is killed when the test ends, at the latest.
func start(t *testing.T, role string, j job, files ...*os.File) *child {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, jobVariable+"="+string(text))
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, files
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
	c := &child{t: t, cmd: cmd, stdin: stdin, lines: make(chan string, maxLines), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		defer close(c.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			c.lines <- scanner.Text()
		}
		_ = cmd.Wait() // one that was killed ends with an error, and is meant to
	}()
	t.Cleanup(c.kill)
	return c
}

// kill is SIGKILL, and returns when the process is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	<-c.ended
	c.stdin.Close()
}

// stop is SIGSTOP, and returns when the process stands still.
func (c *child) stop() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "the process is stopped", func() bool { return stopped(c.t, c.cmd.Process.Pid) })
}

// stopped asks ps, which Linux and macOS have alike.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.HasPrefix(string(out), "T")
}

// tell sends a line.
func (c *child) tell(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// hear waits for the next line, which must start with want, and returns the rest of it.
func (c *child) hear(want string) string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		rest, fits := strings.CutPrefix(line, want)
		if !ok || !fits {
			c.t.Fatalf("a child said %q (%v), want %q", line, ok, want)
		}
		return strings.TrimSpace(rest)
	case <-time.After(patience):
		c.t.Fatalf("a child did not say %q in %v", want, patience)
	}
	return ""
}

// answer tells and hears a line.
func (c *child) answer(line string) string {
	c.t.Helper()
	c.tell(line)
	return c.hear("")
}
