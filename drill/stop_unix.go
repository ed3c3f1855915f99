//go:build unix

package drill

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// canStop reports whether this system can stop a process and continue it later.
func canStop() bool { return true }

// stopSelf stops this process and returns once it has been continued: not before, because the thread that
// sends the signal may run on for a moment until all threads have stopped.
func stopSelf(ctx context.Context) error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return fmt.Errorf("%w: stopping itself: %w", ErrProcess, err)
	}
	select {
	case <-continued:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// resume continues a stopped process.
func resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }

// apart puts a worker into a process group of its own, so that a Ctrl-C at the terminal reaches the conductor alone,
// and has it die with the conductor where the system can do that.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}
