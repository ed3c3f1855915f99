package supervise

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is also the guard, and a supervisor that a test can kill.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "guard" {
		os.Exit(Guard(os.Args[2:]))
	}
	if len(os.Args) > 3 && os.Args[1] == "supervisor" {
		os.Exit(supervisorMain(os.Args[2], os.Args[3:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "silent-guard" {
		os.Exit(silentGuard(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "zombie" {
		os.Exit(zombieMain())
	}
	goleak.VerifyTestMain(m)
}

// supervisorMain runs argv with the given time left and prints the result.
func supervisorMain(left string, argv []string) int {
	total, err := time.ParseDuration(left)
	if err != nil {
		return 2
	}
	cfg := config(nil, argv...)
	cfg.Signals = Catch()
	cfg.Files = [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	cfg.Left = remaining(total)
	result, err := Run(cfg)
	fmt.Printf("result %+v %v\n", result, err)
	return 0
}

// remaining is what is left of total from now on.
func remaining(total time.Duration) func() time.Duration {
	now := sharedClock()
	end := now() + total
	return func() time.Duration { return max(end-now(), 0) }
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// config runs argv with plenty of time and its standard output in out.
func config(out *os.File, argv ...string) Config {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		path = argv[0]
	}
	return Config{
		Guard:   []string{self(), "guard"},
		Path:    path,
		Args:    argv,
		Env:     append(os.Environ(), "GORACE=atexit_sleep_ms=0"), // else a guard built with it lingers for a second
		Files:   [3]*os.File{nil, out, os.Stderr},
		Grace:   100 * time.Millisecond,
		Reserve: 300 * time.Millisecond,
		Left:    func() time.Duration { return time.Hour },
	}
}

// started is a Run in progress whose command writes to a pipe.
type started struct {
	lines *bufio.Reader // ends when every process that holds the pipe has
	done  chan struct{}
	res   Result
	err   error
}

func start(t *testing.T, change func(*Config), argv ...string) *started {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(w, argv...)
	cfg.Signals = Catch()
	if change != nil {
		change(&cfg)
	}
	s := &started{lines: bufio.NewReader(r), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer w.Close()
		defer cfg.Signals.Stop()
		s.res, s.err = Run(cfg)
	}()
	t.Cleanup(func() { <-s.done; r.Close() })
	return s
}

func (s *started) line(t *testing.T) string {
	t.Helper()
	line, err := s.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("reading the command's output: %v", err)
	}
	return strings.TrimSpace(line)
}

// wait returns the result once all of the output pipe's holders are gone.
func (s *started) wait(t *testing.T) Result {
	t.Helper()
	if _, err := io.Copy(io.Discard, s.lines); err != nil {
		t.Fatal(err)
	}
	<-s.done
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.res
}

// stubborn is a shell script that survives SIGTERM, with a grandchild that does too.
const stubborn = `trap '' TERM; (while :; do sleep 60; done) & echo ready; while :; do sleep 60; done`

func TestRunCodes(t *testing.T) {
	for _, c := range []struct {
		name, script string
		code         int
		signal       syscall.Signal
	}{
		{"success", "exit 0", 0, 0},
		{"failure", "exit 7", 7, 0},
		{"largest", "exit 255", 255, 0},
		{"killed", "kill -KILL $$", 137, syscall.SIGKILL},
		{"terminated", "kill -TERM $$", 143, syscall.SIGTERM},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := start(t, nil, "sh", "-c", c.script).wait(t)
			if got.Code != c.code || got.Signal != c.signal || got.Stopped || got.Killed || got.Left {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestRunNotStarted(t *testing.T) {
	script := t.TempDir() + "/script"
	if err := os.WriteFile(script, []byte("no program\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, found := range map[string]bool{"/nonexistent": false, script: true, "/": true, script + "/x": false} {
		s := start(t, nil, path)
		<-s.done
		var failed *NotStartedError
		if !errors.As(s.err, &failed) || failed.Found != found {
			t.Errorf("%s: got %v, want a NotStartedError with Found %v", path, s.err, found)
		}
	}
}

func TestRunGuardNotStarted(t *testing.T) {
	for name, guard := range map[string][]string{"no file": {"/nonexistent"}, "another program": {"/bin/true"}} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(c *Config) { c.Guard = guard }, "sh", "-c", "echo ran")
			<-s.done
			if !errors.Is(s.err, ErrGuard) {
				t.Errorf("got %v, want ErrGuard", s.err)
			}
			if out, _ := io.ReadAll(s.lines); len(out) > 0 {
				t.Errorf("the command ran: %q", out)
			}
		})
	}
}

// TestRunEnded: the right is taken away while something is left of it: SIGTERM, the grace, SIGKILL.
func TestRunEnded(t *testing.T) {
	ended := make(chan struct{})
	var said []Incident
	s := start(t, func(c *Config) {
		c.Ended = ended
		c.Say = func(i Incident) { said = append(said, i) }
	}, "sh", "-c", stubborn)
	s.line(t)
	close(ended)
	got := s.wait(t)
	if !got.Stopped || !got.Killed || got.Code != 137 {
		t.Errorf("got %+v", got)
	}
	if len(said) != 2 || said[0] != Stopping || said[1] != Killing {
		t.Errorf("said %v, want Stopping and Killing", said)
	}
}

// TestRunEndedGracefully: a command that obeys SIGTERM keeps its own exit status.
func TestRunEndedGracefully(t *testing.T) {
	ended := make(chan struct{})
	s := start(t, func(c *Config) { c.Ended, c.Grace = ended, time.Minute },
		"sh", "-c", `trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
	s.line(t)
	close(ended)
	if got := s.line(t); got != "bye" {
		t.Errorf("the command said %q", got)
	}
	if got := s.wait(t); got.Code != 3 || !got.Stopped || got.Killed {
		t.Errorf("got %+v", got)
	}
}

// TestRunStopsStopped: a command that is stopped when its time is over gets SIGCONT to act on SIGTERM.
func TestRunStopsStopped(t *testing.T) {
	ended := make(chan struct{})
	s := start(t, func(c *Config) { c.Ended, c.Grace = ended, time.Minute },
		"sh", "-c", `trap 'exit 4' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done`)
	s.line(t)
	close(ended)
	if got := s.wait(t); got.Code != 4 || !got.Stopped {
		t.Errorf("got %+v", got)
	}
}

// TestRunDeadline: what outlives SIGTERM is gone before the last instant, grandchildren included.
func TestRunDeadline(t *testing.T) {
	left := remaining(2 * time.Second)
	s := start(t, func(c *Config) { c.Left = left }, "sh", "-c", stubborn)
	s.line(t)
	got := s.wait(t)
	if left() == 0 {
		t.Error("the group outlived its time")
	}
	if !got.Stopped || !got.Killed {
		t.Errorf("got %+v", got)
	}
}

// TestRunLate: a command is not started when there is no time to stop it again.
func TestRunLate(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	s := start(t, func(c *Config) {
		c.Ended = ended
		c.Left = func() time.Duration { return c.Grace + c.Reserve }
	}, "sh", "-c", "echo ran")
	<-s.done
	if !errors.Is(s.err, ErrLate) {
		t.Errorf("got %v, want ErrLate", s.err)
	}
}

// TestRunAwaitsTime: a command for which too little time is left is started after the next renewal.
func TestRunAwaitsTime(t *testing.T) {
	asked := 0
	s := start(t, func(c *Config) {
		c.Left = func() time.Duration {
			if asked++; asked < 4 {
				return c.Grace
			}
			return time.Hour
		}
	}, "sh", "-c", "exit 6")
	if got := s.wait(t); got.Code != 6 {
		t.Errorf("got %+v", got)
	}
}

// TestRunLeftover: what the command leaves in its group is stopped before Run returns.
func TestRunLeftover(t *testing.T) {
	got := start(t, nil, "sh", "-c", `trap '' TERM; (while :; do sleep 60; done) & exit 5`).wait(t)
	if got.Code != 5 || got.Stopped || !got.Left || !got.Killed {
		t.Errorf("got %+v", got)
	}
}

// TestRunSignals: signals to this process reach the command.
func TestRunSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGWINCH} {
		s := start(t, nil, "bash", "-c", fmt.Sprintf(`trap 'exit 9' %d; echo ready; while :; do sleep 0.01; done`, int(sig)))
		s.line(t)
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		if got := s.wait(t); got.Code != 9 || got.Stopped {
			t.Errorf("%v: got %+v", sig, got)
		}
	}
}

// awaitGone returns when no process has pid as its group.
func awaitGone(t *testing.T, group int) {
	t.Helper()
	await(t, func() bool { return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) })
}

// awaitZombie returns when pid has died, reaped or not.
func awaitZombie(t *testing.T, pid int) {
	t.Helper()
	await(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// await polls what no descriptor can be waited for.
func await(t *testing.T, reached func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
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
