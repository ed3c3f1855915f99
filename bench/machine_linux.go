package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
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
func processTime() time.Duration { return usedTime(syscall.RUSAGE_SELF) }

// childrenTime is that of the children that have ended.
func childrenTime() time.Duration { return usedTime(syscall.RUSAGE_CHILDREN) }

func usedTime(who int) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(who, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// processorTimes is what all processors have spent since the machine started, and how much of it was not idle.
func processorTimes() (busy, total time.Duration, ok bool) {
	const (
		tick        = 10 * time.Millisecond // USER_HZ is 100 on every platform of Go's
		idle, waits = 3, 4                  // columns of /proc/stat: nothing to do, and nothing to do but to wait for a disk
		guest       = 8                     // from here on the columns repeat what others hold
	)
	fields := strings.Fields(firstMatch("/proc/stat", `(?m)^cpu +(.*)$`))
	if len(fields) < guest {
		return 0, 0, false
	}
	for i, field := range fields[:guest] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, false
		}
		total += time.Duration(ticks) * tick
		if i != idle && i != waits {
			busy += time.Duration(ticks) * tick
		}
	}
	return busy, total, true
}

// familyTime is the processor time that a process and its children which still run have used.
func familyTime(pid string) time.Duration {
	total := runTime(pid)
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return total
	}
	for _, path := range all {
		if parent := firstMatch(path, `^[0-9]+ \(.*\) [A-Z] ([0-9]+) `); parent == pid {
			total += runTime(filepath.Base(filepath.Dir(path)))
		}
	}
	return total
}

func runTime(pid string) time.Duration {
	nanos, err := strconv.ParseInt(firstMatch("/proc/"+pid+"/schedstat", `^([0-9]+) `), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(nanos)
}
