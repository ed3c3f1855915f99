package fence

import (
	"errors"
	"fmt"
)

// The kinds of error. None satisfies another.
var (
	// ErrInvalid: the input is not a name, token, id or claim. Nothing was looked up or changed.
	ErrInvalid = errors.New("invalid")
	// ErrRefused: the claim is stale. The protected resource was not changed. See [RefusedError].
	ErrRefused = errors.New("refused")
	// ErrForeign: the claim is of another authority or to another name than the resource's. See [ForeignError].
	ErrForeign = errors.New("foreign claim")
	// ErrAhead: the claim's token is above what its authority has issued. See [AheadError].
	ErrAhead = errors.New("token from the future")
)

// Reason says why a claim was refused. The zero value is no reason.
type Reason int

// The reasons for a refusal.
const (
	Superseded   Reason = iota + 1 // a newer token was granted, or accepted at the mark
	Released                       // the holder released the lease, or closed its session
	Expired                        // the session's TTL or the lease's MaxHold passed
	Revoked                        // an operator took the lease away
	NotGranted                     // no such acquisition of this name is known
	NotPresented                   // the write came without a claim to the name; the claim of the error has the name alone
)

// String is the reason as error texts use it.
func (r Reason) String() string {
	switch r {
	case Superseded:
		return "superseded"
	case Released:
		return "released"
	case Expired:
		return "expired"
	case Revoked:
		return "revoked"
	case NotGranted:
		return "not granted"
	case NotPresented:
		return "not presented"
	}
	return fmt.Sprintf("Reason(%d)", int(r))
}

// RefusedError matches [ErrRefused]: the resource refused a stale claim and was not changed.
type RefusedError struct {
	Resource string
	Claim    Claim
	Why      Reason
	Newer    Token // the newer token that is known, or 0
}

// Error names the resource, the token seen, the newer one and what to do.
func (e *RefusedError) Error() string {
	newer := ""
	if e.Newer > 0 {
		newer = fmt.Sprintf(", newer token %d", e.Newer)
	}
	if e.Why == NotPresented {
		return fmt.Sprintf("fence: %q refused a write without a claim to lease %q%s; nothing was written; acquire the lease and present its claim in the transaction that writes",
			e.Resource, e.Claim.Name, newer)
	}
	return fmt.Sprintf("fence: %q refused token %d of lease %q: %s%s; nothing was written; acquire the lease again before writing",
		e.Resource, e.Claim.Token, e.Claim.Name, e.Why, newer)
}

// Is makes the error match [ErrRefused].
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// ForeignError matches [ErrForeign].
type ForeignError struct {
	Resource  string
	Claim     Claim
	Authority ID     // the authority that the resource belongs to
	Name      string // the name that guards the resource
}

// Error names both sides and what to do.
func (e *ForeignError) Error() string {
	if e.Claim.Authority != e.Authority {
		return fmt.Sprintf("fence: %q belongs to authority %s, the claim is of authority %s; nothing was written; check that both sides use the same store",
			e.Resource, e.Authority, e.Claim.Authority)
	}
	return fmt.Sprintf("fence: %q is guarded by lease %q, the claim is to %q; nothing was written; claim the guarding name or admit this one for the resource",
		e.Resource, e.Name, e.Claim.Name)
}

// Is makes the error match [ErrForeign].
func (e *ForeignError) Is(target error) bool { return target == ErrForeign }

// AheadError matches [ErrAhead]: the authority has lost grants that it made, as after a restored backup.
type AheadError struct {
	Claim  Claim
	Issued Token // the highest token the authority knows of
}

// Error says what is known and what to do.
func (e *AheadError) Error() string {
	return fmt.Sprintf("fence: token %d of lease %q is above %d, the highest that this authority knows it issued; its store was probably restored from a copy; nothing was written; run `tenure epoch raise --above %d`",
		e.Claim.Token, e.Claim.Name, e.Issued, e.Claim.Token)
}

// Is makes the error match [ErrAhead].
func (e *AheadError) Is(target error) bool { return target == ErrAhead }

// InvalidError matches [ErrInvalid].
type InvalidError struct {
	What    string // the part of the input: "name", "token", "id", "claim"
	Problem string
}

// Error names the part and what is wrong with it.
func (e *InvalidError) Error() string { return "fence: invalid " + e.What + ": " + e.Problem }

// Is makes the error match [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(what, problem string) error { return &InvalidError{What: what, Problem: problem} }
