package supervise

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the command when the thread that started it ends. It does not reach what
// the command starts in turn.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// adoptOrphans makes this process the parent of every descendant whose own parent ended, so that it hears
// of their end and no zombie waits for an init that never reaps. A kernel that cannot costs only that.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
