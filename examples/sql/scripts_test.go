//go:build unix

package sql_test

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
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb"
)

// script is one of the two workers. The interpreter that PATH names may be another than the one that the system's
// packages are for, which therefore comes first.
type script struct {
	file         string
	interpreters []string
	probe        []string
}

func python() script {
	return script{"worker.py", []string{"/usr/bin/python3", "python3"}, []string{"-c", "import psycopg2"}}
}

func ruby() script {
	return script{"worker.rb", []string{"/usr/bin/ruby", "ruby"}, []string{"-e", `require "pg"`}}
}

// worker is a running script.
type worker struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
	stderr bytes.Buffer
}

// start runs a script on a database, as a role that has tenure_user and nothing else.
func (s script) start(t *testing.T, url string, args ...string) *worker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	w := &worker{cmd: exec.CommandContext(ctx, program(t, s.interpreters, s.probe...), append([]string{s.file, "--database-url", url}, args...)...)}
	w.cmd.Stderr = &w.stderr
	var err error
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.stdout = bufio.NewScanner(stdout)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel() // kills it, also where it is stopped
		if w.cmd.ProcessState == nil {
			_ = w.cmd.Wait() // it was killed
		}
	})
	return w
}

// expect reads one line of what the script says.
func (w *worker) expect(t *testing.T, want string) {
	t.Helper()
	if !w.stdout.Scan() {
		t.Fatalf("the script ended where %q was expected; it said: %s", want, w.finish(t).stderr)
	}
	if got := w.stdout.Text(); got != want {
		t.Fatalf("the script says %q, want %q", got, want)
	}
}

func (w *worker) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// enter presses Enter.
func (w *worker) enter(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(w.stdin, "\n"); err != nil {
		t.Fatal(err)
	}
}

// ended is what was left to say, and how it ended.
type ended struct {
	stdout, stderr string
	code           int
}

func (w *worker) finish(t *testing.T) ended {
	t.Helper()
	var rest strings.Builder
	for w.stdout.Scan() {
		rest.WriteString(w.stdout.Text() + "\n")
	}
	err := w.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return ended{rest.String(), w.stderr.String(), w.cmd.ProcessState.ExitCode()}
}

func (e ended) want(t *testing.T, code int, stdout string, stderr ...string) {
	t.Helper()
	if e.code != code || e.stdout != stdout {
		t.Errorf("exit code %d and output\n%s\nwant %d and\n%s", e.code, e.stdout, code, stdout)
	}
	if len(stderr) == 0 && e.stderr != "" {
		t.Errorf("it complains: %s", e.stderr)
	}
	for _, part := range stderr {
		if !strings.Contains(e.stderr, part) {
			t.Errorf("it says %q, want %q in it", e.stderr, part)
		}
	}
}

// pair is a script, the other one, and a way to fence.
type pair struct {
	mine, other script
	fence       string
}

func (p pair) String() string { return p.mine.file + " " + p.fence }

func pairs() []pair {
	return []pair{{python(), ruby(), "verify"}, {ruby(), python(), "verify"}, {python(), ruby(), "enter"}, {ruby(), python(), "enter"}}
}

// lines is what the report holds: who made each line under which token.
func lines(t *testing.T, database string) string {
	t.Helper()
	var made string
	err := connect(t, "worker", database).QueryRow(t.Context(),
		`SELECT coalesce(string_agg(line || ' by ' || made_by || ' under ' || token, ', ' ORDER BY line), '') FROM report`).Scan(&made)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// over is how the last acquisition of the name ended.
func over(t *testing.T, database, name string) string {
	t.Helper()
	var how string
	if err := connect(t, "worker", database).QueryRow(t.Context(), `SELECT coalesce(how, 'valid') FROM tenure.lease_of($1)`, name).Scan(&how); err != nil {
		t.Fatal(err)
	}
	return how
}

// TestScripts: both acquire, write, release and close, one after the other.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, p := range pairs() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			db := database(t)
			url := testdb.Shared(t).URLAs("worker", db)
			p.mine.start(t, url, "--fence", p.fence, "nightly report").finish(t).
				want(t, 0, "holding nightly report under token 1\nwrote line 1 under token 1\nwrote line 2 under token 1\nwrote line 3 under token 1\n")
			if how := over(t, db, "nightly report"); how != "released" {
				t.Errorf("afterwards the lease is %s", how)
			}
			p.other.start(t, url, "--fence", p.fence, "--lines", "1", "nightly report").finish(t).
				want(t, 0, "holding nightly report under token 2\nwrote line 4 under token 2\n")
			want := fmt.Sprintf("1 by %[1]s under 1, 2 by %[1]s under 1, 3 by %[1]s under 1, 4 by %[2]s under 2", p.mine.file, p.other.file)
			if got := lines(t, db); got != want {
				t.Errorf("the report has %s, want %s", got, want)
			}
		})
	}
}

// TestScriptsRenew: a script that waits for longer than its TTL still holds what it held. Without renewals verify would refuse it.
func TestScriptsRenew(t *testing.T) {
	t.Parallel()
	for _, s := range []script{python(), ruby()} {
		t.Run(s.file, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			w := s.start(t, testdb.Shared(t).URLAs("worker", db), "--ttl", "3", "--lines", "2", "--ask", "report")
			w.expect(t, "holding report under token 1")
			w.expect(t, "press Enter to write")
			if _, err := connect(t, "worker", db).Exec(t.Context(), "SELECT pg_sleep(3.5)"); err != nil {
				t.Fatal(err)
			}
			w.enter(t)
			w.expect(t, "wrote line 1 under token 1")
			w.expect(t, "press Enter to write")
			w.enter(t)
			w.finish(t).want(t, 0, "wrote line 2 under token 1\n")
		})
	}
}

