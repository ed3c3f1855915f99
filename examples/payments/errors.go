package payments

import (
	"errors"
	"fmt"
)

// The kinds of error. None satisfies another.
var (
	// ErrTerms: two promises of a provider contradict each other, so that nothing can be concluded from them. Nothing was started.
	ErrTerms = errors.New("contradictory terms")
	// ErrNoCharge: the operation has succeeded, and the provider's id of the charge is not stored, so that nobody can name what to refund. See [NoChargeError].
	ErrNoCharge = errors.New("the charge has no id")
	// errAnswer: the provider answered something that this client does not understand, so that the outcome is unknown.
	errAnswer = errors.New("an answer that is none")
)

// NoChargeError matches [ErrNoCharge].
type NoChargeError struct {
	ID string // of the operation
}

// Error says what is known and what to do.
func (e *NoChargeError) Error() string {
	return fmt.Sprintf("payments: %q has succeeded, and the provider's id of its charge is not stored: look it up at the provider, and refund it there", e.ID)
}

// Is makes the error match [ErrNoCharge].
func (e *NoChargeError) Is(target error) bool { return target == ErrNoCharge }
