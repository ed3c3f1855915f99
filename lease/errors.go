package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// The kinds of error that calls return. None satisfies another.
var (
	// ErrHeld: somebody else holds the name. Nothing was written. See [HeldError].
	ErrHeld = errors.New("held")
	// ErrWaitEnded: the wait for a name ended before it was granted. Nothing is held. See [WaitEndedError].
	ErrWaitEnded = errors.New("wait ended")
	// ErrEnded: this session or acquisition is over, for ever. See [EndedError].
	ErrEnded = errors.New("ended")
	// ErrUnknown: the request may or may not have been applied. Repeating it settles which. See [UnknownError].
	ErrUnknown = errors.New("outcome unknown")
	// ErrMismatch: the id or token is known, with other particulars. Nothing was changed. See [MismatchError].
	ErrMismatch = errors.New("mismatch")
	// ErrInvalid: the request makes no sense. Nothing was looked up or changed. See [InvalidError].
	ErrInvalid = errors.New("invalid")
	// ErrUnavailable: the authority could not be asked. The request was certainly not applied. See [UnavailableError].
	ErrUnavailable = errors.New("unavailable")
)

// The causes of ended contexts, as [context.Cause] returns them. No call returns these.
var (
	// ErrLost: the authority said that the lease or session is over. See [LostError].
	ErrLost = errors.New("lost")
	// ErrUncertain: ownership could not be established past the safe deadline. See [UncertainError].
	ErrUncertain = errors.New("uncertain")
)

// HeldError matches [ErrHeld].
type HeldError struct {
	Name  string
	Owner string // the holder's label
	Token fence.Token
	Left  time.Duration // at most, unless renewed
}

// Error names the holder and the time left.
func (e *HeldError) Error() string {
	return fmt.Sprintf("lease: %q is held by %q under token %d for at most %v, unless renewed", e.Name, e.Owner, e.Token, e.Left)
}

// Is makes the error match [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// WaitEndedError matches [ErrWaitEnded].
type WaitEndedError struct {
	Names []string
	Held  *HeldError // the last refusal, or nil if there was none
	Err   error      // why the wait ended: the context's error, or the last failure to ask
}

// Error says what was waited for and who held it last.
func (e *WaitEndedError) Error() string {
	if e.Held != nil {
		return fmt.Sprintf("lease: the wait for %q ended (%v); nothing is held; last seen: %v", e.Names, e.Err, e.Held)
	}
	return fmt.Sprintf("lease: the wait for %q ended (%v); nothing is held", e.Names, e.Err)
}

// Is makes the error match [ErrWaitEnded].
func (e *WaitEndedError) Is(target error) bool { return target == ErrWaitEnded }

// EndedError matches [ErrEnded].
type EndedError struct {
	What   string // "session" or "acquisition"
	ID     fence.ID
	How    End
	Reason string // the operator's, after a revocation
}

