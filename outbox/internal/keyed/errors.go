package keyed

import (
	"errors"
	"fmt"
)

// errBehind is of a message that was not sent because the one before it in its key was not acknowledged.
var errBehind = errors.New("not sent, because an earlier message of its key was not acknowledged")

// PanicError is of a call that panicked.
type PanicError struct{ Value any }

// Error says with what.
func (e *PanicError) Error() string {
	return fmt.Sprintf("the destination's client panicked: %v", e.Value)
}
