//go:build unix && !linux

package supervise

import "syscall"

// dieWithParent does nothing: this system has no parent-death signal. If the guard is killed, the supervisor
// kills the group.
func dieWithParent(*syscall.SysProcAttr) {}

// adoptOrphans does nothing: init reaps orphans here.
func adoptOrphans() {}

// onlyZombies cannot tell here.
func onlyZombies(int) bool { return false }

// orphanedGroup cannot tell here: orphans are init's.
func orphanedGroup(uint64) int { return 0 }

func startOf(int) uint64 { return 0 }
