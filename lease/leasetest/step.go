package leasetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// StepHarness is a harness for random histories.
type StepHarness interface {
	Harness
	// Tolerance is by how much what remains may differ from the oracle's: what one operation may take. 0 says that
	// the clock of the store under test stands still but for Advance.
	Tolerance() time.Duration
}

// InStep runs one history on an oracle, whose clock stands still but for Advance, and on a store under
// test, and compares every reply: the kind and the particulars of errors, ids, names, ends, the order of
// tokens by name, and what remains within the subject's tolerance. Both harnesses are fresh; at the end
// both are checked. It returns an error that tells the history up to the first difference.
//
// Where the subject's clock runs, the oracle's is moved by as much as passed, and the history should keep a
// second away from every expiry.
//
// Left open to a store: that an id below closed-below was asked about with other names than its own; by how much a raised epoch jumps; how an id ended that closed-below has closed or a pruning may have forgotten
// ([lease.EndForgotten] fits any end there); and, once MaxHold has passed, which of the ends that followed
// counts: the passing itself, the close of the session, or a successor, in that name or in another of the
// acquisition.
func InStep(ctx context.Context, oracle Harness, subject StepHarness, ops []Op) error {
	c := &comparison{
		tolerance: subject.Tolerance(), tokens: map[string]map[fence.Token]fence.Token{}, below: map[fence.ID]fence.ID{},
		sessionOf: map[fence.ID]fence.ID{}, bounded: map[fence.ID]bool{},
	}
	want, got := NewPlayer(oracle), NewPlayer(subject)
	last := time.Now()
	for i, op := range ops {
		subjects := got.Play(ctx, op)
		if c.tolerance > 0 {
			now := time.Now()
			if err := oracle.Advance(ctx, now.Sub(last)); err != nil {
				return fmt.Errorf("moving the oracle's clock: %w", err)
			}
			last = now
		}
		oracles := want.Play(ctx, op)
		c.note(op)
		if err := c.replies(op, oracles, subjects); err != nil {
			return fmt.Errorf("%s\nstep %d: %w\n  oracle: %+v\n  store:  %+v", tell(ops[:i+1]), i, err, oracles, subjects)
		}
	}
	return errors.Join(oracle.Check(ctx), subject.Check(ctx))
}

// tell writes a history, one operation a line.
func tell(ops []Op) string {
	var b strings.Builder
	b.WriteString("in this history:")
	for i, op := range ops {
		fmt.Fprintf(&b, "\n%3d  %v", i, op)
	}
	return b.String()
}

// comparison is what InStep knows of both stores.
type comparison struct {
	tolerance time.Duration
	tokens    map[string]map[fence.Token]fence.Token // by name: the oracle's token to the subject's
	below     map[fence.ID]fence.ID                  // by session: the highest closed-below that was sent
	sessionOf map[fence.ID]fence.ID                  // by acquisition
	bounded   map[fence.ID]bool                      // acquisitions that were asked for with a MaxHold
	pruned    bool
}

// note remembers what the store may have forgotten from here on.
func (c *comparison) note(op Op) {
	raise := func(session, below fence.ID) {
		if c.below[session].Less(below) {
			c.below[session] = below
		}
	}
	switch {
	case op.Renew != nil:
		raise(op.Renew.Session, op.Renew.ClosedBelow)
	case op.Acquire != nil:
		raise(op.Acquire.Session, op.Acquire.ClosedBelow)
		c.sessionOf[op.Acquire.ID] = op.Acquire.Session
		c.bounded[op.Acquire.ID] = c.bounded[op.Acquire.ID] || op.Acquire.MaxHold > 0
	case op.Release != nil:
		raise(op.Release.Session, op.Release.ClosedBelow)
		c.sessionOf[op.Release.ID] = op.Release.Session
	case op.Prune != 0:
		c.pruned = true
	}
}

