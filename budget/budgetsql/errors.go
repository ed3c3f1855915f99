package budgetsql

import "errors"

// otherCallsError is a failure that carries what is known of another call beside this one's. It matches what that matches, and hides what would be taken for this statement's class.
type otherCallsError struct{ err error }

// Error is the failure's.
func (e *otherCallsError) Error() string { return e.err.Error() }

// Is reports whether the failure matches.
func (e *otherCallsError) Is(target error) bool { return errors.Is(e.err, target) }
