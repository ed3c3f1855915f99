package drill

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// isStopped reports whether the child pid has stopped. It takes nothing away from whoever waits for its end.
func isStopped(pid int) (bool, error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
		if !errors.Is(err, unix.EINTR) {
			return info.Signo == int32(unix.SIGCHLD), err
		}
	}
}

// dieWithParent has the kernel kill the worker, stopped or not, when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
