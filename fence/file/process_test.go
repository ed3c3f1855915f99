//go:build unix

package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure/fence"
)

// started is a child that runs, killed at the end of the test.
func started(t *testing.T, o orders) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd, err := command(o)
	must(t, err)
	out := new(bytes.Buffer)
	cmd.Stderr = out
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, out
}

// waitStopped waits until the kernel says that the child has stopped.
func waitStopped(t *testing.T, pid int) {
	t.Helper()
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("the child did not stop: %v, %v", status, err)
		}
		return
	}
}

// TestProcessesRace: every acknowledged line of two processes is there once, and a holder's lines are not after its successor's.
func TestProcessesRace(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"append", "update-many"} {
		if err := race(t, op, ""); err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
	// It takes luck for two without a lock to meet: so a few times.
	for try := 1; ; try++ {
		err := race(t, "update-many", "no lock")
		if err != nil {
			t.Logf("caught at try %d: %v", try, err)
			break
		}
		if try == 10 {
			t.Error("the twin without a lock is not caught")
			break
		}
	}
}

const lines = 40

// race lets three processes write lines under tokens 5, 6 and 7, and says what is wrong with the file then.
func race(t *testing.T, op, twin string) error {
	t.Helper()
	path := fresh(t)
	var cmds []*exec.Cmd
	var outs []*bytes.Buffer
	mustOpen(t, path, Options{})
	for token := fence.Token(5); token <= 7; token++ {
		cmd, out := started(t, orders{Path: path, Op: op, Token: token, Data: "line", Times: lines, Twin: twin})
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	done := map[int]bool{}
	for i, cmd := range cmds {
		err := cmd.Wait()
		switch {
		case err == nil:
			done[5+i] = true
		case cmd.ProcessState.ExitCode() == exitRefused:
		default:
			return fmt.Errorf("%w: %s", err, outs[i])
		}
	}
	return checkLines(contentOf(t, path), done)
}

func checkLines(text string, done map[int]bool) error {
	next := map[int]int{}
	last := 0
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		var token, n int
		if _, err := fmt.Sscanf(line, "line %d %d", &token, &n); err != nil || line != "line "+strconv.Itoa(token)+" "+strconv.Itoa(n) {
			return fmt.Errorf("a line is torn: %q", line)
		}
		if token < last {
			return fmt.Errorf("token %d wrote after its successor %d", token, last)
		}
		if n != next[token] {
			return fmt.Errorf("line %d of token %d comes where %d should", n, token, next[token])
		}
		last, next[token] = token, n+1
	}
	for token := range done {
		if next[token] != lines {
			return fmt.Errorf("token %d was told that %d lines are there, and %d are", token, lines, next[token])
		}
	}
	if !done[7] {
		return errors.New("the last holder was refused")
	}
	return nil
}

// TestStoppedHolder: a holder stopped before its operation is refused when it goes on. One that is stopped inside keeps
// others waiting, who are told its pid; killed, it lets them in.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	f := mustOpen(t, path, Options{})
	must(t, f.Replace(t.Context(), claim(5), []byte("five")))
	// Its first calls are those of Open: to make sure of what it finds. It has let go of the lock when it is stopped at the one after.
	calls := callsOfOpen(t, path)
	late, _ := started(t, orders{Path: path, Op: "replace", Token: 5, Data: "late", StopAt: calls})
	waitStopped(t, late.Process.Pid)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := f.Replace(short, claim(7), []byte("seven"))
	if !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), strconv.Itoa(late.Process.Pid)) {
		t.Errorf("beside a process that is stopped inside: %v", err)
	}
	if runtime.GOOS == "linux" && !strings.Contains(err.Error(), "stopped") {
		t.Errorf("it is not said that it is stopped: %v", err)
	}
	must(t, late.Process.Kill())
	must(t, f.Replace(t.Context(), claim(7), []byte("seven")))
	if _, err := runRefused(path); err != nil {
		t.Error(err)
	}
	if got := contentOf(t, path); got != "seven" {
		t.Errorf("the file holds %q", got)
	}
}

