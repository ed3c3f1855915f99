package admission

import (
	"errors"
	"fmt"
	"time"
)

// The kind of error of this package; options that make no sense are a budget.ErrInvalid.
var (
	// ErrShed: there was no room for this, or no time; it was not started. See [ShedError].
	ErrShed = errors.New("shed")
)

// Why is the reason for shedding, for a person and for metrics.
type Why string

// The reasons.
const (
	Full   Why = "as many wait as may"
	Waited Why = "it has waited as long as it may"
	NoTime Why = "its caller has no time left" // nobody would have got the answer
)

// ShedError is what was shed, as [Limiter.Acquire] returns it within a budget.Error. It matches [ErrShed], and its Cause where it has one.
type ShedError struct {
	Priority Priority
	Why      Why
	Waited   time.Duration
	Limit    int   // how many could run then
	InFlight int   // how many did
	Queued   int   // how many of this priority waited
	Cause    error // with NoTime: that of the caller's context, or an error matching budget.ErrNoTime; nil otherwise
}

// Error says why, and how busy it was.
func (e *ShedError) Error() string {
	return fmt.Sprintf("admission: %v was not let in after %v: %s (%d in flight with a limit of %d, %d waiting); it was not started", e.Priority, e.Waited.Round(time.Millisecond), e.Why, e.InFlight, e.Limit, e.Queued)
}

// Is makes the error match [ErrShed].
func (e *ShedError) Is(target error) bool { return target == ErrShed }

// Unwrap returns the cause.
func (e *ShedError) Unwrap() error { return e.Cause }
