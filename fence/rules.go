package fence

// Mark is what a resource remembers of one (resource, authority, name): the highest token it accepted.
// Token 0 with an authority and a name means: that name was admitted for the resource and has not entered
// yet. The zero Mark belongs to a resource that nothing has touched. A mark never falls and outlives the
// resource's rows: where it is kept it must not be deleted with them.
type Mark struct {
	Resource  string
	Authority ID
	Name      string
	Token     Token
}

// Admit is the high-water rule for a write: it returns the mark to be stored in the same atomic step as the
// write, or refuses. An equal token is accepted (one holder writes many times), a higher one too.
//
// It returns a [*RefusedError] naming the newer token if a successor has been here, a [*ForeignError] if the
// resource belongs to another authority or name, and an error matching [ErrInvalid] for a claim that is no
// claim. After a refusal nothing may be written.
func Admit(m Mark, c Claim) (Mark, error) {
	if err := c.Check(); err != nil {
		return m, err
	}
	bound := !m.Authority.IsZero() || m.Name != ""
	if bound && (m.Authority != c.Authority || m.Name != c.Name) {
		return m, &ForeignError{Resource: m.Resource, Claim: c, Authority: m.Authority, Name: m.Name}
	}
	if c.Token < m.Token {
		return m, &RefusedError{Resource: m.Resource, Claim: c, Why: Superseded, Newer: m.Token}
	}
	return Mark{Resource: m.Resource, Authority: c.Authority, Name: c.Name, Token: c.Token}, nil
}

// Enter decides as [Admit] does, for a holder that is about to read. What differs is what the caller does
// with the result: the mark is *written*, also when it is equal, by a statement of its own and the first of
// its transaction, before anything is read. Otherwise a successor could write between the read and the
// write, and the older of the two would win.
func Enter(m Mark, c Claim) (Mark, error) { return Admit(m, c) }

// Standing is what the authority's own rows say of a name, read under a lock that keeps a successor out
// until the transaction that reads it ends.
type Standing struct {
	Authority   ID
	Name        string
	Acquisition ID
	Token       Token  // the latest token granted for the name; 0 if none
	Issued      Token  // the highest token the authority has issued for any name
	Over        Reason // why the latest acquisition is over, or 0 while it is valid by the authority's clock
}

// Verify is the strict rule: nil only for the latest acquisition of the name, while it is valid.
//
// It returns a [*RefusedError] with the reason, a [*ForeignError] for another authority or name, an
// [*AheadError] for a token that this authority has not issued, and an error matching [ErrInvalid] for a
// claim that is no claim. After a refusal nothing may be written.
func Verify(s Standing, c Claim) error {
	if err := c.Check(); err != nil {
		return err
	}
	if s.Authority != c.Authority || s.Name != c.Name {
		return &ForeignError{Resource: s.Name, Claim: c, Authority: s.Authority, Name: s.Name}
	}
	switch {
	case c.Token > s.Issued:
		return &AheadError{Claim: c, Issued: s.Issued}
	case s.Token > c.Token:
		return &RefusedError{Resource: s.Name, Claim: c, Why: Superseded, Newer: s.Token}
	case s.Token < c.Token || s.Acquisition != c.Acquisition:
		return &RefusedError{Resource: s.Name, Claim: c, Why: NotGranted}
	case s.Over != 0:
		return &RefusedError{Resource: s.Name, Claim: c, Why: s.Over}
	}
	return nil
}
