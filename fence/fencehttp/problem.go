package fencehttp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// What the two sides send each other.
const (
	// ClaimHeader carries a claim in its text form, exactly once.
	ClaimHeader = "Tenure-Claim"
	// ProblemType is the media type of a refusal.
	ProblemType = "application/problem+json"
	// problemBase is what the type of every problem begins with; its code follows.
	problemBase = "https://github.com/tenure-go/tenure/tree/main/fence/fencehttp#"
)

// Code is the kind of a problem. The set is closed; the zero value is no code.
type Code string

// The codes, and the status of each.
const (
	CodeMissing     Code = "missing"     // 428: a protected request without a claim
	CodeInvalid     Code = "invalid"     // 400: no claim, two of them, or text that is none
	CodeResource    Code = "resource"    // 400: what the request is about is not clear
	CodeRefused     Code = "refused"     // 412: the claim is stale: acquire again
	CodeForeign     Code = "foreign"     // 409: a claim to another lease or of another authority; acquiring again mends nothing
	CodeAhead       Code = "ahead"       // 409: the authority has lost grants that it made; an operator's task
	CodeBusy        Code = "busy"        // 503 with Retry-After: the turn did not come
	CodeFull        Code = "full"        // 503 with Retry-After: no room for another mark
	CodeUnavailable Code = "unavailable" // 503 with Retry-After: the claim could not be checked
)

// CodeOf is the code of an error of [Gate.Do] after which the call was not served.
func CodeOf(err error) Code {
	switch {
	case errors.Is(err, ErrMissing):
		return CodeMissing
	case errors.Is(err, fence.ErrInvalid):
		return CodeInvalid
	case errors.Is(err, ErrResource):
		return CodeResource
	case errors.Is(err, fence.ErrRefused):
		return CodeRefused
	case errors.Is(err, fence.ErrForeign):
		return CodeForeign
	case errors.Is(err, fence.ErrAhead):
		return CodeAhead
	case errors.Is(err, ErrBusy):
		return CodeBusy
	case errors.Is(err, ErrFull):
		return CodeFull
	}
	return CodeUnavailable
}

// status is the HTTP status of a code, and its title.
func (c Code) status() (status int, title string) {
	switch c {
	case CodeMissing:
		return http.StatusPreconditionRequired, "A claim is required"
	case CodeInvalid:
		return http.StatusBadRequest, "The claim cannot be read"
	case CodeResource:
		return http.StatusBadRequest, "The resource is not clear"
	case CodeRefused:
		return http.StatusPreconditionFailed, "The claim is stale"
	case CodeForeign:
		return http.StatusConflict, "The claim is to another lease"
	case CodeAhead:
		return http.StatusConflict, "The token is from the future"
	case CodeBusy:
		return http.StatusServiceUnavailable, "Another request is at work"
	case CodeFull:
		return http.StatusServiceUnavailable, "No room for another resource"
	default:
		return http.StatusServiceUnavailable, "The claim could not be checked"
	}
}

// Problem is the body of a refusal, as RFC 9457 has it. Tokens are strings.
type Problem struct {
	Type      string      `json:"type"`
	Title     string      `json:"title"`
	Status    int         `json:"status"`
	Detail    string      `json:"detail"`
	Code      Code        `json:"code"`
	Resource  string      `json:"resource,omitempty"`
	Authority fence.ID    `json:"authority,omitzero"` // that the resource belongs to, where the claim's is another
	Name      string      `json:"name,omitempty"`     // of the lease that the claim is to; of a foreign claim, that it should be to
	Seen      fence.Token `json:"seen,omitempty"`     // the claim's token
	Newer     fence.Token `json:"newer,omitempty"`    // the newer token that is known
	Issued    fence.Token `json:"issued,omitempty"`   // the highest that the authority knows it issued
	Why       string      `json:"why,omitempty"`      // of a refusal, as [fence.Reason] writes it; of others, what is wrong

	after time.Duration
}

// ProblemOf is what an error of [Gate.Do], after which the call was not served, tells the other side. What an authority or a
// database said is not told: it may name hosts.
func ProblemOf(resource string, err error) Problem {
	code := CodeOf(err)
	p := Problem{Type: problemBase + string(code), Code: code, Resource: resource, Detail: err.Error()}
	p.Status, p.Title = code.status()
	if p.Status == http.StatusServiceUnavailable {
		p.after = time.Second
	}
	var (
		refused *fence.RefusedError
		foreign *fence.ForeignError
		ahead   *fence.AheadError
		busy    *BusyError
		unclear *ResourceError
		invalid *fence.InvalidError
	)
	switch {
	case errors.As(err, &refused):
		p.Name, p.Seen, p.Newer, p.Why = refused.Claim.Name, refused.Claim.Token, refused.Newer, refused.Why.String()
	case errors.As(err, &foreign):
		p.Name, p.Seen, p.Authority = foreign.Name, foreign.Claim.Token, foreign.Authority
	case errors.As(err, &ahead):
		p.Name, p.Seen, p.Issued = ahead.Claim.Name, ahead.Claim.Token, ahead.Issued
	case errors.As(err, &busy):
		p.Why, p.after = busy.Why, busy.After
	case errors.As(err, &unclear):
		p.Why = unclear.Problem
	case errors.As(err, &invalid):
		p.Why = invalid.What + ": " + invalid.Problem
	case code == CodeUnavailable:
		p.Detail = (&UnavailableError{Err: errUnanswered}).Error()
	}
	return p
}

// Respond answers a request with the problem.
func (p Problem) Respond(w http.ResponseWriter) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", ProblemType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if p.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.after+time.Second-1)/time.Second)))
	}
	w.WriteHeader(p.Status)
	_, err = w.Write(body)
	return err
}

// Err is the error that the problem was made of, as far as it tells: of package fence, or one of this package's. claim is what was sent.
func (p Problem) Err(claim fence.Claim) error {
	switch p.Code {
	case CodeMissing:
		return &MissingError{Resource: p.Resource}
	case CodeInvalid:
		what, problem, _ := strings.Cut(p.Why, ": ")
		return &fence.InvalidError{What: what, Problem: problem}
	case CodeResource:
		return &ResourceError{Problem: p.Why}
	case CodeRefused:
		return &fence.RefusedError{Resource: p.Resource, Claim: claim, Why: reasonOf(p.Why), Newer: p.Newer}
	case CodeForeign:
		return &fence.ForeignError{Resource: p.Resource, Claim: claim, Authority: p.Authority, Name: p.Name}
	case CodeAhead:
		return &fence.AheadError{Claim: claim, Issued: p.Issued}
	case CodeBusy:
		return &BusyError{Resource: p.Resource, Why: p.Why, After: p.after}
	case CodeFull:
		return ErrFull
	case CodeUnavailable:
		return &UnavailableError{Err: errUnanswered}
	}
	return nil
}

// reasonOf reads a reason as [fence.Reason] writes it.
func reasonOf(text string) fence.Reason {
	for r := fence.Superseded; r <= fence.NotGranted; r++ {
		if r.String() == text {
			return r
		}
	}
	return fence.NotGranted
}
