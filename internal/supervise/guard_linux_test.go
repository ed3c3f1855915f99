package supervise

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helper starts a supervisor that can be killed, running a stubborn command, and returns its output.
func helper(t *testing.T, left string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(self(), "supervisor", left, "sh", "-c", `echo $$ $PPID; `+stubborn)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out)
}

func pids(t *testing.T, lines *bufio.Reader) (command, guard int) {
	t.Helper()
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &command, &guard); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return command, guard
}

// TestSupervisorKilled: with the supervisor the group dies, grandchildren included (L45).
func TestSupervisorKilled(t *testing.T) {
	cmd, lines := helper(t, "1h")
	pids(t, lines)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil { // ends with the last process that holds the pipe
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// TestSupervisorStopped: a supervisor that is stopped renews nothing, and the guard keeps the time without it.
func TestSupervisorStopped(t *testing.T) {
	left := remaining(3 * time.Second)
	cmd, lines := helper(t, "3s")
	command, _ := pids(t, lines)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, command)
	if left() == 0 {
		t.Error("the group outlived its time")
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.Contains(string(rest), "Stopped:true Killed:true") {
		t.Errorf("the supervisor reported %q, %v", rest, err)
	}
	_ = cmd.Wait()
}

// TestGuardKilled: without its guard the command dies, and the supervisor kills the rest of the group.
func TestGuardKilled(t *testing.T) {
	cmd, lines := helper(t, "1h")
	_, guard := pids(t, lines)
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.Contains(string(rest), "Code:137") || !strings.Contains(string(rest), "Guard:true") ||
		!strings.Contains(string(rest), "Remains:false") {
		t.Errorf("the supervisor reported %q, %v", rest, err)
	}
	_ = cmd.Wait()
}

// TestGuardKilledAlone: the command dies with its guard even if the supervisor can do nothing about it.
func TestGuardKilledAlone(t *testing.T) {
	cmd, lines := helper(t, "1h")
	command, guard := pids(t, lines)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitZombie(t, command)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); err != nil || !strings.Contains(string(rest), "Guard:true") {
		t.Errorf("the supervisor reported %q, %v", rest, err)
	}
	_ = cmd.Wait()
}

// silentGuard is a guard that is killed between starting the command and saying so.
func silentGuard(args []string) int {
	runtime.LockOSThread()
	started := make(chan os.Signal, 1)
	signal.Notify(started, syscall.SIGUSR1)
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	syscall.CloseOnExec(fd)
	if _, err := startCommand(args[1], args[2:], false); err != nil {
		return 2
	}
	<-started
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	return 0
}

// TestGuardKilledSilent: a command whose guard died before it could say that it had started it does not go on, nor do
// its grandchildren.
func TestGuardKilledSilent(t *testing.T) {
	s := start(t, func(c *Config) { c.Guard = []string{self(), "silent-guard"} },
		"sh", "-c", `trap '' TERM; (while :; do sleep 60; done) & kill -USR1 $PPID; while :; do sleep 60; done`)
	if got := s.wait(t); !got.Guard || got.Code != 137 || got.Remains || got.PID == 0 {
		t.Errorf("got %+v", got)
	}
}

// TestGuardDeaf: signals that end a process do not end the guard, whoever sends them to all of a program's processes.
func TestGuardDeaf(t *testing.T) {
	cmd, lines := helper(t, "1h")
	command, guard := pids(t, lines)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		if err := syscall.Kill(guard, sig); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(command, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); err != nil || !strings.Contains(string(rest), "Guard:false") || !strings.Contains(string(rest), "Left:true") {
		t.Errorf("the supervisor reported %q, %v", rest, err)
	}
	_ = cmd.Wait()
}

// TestRunIgnoredSignal: what was ignored when the supervisor was started (nohup) stays ignored in it and in the command.
func TestRunIgnoredSignal(t *testing.T) {
	script := `trap '' HUP; exec "$0" supervisor 1h sh -c 'echo ready; kill -HUP $$; kill -HUP $PPID; read x; echo alive'`
	cmd := exec.Command("sh", "-c", script, self())
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); err != nil || !strings.HasPrefix(string(rest), "alive\n") || !strings.Contains(string(rest), "Code:0") {
		t.Errorf("got %q, %v", rest, err)
	}
	_ = cmd.Wait()
}

// TestRunDescriptors: the command inherits what it would inherit without a supervisor, and nothing more.
func TestRunDescriptors(t *testing.T) {
	const list = "cd /proc/$$/fd; echo *"
	direct, err := exec.Command("sh", "-c", list).Output()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, nil, "sh", "-c", list)
	if got, want := s.line(t), strings.TrimSpace(string(direct)); got != want {
		t.Errorf("the command has descriptors %s, want %s", got, want)
	}
	s.wait(t)
}

// TestGuardStopped: a guard that is stopped itself is replaced by the supervisor at the deadline.
func TestGuardStopped(t *testing.T) {
	cmd, lines := helper(t, "3s")
	command, guard := pids(t, lines)
	if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitZombie(t, command)
	// If it was stopped so early that it had not reported yet, the supervisor has killed it by now.
	if err := syscall.Kill(guard, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); err != nil || !strings.Contains(string(rest), "Code:137") {
		t.Errorf("the supervisor reported %q, %v", rest, err)
	}
	_ = cmd.Wait()
}
