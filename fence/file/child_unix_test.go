//go:build unix

package file

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// dieIn has this process die, or stop, at a certain call of the disk.
func dieIn(p *parts, o orders) {
	n := 0
	meet := func(half func()) {
		n++
		switch n {
		case o.DieAt:
			if o.Half {
				half()
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it arrives
		case o.StopAt:
			stopSelf()
		}
	}
	none := func() {}
	d := p.disk
	if o.DieAt > 0 { // what a killed process wrote is in the kernel's hands, durable or not
		d.sync, d.syncFolder = func(*os.File) error { return nil }, func(string) error { return nil }
	}
	p.create = func(path string) (*os.File, error) { meet(none); return d.create(path) }
	p.writeAt = func(file *os.File, data []byte, at int64) error {
		meet(func() { _ = d.writeAt(file, halfOf(data), at) })
		return d.writeAt(file, data, at)
	}
	p.truncate = func(file *os.File, size int64) error { meet(none); return d.truncate(file, size) }
	p.sync = func(file *os.File) error { meet(none); return d.sync(file) }
	p.rename = func(from, to string) error { meet(none); return d.rename(from, to) }
	p.syncFolder = func(path string) error { meet(none); return d.syncFolder(path) }
	p.remove = func(path string) error { meet(none); return d.remove(path) }
}

// stopSelf stops this process, and returns when it was continued.
func stopSelf() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitOther)
	}
	<-continued
	signal.Stop(continued)
}

// limit bounds the size of every file that this process writes, as a full disk would.
func limit(size uint64) {
	if size == 0 {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	var most syscall.Rlimit
	set(&most.Cur, size)
	set(&most.Max, size)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &most); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitOther)
	}
}

// set is an assignment to a field whose type is not the same on all systems.
func set[T int64 | uint64](field *T, n uint64) { *field = T(n) }

// nobody is a user that owns nothing.
const nobody = 65534

// becomeNobody gives up what root may do, if this process is root's.
func becomeNobody() error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := syscall.Setgid(nobody); err != nil {
		return err
	}
	return syscall.Setuid(nobody)
}
