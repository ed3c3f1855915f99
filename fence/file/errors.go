package file

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// The kinds of [Error]. None satisfies another. But for [ErrUnknown] the content was not changed; the mark may have been raised.
var (
	// ErrBusy: the context ended while others had the lock. The error names the process that had it last.
	ErrBusy = errors.New("locked by another")
	// ErrUnknown: the content may or may not have been changed, whole. Read it, or do the same again.
	ErrUnknown = errors.New("outcome unknown")
	// ErrNoMark: the file is there and its side file is not, or is empty.
	ErrNoMark = errors.New("no mark")
	// ErrCorrupt: neither copy of the state in the side file can be read.
	ErrCorrupt = errors.New("mark unreadable")
	// ErrNewer: a newer Tenure has written the side file.
	ErrNewer = errors.New("newer side file")
	// ErrReplaced: the side file is not the one that was opened.
	ErrReplaced = errors.New("side file replaced while in use")
	// ErrChanged: the content is not what the last operation left.
	ErrChanged = errors.New("changed by another program")
	// ErrNotPlain: the file or its side file is no regular file, or has a second name.
	ErrNotPlain = errors.New("no plain file")
	// ErrNoLocks: the file system's locks do not exclude others, or are not known to.
	ErrNoLocks = errors.New("no locks to rely on")
	// ErrNoSync: the folder cannot be made durable.
	ErrNoSync = errors.New("folder cannot be made durable")
	// ErrNoNumbers: the file system does not number its files lastingly.
	ErrNoNumbers = errors.New("files without lasting numbers")
	// ErrTooLarge: the content is larger than Options.MaxSize.
	ErrTooLarge = errors.New("too large")
	// ErrFull: no space is left, or a limit on the size of files or a quota is reached.
	ErrFull = errors.New("disk full")
	// ErrDenied: the file, its side file or their folder may not be read or written.
	ErrDenied = errors.New("permission denied")
	// ErrIO: the system failed otherwise; the cause is wrapped.
	ErrIO = errors.New("input or output failed")
)

// Error says what is wrong with a guarded file, what is known, and what to do. Refused claims are not of
// this type: they come as the errors of package fence.
type Error struct {
	Path   string // of the guarded file
	Op     string // "open", "read", "enter", "update", "replace", "append", "allow"
	Kind   error
	Detail string
	Err    error // the cause, or nil
}

// Error names the file, the problem and the remedy.
func (e *Error) Error() string {
	text := fmt.Sprintf("file: %s of %s: %v", e.Op, e.Path, e.Kind)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is makes the error match its kind.
func (e *Error) Is(target error) bool { return target == e.Kind }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// fault is an error of a kind, without its path and operation, which are put in where it leaves the package.
func fault(kind error, detail string, cause error) error {
	return &Error{Kind: kind, Detail: detail, Err: cause}
}

// unknown is the error of a change that may or may not be durable.
func unknown(cause error) error {
	return fault(ErrUnknown, "it may be there or not, but whole; read the file, or do the same again", cause)
}

// describe turns an error of the system into one that says what to do. It decides by code, never by text.
func (f *File) describe(op string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		e.Path, e.Op = f.path, op
		return err
	}
	e := &Error{Path: f.path, Op: op, Kind: ErrIO, Detail: "the content was not changed", Err: err}
	switch {
	case isFull(err):
		e.Kind, e.Detail = ErrFull, "the content was not changed; free some space and try again"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Kind, e.Detail = ErrDenied, "the content was not changed; the file, its side file and their folder must be readable and writable"
	}
	return e
}
