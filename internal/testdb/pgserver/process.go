package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// every is how often a condition of another process is looked at: it can only be seen, not waited for.
const every = 4 * time.Millisecond

// poll looks until done says so, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// process is a started program that the guard knows of.
type process struct {
	pid   int
	ended chan struct{} // closed when it has ended and was reaped
}

// launch starts cmd, whose output goes to the end of the file log, and tells the guard.
func launch(cmd *exec.Cmd, log string, g *guard) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	defer out.Close() //nolint:errcheck // the program has its own descriptor, and nothing was written through this one
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	p := &process{pid: cmd.Process.Pid, ended: make(chan struct{})}
	told := g.add(p.pid)
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		g.forget(p.pid)
		close(p.ended)
	}()
	if told != nil {
		return nil, errors.Join(told, send(p.pid, sigKill))
	}
	return p, nil
}

// wait waits for the end of the process.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pgserver: process %d has not ended: %w", p.pid, context.Cause(ctx))
	}
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// freeze stops the postmaster and then its children, which it therefore cannot replace, and returns them.
// They are found by their parent: each backend leads a process group of its own.
func (p *process) freeze(ctx context.Context) ([]int, error) {
	if err := send(p.pid, sigStop); err != nil {
		return nil, err
	}
	if err := all(ctx, "T", p.pid); err != nil {
		return nil, err
	}
	pids, err := children(ctx, p.pid)
	for _, pid := range pids {
		err = errors.Join(err, send(pid, sigStop))
	}
	return pids, errors.Join(err, all(ctx, "T", pids...))
}

// all waits until each of the processes is in a state, or is gone, or a zombie, which touches nothing any more.
func all(ctx context.Context, state string, pids ...int) error {
	for _, pid := range pids {
		err := poll(ctx, func() (bool, error) {
			now := stateOf(ctx, pid)
			return now == "" || strings.HasPrefix(now, "Z") || strings.HasPrefix(now, state), nil
		})
		if err != nil {
			return fmt.Errorf("pgserver: process %d was signalled and goes on: %w", pid, err)
		}
	}
	return nil
}

// stateOf is a process's state as ps shows it, or "" when there is none.
func stateOf(ctx context.Context, pid int) string {
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		state, _ := parseStat(string(text))
		return state
	}
	if procfs() {
		return ""
	}
	out, err := exec.CommandContext(ctx, "ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func children(ctx context.Context, parent int) ([]int, error) {
	var found []int
	if procfs() {
		files, err := filepath.Glob("/proc/[0-9]*/stat")
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // it has ended meanwhile
			}
			if _, of := parseStat(string(text)); of == parent {
				if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
					found = append(found, pid)
				}
			}
		}
		return found, err
	}
	out, err := exec.CommandContext(ctx, "ps", "-A", "-o", "pid=,ppid=").Output()
	for line := range strings.Lines(string(out)) {
		var pid, of int
		if n, _ := fmt.Sscan(line, &pid, &of); n == 2 && of == parent {
			found = append(found, pid)
		}
	}
	return found, err
}

func procfs() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// parseStat reads the state and the parent from /proc/PID/stat; the program's name before them may hold anything.
func parseStat(text string) (state string, parent int) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return "", 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return fields[0], 0
	}
	return fields[0], parent
}
