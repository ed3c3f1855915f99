package s3

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/tenure-go/tenure/fence/object"
)

// The kinds of error of this package's own. None satisfies another.
var (
	// ErrOption: the options name no bucket, or contradict each other. Nothing was sent.
	ErrOption = errors.New("options do not fit")
	// ErrUnsupported: the store does not keep the conditions of a PUT. See [UnsupportedError].
	ErrUnsupported = errors.New("no conditional writes")
)

// UnsupportedError matches [ErrUnsupported]: objects in this store cannot be fenced.
type UnsupportedError struct {
	Store string // endpoint and bucket, and what the server calls itself
	Sent  string
	Seen  string
	Want  string
}

// Error names the store, what was sent and what was seen.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("s3: %s: %s was answered with %s, want %s; this store, or what stands in front of it, does not keep the conditions of a PUT, and a stale write could not be refused; use a store that does",
		e.Store, e.Sent, e.Seen, e.Want)
}

// Is makes the error match [ErrUnsupported].
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

// putError puts the outcome of a PUT into the words of package object, by status and code, never by text. What is not known to be a refusal
// stays as it is: such a PUT may have been applied.
func putError(err error) error {
	if err == nil {
		return nil
	}
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) || answer.StatusCode == 0 {
		if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
			return fmt.Errorf("%w: the store was not reached: %w", object.ErrRejected, err)
		}
		return err
	}
	answered := fmt.Errorf("the store answered %s", said(answer))
	switch answer.StatusCode {
	case http.StatusPreconditionFailed, http.StatusConflict: // 409: another conditional write was under way
		return fmt.Errorf("%w: %w", object.ErrConflict, answered)
	case http.StatusNotFound:
		if answer.Code == minio.NoSuchKey { // If-Match, and there is no object
			return fmt.Errorf("%w: %w", object.ErrConflict, answered)
		}
		return fmt.Errorf("%w: %w", object.ErrRejected, answered)
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusLengthRequired,
		http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge, http.StatusNotImplemented:
		return fmt.Errorf("%w: %w", object.ErrRejected, answered)
	}
	return answered
}

// said is an answer in words.
func said(answer minio.ErrorResponse) string {
	return fmt.Sprintf("%d %s (%s)", answer.StatusCode, answer.Code, answer.Message)
}
