package budgethttp

import (
	"net/http"
	"strconv"
)

// StatusError is an answer of 400 or above.
type StatusError struct{ Code int }

// Error is the code and its text.
func (e *StatusError) Error() string {
	return "the service answered " + strconv.Itoa(e.Code) + " " + http.StatusText(e.Code)
}
