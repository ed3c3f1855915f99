package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

const (
	noFollow  = 0         // a link is seen when names are compared after the open
	readFlags = os.O_RDWR // only a file that may be written can be made durable
)

// lockOffsetHigh puts the locked bytes 4 GiB times this behind the content: locks are mandatory here.
const lockOffsetHigh = 1 << 8

// lockByte locks a byte of the open file, if nobody has, which excludes other open files, of the same process too.
func lockByte(side *os.File, which int) (bool, error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	at := windows.Overlapped{Offset: uint32(which), OffsetHigh: lockOffsetHigh}
	err := windows.LockFileEx(windows.Handle(side.Fd()), flags, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

func unlockByte(side *os.File, which int) error {
	at := windows.Overlapped{Offset: uint32(which), OffsetHigh: lockOffsetHigh}
	return windows.UnlockFileEx(windows.Handle(side.Fd()), 0, 1, 0, &at)
}

// inodeOf returns the file's index on its volume and how many names it has.
func inodeOf(file *os.File) (number, names uint64, err error) {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(file.Fd()), &info); err != nil {
		return 0, 0, &os.PathError{Op: "stat", Path: file.Name(), Err: err}
	}
	return uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow), uint64(info.NumberOfLinks), nil
}

// rename returns when the new name is durable: folders have nothing to flush here.
func rename(from, to string) error {
	a, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return &os.PathError{Op: "rename", Path: from, Err: err}
	}
	b, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return &os.PathError{Op: "rename", Path: to, Err: err}
	}
	if err := windows.MoveFileEx(a, b, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func syncFolder(string) error { return nil }

// resemble does nothing: a new file has the rights that its folder hands down.
func resemble(*os.File, os.FileInfo) error { return nil }

func kindOfFS(folder string) (kind fileSystem, err error) {
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(folder) + `\`)
	if err != nil {
		return kind, &os.PathError{Op: "drive type", Path: folder, Err: err}
	}
	switch windows.GetDriveType(root) {
	case windows.DRIVE_FIXED, windows.DRIVE_REMOVABLE, windows.DRIVE_RAMDISK:
	case windows.DRIVE_REMOTE:
		kind.distant = "a network drive"
	default:
		kind.distant = "a volume of an unknown kind"
	}
	var name [windows.MAX_PATH + 1]uint16
	if err := windows.GetVolumeInformation(root, nil, 0, nil, nil, nil, &name[0], uint32(len(name))); err != nil {
		return kind, &os.PathError{Op: "volume information", Path: folder, Err: err}
	}
	if strings.Contains(strings.ToUpper(windows.UTF16ToString(name[:])), "FAT") {
		kind.unnumbered = "FAT"
	}
	return kind, nil
}

func isFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

func lacksLocks(err error) bool {
	return errors.Is(err, windows.ERROR_NOT_SUPPORTED) || errors.Is(err, windows.ERROR_INVALID_FUNCTION)
}

func lacksSync(error) bool { return false }

func mountedAlone(string, string) (bool, error) { return false, nil } // a mount is a folder here

func processState(int) string { return "" }