// TestScriptsSayHowTheyAreUsed asks for help, and gives a command line that makes no sense.
func TestScriptsSayHowTheyAreUsed(t *testing.T) {
	t.Parallel()
	for _, s := range []script{python(), ruby()} {
		help := s.start(t, "", "--help").finish(t)
		if help.code != 0 || !strings.Contains(help.stdout, "exit codes:") {
			t.Errorf("%s --help: exit %d, %s", s.file, help.code, help.stdout)
		}
		s.start(t, "").finish(t).want(t, 2, "", "NAME")
	}
}

// stopped brings a worker of mine to the point between its look at the clock and its write, stops it there past its TTL until the
// other has taken over and written, lets it go on, and returns how it ended.
func (p pair) stopped(t *testing.T, db string) ended {
	t.Helper()
	url := testdb.Shared(t).URLAs("worker", db)
	late := p.mine.start(t, url, "--owner", "late", "--ttl", "3", "--fence", p.fence, "--lines", "2", "--ask", "report")
	late.expect(t, "holding report under token 1")
	late.expect(t, "press Enter to write")
	late.enter(t)
	late.expect(t, "wrote line 1 under token 1")
	late.expect(t, "press Enter to write")

	p.other.start(t, url, "--owner", "next", "report").finish(t).want(t, 75, "", "report is held by late for")
	late.signal(t, syscall.SIGSTOP)
	p.other.start(t, url, "--owner", "next", "--wait", "60", "--fence", p.fence, "--lines", "2", "report").finish(t).
		want(t, 0, "holding report under token 2\nwrote line 2 under token 2\nwrote line 3 under token 2\n")
	late.signal(t, syscall.SIGCONT)
	late.enter(t)
	return late.finish(t)
}

// TestLateWriteIsRefused: a script that was stopped past its TTL writes once more, is refused by the database, says so, and fails.
func TestLateWriteIsRefused(t *testing.T) {
	t.Parallel()
	for _, p := range pairs() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			db := database(t)
			p.stopped(t, db).want(t, 76, "", "TN010", "superseded, newer token 2")
			if got, want := lines(t, db), "1 by late under 1, 2 by next under 2, 3 by next under 2"; got != want {
				t.Errorf("the report has %s, want %s", got, want)
			}
		})
	}
}

// TestLateWriteLandsWithoutTheCheck is the same with the check taken out of the late script: it shows that the fault is real, and
// that nothing but the check keeps the write out.
func TestLateWriteLandsWithoutTheCheck(t *testing.T) {
	t.Parallel()
	for _, p := range pairs()[:2] {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			db := database(t)
			p.mine.file = unfenced(t, p.mine.file)
			p.stopped(t, db).want(t, 0, "wrote line 4 under token 1\n")
			if got, want := lines(t, db), "1 by late under 1, 2 by next under 2, 3 by next under 2, 4 by late under 1"; got != want {
				t.Errorf("the report has %s, want %s", got, want)
			}
		})
	}
}

// unfenced makes a copy of a script without its checks.
func unfenced(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	twin := strings.NewReplacer(
		"SELECT tenure.verify(%s)", "SELECT %s", "SELECT tenure.enter(%s, %s)", "SELECT %s, %s",
		"SELECT tenure.verify($1)", "SELECT $1", "SELECT tenure.enter($1, $2)", "SELECT $1, $2").Replace(string(text))
	if strings.Contains(twin, "tenure.verify") || strings.Contains(twin, "tenure.enter") || twin == string(text) {
		t.Fatalf("the checks of %s are not where this test looks for them", file)
	}
	name := filepath.Join(t.TempDir(), file)
	if err := os.WriteFile(name, []byte(twin), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestLostAnswers: a script that never hears what became of a call asks again under the same ids, and gets the same grant: the
// token shows that there was no second one.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, s := range []script{python(), ruby()} {
		for _, function := range []string{"tenure.open_session", "tenure.acquire", "tenure.release", "tenure.close_session"} {
			t.Run(s.file+" "+function, func(t *testing.T) {
				t.Parallel()
				db := database(t)
				proxy := testdb.StartProxy(t, testdb.Shared(t).Addr())
				lost := make(chan struct{})
				proxy.AfterNext([]byte(function), func() { close(lost) })
				s.start(t, proxy.URLAs(testdb.Shared(t), "worker", db), "--lines", "1", "report").finish(t).
					want(t, 0, "holding report under token 1\nwrote line 1 under token 1\n")
				select {
				case <-lost:
				default:
					t.Errorf("no answer to %s was lost", function)
				}
				if how := over(t, db, "report"); how != "released" {
					t.Errorf("afterwards the lease is %s", how)
				}
			})
		}
	}
}

// TestScriptsThroughPgBouncer: in transaction mode, on a pool smaller than the connections that a script opens.
func TestScriptsThroughPgBouncer(t *testing.T) {
	t.Parallel()
	for _, s := range []script{python(), ruby()} {
		t.Run(s.file, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			bouncer := testdb.StartBouncer(t, testdb.Shared(t), testdb.BouncerOptions{PoolSize: 1})
			s.start(t, bouncer.URLAs("worker", db), "report").finish(t).
				want(t, 0, "holding report under token 1\nwrote line 1 under token 1\nwrote line 2 under token 1\nwrote line 3 under token 1\n")
		})
	}
}
