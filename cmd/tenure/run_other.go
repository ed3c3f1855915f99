//go:build !unix

package main

import (
	"context"
	"runtime"
)

// runUnderLease refuses: without process groups a command could not be stopped with all that it started.
func (a *app) runUnderLease(context.Context, runOptions) error {
	return usagef("tenure run is not available on %s: it could not stop a command with all that it started", runtime.GOOS)
}
