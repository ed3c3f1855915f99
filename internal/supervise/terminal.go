//go:build unix

package supervise

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// resumeWait bounds the wait for the SIGCONT of a stop that is already over.
const resumeWait = 200 * time.Millisecond

// terminal is the controlling terminal of this process and its job control. A nil terminal is none.
type terminal struct {
	file *os.File
	own  int // this process's group
}

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, own: syscall.Getpgrp()}
}

func (t *terminal) close() {
	if t != nil {
		_ = t.file.Close()
	}
}

// foreground is the group that the terminal obeys, or 0.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// hold makes this process able to move the foreground, and to write, from the background: SIGTTOU, which would stop
// it, is ignored. Only once the guard was started, because what is ignored is ignored in children too.
func (t *terminal) hold() {
	if t != nil {
		signal.Ignore(syscall.SIGTTOU)
	}
}

// release undoes hold, and ends the hold of the command, or of what was to become it, on the terminal.
func (t *terminal) release() {
	if t == nil {
		return
	}
	if group := t.foreground(); group != t.own && errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) {
		t.give(t.own)
	}
	signal.Reset(syscall.SIGTTOU)
}

func (t *terminal) give(group int) {
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group)
}

// ours reports whether the command should get the foreground from the start: this process has it, and the command
// alone talks to the terminal. In a pipeline (`tenure run ... | less`) the others of the job need it;
// there the command gets it when it asks, see handOver.
func (t *terminal) ours(stdin, stdout *os.File) bool {
	return t != nil && isTerminal(stdin) && isTerminal(stdout) && t.foreground() == t.own
}

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// handOver deals with a command that sig has stopped, and reports whether it should be continued.
//
// A command that was stopped because it is not the foreground, while this process is, gets the foreground. One
// that the terminal stopped otherwise (Ctrl-Z) takes this process with it, so that the shell sees its job stop;
// the renewals of this process stop too, and unless it is continued first the guard kills the command in time.
// A command that was stopped by SIGSTOP is somebody's doing and stays stopped.
func (t *terminal) handOver(sig syscall.Signal, group int) bool {
	if t == nil {
		return false
	}
	wants := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	if !wants && sig != syscall.SIGTSTP {
		return false
	}
	had := t.foreground() == group
	if !wants || t.foreground() != t.own {
		if had {
			t.give(t.own)
		}
		t.stopOwnGroup()
	}
	if (had || wants) && t.foreground() == t.own {
		t.give(group)
	}
	return true
}

// stopOwnGroup stops this process's group, the shell's job, and returns when it is continued.
//
// By SIGSTOP: a Go program that has caught SIGTSTP once cannot give it back its effect. The group of the session's leader has no
// shell that would continue it, and is not stopped: that is what the kernel would do with SIGTSTP.
func (t *terminal) stopOwnGroup() {
	if sid, err := unix.Getsid(0); err != nil || sid == t.own {
		return
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGSTOP)
	select {
	case <-continued:
	case <-time.After(resumeWait):
	}
}
