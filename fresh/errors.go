package fresh

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// The kinds of error. None satisfies another, but for the causes that they wrap.
var (
	// ErrInvalid: the arguments make no sense. Nothing was asked. See [InvalidError].
	ErrInvalid = errors.New("invalid")
	// ErrAway: the source did not answer, and there is no value that may be served instead. See [AwayError].
	ErrAway = errors.New("source away")
	// ErrBusy: as many loads as are allowed are running and waiting; this one was not begun. It is a cause of [AwayError].
	ErrBusy = errors.New("too many loads")
	// ErrNoAnswer: a load has not returned within its time. It is a cause of [AwayError].
	ErrNoAnswer = errors.New("no answer yet")
	// ErrPending: the request was recorded and not carried out; ask what became of it. See [PendingError].
	ErrPending = errors.New("left pending")
)

// Causes that nobody has a use for apart from reading them.
var (
	errExited = errors.New("the load ended its goroutine")
	errLate   = errors.New("its answer was too old when it came")
	errStale  = errors.New("nobody said why")
)

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field   string
	Problem string
}

// Error names the field and what is wrong with it.
func (e *InvalidError) Error() string { return "fresh: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// AwayError matches [ErrAway], and whatever its Cause matches; [budget.ClassOf] finds the class of a cause that has one.
type AwayError struct {
	Route string        // by whose policy it was refused; empty: by the cache
	Old   bool          // there is a value, and it is too old to be served
	Age   time.Duration // of that value
	Cause error         // why the source did not answer; never nil
}

// Error says what is there instead, and why the source did not answer.
func (e *AwayError) Error() string {
	what := "there is no value to serve instead"
	switch {
	case e.Old:
		what = fmt.Sprintf("the value that is kept is %v old, too old to be served", e.Age.Round(time.Millisecond))
	case e.Route != "":
		what = "route " + e.Route + " refuses then"
	}
	return fmt.Sprintf("fresh: the source did not answer, and %s: %v", what, e.Cause)
}

// Is makes the error match [ErrAway].
func (e *AwayError) Is(target error) bool { return target == ErrAway }

// Unwrap returns the cause.
func (e *AwayError) Unwrap() error { return e.Cause }

// PanicError is a load that panicked, as each of its waiters gets it in an [AwayError].
type PanicError struct {
	Value any    // that it panicked with
	Stack []byte // where
}

// Error is the value. The stack is left to whoever logs it.
func (e *PanicError) Error() string { return fmt.Sprintf("the load panicked: %v", e.Value) }

// PendingError matches [ErrPending]. It does not match what Cause matches, so that nobody repeats a request which was recorded.
type PendingError struct {
	Route string
	Ref   string       // under which to ask what became of it
	Class budget.Class // what was known of the request when it was recorded
	Cause error        // why it was not carried out
}

// Error says that it was taken, and under what reference to ask.
func (e *PendingError) Error() string {
	return fmt.Sprintf("fresh: the request to %s was recorded as %q (%v) and is pending: ask what became of it, and do not send it again; the source did not answer: %v", e.Route, e.Ref, e.Class, e.Cause)
}

// Is makes the error match [ErrPending].
func (e *PendingError) Is(target error) bool { return target == ErrPending }

// NotRecordedError is a request that was to be left pending and could not be recorded. It matches [ErrAway], and what both errors match, and has the class of the one that proves least.
type NotRecordedError struct {
	Route  string
	Cause  error // why it was not carried out
	Record error // why it was not recorded, as far as is known
}

// Error says both.
func (e *NotRecordedError) Error() string {
	return fmt.Sprintf("fresh: the source of %s did not answer (%v), and the request could not be recorded: %v; nobody has promised to carry it out", e.Route, e.Cause, e.Record)
}

// Is makes the error match [ErrAway].
func (e *NotRecordedError) Is(target error) bool { return target == ErrAway }

// Unwrap returns both, joined: the request may have been done where one of them leaves that open, because a record that was made all the same is carried out.
func (e *NotRecordedError) Unwrap() error { return errors.Join(e.Cause, e.Record) }
