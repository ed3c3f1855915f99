package fencehttp

import (
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// ReasonDomain is the domain of a refusal's ErrorInfo, in protocols that have one.
const ReasonDomain = "github.com/tenure-go/tenure"

const reasonPrefix = "CLAIM_"

// Reason is the code as protocols with an ErrorInfo spell it: CLAIM_REFUSED.
func (c Code) Reason() string { return reasonPrefix + strings.ToUpper(string(c)) }

// After is when asking again makes sense; 0 where it does not.
func (p Problem) After() time.Duration { return p.after }

// Facts are what the problem tells beside its code and its detail, as text: for protocols that carry no JSON.
func (p Problem) Facts() map[string]string {
	facts := map[string]string{}
	for _, f := range []struct{ key, value string }{
		{"resource", p.Resource}, {"name", p.Name}, {"why", p.Why}, {"seen", digits(p.Seen)}, {"newer", digits(p.Newer)}, {"issued", digits(p.Issued)},
	} {
		if f.value != "" {
			facts[f.key] = f.value
		}
	}
	if !p.Authority.IsZero() {
		facts["authority"] = p.Authority.String()
	}
	return facts
}

// ProblemFrom is the problem that an ErrorInfo tells, and whether it is one of this package's.
func ProblemFrom(domain, reason, detail string, facts map[string]string, after time.Duration) (p Problem, ok bool) {
	code, ok := strings.CutPrefix(reason, reasonPrefix)
	if !ok || domain != ReasonDomain {
		return p, false
	}
	p = Problem{Code: Code(strings.ToLower(code)), Detail: detail, Resource: facts["resource"], Name: facts["name"], Why: facts["why"], after: after}
	p.Type = problemBase + string(p.Code)
	p.Status, p.Title = p.Code.status()
	p.Seen, p.Newer, p.Issued = token(facts["seen"]), token(facts["newer"]), token(facts["issued"])
	if id, err := fence.ParseID(facts["authority"]); err == nil {
		p.Authority = id
	}
	return p, p.Err(fence.Claim{}) != nil
}

// digits is a token, or nothing for none.
func digits(t fence.Token) string {
	if t == 0 {
		return ""
	}
	return t.String()
}

// token is a token that another side tells, or 0.
func token(text string) fence.Token {
	t, err := fence.ParseToken(text)
	if err != nil {
		return 0
	}
	return t
}
