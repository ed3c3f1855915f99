package choosing_test

import "golang.org/x/sys/unix"

// addOpenFileLocks adds what Linux has besides: ranges of a file, locked for the open file as flock does for the whole.
func addOpenFileLocks(kinds map[string]fileLock) {
	kinds["open file"] = fileLock{tryRange(unix.F_OFD_SETLK), unlockRange(unix.F_OFD_SETLK), true}
}
