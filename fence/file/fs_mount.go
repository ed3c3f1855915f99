//go:build darwin || freebsd

package file

import (
	"os"

	"golang.org/x/sys/unix"
)

func kindOfFS(folder string) (kind fileSystem, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil {
		return kind, &os.PathError{Op: "statfs", Path: folder, Err: err}
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		kind.distant = "a file system that is not local"
	}
	switch unix.ByteSliceToString(st.Fstypename[:]) {
	case "msdos", "msdosfs", "exfat":
		kind.unnumbered = "FAT"
	}
	return kind, nil
}
