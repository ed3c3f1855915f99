//go:build unix

package main

import "github.com/tenure-go/tenure/internal/supervise"

// guardWord is the first argument of the process that `tenure run` starts to stop its command in time.
const guardWord = "run-guard"

// guard runs as that process, if it is it.
func guard(args []string) (code int, ok bool) {
	if len(args) == 0 || args[0] != guardWord {
		return 0, false
	}
	return supervise.Guard(args[1:]), true
}
