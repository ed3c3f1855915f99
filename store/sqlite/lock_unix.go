//go:build unix && !linux

package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

type lockMode int

const (
	shared    lockMode = unix.LOCK_SH
	exclusive lockMode = unix.LOCK_EX
)

// lockFiles are three files, one a lock: flock knows no byte ranges. A lock's mode is never changed, only
// given up and taken anew: a failed conversion of a flock loses it.
type lockFiles [3]*os.File

func openLockFiles(side *os.File) (lockFiles, error) {
	var files lockFiles
	for i, suffix := range [...]string{".next", ".main", ".incarnation"} {
		file, err := os.OpenFile(side.Name()+suffix, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return files, errors.Join(err, files.close())
		}
		files[i] = file
	}
	return files, nil
}

func (l lockFiles) close() error {
	var err error
	for _, file := range l {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	return err
}

func (f *sideFile) lock(which int, mode lockMode) error {
	for {
		err := unix.Flock(int(f.locks[which].Fd()), int(mode))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (f *sideFile) tryLock(which int, mode lockMode) (bool, error) {
	err := unix.Flock(int(f.locks[which].Fd()), int(mode)|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func (f *sideFile) unlock(which int) error { return unix.Flock(int(f.locks[which].Fd()), unix.LOCK_UN) }

func identify(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return identity{device: uint64(st.Dev), inode: st.Ino}, nil
}

func processState(int) string { return "" }
