package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// lockOffset is far behind the content of the side file.
const lockOffset = 1 << 40

// lockByte takes a lock, if nobody has it, of the open file description: it belongs to this open file and to no process, so goroutines exclude each
// other too, and closing another descriptor of the side file drops nothing.
func lockByte(side *os.File, which int) (bool, error) {
	for {
		err := setLock(side, which, unix.F_WRLCK)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
			return false, nil
		default:
			return err == nil, err
		}
	}
}

func unlockByte(side *os.File, which int) error {
	return setLock(side, which, unix.F_UNLCK)
}

func setLock(side *os.File, which int, kind int16) error {
	lock := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: lockOffset + int64(which), Len: 1}
	return unix.FcntlFlock(side.Fd(), unix.F_OFD_SETLK, &lock)
}

// distantFS names the file systems whose locks may be those of one machine while its files are those of many.
func distantFS(kind int64) string {
	switch uint32(kind) {
	case unix.NFS_SUPER_MAGIC:
		return "NFS"
	case unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return "SMB"
	case unix.V9FS_MAGIC:
		return "9p"
	case unix.FUSE_SUPER_MAGIC:
		return "FUSE"
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS"
	case unix.CODA_SUPER_MAGIC:
		return "Coda"
	case unix.NCP_SUPER_MAGIC:
		return "NCP"
	case unix.OCFS2_SUPER_MAGIC:
		return "OCFS2"
	case 0x01161970:
		return "GFS2"
	case 0x0bd00bd0:
		return "Lustre"
	case 0x786f4256:
		return "shared folders of VirtualBox"
	}
	return ""
}

// unnumberedFS names the file systems whose inodes have no numbers on the disk.
func unnumberedFS(kind int64) string {
	switch uint32(kind) {
	case unix.MSDOS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC:
		return "FAT"
	}
	return ""
}

func kindOfFS(folder string) (fileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil {
		return fileSystem{}, &os.PathError{Op: "statfs", Path: folder, Err: err}
	}
	kind := int64(st.Type) //nolint:unconvert // it is an int32 on some platforms
	return fileSystem{distant: distantFS(kind), unnumbered: unnumberedFS(kind)}, nil
}

// mountedAlone reports whether a file, if it exists, is a mount of its own in its folder, as containers are given single files.
func mountedAlone(path, folder string) (bool, error) {
	var a, b unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &a)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := unix.Statx(unix.AT_FDCWD, folder, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &b); err != nil {
		return false, &os.PathError{Op: "stat", Path: folder, Err: err}
	}
	if a.Mask&b.Mask&unix.STATX_MNT_ID != 0 {
		return a.Mnt_id != b.Mnt_id, nil
	}
	return a.Dev_major != b.Dev_major || a.Dev_minor != b.Dev_minor, nil // a kernel before 5.8
}

// processState says whether pid is stopped or gone, for error texts.
func processState(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ", which is gone"
	}
	text := string(raw)
	if strings.HasPrefix(text[strings.LastIndexByte(text, ')')+1:], " T") {
		return ", which is stopped"
	}
	return ""
}