// mayForget reports whether how this acquisition or session ended need not be known any more.
func (c *comparison) mayForget(id fence.ID) bool {
	return c.pruned || id.Less(c.below[c.sessionOf[id]])
}

func (c *comparison) replies(op Op, want, got Reply) error {
	if lease.CodeOf(want.Err) != lease.CodeOf(got.Err) {
		if op.Release != nil && c.eitherFits(want, got, op.Release.ID) || c.mayMissMismatch(op, want, got) {
			return nil
		}
		return fmt.Errorf("%v: the oracle says %q, the store %q", op, words(want.Err), words(got.Err))
	}
	if want.Err != nil {
		return c.failures(want.Err, got.Err)
	}
	return errors.Join(
		c.duration("what is left", want.Left, got.Left),
		c.renewals(want.Renewal, got.Renewal),
		c.grants(want.Grants, got.Grants),
		c.released(op, want.Released, got.Released),
		c.infos(op, want.Infos, got.Infos),
		c.revoked(want.Revoked, got.Revoked),
	)
}

// eitherFits reports whether a release was answered with success by one side and with an end by the other,
// and may be.
func (c *comparison) eitherFits(want, got Reply, id fence.ID) bool {
	done, err := want.Released, got.Err
	if want.Err != nil {
		done, err = got.Released, want.Err
	}
	var ended *lease.EndedError
	if !done.Already || !errors.As(err, &ended) {
		return false
	}
	return c.mayForget(id) || c.bounded[id] && afterMaxHold(ended.How)
}

// mayMissMismatch reports whether the store took the names of an id below closed-below at their word, as it may.
func (c *comparison) mayMissMismatch(op Op, want, got Reply) bool {
	var mismatch *lease.MismatchError
	if !errors.As(want.Err, &mismatch) || mismatch.What != "names" || !c.mayForget(mismatch.ID) {
		return false
	}
	var ended *lease.EndedError
	return op.Release != nil && got.Err == nil && got.Released.Already ||
		op.Acquire != nil && errors.As(got.Err, &ended) && ended.How == lease.EndForgotten
}

func words(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}

func (c *comparison) duration(what string, want, got time.Duration) error {
	if d := want - got; d > c.tolerance || -d > c.tolerance {
		return fmt.Errorf("%s: %v on the oracle, %v on the store", what, want, got)
	}
	return nil
}

// token demands that each token of the oracle's has one counterpart, and that they rise together.
func (c *comparison) token(name string, want, got fence.Token) error {
	of := c.tokens[name]
	if of == nil {
		of = map[fence.Token]fence.Token{0: 0}
		c.tokens[name] = of
	}
	if known, ok := of[want]; ok {
		if known != got {
			return fmt.Errorf("token of %q: the oracle's %d was the store's %d and is now %d", name, want, known, got)
		}
		return nil
	}
	for w, g := range of {
		if w < want != (g < got) || g == got {
			return fmt.Errorf("tokens of %q: after %d comes %d on the oracle, after %d comes %d on the store", name, w, want, g, got)
		}
	}
	of[want] = got
	return nil
}

func (c *comparison) failures(want, got error) error {
	var we, ge *lease.EndedError
	if errors.As(want, &we) && errors.As(got, &ge) {
		same := we.What == ge.What && we.ID == ge.ID && (we.How == ge.How && we.Reason == ge.Reason || c.endFits(we.ID, we.How, ge.How))
		return unless(same, "the oracle says %q, the store %q", want, got)
	}
	var wh, gh *lease.HeldError
	if errors.As(want, &wh) && errors.As(got, &gh) {
		return errors.Join(
			unless(wh.Name == gh.Name && wh.Owner == gh.Owner, "the oracle says %q, the store %q", want, got),
			c.token(wh.Name, wh.Token, gh.Token), c.duration("what the holder has left", wh.Left, gh.Left),
		)
	}
	var wm, gm *lease.MismatchError
	if errors.As(want, &wm) && errors.As(got, &gm) {
		return errors.Join(
			unless(wm.What == gm.What && wm.Name == gm.Name, "the oracle says %q, the store %q", want, got),
			c.token(wm.Name, wm.Seen, gm.Seen),
		)
	}
	return nil
}

