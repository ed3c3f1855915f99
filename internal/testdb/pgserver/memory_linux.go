package pgserver

import (
	"os"
	"syscall"
)

// memoryFolder is where files of servers that need not be durable go, or "" for the usual place: creating a thousand
// files for each data folder is ten times slower on some disks. A TMPDIR that is set is somebody's decision. Little
// free memory, as containers have by default, is left alone.
func memoryFolder() string {
	const folder, enough = "/dev/shm", 2 << 30 // bytes
	var stat syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(folder, &stat) != nil || stat.Bavail*uint64(stat.Bsize) < enough {
		return ""
	}
	return folder
}
