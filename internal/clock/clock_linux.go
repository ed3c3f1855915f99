package clock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME in linux/time.h

// Boot returns the clock that also counts while the machine sleeps (CLOCK_BOOTTIME).
func Boot() Source {
	if _, err := boottime(); err != nil {
		return Monotonic() // a kernel older than 2.6.39, or a sandbox that forbids the call
	}
	return func() time.Duration {
		now, _ := boottime()
		return now
	}
}

// Kernel returns CLOCK_BOOTTIME less this process's own time-namespace offset, so that all containers of
// one kernel agree, and the kernel's boot id. The inode of a time namespace is recycled and would not do.
func Kernel() (Source, string, error) {
	if _, err := boottime(); err != nil {
		return nil, "", fmt.Errorf("reading CLOCK_BOOTTIME: %w", err)
	}
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, "", fmt.Errorf("reading the kernel's boot id: %w", err)
	}
	offset, err := namespaceOffset()
	if err != nil {
		return nil, "", err
	}
	now := func() time.Duration {
		t, _ := boottime()
		return t - offset
	}
	return now, strings.TrimSpace(string(bootID)), nil
}

func boottime() (time.Duration, error) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0, errno
	}
	return time.Duration(ts.Nano()), nil
}

// namespaceOffset reads how far this process's time namespace shifts CLOCK_BOOTTIME.
func namespaceOffset() (time.Duration, error) {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // a kernel without time namespaces
	}
	if err != nil {
		return 0, fmt.Errorf("reading the time namespace's offset: %w", err)
	}
	return parseOffsets(string(text))
}

func parseOffsets(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "boottime" {
			continue
		}
		sec, err1 := strconv.ParseInt(fields[1], 10, 64)
		nsec, err2 := strconv.ParseInt(fields[2], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return 0, fmt.Errorf("reading the time namespace's offset: %w", err)
		}
		return time.Duration(sec)*time.Second + time.Duration(nsec), nil
	}
	return 0, nil
}
