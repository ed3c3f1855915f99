//go:build !linux

package main

import "time"

func fileSystem(string) string { return "file system not known" }

// What the processors did is not measured here.

func processTime() time.Duration { return 0 }

func childrenTime() time.Duration { return 0 }

func processorTimes() (busy, total time.Duration, ok bool) { return 0, 0, false }

func familyTime(string) time.Duration { return 0 }
