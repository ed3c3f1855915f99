package main

import (
	"fmt"
	"syscall"
	"time"
)

// fileSystem names what folder lies on.
func fileSystem(folder string) string {
	var found syscall.Statfs_t
	if err := syscall.Statfs(folder, &found); err != nil {
		return "file system not known"
	}
	kind := uint32(found.Type) //nolint:gosec // the magic numbers are 32 bits on every platform
	switch kind {
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x2fc12fc1:
		return "zfs"
	case 0x794c7630:
		return "overlayfs"
	case 0x6969:
		return "nfs"
	case 0x01021994:
		return "tmpfs: fsync does nothing here, so no ratio to it means anything"
	}
	return fmt.Sprintf("file system %#x", kind)
}

// processTime is the processor time that this process has used, its own and the kernel's for it.
func processTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
