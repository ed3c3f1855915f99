//go:build !linux

package pgserver

// memoryFolder has no name that other systems agree on.
func memoryFolder() string { return "" }
