package fence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// highWater is the rule under test, or a twin of it that is broken on purpose.
type highWater func(fence.Mark, fence.Claim) (fence.Mark, error)

// checkHighWater is what must hold of the rule, by the name of the guarantee.
func checkHighWater(rule highWater) map[string]bool {
	mark := fence.Mark{Resource: "r", Authority: id(1), Name: "orders/17", Token: 7}
	kept := func(c fence.Claim, kind error) bool {
		after, err := rule(mark, c)
		return errors.Is(err, kind) && after == mark
	}
	moves := func(m fence.Mark, c fence.Claim, to fence.Token) bool {
		after, err := rule(m, c)
		return err == nil && after == fence.Mark{Resource: "r", Authority: id(1), Name: "orders/17", Token: to}
	}
	otherAuthority, otherName := claim(9), claim(9)
	otherAuthority.Authority, otherName.Name = id(8), "orders/18"
	return map[string]bool{
		"a lower token is refused":                kept(claim(6), fence.ErrRefused),
		"L76: an equal token is accepted":         moves(mark, claim(7), 7),
		"L76: a higher token moves the mark":      moves(mark, claim(9), 9),
		"another authority is foreign":            kept(otherAuthority, fence.ErrForeign),
		"another name is foreign":                 kept(otherName, fence.ErrForeign),
		"the first claim binds":                   moves(fence.Mark{Resource: "r"}, claim(3), 3),
		"an admitted name enters":                 moves(fence.Mark{Resource: "r", Authority: id(1), Name: "orders/17"}, claim(3), 3),
		"no claim at all is invalid":              kept(fence.Claim{}, fence.ErrInvalid),
		"a token of zero is invalid":              kept(claim(0), fence.ErrInvalid),
		"fault 17: a negative token is invalid":   kept(claim(-1), fence.ErrInvalid),
		"fault 17: the greatest token is no wrap": moves(mark, claim(1<<63-1), 1<<63-1),
	}
}

func TestHighWater(t *testing.T) {
	for name, rule := range map[string]highWater{"Admit": fence.Admit, "Enter": fence.Enter} {
		for guarantee, holds := range checkHighWater(rule) {
			if !holds {
				t.Errorf("%s: not kept: %s", name, guarantee)
			}
		}
	}
}

// TestBrokenHighWater demands that each naive form is caught by the guarantee that it breaks.
func TestBrokenHighWater(t *testing.T) {
	set := func(m fence.Mark, c fence.Claim) fence.Mark {
		return fence.Mark{Resource: m.Resource, Authority: c.Authority, Name: c.Name, Token: c.Token}
	}
	refuse := func(m fence.Mark, c fence.Claim) (fence.Mark, error) { return m, &fence.RefusedError{Claim: c} }
	for guarantee, twin := range map[string]highWater{
		"a lower token is refused": func(m fence.Mark, c fence.Claim) (fence.Mark, error) { return set(m, c), nil },
		"L76: an equal token is accepted": func(m fence.Mark, c fence.Claim) (fence.Mark, error) {
			if c.Token <= m.Token {
				return refuse(m, c)
			}
			return fence.Admit(m, c)
		},
		"L76: a higher token moves the mark": func(m fence.Mark, c fence.Claim) (fence.Mark, error) {
			if m.Token != 0 && c.Token != m.Token {
				return refuse(m, c)
			}
			return fence.Admit(m, c)
		},
		"another name is foreign": func(m fence.Mark, c fence.Claim) (fence.Mark, error) {
			c.Name = "orders/17"
			return fence.Admit(m, c)
		},
		"another authority is foreign": func(m fence.Mark, c fence.Claim) (fence.Mark, error) {
			c.Authority = id(1)
			return fence.Admit(m, c)
		},
		"fault 17: a negative token is invalid": func(m fence.Mark, c fence.Claim) (fence.Mark, error) {
			if uint64(c.Token) < uint64(m.Token) {
				return refuse(m, c)
			}
			return set(m, c), nil
		},
	} {
		if checkHighWater(twin)[guarantee] {
			t.Errorf("the broken twin is not caught: %s", guarantee)
		}
	}
}

