package budgethttp

import (
	"errors"
	"net/http"
	"strconv"
)

// StatusError is an answer of 400 or above.
type StatusError struct{ Code int }

// Error is the code and its text.
func (e *StatusError) Error() string {
	return "the service answered " + strconv.Itoa(e.Code) + " " + http.StatusText(e.Code)
}

// otherCallsError is a failure that carries what is known of another call, such as the one whose answer was to be this request's body. It matches what that matches, and hides what would be
// taken for this request's class.
type otherCallsError struct{ err error }

// Error is the failure's.
func (e *otherCallsError) Error() string { return e.err.Error() }

// Is reports whether the failure matches.
func (e *otherCallsError) Is(target error) bool { return errors.Is(e.err, target) }
