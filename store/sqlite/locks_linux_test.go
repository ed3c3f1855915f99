package sqlite

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// heldLocks counts the POSIX locks that this process holds on a file, as the kernel sees them. The file is
// only looked at from outside: opening and closing it here would drop the locks.
func heldLocks(t *testing.T, path string) int {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	most := 0
	for range 10 { // the kernel tells its list in pieces, and may leave one out while others take and drop locks
		raw, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(raw)) {
			f := strings.Fields(line) // 1: POSIX ADVISORY READ pid device:inode start end
			if len(f) == 8 && f[1] == "POSIX" && f[4] == fmt.Sprint(os.Getpid()) && f[5] == file {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// A second store in this process opens, works and shuts down; SQLite's locks of the first stay as they are.
func TestSecondStoreLeavesLocksAlone(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	p := join(t, openPath(t, path), time.Minute)
	p.take("a")
	count := func() [2]int { return [2]int{heldLocks(t, path), heldLocks(t, path+"-shm")} }
	before := count()
	if before[0] == 0 || before[1] == 0 {
		t.Fatalf("SQLite holds %d locks on the file and %d on its -shm: this test sees nothing", before[0], before[1])
	}
	second := openPath(t, path)
	q := join(t, second, time.Minute)
	q.drop(q.take("b"))
	if _, err := second.Get(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	shutDown(t, second)
	wait(t, func() bool { return count() == before })
	_, err := Open(t.Context(), Config{Path: path, bootID: "another", kernelClock: p.s.kernel}) // an Open that fails half way
	wantKind(t, err, ErrOtherBoot)
	wait(t, func() bool { return count() == before })

	contents(t, path) // what must never be done; so the count can change
	if after := count(); after[0] != 0 {
		t.Error("reading the file in this process dropped no lock: this test sees nothing")
	}
}

// A process starts a child while a store shuts down: until the child has become the other program it has copies
// of all open files, and with them their locks. A copy made here stands for it. The next opener comes alone all the same.
func TestLocksDoNotOutliveShutdownInAForkedChild(t *testing.T) {
	t.Parallel()
	h := newHands()
	path := newPath(t)
	s := openWith(t, h.config(path, "one"))
	forked, err := unix.Dup(int(s.side.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(forked)
	shutDown(t, s)
	if next := openWith(t, h.config(path, "two")); next.current == s.current {
		t.Error("the next opener takes itself for one of several")
	}
}
