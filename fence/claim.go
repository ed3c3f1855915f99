package fence

import (
	"net/url"
	"strings"
)

// Claim is what travels to a resource as proof of ownership: which authority granted which name, by which
// acquisition, under which token. Owner labels are no part of it. A claim is a value and never changes; it
// may be copied and shared. It is not a secret that grants anything by itself: the resource checks it.
type Claim struct {
	Authority   ID     `json:"authority"`
	Name        string `json:"name"`
	Acquisition ID     `json:"acquisition"`
	Token       Token  `json:"token"`
}

const claimPrefix = "tenure1"

// maxClaimText bounds what ParseClaim looks at: a name of MaxName bytes, each escaped as three.
const maxClaimText = len(claimPrefix) + 2*(1+36) + 1 + 19 + 1 + 3*MaxName

// ParseClaim reads the text form that [Claim.String] writes. Only that exact form is accepted, so two
// different texts never mean the same claim. It returns an error matching [ErrInvalid] for anything else.
func ParseClaim(text string) (Claim, error) {
	if len(text) > maxClaimText {
		return Claim{}, invalid("claim", "too long")
	}
	parts := strings.Split(text, ":")
	if len(parts) != 5 || parts[0] != claimPrefix {
		return Claim{}, invalid("claim", "want "+claimPrefix+":AUTHORITY:ACQUISITION:TOKEN:NAME")
	}
	var c Claim
	var err error
	if c.Authority, err = ParseID(parts[1]); err != nil {
		return Claim{}, err
	}
	if c.Acquisition, err = ParseID(parts[2]); err != nil {
		return Claim{}, err
	}
	if c.Token, err = ParseToken(parts[3]); err != nil {
		return Claim{}, err
	}
	if c.Name, err = url.PathUnescape(parts[4]); err != nil {
		return Claim{}, invalid("claim", "the name is not percent-encoded as it should be")
	}
	if err := c.Check(); err != nil {
		return Claim{}, err
	}
	if c.String() != text {
		return Claim{}, invalid("claim", "not in canonical form")
	}
	return c, nil
}

// Check returns an error matching [ErrInvalid] unless every part of the claim is present and in range.
func (c Claim) Check() error {
	switch {
	case c.Authority.IsZero():
		return invalid("claim", "no authority")
	case c.Acquisition.IsZero():
		return invalid("claim", "no acquisition")
	case c.Token <= 0:
		return invalid("claim", "the token is not positive")
	}
	return CheckName(c.Name)
}

// String is the canonical text form, in printable ASCII without spaces or quotes: it survives HTTP headers and environment
// variables.
func (c Claim) String() string {
	return claimPrefix + ":" + c.Authority.String() + ":" + c.Acquisition.String() + ":" + c.Token.String() + ":" +
		escapeName(c.Name)
}

// For returns a [*ForeignError] unless the claim is one to name. A resource that takes claims from outside
// asks this first: a valid claim to another name proves nothing about this one.
func (c Claim) For(name string) error {
	if c.Name != name {
		return &ForeignError{Resource: name, Claim: c, Authority: c.Authority, Name: name}
	}
	return nil
}

// escapeName percent-encodes all but letters, digits and -._~/ so that neither a separator nor a byte that
// a header or a shell would change remains.
func escapeName(name string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(name) {
		ch := name[i]
		plain := ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || ch >= '0' && ch <= '9' || strings.IndexByte("-._~/", ch) >= 0
		if plain {
			b.WriteByte(ch)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[ch>>4])
		b.WriteByte(hexDigits[ch&15])
	}
	return b.String()
}