// endFits reports whether the ends differ only by what is left open to a store.
func (c *comparison) endFits(id fence.ID, want, got lease.End) bool {
	return want == got || c.mayForget(id) && (want == lease.EndForgotten || got == lease.EndForgotten) ||
		c.bounded[id] && afterMaxHold(want) && afterMaxHold(got)
}

// afterMaxHold reports whether the end may be told of an acquisition whose MaxHold has passed.
func afterMaxHold(end lease.End) bool {
	return end == lease.EndExpired || end == lease.EndClosed || end == lease.EndSuperseded
}

func unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func (c *comparison) renewals(want, got lease.Renewal) error {
	return errors.Join(
		c.duration("what remains", want.Remaining, got.Remaining),
		unless(slices.Equal(want.Revoked, got.Revoked), "told as revoked: %v on the oracle, %v on the store", want.Revoked, got.Revoked),
	)
}

func (c *comparison) grants(want, got []lease.Grant) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d grants on the oracle, %d on the store", len(want), len(got))
	}
	for i, w := range want {
		g := got[i]
		err := errors.Join(
			unless(w.Claim.Name == g.Claim.Name && w.Claim.Acquisition == g.Claim.Acquisition, "grant %d: %v on the oracle, %v on the store", i, w.Claim, g.Claim),
			c.token(w.Claim.Name, w.Claim.Token, g.Claim.Token),
			c.duration("what remains", w.Remaining, g.Remaining), c.duration("what is left of MaxHold", w.HoldLeft, g.HoldLeft),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) released(op Op, want, got lease.Released) error {
	return unless(want == got, "%v: released already: %v on the oracle, %v on the store", op, want.Already, got.Already)
}

// infos compares what is told of names. A row that was never granted, and one that pruning may have
// deleted, may be missing on either side of a list.
func (c *comparison) infos(op Op, want, got []lease.Info) error {
	if op.List != nil {
		granted := func(i lease.Info) bool { return i.Token == 0 || c.pruned && !i.Held }
		want, got = slices.DeleteFunc(slices.Clone(want), granted), slices.DeleteFunc(slices.Clone(got), granted)
	}
	if len(want) != len(got) {
		return fmt.Errorf("%d names on the oracle, %d on the store", len(want), len(got))
	}
	for i, w := range want {
		if err := c.info(w, got[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) info(w, g lease.Info) error {
	if c.pruned && !w.Held && !g.Held && (w.Token == 0 || g.Token == 0) {
		return unless(w.Name == g.Name, "the oracle tells of %q, the store of %q", w.Name, g.Name)
	}
	same := w.Name == g.Name && w.Held == g.Held && w.Acquisition == g.Acquisition && w.Session == g.Session
	same = same && c.endFits(w.Acquisition, w.End, g.End) && (w.Owner == g.Owner || !w.Held)
	return errors.Join(
		unless(same, "the oracle tells %+v, the store %+v", w, g), c.token(w.Name, w.Token, g.Token),
		c.duration("what remains", w.Remaining, g.Remaining), c.duration("what is left of MaxHold", w.HoldLeft, g.HoldLeft),
	)
}

func (c *comparison) revoked(want, got lease.Revoked) error {
	if want.Already != got.Already {
		return fmt.Errorf("revoked already: %v on the oracle, %v on the store", want.Already, got.Already)
	}
	if want.Already || want.Former.Name == "" {
		return nil
	}
	return errors.Join(
		unless(slices.Equal(want.Names, got.Names), "freed: %q on the oracle, %q on the store", want.Names, got.Names),
		c.info(want.Former, got.Former), c.duration("how long the former holder believes", want.BelievesAtMost, got.BelievesAtMost),
	)
}
