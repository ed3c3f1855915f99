//go:build darwin || freebsd

package file

import (
	"os"

	"golang.org/x/sys/unix"
)

// distant names the kind of file system of a folder if its locks are not known to be those of all who can open it.
func distant(folder string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil {
		return "", &os.PathError{Op: "statfs", Path: folder, Err: err}
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return "a file system that is not local", nil
	}
	return "", nil
}
