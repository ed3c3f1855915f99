package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/outbox"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// The kinds of [FileError]. None satisfies another.
var (
	// ErrForeignFile: the file is not a database, or one of another program.
	ErrForeignFile = errors.New("another program's file")
	// ErrNewerSchema: a newer Tenure has written the file.
	ErrNewerSchema = errors.New("newer schema")
	// ErrOlderSchema: an older Tenure has written the file, and no store of this version has opened it yet.
	ErrOlderSchema = errors.New("older schema")
	// ErrReplaced: the path leads to another file than the one that is in use.
	ErrReplaced = errors.New("file replaced while in use")
	// ErrStaleLog: the file stands beside the write-ahead log of another one.
	ErrStaleLog = errors.New("write-ahead log of another file")
	// ErrOtherBoot: the file is in use under another kernel: on another machine, or before a reboot.
	ErrOtherBoot = errors.New("in use under another kernel")
	// ErrReadOnly: the file or its folder cannot be written.
	ErrReadOnly = errors.New("read-only")
	// ErrFull: no space is left.
	ErrFull = errors.New("disk full")
	// ErrSettings: the database, or the connection, does not keep the settings that durability or [Present] needs.
	ErrSettings = errors.New("unsafe settings")
	// errOtherAuthority: a transaction on another file was handed over.
	errOtherAuthority = errors.New("the transaction is on another authority's file than the store")
	// errAgain: a batch has handled as many lines of holds as one transaction may. What expired holds it has freed is committed, and the call goes on in another.
	errAgain = errors.New("more lines of holds are to be handled")
	// ErrShutDown: the store was shut down by its own process.
	ErrShutDown = errors.New("shut down")
)

// FileError says what is wrong with the database file and what to do. The database was not changed; the side file
// FILE-tenure may have been made beside it.
type FileError struct {
	Path   string
	Kind   error
	Detail string
	Err    error // the cause, or nil
}

// Error names the file, the problem and the remedy.
func (e *FileError) Error() string {
	text := fmt.Sprintf("sqlite: %s: %v", e.Path, e.Kind)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is makes the error match its kind.
func (e *FileError) Is(target error) bool { return target == e.Kind }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// RowError matches [fence.ErrRefused]: a protected table refused to have a row written, and the whole statement was undone. It holds a
// [*fence.RefusedError] for [errors.As]; which row it was, and so which token was needed, a trigger of SQLite's cannot say.
type RowError struct {
	Table     string        // as it was called when it was protected
	Name      string        // the expression that names the row's lease
	Why       string        // and what to do
	Presented []fence.Claim // by the transaction, as far as [FenceError] was told
	Err       error         // the driver's
}

// Error is the trigger's own text, which other programs see as well, and which claims were presented, if that is known.
func (e *RowError) Error() string {
	const most = 3
	text := refusalPrefix + strconv.Quote(e.Table) + ", written under the lease " + strconv.Quote(e.Name) + ": " + e.Why
	for i, c := range e.Presented {
		if i == most {
			return text + fmt.Sprintf(", and %d more", len(e.Presented)-most)
		}
		text += [...]string{"; presented were ", ", "}[min(i, 1)] + fmt.Sprintf("token %d of lease %q", c.Token, c.Name)
	}
	return text
}

// Unwrap returns the refusal as package fence knows it, with the claim if just one was presented, and the driver's error.
func (e *RowError) Unwrap() []error {
	refused := &fence.RefusedError{Resource: e.Table, Why: fence.NotGranted}
	if len(e.Presented) == 1 {
		refused.Claim = e.Presented[0]
	}
	return []error{refused, e.Err}
}

// extendedCode is SQLite's whole result code, or 0 for an error that is not SQLite's.
func extendedCode(err error) int {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e.Code()
	}
	return 0
}

// resultCode is SQLite's primary result code, or 0 for an error that is not SQLite's.
func resultCode(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// describe turns the driver's and the system's errors into ones that say what to do. It decides by code, never by text.
func (s *Store) describe(err error) error {
	const (
		full     = "free some space and try again"
		readOnly = "make the file and its folder writable"
	)
	switch resultCode(err) {
	case lib.SQLITE_FULL:
		return &FileError{Path: s.path, Kind: ErrFull, Detail: full, Err: err}
	case lib.SQLITE_READONLY, lib.SQLITE_PERM:
		return &FileError{Path: s.path, Kind: ErrReadOnly, Detail: readOnly, Err: err}
	case lib.SQLITE_CANTOPEN:
		return &FileError{Path: s.path, Kind: ErrReadOnly, Detail: "the file or its folder is missing or cannot be written", Err: err}
	case lib.SQLITE_NOTADB, lib.SQLITE_CORRUPT:
		return &FileError{Path: s.path, Kind: ErrForeignFile, Detail: "it is no intact SQLite database", Err: err}
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return fmt.Errorf("a program that does not take Tenure's turns has kept %s from being written; end its transaction", s.path)
	}
	if _, typed := errors.AsType[*FileError](err); typed {
		return err
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return &FileError{Path: s.path, Kind: ErrFull, Detail: full, Err: err}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return &FileError{Path: s.path, Kind: ErrReadOnly, Detail: readOnly, Err: err}
	}
	return err
}

// failed is the error of a transaction that did not come to an acknowledged end. Only a COMMIT that met an
// I/O error leaves the outcome open: its record may be in the log all the same.
func (s *Store) failed(op string, id fence.ID, committing bool, err error) error {
	if committing && resultCode(err) != lib.SQLITE_FULL && resultCode(err) != lib.SQLITE_BUSY {
		return &lease.UnknownError{Op: op, ID: id, Err: s.describe(err)}
	}
	return &lease.UnavailableError{Op: op, Err: s.describe(err)}
}

// asOperationError is the writer's error, as package operation has it, of a call about the operation with the id.
func asOperationError(id string, err error) error {
	if unknown, ok := errors.AsType[*lease.UnknownError](err); ok {
		return &operation.UnknownError{Op: unknown.Op, ID: id, Err: unknown.Err}
	}
	if unavailable, ok := errors.AsType[*lease.UnavailableError](err); ok {
		return &operation.UnavailableError{Op: unavailable.Op, Err: unavailable.Err}
	}
	return err
}

// asHoldError is the writer's error, as package hold has it, of a call about the hold with the id.
func asHoldError(id fence.ID, err error) error {
	if unknown, ok := errors.AsType[*lease.UnknownError](err); ok {
		return &hold.UnknownError{Op: unknown.Op, ID: id, Err: unknown.Err}
	}
	if unavailable, ok := errors.AsType[*lease.UnavailableError](err); ok {
		return &hold.UnavailableError{Op: unavailable.Op, Err: unavailable.Err}
	}
	return err
}

// asOutboxError is the writer's error, as package outbox has it.
func asOutboxError(err error) error {
	if unknown, ok := errors.AsType[*lease.UnknownError](err); ok {
		return &outbox.UnknownError{Op: unknown.Op, Err: unknown.Err}
	}
	if unavailable, ok := errors.AsType[*lease.UnavailableError](err); ok {
		return &outbox.UnavailableError{Op: unavailable.Op, Err: unavailable.Err}
	}
	return err
}

// asInboxError is the writer's error, as package inbox has it.
func asInboxError(err error) error {
	if unknown, ok := errors.AsType[*lease.UnknownError](err); ok {
		return &inbox.UnknownError{Op: unknown.Op, Err: unknown.Err}
	}
	if unavailable, ok := errors.AsType[*lease.UnavailableError](err); ok {
		return &inbox.UnavailableError{Op: unavailable.Op, Err: unavailable.Err}
	}
	return err
}
