package fencehttp

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tenure-go/tenure/fence"
)

// Check decides about a claim to a resource. It is what differs between the two rules of package fence.
type Check interface {
	// Within decides, and if the claim is good calls serve, once, and returns its error. It may keep the
	// holder's successors out until serve has returned, and end serve's context when it no longer can; an error after serve has
	// returned nil says that it could not. Otherwise it returns an error without calling serve: one of package fence's where it
	// refuses, and any other where it could not decide: the request is then not let in either.
	//
	// resource was checked by [CheckResource], and claim by its Check; that the claim is to the name that guards the resource is
	// for Within only where [GateOptions].Name does not tell. Safe for concurrent use.
	Within(ctx context.Context, resource string, claim fence.Claim, serve func(ctx context.Context) error) error
}

// CheckFunc is a [Check] that decides and keeps nobody out afterwards.
type CheckFunc func(ctx context.Context, resource string, claim fence.Claim) error

// Within calls the function, and serve if it returned nil.
func (f CheckFunc) Within(ctx context.Context, resource string, claim fence.Claim, serve func(ctx context.Context) error) error {
	if err := f(ctx, resource, claim); err != nil {
		return err
	}
	return serve(ctx)
}

// Strict is the rule that asks the authority. verify returns nil only for the latest acquisition of the claim's name, while
// it is valid, as the Verify of a store does in a transaction. Between its answer and the effect the lease may end.
func Strict(verify func(ctx context.Context, claim fence.Claim) error) Check {
	return CheckFunc(func(ctx context.Context, _ string, claim fence.Claim) error { return verify(ctx, claim) })
}

// GateOptions say how a gate decides.
type GateOptions struct {
	// Check decides about claims. Required.
	Check Check
	// Turns lets one request a resource be at work at a time; nil: any number. See the package comment for what then does not hold.
	Turns *Serializer
	// Name is the name of the lease that guards a resource; nil: the resource's own. Where it returns "" any name will do, which
	// is for a Check that binds a resource to the name that came first, as a high-water mark does.
	Name func(resource string) string
}

// Gate is the way of every request through a door, whatever its protocol. Safe for concurrent use.
type Gate struct{ o GateOptions }

// NewGate returns an error matching [ErrOption] for options without a Check.
func NewGate(o GateOptions) (*Gate, error) {
	if o.Check == nil {
		return nil, fmt.Errorf("%w: a gate needs a Check", ErrOption)
	}
	if o.Name == nil {
		o.Name = func(resource string) string { return resource }
	}
	return &Gate{o: o}, nil
}

// Call is a request as a gate sees it.
type Call struct {
	Resource  string
	Protected bool     // a claim is required
	Claims    []string // as they came, in text form
}

// Do lets a call in, or refuses it. The order is: the claim's form; the name that it is to; the turn, which may be waited for; the
// check, when the turn has come; serve, whose context carries the claim ([ClaimFrom]). The turn is given up when serve
// has returned or panicked, and whoever called [Hold] meanwhile has let go.
//
// served says whether serve was called; err is then serve's own error, or what the check said after it. Otherwise err is an error of
// package fence (nothing but its four kinds), or one that matches [ErrMissing], [ErrResource], [ErrBusy], [ErrFull] or
// [ErrUnavailable], or [context.Canceled] where the caller has gone.
func (g *Gate) Do(ctx context.Context, c Call, serve func(ctx context.Context) error) (served bool, err error) {
	if len(c.Claims) == 0 && !c.Protected {
		return true, serve(ctx)
	}
	claim, err := c.claim()
	if err != nil {
		return false, err
	}
	if name := g.o.Name(c.Resource); name != "" && name != claim.Name {
		return false, &fence.ForeignError{Resource: c.Resource, Claim: claim, Authority: claim.Authority, Name: name}
	}
	if g.o.Turns != nil {
		turn, err := g.o.Turns.wait(ctx, c.Resource, claim)
		if err != nil {
			return false, refused(err)
		}
		defer turn.release()
		ctx = context.WithValue(ctx, turnKey{}, turn)
	}
	err = g.o.Check.Within(ctx, c.Resource, claim, func(ctx context.Context) error {
		served = true
		return serve(context.WithValue(ctx, claimKey{}, claim))
	})
	switch {
	case served:
		return true, err
	case err == nil:
		return false, &UnavailableError{Err: errBadCheck}
	}
	return false, refused(err)
}

// claim is the one claim that came with the call.
func (c Call) claim() (fence.Claim, error) {
	if err := CheckResource(c.Resource); err != nil {
		return fence.Claim{}, err
	}
	switch len(c.Claims) {
	case 0:
		return fence.Claim{}, &MissingError{Resource: c.Resource}
	case 1:
		return fence.ParseClaim(c.Claims[0])
	}
	return fence.Claim{}, &fence.InvalidError{What: "claim", Problem: fmt.Sprintf("%d were sent; a request is made under one", len(c.Claims))}
}

// CheckResource returns an error matching [ErrResource] unless a resource can have the name: 1 to [fence.MaxName] bytes of
// UTF-8 without control characters.
func CheckResource(resource string) error {
	switch {
	case resource == "":
		return &ResourceError{Problem: "it names none"}
	case len(resource) > fence.MaxName:
		return &ResourceError{Problem: fmt.Sprintf("its name is longer than %d bytes", fence.MaxName)}
	case !utf8.ValidString(resource) || strings.ContainsFunc(resource, unicode.IsControl):
		return &ResourceError{Problem: "its name holds what is no UTF-8, or a control character"}
	}
	return nil
}

type (
	claimKey struct{}
	turnKey  struct{}
)

// ClaimFrom returns the claim under which the request that is being served was let in.
func ClaimFrom(ctx context.Context) (fence.Claim, bool) {
	claim, ok := ctx.Value(claimKey{}).(fence.Claim)
	return claim, ok
}
