package wire

import (
	"errors"

	"connectrpc.com/connect"

	"github.com/tenure-go/tenure/fence"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/lease"
)

// Codes of faults. The codes of the other contracts are the words of their errors.
const (
	codeHeld, codeEnded, codeMismatch, codeInvalid = "held", "ended", "mismatch", "invalid"
	codeUnknown, codeUnavailable                   = "unknown", "unavailable"
	codeRefused, codeForeign, codeAhead            = "refused", "foreign", "ahead"
)

// status is what Connect, gRPC and HTTP say of a fault to whoever knows nothing of it.
func status(code string) connect.Code {
	switch code {
	case codeHeld, "taken", "limit":
		return connect.CodeAborted
	case codeInvalid:
		return connect.CodeInvalidArgument
	case codeMismatch:
		return connect.CodeAlreadyExists
	case codeUnavailable:
		return connect.CodeUnavailable
	case "not_found":
		return connect.CodeNotFound
	case "actor", "denied":
		return connect.CodePermissionDenied
	case "shed":
		return connect.CodeResourceExhausted
	case codeUnknown:
		return connect.CodeUnknown
	}
	return connect.CodeFailedPrecondition
}

// Error is err as the error of a call, with its fault. An error of no contract stays without one: nobody knows what it means, so that the caller takes the outcome for unknown.
func Error(err error) error {
	if err == nil {
		return nil
	}
	fault := LeaseFault(err)
	if fault == nil {
		return connect.NewError(connect.CodeUnknown, err)
	}
	return faulty(fault, err)
}

func faulty(fault *v1.Fault, err error) error {
	answer := connect.NewError(status(fault.GetCode()), err)
	detail, encoding := connect.NewErrorDetail(fault)
	if encoding != nil {
		return connect.NewError(connect.CodeUnknown, errors.Join(err, encoding))
	}
	answer.AddDetail(detail)
	return answer
}

// FaultOf is the fault that an authority's answer carries, or nil: then it is no answer of an authority.
func FaultOf(err error) *v1.Fault {
	var answer *connect.Error
	if !errors.As(err, &answer) {
		return nil
	}
	for _, detail := range answer.Details() {
		if value, err := detail.Value(); err == nil {
			if fault, ok := value.(*v1.Fault); ok {
				return fault
			}
		}
	}
	return nil
}

// LeaseFault is an error of lease or fence as a message, or nil.
func LeaseFault(err error) *v1.Fault {
	if f := openFault[*lease.UnknownError, *lease.UnavailableError](err, func(e *lease.UnknownError) *v1.Fault {
		return call(codeUnknown, e.Op, ID(e.ID), e.Err, e.Settle)
	}, func(e *lease.UnavailableError) *v1.Fault { return call(codeUnavailable, e.Op, "", e.Err, "") }); f != nil {
		return f
	}
	if f := fenceFault(err); f != nil {
		return f
	}
	var (
		held     *lease.HeldError
		ended    *lease.EndedError
		mismatch *lease.MismatchError
		invalid  *lease.InvalidError
	)
	switch {
	case errors.As(err, &held):
		return &v1.Fault{Code: codeHeld, Facts: &v1.Fault_Held{Held: &v1.HeldFault{Name: held.Name, Owner: held.Owner, Token: int64(held.Token), Left: duration(held.Left)}}}
	case errors.As(err, &ended):
		return &v1.Fault{Code: codeEnded, Facts: &v1.Fault_Ended{Ended: &v1.EndedFault{What: ended.What, Id: ID(ended.ID), How: v1.End(ended.How), Reason: ended.Reason}}}
	case errors.As(err, &mismatch):
		return &v1.Fault{Code: codeMismatch, Facts: &v1.Fault_Mismatch{Mismatch: &v1.MismatchFault{What: mismatch.What, Id: ID(mismatch.ID), Name: mismatch.Name, Seen: int64(mismatch.Seen)}}}
	case errors.As(err, &invalid):
		return invalidFault(invalid.Field, invalid.Problem, false)
	}
	return nil
}

// openFault is an error that says what is known of a call and not what was answered, or nil. It goes before all others: what it wraps is its cause, and no answer.
func openFault[Unknown, Unavailable error](err error, unknown func(Unknown) *v1.Fault, unavailable func(Unavailable) *v1.Fault) *v1.Fault {
	var open Unknown
	var away Unavailable
	switch {
	case errors.As(err, &open):
		return unknown(open)
	case errors.As(err, &away):
		return unavailable(away)
	}
	return nil
}

func call(code, op, id string, cause error, settle string) *v1.Fault {
	text := ""
	if cause != nil {
		text = cause.Error()
	}
	return &v1.Fault{Code: code, Facts: &v1.Fault_Call{Call: &v1.CallFault{Op: op, Id: id, Cause: text, Settle: settle}}}
}

