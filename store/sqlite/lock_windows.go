package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

type lockMode uint32

const (
	shared    lockMode = 0
	exclusive lockMode = windows.LOCKFILE_EXCLUSIVE_LOCK
)

// lockOffsetHigh puts the locked bytes 4 GiB times this behind the content: locks are mandatory here.
const lockOffsetHigh = 1 << 8

// lockFiles has nothing to hold here: the locks are bytes of the side file itself.
type lockFiles struct{}

func openLockFiles(*os.File) (lockFiles, error) { return lockFiles{}, nil }
func (lockFiles) close() error                  { return nil }

func (f *sideFile) lock(which int, mode lockMode) error { return f.lockRange(which, uint32(mode)) }

func (f *sideFile) tryLock(which int, mode lockMode) (bool, error) {
	err := f.lockRange(which, uint32(mode)|windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

func (f *sideFile) lockRange(which int, flags uint32) error {
	at := windows.Overlapped{Offset: uint32(which), OffsetHigh: lockOffsetHigh}
	return windows.LockFileEx(windows.Handle(f.file.Fd()), flags, 0, 1, 0, &at)
}

func (f *sideFile) unlock(which int) error {
	at := windows.Overlapped{Offset: uint32(which), OffsetHigh: lockOffsetHigh}
	return windows.UnlockFileEx(windows.Handle(f.file.Fd()), 0, 1, 0, &at)
}

// identify uses the volume and file index, opened without asking for access, so that no lock is touched.
func identify(path string) (identity, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	const all = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	h, err := windows.CreateFile(name, 0, all, nil, windows.OPEN_EXISTING, windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	defer windows.CloseHandle(h)
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &info); err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return identity{device: uint64(info.VolumeSerialNumber), inode: uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow)}, nil
}

func processState(int) string { return "" }
