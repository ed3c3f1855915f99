package tune

import (
	"errors"
	"fmt"
)

// ErrInput matches every error about what was given: a setting out of range, or a file that is no histogram.
var ErrInput = errors.New("tune: input makes no sense")

// ErrTooFew matches the error of a sample that ended before it could say anything.
var ErrTooFew = errors.New("tune: too few renewals were measured")

// InputError says which input is wrong and what is wanted. It matches [ErrInput].
type InputError struct {
	What string // the setting or the file
	Why  string
}

func (e *InputError) Error() string { return e.What + ": " + e.Why }

// Is makes errors.Is(err, ErrInput) true.
func (e *InputError) Is(target error) bool { return target == ErrInput }

func wrongf(what, format string, args ...any) error {
	return &InputError{What: what, Why: fmt.Sprintf(format, args...)}
}
