package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRunStopAndContinue: SIGTSTP stops the command and not the renewals, SIGCONT continues it.
func TestRunStopAndContinue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := w.command("run", "job", "--ttl", "1s", "--", "sh", "-c", "echo $$; read x; echo $x")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal, whatever the tests run under
	inR, in := w.pipe()
	out, outW := w.pipe()
	cmd.Stdin, cmd.Stdout = inR, outW
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	outW.Close()
	lines := bufio.NewReader(out)
	pid, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	stopped := func(want bool) {
		t.Helper()
		await(t, func() bool {
			stat, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/stat")
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(stat), ") T ") == want
		})
	}
	for _, step := range []struct {
		sig  syscall.Signal
		stop bool
	}{{syscall.SIGTSTP, true}, {syscall.SIGCONT, false}} {
		if err := cmd.Process.Signal(step.sig); err != nil {
			t.Fatal(err)
		}
		stopped(step.stop)
	}
	if _, err := in.WriteString("word\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := lines.ReadString('\n'); got != "word\n" {
		t.Errorf("the command said %q, %v", got, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// terminal is a pseudo-terminal with an interactive shell on it.
type terminal struct {
	t      *testing.T
	master *os.File
	shell  *exec.Cmd

	mu   sync.Mutex
	text bytes.Buffer
	seen int // of text, by expect
	news chan struct{}
}

// terminal starts bash as the leader of a session with a terminal of its own, with tenure as $T.
func (w *world) terminal() *terminal {
	w.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	defer slave.Close()
	tt := &terminal{t: w.t, master: master, news: make(chan struct{}, 1)}
	tt.shell = exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
	tt.shell.Env = append(slices.Clone(w.env), "T="+binary, "PS1=ready> ")
	tt.shell.Dir = w.dir
	tt.shell.Stdin, tt.shell.Stdout, tt.shell.Stderr = slave, slave, slave
	tt.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := tt.shell.Start(); err != nil {
		w.t.Fatal(err)
	}
	go tt.read()
	w.t.Cleanup(func() {
		_ = tt.shell.Process.Kill()
		_ = tt.shell.Wait()
		master.Close()
		if w.t.Failed() {
			w.t.Logf("on the terminal:\n%s", &tt.text)
		}
	})
	tt.expect("ready> ")
	return tt
}

func (tt *terminal) read() {
	buffer := make([]byte, 4096)
	for {
		n, err := tt.master.Read(buffer)
		tt.mu.Lock()
		tt.text.Write(buffer[:n])
		tt.mu.Unlock()
		select {
		case tt.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// expect waits until want appears after what was expected before.
func (tt *terminal) expect(want string) {
	tt.t.Helper()
	late := time.After(20 * time.Second)
	for {
		tt.mu.Lock()
		at := bytes.Index(tt.text.Bytes()[tt.seen:], []byte(want))
		if at >= 0 {
			tt.seen += at + len(want)
		}
		tt.mu.Unlock()
		if at >= 0 {
			return
		}
		select {
		case <-tt.news:
		case <-late:
			tt.t.Fatalf("%q did not appear on the terminal", want)
		}
	}
}

func (tt *terminal) enter(text string) {
	tt.t.Helper()
	if _, err := tt.master.WriteString(text); err != nil {
		tt.t.Fatal(err)
	}
}

// TestTerminalRead: a command in the foreground reads what is typed, in a pipeline too, where it asks for the foreground.
func TestTerminalRead(t *testing.T) {
	t.Parallel()
	tt := newWorld(t).terminal()
	for _, end := range []string{"", " | cat"} {
		tt.enter(`$T run job -- sh -c 'echo "re""ady"; read x; echo "got:$x"'` + end + "\n")
		tt.expect("ready")
		tt.enter("word\n")
		tt.expect("got:word")
		tt.expect("exit 0")
		tt.expect("ready> ")
	}
}

// TestTerminalInterrupt: Ctrl-C reaches the command.
func TestTerminalInterrupt(t *testing.T) {
	t.Parallel()
	tt := newWorld(t).terminal()
	for _, end := range []string{"", " | cat"} {
		tt.enter(`$T run job -- sh -c 'echo "re""ady"; exec sleep 60'` + end + "\n")
		tt.expect("ready")
		tt.enter("\x03")
		tt.expect("exit 130: the command was ended by signal 2")
		tt.expect("ready> ")
	}
}

// TestTerminalStop: Ctrl-Z stops the job, which the shell continues; a job in the background stops when it reads.
func TestTerminalStop(t *testing.T) {
	t.Parallel()
	tt := newWorld(t).terminal()
	tt.enter(`$T run job -- sh -c 'echo "re""ady"; read x; echo "got:$x"'` + "\n")
	tt.expect("ready")
	tt.enter("\x1a")
	tt.expect("Stopped")
	tt.expect("ready> ")
	tt.enter("fg\n")
	tt.enter("word\n")
	tt.expect("got:word")
	tt.expect("exit 0")
	tt.expect("ready> ")
	tt.enter(`$T run job -- sh -c 'read x; echo "got:$x"' &` + "\n")
	tt.expect("ready> ")
	tt.enter("wait %1\n") // ends when the job has stopped
	tt.expect("Stopped")
	tt.enter("fg\n")
	tt.enter("again\n")
	tt.expect("got:again")
	tt.expect("exit 0")
}

// TestTerminalStopTooLong: a job that is stopped past the safe deadline is dead when the shell continues it.
func TestTerminalStopTooLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate("group")
	tt := w.terminal()
	tt.enter(`$T run job --ttl 1s -- sh -c 'exec 9>group; echo "re""ady"; read x'` + "\n")
	over := make(chan struct{})
	go func() { defer close(over); g.over() }()
	tt.expect("ready")
	tt.enter("\x1a")
	tt.expect("Stopped")
	<-over
	tt.enter("fg\n")
	tt.expect("exit 76: the lease was lost")
}