// checkVerify is what must hold of the strict rule.
func checkVerify(rule func(fence.Standing, fence.Claim) error) map[string]bool {
	valid := fence.Standing{Authority: id(1), Name: "orders/17", Acquisition: id(2), Token: 7, Issued: 9}
	because := func(s fence.Standing, c fence.Claim, why fence.Reason) bool {
		refused := new(fence.RefusedError)
		return errors.As(rule(s, c), &refused) && refused.Why == why && (why != fence.Superseded || refused.Newer == s.Token)
	}
	with := func(change func(*fence.Standing)) fence.Standing {
		s := valid
		change(&s)
		return s
	}
	otherAcquisition, otherName, otherAuthority := claim(7), claim(7), claim(7)
	otherAcquisition.Acquisition, otherName.Name, otherAuthority.Authority = id(3), "orders/18", id(8)
	return map[string]bool{
		"the valid holder is accepted":    rule(valid, claim(7)) == nil,
		"a superseded claim is refused":   because(valid, claim(6), fence.Superseded),
		"an ungranted token is refused":   because(valid, claim(8), fence.NotGranted),
		"another acquisition is refused":  because(valid, otherAcquisition, fence.NotGranted),
		"a name without a grant refuses":  because(with(func(s *fence.Standing) { s.Token, s.Acquisition = 0, fence.ID{} }), claim(7), fence.NotGranted),
		"an expired lease is refused":     because(with(func(s *fence.Standing) { s.Over = fence.Expired }), claim(7), fence.Expired),
		"a released lease is refused":     because(with(func(s *fence.Standing) { s.Over = fence.Released }), claim(7), fence.Released),
		"a revoked lease is refused":      because(with(func(s *fence.Standing) { s.Over = fence.Revoked }), claim(7), fence.Revoked),
		"a token from the future is told": errors.Is(rule(valid, claim(10)), fence.ErrAhead),
		"another name is foreign":         errors.Is(rule(valid, otherName), fence.ErrForeign),
		"another authority is foreign":    errors.Is(rule(valid, otherAuthority), fence.ErrForeign),
		"no claim at all is invalid":      errors.Is(rule(valid, fence.Claim{}), fence.ErrInvalid),
	}
}

func TestVerify(t *testing.T) {
	for guarantee, holds := range checkVerify(fence.Verify) {
		if !holds {
			t.Errorf("not kept: %s", guarantee)
		}
	}
	for guarantee, twin := range map[string]func(fence.Standing, fence.Claim) error{
		"an expired lease is refused": func(s fence.Standing, c fence.Claim) error {
			s.Over = 0
			return fence.Verify(s, c)
		},
		"another acquisition is refused": func(s fence.Standing, c fence.Claim) error {
			c.Acquisition = s.Acquisition
			return fence.Verify(s, c)
		},
		"a superseded claim is refused": func(s fence.Standing, c fence.Claim) error {
			s.Token = min(s.Token, c.Token)
			return fence.Verify(s, c)
		},
		"a token from the future is told": func(s fence.Standing, c fence.Claim) error {
			s.Issued = 1<<63 - 1
			return fence.Verify(s, c)
		},
	} {
		if checkVerify(twin)[guarantee] {
			t.Errorf("the broken twin is not caught: %s", guarantee)
		}
	}
}

// The two rules differ: after expiry and before any successor has entered, the mark still accepts.
func TestHighWaterDoesNotNoticeExpiry(t *testing.T) {
	mark := fence.Mark{Resource: "r", Authority: id(1), Name: "orders/17", Token: 7}
	if _, err := fence.Admit(mark, claim(7)); err != nil {
		t.Errorf("the mark refuses its own holder: %v", err)
	}
	expired := fence.Standing{Authority: id(1), Name: "orders/17", Acquisition: id(2), Token: 7, Issued: 7, Over: fence.Expired}
	if err := fence.Verify(expired, claim(7)); !errors.Is(err, fence.ErrRefused) {
		t.Errorf("the strict rule accepts an expired lease: %v", err)
	}
}

// Each error says what is known and what to do, and matches its own kind alone.
func TestErrors(t *testing.T) {
	kinds := []error{fence.ErrInvalid, fence.ErrRefused, fence.ErrForeign, fence.ErrAhead}
	for _, c := range []struct {
		err  error
		kind error
		says []string
	}{
		{&fence.RefusedError{Resource: "r", Claim: claim(6), Why: fence.Superseded, Newer: 7}, fence.ErrRefused, []string{"token 6", "newer token 7", "superseded", "nothing was written", "acquire"}},
		{&fence.RefusedError{Resource: "r", Claim: claim(6), Why: fence.Expired}, fence.ErrRefused, []string{"expired", "nothing was written"}},
		{&fence.ForeignError{Resource: "r", Claim: claim(6), Authority: id(8)}, fence.ErrForeign, []string{"authority", "same store"}},
		{claim(6).For("other"), fence.ErrForeign, []string{`"other"`, `"orders/17"`, "nothing was written"}},
		{&fence.AheadError{Claim: claim(9), Issued: 7}, fence.ErrAhead, []string{"token 9", "above 7", "tenure epoch raise --above 9"}},
		{&fence.InvalidError{What: "name", Problem: "empty"}, fence.ErrInvalid, []string{"name", "empty"}},
	} {
		for _, kind := range kinds {
			if errors.Is(c.err, kind) != errors.Is(c.kind, kind) {
				t.Errorf("%v matches %v: %v", c.err, kind, errors.Is(c.err, kind))
			}
		}
		for _, words := range c.says {
			if !strings.Contains(c.err.Error(), words) {
				t.Errorf("%v does not say %q", c.err, words)
			}
		}
	}
}
