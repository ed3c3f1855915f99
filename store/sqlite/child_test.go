package sqlite

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Processes are real: the test binary starts itself again in a role. A child is told what to do by one JSON
// text in its environment, then by lines on stdin, and answers by lines on stdout.

const (
	roleVariable = "TENURE_SQLITE_TEST_ROLE"
	jobVariable  = "TENURE_SQLITE_TEST_JOB"
)

// job is what a child is told at its start. Each role uses some of it.
type job struct {
	Path     string
	Names    []string
	TTL      time.Duration
	Count    int
	Claimers int
	Source   string // a file to copy from
}

// stage is a child's view of its parent.
type stage struct {
	job job
	in  *bufio.Scanner
	mu  sync.Mutex
	out io.Writer
}

// say writes one line; the parent has it even if the child is killed the next moment.
func (s *stage) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// await waits for the parent's next line; false when there is none any more.
func (s *stage) await() bool { return s.in.Scan() }

// playRole is the main function of a child.
func playRole(role string, in io.Reader, out io.Writer) int {
	s := &stage{in: bufio.NewScanner(in), out: out}
	if err := json.Unmarshal([]byte(os.Getenv(jobVariable)), &s.job); err != nil {
		s.say("error %v", err)
		return 1
	}
	play, ok := roles()[role]
	if !ok {
		s.say("error no role %q", role)
		return 1
	}
	if err := play(context.Background(), s); err != nil {
		s.say("error %v", err)
		return 1
	}
	s.say("done")
	return 0
}

// child is a process that a test started.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // closed at the end of the child's output
	ended chan struct{}
}

// start starts the test binary in a role. It is killed when the test ends, at the latest.
func start(t testing.TB, role string, j job, adjust ...func(*exec.Cmd)) *child {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, jobVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	for _, a := range adjust {
		a(cmd)
	}
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
	c := &child{t: t, cmd: cmd, stdin: stdin, lines: make(chan string, 1<<16), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		scanner := bufio.NewScanner(stdout)
		for scanner.Scan() {
			c.lines <- scanner.Text()
		}
		close(c.lines)
		cmd.Wait() //nolint:errcheck // a child that was killed ends with an error, and is meant to
	}()
	t.Cleanup(c.kill)
	return c
}

// kill is SIGKILL, and waits until the process is gone.
func (c *child) kill() {
	c.cmd.Process.Kill() //nolint:errcheck // it may have ended by itself
	<-c.ended
	c.stdin.Close()
}

// tell sends a line.
func (c *child) tell(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		c.t.Fatalf("telling a child %q: %v", line, err)
	}
}

// hear waits for the next line, which must start with want, and returns the rest of it.
func (c *child) hear(want string) string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		rest, fits := strings.CutPrefix(line, want)
		if !ok || !fits {
			c.t.Fatalf("a child said %q (more to come: %v), want %q", line, ok, want)
		}
		return strings.TrimPrefix(rest, " ")
	case <-time.After(patience):
		c.t.Fatalf("a child did not say %q in %v", want, patience)
	}
	return ""
}

// rest waits for the child's end and returns the lines that nobody has heard.
func (c *child) rest() []string {
	<-c.ended
	var lines []string
	for line := range c.lines {
		lines = append(lines, line)
	}
	return lines
}

// patience bounds every wait of a test for something that must happen: a failure, not a measurement.
const patience = 30 * time.Second
