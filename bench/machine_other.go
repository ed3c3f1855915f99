//go:build !linux

package main

import "time"

func fileSystem(string) string { return "file system not known" }

// processTime is not measured here.
func processTime() time.Duration { return 0 }
