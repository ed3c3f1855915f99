//go:build unix

package choosing_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// fileLock is one kind of lock that the kernel keeps on a file.
type fileLock struct {
	try        func(f *os.File, shared bool) (bool, error)
	unlock     func(f *os.File) error
	ofOpenFile bool // it follows the open file, not the process
}

// flock belongs to the open file: to all descriptors that came of one open, in whatever process.
func flock(f *os.File, shared bool) (bool, error) {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	return taken(unix.Flock(int(f.Fd()), how|unix.LOCK_NB))
}

// byRange locks the whole file by fcntl.
func byRange(f *os.File, command int, kind int16) error {
	lock := unix.Flock_t{Type: kind, Whence: io.SeekStart}
	return unix.FcntlFlock(f.Fd(), command, &lock)
}

func tryRange(command int) func(*os.File, bool) (bool, error) {
	return func(f *os.File, shared bool) (bool, error) {
		kind := int16(unix.F_WRLCK)
		if shared {
			kind = unix.F_RDLCK
		}
		return taken(byRange(f, command, kind))
	}
}

func unlockRange(command int) func(*os.File) error {
	return func(f *os.File) error { return byRange(f, command, unix.F_UNLCK) }
}

func taken(err error) (bool, error) {
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// fileLocks are the kinds that this system has, by name.
func fileLocks() map[string]fileLock {
	kinds := map[string]fileLock{
		"flock":  {flock, func(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }, true},
		"record": {tryRange(unix.F_SETLK), unlockRange(unix.F_SETLK), false},
	}
	addOpenFileLocks(kinds)
	return kinds
}

// fileTrial is a test of one kind: on a file of its own, with a process that tries to lock it.
type fileTrial struct {
	*testing.T
	kind  fileLock
	job   job
	probe *child
}

// eachFileLock runs a test for each kind.
func eachFileLock(t *testing.T, test func(fileTrial)) {
	t.Helper()
	t.Parallel()
	for name, kind := range fileLocks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "lock")
			if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
				t.Fatal(err)
			}
			j := job{Path: path, Kind: name}
			test(fileTrial{t, kind, j, start(t, "probe", j)})
		})
	}
}

// want asks the probe.
func want(t *testing.T, probe *child, answer, when string) {
	t.Helper()
	if got := probe.answer("exclusive"); got != answer {
		t.Errorf("%s: %s, want %s", when, got, answer)
	}
}

