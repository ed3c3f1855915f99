//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/testdb"
)

// binary is the tenure that the tests run, built once.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "hold-writer" {
		os.Exit(holdWriter(os.Args[2]))
	}
	if len(os.Args) > 2 && os.Args[1] == stepWord {
		os.Exit(runToStep(os.Args[2], os.Args[3:]))
	}
	if len(os.Args) > 1 && os.Args[1] == guardWord { // of a run in such a process
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tenure-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "tenure")
	args := []string{"build", "-o", binary}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the command: %v\n%s", err, out)
		return 1
	}
	return testdb.Main(m)
}

// world is a store of its own and the processes that use it.
type world struct {
	t     *testing.T
	dir   string
	store string
	env   []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	store := "sqlite:" + filepath.Join(dir, "t.db")
	w := &world{t: t, dir: dir, store: store}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "TENURE_") {
			w.env = append(w.env, entry)
		}
	}
	// A race-built program otherwise lingers for a second when it exits.
	w.env = append(w.env, "TENURE_STORE="+store, "GORACE=atexit_sleep_ms=0 halt_on_error=1")
	return w
}

// command is a tenure command that is not started yet.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Dir = w.env, w.dir
	return cmd
}

// ended is what a command left.
type ended struct {
	code           int
	stdout, stderr string
}

// last is the last line on standard error.
func (e ended) last() string {
	lines := strings.Split(strings.TrimSpace(e.stderr), "\n")
	return lines[len(lines)-1]
}

// do runs a command to its end.
func (w *world) do(args ...string) ended {
	w.t.Helper()
	return w.run(w.command(args...))
}

func (w *world) run(cmd *exec.Cmd) ended {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("%v: %v", cmd.Args, err)
	}
	return ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// ok runs a command that must succeed and returns its output.
func (w *world) ok(args ...string) string {
	w.t.Helper()
	got := w.do(args...)
	if got.code != 0 {
		w.t.Fatalf("tenure %q: exit %d\n%s%s", args, got.code, got.stdout, got.stderr)
	}
	return got.stdout
}

// process is a tenure in progress.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *bufio.Reader // standard output: ends with the last process that holds it
	errout *lineLog
}

// start starts a command, which is killed at the end of the test if it still runs.
func (w *world) start(args ...string) *process {
	w.t.Helper()
	return w.startCommand(w.command(args...))
}

func (w *world) startCommand(cmd *exec.Cmd) *process {
	w.t.Helper()
	stdout, stdoutW := w.pipe()
	stderr, stderrW := w.pipe()
	cmd.Stdout, cmd.Stderr = stdoutW, stderrW
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	stdoutW.Close()
	stderrW.Close()
	p := &process{t: w.t, cmd: cmd, out: bufio.NewReader(stdout), errout: newLineLog(stderr)}
	w.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Signal(syscall.SIGCONT)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if w.t.Failed() {
			w.t.Logf("%q said on standard error:\n%s", cmd.Args[1:], p.errout)
		}
	})
	return p
}

func (w *world) pipe() (r, wr *os.File) {
	w.t.Helper()
	r, wr, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { r.Close() })
	return r, wr
}

// line is the next line of standard output.
func (p *process) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("reading the output of %q: %v (read %q)\n%s", p.cmd.Args, err, line, p.errout)
	}
	return strings.TrimSuffix(line, "\n")
}

// rest is all of the output that is still to come, which ends when nobody is left that could write it.
func (p *process) rest() string {
	p.t.Helper()
	rest, err := io.ReadAll(p.out)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(rest)
}

// wait is the exit code and all that was said on standard error.
func (p *process) wait() ended {
	p.t.Helper()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return ended{code: p.cmd.ProcessState.ExitCode(), stderr: p.errout.all()}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// lineLog collects lines and lets a test wait for one.
type lineLog struct {
	mu     sync.Mutex
	text   strings.Builder
	news   chan struct{} // closed and replaced with each line
	closed chan struct{}
}

func newLineLog(r io.Reader) *lineLog {
	l := &lineLog{news: make(chan struct{}), closed: make(chan struct{})}
	go func() {
		defer close(l.closed)
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			l.mu.Lock()
			l.text.WriteString(lines.Text() + "\n")
			close(l.news)
			l.news = make(chan struct{})
			l.mu.Unlock()
		}
	}()
	return l
}

func (l *lineLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// all is the whole text, once nobody can add to it.
func (l *lineLog) all() string {
	<-l.closed
	return l.String()
}

// await returns when text has been said.
func (p *process) await(text string) {
	p.t.Helper()
	late := time.After(30 * time.Second)
	for {
		p.errout.mu.Lock()
		said, news := strings.Contains(p.errout.text.String(), text), p.errout.news
		p.errout.mu.Unlock()
		if said {
			return
		}
		select {
		case <-news:
		case <-p.errout.closed:
			if !strings.Contains(p.errout.String(), text) {
				p.t.Fatalf("%q never said %q, but:\n%s", p.cmd.Args, text, p.errout)
			}
			return
		case <-late:
			p.t.Fatalf("%q did not say %q within 30 s, but:\n%s", p.cmd.Args, text, p.errout)
		}
	}
}

// gate is a named pipe. A command's group that holds it open for writing is over when reading it ends; a command that
// reads from it waits for a word.
type gate struct {
	t    *testing.T
	path string
}

func (w *world) gate(name string) gate {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return gate{w.t, path}
}

// over waits for the end of all who hold the gate for writing. The first must have opened it, or will.
func (g gate) over() {
	g.t.Helper()
	file, err := os.Open(g.path)
	if err != nil {
		g.t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.Copy(io.Discard, file); err != nil {
		g.t.Fatal(err)
	}
}

// open lets the reader of the gate go on.
func (g gate) open() {
	g.t.Helper()
	if err := os.WriteFile(g.path, []byte("go\n"), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// await polls what nothing can be waited for.
func await(t *testing.T, reached func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	late := time.After(20 * time.Second)
	for !reached() {
		select {
		case <-ticker.C:
		case <-late:
			t.Fatal("not reached within 20 s")
		}
	}
}
