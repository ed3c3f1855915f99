package supervise

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the command when the thread that started it ends. It does not reach what
// the command starts in turn.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// adoptOrphans makes this process the parent of every descendant whose own parent ended, so that it hears
// of their end and no zombie waits for an init that never reaps. A kernel that cannot costs only that.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// onlyZombies reports whether no process of the group is anything but a zombie. What cannot be read counts as running.
func onlyZombies(group int) bool {
	processes, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(processes) == 0 {
		return false
	}
	for _, file := range processes {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (name) state ppid pgrp ...; the name may hold anything, parentheses too.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && fields[0] != "Z" && fields[0] != "X" {
			return false
		}
	}
	return true
}