func invalidFault(field, problem string, claim bool) *v1.Fault {
	return &v1.Fault{Code: codeInvalid, Facts: &v1.Fault_Invalid{Invalid: &v1.InvalidFault{Field: field, Problem: problem, Claim: claim}}}
}

func fenceFault(err error) *v1.Fault {
	var (
		refused *fence.RefusedError
		foreign *fence.ForeignError
		ahead   *fence.AheadError
		invalid *fence.InvalidError
	)
	switch {
	case errors.As(err, &refused):
		return claimFault(codeRefused, &v1.ClaimFault{Resource: refused.Resource, Claim: Claim(refused.Claim), Why: v1.Refusal(refused.Why), Newer: int64(refused.Newer)})
	case errors.As(err, &foreign):
		return claimFault(codeForeign, &v1.ClaimFault{Resource: foreign.Resource, Claim: Claim(foreign.Claim), Authority: ID(foreign.Authority), Name: foreign.Name})
	case errors.As(err, &ahead):
		return claimFault(codeAhead, &v1.ClaimFault{Claim: Claim(ahead.Claim), Issued: int64(ahead.Issued)})
	case errors.As(err, &invalid):
		return invalidFault(invalid.What, invalid.Problem, true)
	}
	return nil
}

func claimFault(code string, facts *v1.ClaimFault) *v1.Fault {
	return &v1.Fault{Code: code, Facts: &v1.Fault_Claim{Claim: facts}}
}

// LeaseError is what LeaseFault was made of, or nil for a fault that this version does not know: then the outcome is unknown.
func LeaseError(f *v1.Fault) error {
	var r reader
	err := r.leaseError(f)
	if r.field != "" {
		return nil
	}
	return err
}

func (r *reader) leaseError(f *v1.Fault) error {
	if !fits(f) {
		return nil
	}
	switch facts := f.GetFacts().(type) {
	case *v1.Fault_Held:
		h := facts.Held
		return &lease.HeldError{Name: h.GetName(), Owner: h.GetOwner(), Token: fence.Token(h.GetToken()), Left: r.span("left", h.GetLeft())}
	case *v1.Fault_Ended:
		e := facts.Ended
		return &lease.EndedError{What: e.GetWhat(), ID: r.id("id", e.GetId()), How: lease.End(e.GetHow()), Reason: e.GetReason()}
	case *v1.Fault_Mismatch:
		m := facts.Mismatch
		return &lease.MismatchError{What: m.GetWhat(), ID: r.id("id", m.GetId()), Name: m.GetName(), Seen: fence.Token(m.GetSeen())}
	case *v1.Fault_Invalid:
		if facts.Invalid.GetClaim() {
			return &fence.InvalidError{What: facts.Invalid.GetField(), Problem: facts.Invalid.GetProblem()}
		}
		return &lease.InvalidError{Field: facts.Invalid.GetField(), Problem: facts.Invalid.GetProblem()}
	case *v1.Fault_Call:
		c := facts.Call
		if f.GetCode() == codeUnknown {
			return &lease.UnknownError{Op: c.GetOp(), ID: r.id("id", c.GetId()), Err: errors.New(c.GetCause()), Settle: c.GetSettle()}
		}
		return &lease.UnavailableError{Op: c.GetOp(), Err: errors.New(c.GetCause())}
	case *v1.Fault_Claim:
		return r.claimError(f.GetCode(), facts.Claim)
	}
	return nil
}

func (r *reader) claimError(code string, c *v1.ClaimFault) error {
	claim, err := ParseClaim(c.GetClaim())
	r.fail("claim", err)
	switch code {
	case codeRefused:
		return &fence.RefusedError{Resource: c.GetResource(), Claim: claim, Why: fence.Reason(c.GetWhy()), Newer: fence.Token(c.GetNewer())}
	case codeForeign:
		return &fence.ForeignError{Resource: c.GetResource(), Claim: claim, Authority: r.id("authority", c.GetAuthority()), Name: c.GetName()}
	case codeAhead:
		return &fence.AheadError{Claim: claim, Issued: fence.Token(c.GetIssued())}
	}
	return nil
}

// fits reports whether the facts are those of the code, so that what a later version means by another code is not taken for one that is known here.
func fits(f *v1.Fault) bool {
	switch f.GetFacts().(type) {
	case *v1.Fault_Held:
		return f.GetCode() == codeHeld
	case *v1.Fault_Ended:
		return f.GetCode() == codeEnded
	case *v1.Fault_Mismatch:
		return f.GetCode() == codeMismatch
	case *v1.Fault_Invalid:
		return f.GetCode() == codeInvalid
	case *v1.Fault_Call:
		return f.GetCode() == codeUnknown || f.GetCode() == codeUnavailable || f.GetCode() == "shed" || f.GetCode() == "denied"
	}
	return true // whoever reads the others asks for the code
}

// Elsewhere reports whether another server may do what this one says it did not.
func Elsewhere(f *v1.Fault) bool { return f.GetCode() == codeUnavailable || f.GetCode() == "shed" }
