package supervise

import (
	"fmt"
	"os"
	"path/filepath"
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

// onlyZombies reports whether no process of the group is anything but a zombie. The caller has seen that it may signal
// the group, so /proc hides none of its members.
func onlyZombies(group int) bool {
	running := false
	read := processes(func(p process) { running = running || p.group == group && p.state != "Z" && p.state != "X" })
	return read && !running
}

// orphanedGroup is the group of a command whose guard died before it could say that it had started it, or 0. With the
// guard gone the command, if only its zombie, is this process's child, see adoptOrphans, and no older than the guard.
func orphanedGroup(guardStart uint64) (group int) {
	own, ownGroup := os.Getpid(), syscall.Getpgrp()
	session, err := unix.Getsid(0)
	processes(func(p process) {
		if err == nil && p.parent == own && p.session == session && p.group != ownGroup && p.start >= guardStart {
			group = p.group
		}
	})
	return group
}

// startOf is when a process that was not reaped yet was started, in ticks since boot, or 0.
func startOf(pid int) uint64 {
	p, _ := readProcess(fmt.Sprintf("/proc/%d/stat", pid))
	return p.start
}

// process is what /proc says of one.
type process struct {
	state                  string
	parent, group, session int
	start                  uint64
}

// processes visits every process that can be seen and reports whether there was any.
func processes(visit func(process)) bool {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		if p, ok := readProcess(file); ok { // else it has ended meanwhile
			visit(p)
		}
	}
	return err == nil && len(files) > 0
}

func readProcess(file string) (p process, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return p, false
	}
	// pid (name) state ppid pgrp session tty_nr tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime priority
	// nice num_threads itrealvalue starttime ...; the name may hold anything, parentheses too.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return p, false
	}
	p.state = fields[0]
	_, err = fmt.Sscan(strings.Join([]string{fields[1], fields[2], fields[3], fields[19]}, " "), &p.parent, &p.group, &p.session, &p.start)
	return p, err == nil
}
