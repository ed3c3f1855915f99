//go:build unix && !linux

package choosing_test

// addOpenFileLocks adds nothing: locks of ranges are the process's own here.
func addOpenFileLocks(map[string]fileLock) {}
