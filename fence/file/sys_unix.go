//go:build unix

package file

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	noFollow  = unix.O_NOFOLLOW
	readFlags = os.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK // what is no file does not make the open wait
)

// inodeOf returns the number of the file's inode and how many names it has.
func inodeOf(file *os.File) (number, names uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return 0, 0, &os.PathError{Op: "stat", Path: file.Name(), Err: err}
	}
	return st.Ino, uint64(st.Nlink), nil //nolint:unconvert // each platform has a type of its own for it
}

func rename(from, to string) error { return os.Rename(from, to) }

// syncFolder makes the names in a folder durable.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// resemble gives a new file the owner and the permissions of another.
func resemble(file *os.File, like os.FileInfo) error {
	own, err := file.Stat()
	if err != nil {
		return err
	}
	a, isA := own.Sys().(*syscall.Stat_t)
	b, isB := like.Sys().(*syscall.Stat_t)
	if !isA || !isB {
		return fmt.Errorf("%s: the owner of the file cannot be read", file.Name())
	}
	if a.Uid != b.Uid || a.Gid != b.Gid {
		if err := file.Chown(int(b.Uid), int(b.Gid)); err != nil {
			return fmt.Errorf("keeping the file's owner: %w", err)
		}
	}
	return file.Chmod(like.Mode() & (os.ModePerm | os.ModeSetuid | os.ModeSetgid | os.ModeSticky)) // after chown, which clears some
}

func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}

// lacksLocks reports whether an error of taking a lock says that there are none here.
func lacksLocks(err error) bool {
	return errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)
}

// lacksSync reports whether an error of making a folder durable says that this cannot be done here.
func lacksSync(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)
}
