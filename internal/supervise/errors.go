package supervise

import (
	"errors"
	"fmt"
	"syscall"
)

// The kinds of error that [Run] returns. With each of them nothing of the command is running.
var (
	// ErrNotStarted: the command could not be executed. See [NotStartedError].
	ErrNotStarted = errors.New("command not started")
	// ErrGuard: the guard process could not be started, or died before it had started the command. See [GuardError].
	ErrGuard = errors.New("guard not started")
	// ErrLate: the time in which the command may run was over before it was started.
	ErrLate = errors.New("no time left to start the command")
)

// NotStartedError matches [ErrNotStarted].
type NotStartedError struct {
	Path  string
	Err   error // what the system said
	Found bool  // false if there is no such file
}

// Error says what the system said.
func (e *NotStartedError) Error() string { return fmt.Sprintf("cannot run %q: %v", e.Path, e.Err) }

// Is makes the error match [ErrNotStarted].
func (e *NotStartedError) Is(target error) bool { return target == ErrNotStarted }

// Unwrap returns what the system said.
func (e *NotStartedError) Unwrap() error { return e.Err }

// GuardError matches [ErrGuard]. Except on Linux, a guard that was killed in the instant between starting the command and
// saying so looks the same.
type GuardError struct{ Err error }

// Error says why.
func (e *GuardError) Error() string {
	return fmt.Sprintf("the guard process that would stop the command in time could not be started: %v; the command is not running", e.Err)
}

// Is makes the error match [ErrGuard].
func (e *GuardError) Is(target error) bool { return target == ErrGuard }

// Unwrap returns the reason.
func (e *GuardError) Unwrap() error { return e.Err }

// InterruptedError is the cause of the end of a Signals' context.
type InterruptedError struct{ Signal syscall.Signal }

// Error names the signal.
func (e *InterruptedError) Error() string {
	return fmt.Sprintf("interrupted by signal %d (%v)", int(e.Signal), e.Signal)
}
