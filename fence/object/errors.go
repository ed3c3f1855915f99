package object

import (
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/fence"
)

// The kinds of error, beside those of package fence. None satisfies another.
var (
	// ErrAbsent: there is no such object, or it was deleted. Its mark may be there.
	ErrAbsent = errors.New("no such object")
	// ErrConflict: what a [Bucket] says when the condition of a PUT did not hold, so that nothing was written. Callers of this package do
	// not see it.
	ErrConflict = errors.New("the object has changed")
	// ErrRejected: the store answered with an error that says that it wrote nothing, or was not reached.
	ErrRejected = errors.New("not written")
	// ErrUnknown: the write may or may not have been applied. See [UnknownError].
	ErrUnknown = errors.New("outcome unknown")
	// ErrBusy: others changed the object in between, each time that it was tried. Nothing was written; try again.
	ErrBusy = errors.New("too much contention")
	// ErrFormat: the object was not written by this package, or was damaged. See [FormatError].
	ErrFormat = errors.New("not a guarded object")
	// ErrTooLarge: the content is larger than [MaxContent]. See [SizeError].
	ErrTooLarge = errors.New("too large")
)

// UnknownError matches [ErrUnknown]: a PUT was sent and its answer was lost, and what the object holds does not tell.
type UnknownError struct {
	Key   string
	Claim fence.Claim
	Newer fence.Token // of a successor that has written since, if one is known
	Err   error       // of the request whose answer was lost
}

// Error says what is known and what to do.
func (e *UnknownError) Error() string {
	if e.Newer > 0 {
		return fmt.Sprintf("object: the write to %q under token %d may have been applied, and token %d of %q has written since: it cannot be applied any more; look at the content, and acquire the lease again before writing: %v",
			e.Key, e.Claim.Token, e.Newer, e.Claim.Name, e.Err)
	}
	return fmt.Sprintf("object: the write to %q under token %d of %q may have been applied: repeat the same call, which settles it: %v",
		e.Key, e.Claim.Token, e.Claim.Name, e.Err)
}

// Is makes the error match [ErrUnknown].
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// Unwrap is the error of the request.
func (e *UnknownError) Unwrap() error { return e.Err }

// FormatError matches [ErrFormat]. Nothing was written.
type FormatError struct {
	Key     string
	Problem string
}

// Error says what was found and what to do.
func (e *FormatError) Error() string {
	return fmt.Sprintf("object: %q is not as this package writes it: %s; nothing was written; somebody writes it without a claim, or it was never guarded: Adopt guards what is there, when nobody writes it any other way",
		e.Key, e.Problem)
}

// Is makes the error match [ErrFormat].
func (e *FormatError) Is(target error) bool { return target == ErrFormat }

// SizeError matches [ErrTooLarge]. Nothing was sent.
type SizeError struct {
	Key  string
	Size int64 // bytes
}

// Error says what to do with large content.
func (e *SizeError) Error() string {
	return fmt.Sprintf("object: %q: %d bytes of content, the most is %d: one conditional PUT holds it all; nothing was written; put large data under a key that is never written again, and guard an object that names that key",
		e.Key, e.Size, MaxContent)
}

// Is makes the error match [ErrTooLarge].
func (e *SizeError) Is(target error) bool { return target == ErrTooLarge }

func rejected(op, key string, err error) error {
	return fmt.Errorf("object: %s %q: %w; nothing was written", op, key, err)
}