// Error says what ended and how.
func (e *EndedError) Error() string {
	text := fmt.Sprintf("lease: %s %s is over: %s", e.What, e.ID, e.How)
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

// Is makes the error match [ErrEnded].
func (e *EndedError) Is(target error) bool { return target == ErrEnded }

// concludedError is the EndedError of a client that answers itself, with the cause of the ended context in its text.
type concludedError struct {
	ended EndedError // How is 0: the authority has not said it
	cause error
}

// Error says what ended and what the client concluded it from.
func (e *concludedError) Error() string {
	return fmt.Sprintf("lease: %s %s is over for this client: %v", e.ended.What, e.ended.ID, e.cause)
}

// Unwrap makes the error match [ErrEnded] and be an [*EndedError]; the cause is none of it.
func (e *concludedError) Unwrap() error { return &e.ended }

// UnknownError matches [ErrUnknown].
type UnknownError struct {
	Op  string // "open", "renew", "close", "acquire", "release", ...
	ID  fence.ID
	Err error // what went wrong, for people; it is not unwrapped
	// Settle says how to learn what happened, where that is not by repeating the request.
	Settle string
}

// Error says that the outcome is unknown and how to settle it.
func (e *UnknownError) Error() string {
	settle := "repeat it under the same id to learn which"
	if e.Settle != "" {
		settle = e.Settle
	}
	return fmt.Sprintf("lease: %s %s may or may not have been applied: %v; %s", e.Op, e.ID, e.Err, settle)
}

// Is makes the error match [ErrUnknown].
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// MismatchError matches [ErrMismatch].
type MismatchError struct {
	What string // what differs: "owner", "ttl", "names", "max hold", "session", "token"
	ID   fence.ID
	Name string      // for a token: the name asked about
	Seen fence.Token // for a token: the latest that was granted
}

// Error says what differs.
func (e *MismatchError) Error() string {
	if e.What == "token" {
		return fmt.Sprintf("lease: the latest token of %q is %d, not the one given; nothing was changed; look again before acting", e.Name, e.Seen)
	}
	return fmt.Sprintf("lease: id %s is in use with another %s; nothing was changed; use a new id for a new request", e.ID, e.What)
}

// Is makes the error match [ErrMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	Field   string
	Problem string
}

// Error names the field and its problem.
func (e *InvalidError) Error() string { return "lease: invalid " + e.Field + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// UnavailableError matches [ErrUnavailable].
type UnavailableError struct {
	Op  string
	Err error // may be unwrapped: it says what stood in the way
}

// Error says that nothing was applied, and why.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("lease: %s was not applied: the authority is unavailable: %v", e.Op, e.Err)
}

// Is makes the error match [ErrUnavailable].
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns what stood in the way.
func (e *UnavailableError) Unwrap() error { return e.Err }

// LostError matches [ErrLost].
type LostError struct {
	How    End
	Reason string // the operator's, after a revocation
}

// Error says how it was lost.
func (e *LostError) Error() string {
	text := "lease: lost: the authority says " + e.How.String()
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

// Is makes the error match [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// UncertainError matches [ErrUncertain].
type UncertainError struct {
	MaxHold bool  // the deadline was MaxHold's, not the session's
	Err     error // the last failure to renew, or nil if none was answered
}

// Error says which deadline passed.
func (e *UncertainError) Error() string {
	if e.MaxHold {
		return "lease: uncertain: the longest hold that was asked for has passed, less the margin"
	}
	if e.Err == nil {
		return "lease: uncertain: the safe deadline passed without a renewal"
	}
	return fmt.Sprintf("lease: uncertain: the safe deadline passed without a renewal: %v", e.Err)
}

// Is makes the error match [ErrUncertain].
func (e *UncertainError) Is(target error) bool { return target == ErrUncertain }

// Code is the kind of an error as text that survives a database, a wire or a file.
type Code string

// codes is the closed set, in the order in which CodeOf asks.
func codes() []struct {
	Code Code
	Kind error
} {
	return []struct {
		Code Code
		Kind error
	}{
		{"held", ErrHeld}, {"wait_ended", ErrWaitEnded}, {"ended", ErrEnded}, {"unknown", ErrUnknown},
		{"mismatch", ErrMismatch}, {"invalid", ErrInvalid}, {"unavailable", ErrUnavailable},
		{"lost", ErrLost}, {"uncertain", ErrUncertain},
		{"refused", fence.ErrRefused}, {"foreign", fence.ErrForeign}, {"ahead", fence.ErrAhead},
	}
}

// CodeOf returns the code of err's kind, "" for nil and "other" for an error of no kind of this package.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	for _, c := range codes() {
		if errors.Is(err, c.Kind) {
			return c.Code
		}
	}
	return "other"
}

// KindOf returns the kind of error that code stands for, or nil for "", "other" and unknown codes.
func KindOf(code Code) error {
	for _, c := range codes() {
		if c.Code == code {
			return c.Kind
		}
	}
	return nil
}