func openFile(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func lockFile(t *testing.T, kind fileLock, file *os.File, shared bool) bool {
	t.Helper()
	got, err := kind.try(file, shared)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestFileLockIsFreedByUnlockAndClose(t *testing.T) {
	eachFileLock(t, func(x fileTrial) {
		t, kind, j, probe := x.T, x.kind, x.job, x.probe
		file := openFile(t, j.Path)
		lockFile(t, kind, file, false)
		want(t, probe, "locked", "held")
		if err := kind.unlock(file); err != nil {
			t.Fatal(err)
		}
		want(t, probe, "free", "unlocked")
		lockFile(t, kind, file, false)
		want(t, probe, "locked", "held again")
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		// Not at once: a process that this one is just starting has a copy of the descriptor until it runs its program.
		eventually(t, "a closed file is not locked", func() bool { return probe.answer("exclusive") == "free" })
	})
}

// The kernel frees the locks of a process that ended, however it ended, before anybody can see that it has ended.
func TestFileLockIsFreedByKill(t *testing.T) {
	eachFileLock(t, func(x fileTrial) {
		t, j, probe := x.T, x.job, x.probe
		holder := start(t, "lock", j)
		holder.hear("held")
		want(t, probe, "locked", "held")
		holder.kill()
		want(t, probe, "free", "killed")
	})
}

// A child that inherited the descriptor keeps the lock of an open file after its parent was killed. A record lock is the process's own.
func TestFileLockOutlivesItsHolderInAChild(t *testing.T) {
	eachFileLock(t, func(x fileTrial) {
		t, kind, j, probe := x.T, x.kind, x.job, x.probe
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		holder := start(t, "heir", j, read)
		holder.hear("held")
		holder.kill()
		if kind.ofOpenFile {
			want(t, probe, "locked", "the holder was killed, its child lives")
		} else {
			want(t, probe, "free", "the holder was killed, its child lives")
		}
		read.Close()
		write.Close() // the child reads its end and ends
		eventually(t, "the lock is free when the child has ended", func() bool { return probe.answer("exclusive") == "free" })
	})
}

// A process that is stopped, or hangs, keeps its locks for as long as it lives. Nobody is told.
func TestFileLockOfAStoppedProcessStays(t *testing.T) {
	eachFileLock(t, func(x fileTrial) {
		t, j, probe := x.T, x.job, x.probe
		holder := start(t, "lock", j)
		holder.hear("held")
		holder.stop()
		want(t, probe, "locked", "stopped")
		holder.kill()
		want(t, probe, "free", "killed")
	})
}

// The lock is on the file, not on its name: who removes the file and makes it anew has a lock that excludes nobody.
func TestFileLockIsNotOnTheName(t *testing.T) {
	eachFileLock(t, func(x fileTrial) {
		t, kind, j, probe := x.T, x.kind, x.job, x.probe
		lockFile(t, kind, openFile(t, j.Path), false)
		want(t, probe, "locked", "held")
		if err := errors.Join(os.Remove(j.Path), os.WriteFile(j.Path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		want(t, probe, "free", "the file was made anew, and the old one is still locked")
	})
}

// A record lock is lost when the process closes any descriptor of the file, such as that of a library that read it.
func TestRecordLockIsLostByAnyClose(t *testing.T) {
	eachFileLock(t, func(x fileTrial) {
		t, kind, j, probe := x.T, x.kind, x.job, x.probe
		holder := start(t, "lock", j)
		holder.hear("held")
		want(t, probe, "locked", "held")
		if got := holder.answer("open and close"); got != "closed" {
			t.Fatal(got)
		}
		if kind.ofOpenFile {
			want(t, probe, "locked", "another descriptor was closed")
		} else {
			want(t, probe, "free", "another descriptor was closed")
		}
	})
}

// Two opens in one process exclude each other where the lock is the open file's. A record lock excludes other processes alone.
func TestFileLockExcludesProcessesAndOpens(t *testing.T) {
	eachFileLock(t, func(x fileTrial) {
		t, kind, j, probe := x.T, x.kind, x.job, x.probe
		if !lockFile(t, kind, openFile(t, j.Path), false) {
			t.Error("the first was refused")
		}
		want(t, probe, "locked", "held by this process")
		if got := lockFile(t, kind, openFile(t, j.Path), false); got == kind.ofOpenFile {
			t.Errorf("a second open in the same process: granted %v", got)
		}
	})
}

func TestFileLockIsShared(t *testing.T) {
	eachFileLock(t, func(x fileTrial) {
		t, j, probe := x.T, x.job, x.probe
		j.Shared = true
		start(t, "lock", j).hear("held")
		start(t, "lock", j).hear("held")
		if got := probe.answer("shared"); got != "free" {
			t.Errorf("for a third reader: %s", got)
		}
		want(t, probe, "locked", "two readers hold it")
	})
}

// It is advice: a process that does not ask reads, writes and replaces the file.
func TestFileLockDoesNotStopCodeThatIgnoresIt(t *testing.T) {
	eachFileLock(t, func(x fileTrial) {
		t, j, probe := x.T, x.job, x.probe
		start(t, "lock", j).hear("held")
		want(t, probe, "locked", "held")
		if err := os.WriteFile(j.Path, []byte("overwritten"), 0o600); err != nil {
			t.Errorf("the write was stopped: %v", err)
		}
		if err := os.Rename(j.Path, j.Path+".moved"); err != nil {
			t.Errorf("the rename was stopped: %v", err)
		}
	})
}

// These locks have no timeout of their own: one asks without waiting, again and again. That frees nothing.
func TestFileLockGivingUpFreesNothing(t *testing.T) {
	eachFileLock(t, func(x fileTrial) {
		t, j, probe := x.T, x.job, x.probe
		holder := start(t, "lock", j)
		holder.hear("held")
		for range 3 {
			want(t, probe, "locked", "somebody else gave up")
		}
	})
}
