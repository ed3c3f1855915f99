package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

type lockMode int16

const (
	shared    lockMode = unix.F_RDLCK
	exclusive lockMode = unix.F_WRLCK
)

const lockOffset = 1 << 40

// lockFiles has nothing to hold here: the locks are bytes of the side file itself.
type lockFiles struct{}

func openLockFiles(*os.File) (lockFiles, error) { return lockFiles{}, nil }
func (lockFiles) close() error                  { return nil }

// Open-file-description locks: they belong to the open file, not to the process, so that two stores in one process
// exclude each other and closing another descriptor of the file drops nothing.
func (f *sideFile) lock(which int, mode lockMode) error {
	for {
		err := f.fcntl(unix.F_OFD_SETLKW, which, int16(mode))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// tryLock reports false when another open file holds a lock that excludes this one.
func (f *sideFile) tryLock(which int, mode lockMode) (bool, error) {
	err := f.fcntl(unix.F_OFD_SETLK, which, int16(mode))
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

func (f *sideFile) unlock(which int) error {
	return f.fcntl(unix.F_OFD_SETLK, which, unix.F_UNLCK)
}

func (f *sideFile) fcntl(cmd int, which int, kind int16) error {
	lock := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: lockOffset + int64(which), Len: 1}
	if err := unix.FcntlFlock(f.file.Fd(), cmd, &lock); err != nil {
		return fmt.Errorf("locking %s: %w", f.file.Name(), err)
	}
	return nil
}

func identify(path string) (identity, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	id := identity{device: unix.Mkdev(st.Dev_major, st.Dev_minor), inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.born = uint64(st.Btime.Sec)*1e9 + uint64(st.Btime.Nsec)
	}
	return id, nil
}

// processState says whether pid is stopped or gone, for error texts.
func processState(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return " (gone)"
	}
	text := string(raw)
	if _, after, ok := strings.Cut(text[strings.LastIndexByte(text, ')')+1:], " "); ok && strings.HasPrefix(after, "T") {
		return " (stopped)"
	}
	return ""
}