// callsOfOpen counts the calls of the disk that Open makes on a file that is in use.
func callsOfOpen(t *testing.T, path string) int {
	t.Helper()
	for n := 1; n <= maxCalls; n++ {
		finished, err := runChild(orders{Path: path, Op: "open", DieAt: n})
		must(t, err)
		if finished {
			return n - 1
		}
	}
	t.Fatal("Open makes too many calls")
	return 0
}

// runRefused has a former holder, a process of its own, write late.
func runRefused(path string) (int, error) {
	cmd, err := command(orders{Path: path, Op: "append", Token: 5, Data: "late"})
	if err != nil {
		return 0, err
	}
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != exitRefused {
		return code, fmt.Errorf("the late write ended with %d, want a refusal: %w: %s", code, err, out)
	}
	return exitRefused, nil
}

// TestOldOwnerWakesUp: stopped between its last look and its write, and overtaken.
func TestOldOwnerWakesUp(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	f := mustOpen(t, path, Options{})
	must(t, f.Replace(t.Context(), claim(5), []byte("five")))
	old, out := started(t, orders{Path: path, Op: "pause-append", Token: 5, Data: "late"})
	waitStopped(t, old.Process.Pid)
	must(t, f.Replace(t.Context(), claim(7), []byte("seven")))
	must(t, old.Process.Signal(unix.SIGCONT))
	_ = old.Wait()
	if code := old.ProcessState.ExitCode(); code != exitRefused {
		t.Errorf("the old owner ended with %d: %s", code, out)
	}
	if got := contentOf(t, path); got != "seven" {
		t.Errorf("the file holds %q", got)
	}
}

// TestFull: at a limit of the file's size nothing is half written, and it goes on when there is room.
func TestFull(t *testing.T) {
	t.Parallel()
	const room = 3 * slotSize
	for _, op := range []string{"append", "replace", "update"} {
		path := fresh(t)
		f := mustOpen(t, path, Options{})
		old := strings.Repeat("x", room-10)
		must(t, f.Replace(t.Context(), claim(5), []byte(old)))
		cmd, err := command(orders{Path: path, Op: op, Token: 7, Data: strings.Repeat("y", room+20), Limit: room})
		must(t, err)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != exitFull {
			t.Errorf("%s ended with %d: %v, %s", op, code, err, out)
		}
		if got := contentOf(t, path); got != old {
			t.Errorf("%s: %d bytes, want %d", op, len(got), len(old))
		}
		if _, err := os.Lstat(path + newSuffix); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s leaves its new content: %v", op, err)
		}
		must(t, f.Append(t.Context(), claim(7), []byte("z")))
	}
}

// TestKilledAmidOthers: of processes that append side by side and are killed at moments of chance, every acknowledged line is there once,
// in order, and of each at most one that was not acknowledged.
func TestKilledAmidOthers(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	mustOpen(t, path, Options{})
	const generations, writers = 5, 2
	acknowledged := map[string]int{}
	for g := range generations {
		names := make([]string, writers)
		counts := make([]int, writers)
		var all sync.WaitGroup
		for w := range writers {
			names[w] = fmt.Sprintf("%d-%d", g, w)
			cmd, err := command(orders{Path: path, Op: "append-acknowledged", Token: fence.Token(5 + g), Data: names[w]})
			must(t, err)
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			all.Go(func() {
				told := bufio.NewScanner(out)
				for enough := 3 + rand.N(20); counts[w] < enough && told.Scan(); counts[w]++ {
				}
				_ = cmd.Process.Kill()
				for told.Scan() { // what it was told before it died
					counts[w]++
				}
				_ = cmd.Wait()
			})
		}
		all.Wait()
		for w, name := range names {
			acknowledged[name] = counts[w]
		}
		got, err := mustOpen(t, path, Options{}).Read(t.Context())
		must(t, err)
		found := map[string]int{}
		for _, line := range strings.Split(strings.TrimSuffix(string(got), "\n"), "\n") {
			name, number, _ := strings.Cut(line, " ")
			if number != strconv.Itoa(found[name]) {
				t.Fatalf("the line %q, after %d of this writer", line, found[name])
			}
			found[name]++
		}
		for name, n := range acknowledged {
			if found[name] < n || found[name] > n+1 {
				t.Errorf("%s was told that %d lines are there, and %d are", name, n, found[name])
			}
		}
	}
}
