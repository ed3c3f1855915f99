package holdtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/hold"
)

// StepHarness is a harness for random histories.
type StepHarness interface {
	Harness
	// Tolerance is by how much durations may differ from the oracle's: what one call may take. 0 says that the clock of the store under test stands still but for Advance.
	Tolerance() time.Duration
}

// InStep runs one history of calls on an oracle, whose clock stands still but for Advance, and on a store under test, and compares every reply: the kind and the particulars of errors, whole
// holds, items, counts, and durations within the subject's tolerance. Both harnesses are fresh; at the end all that they hold is compared, and both are checked. It returns an error that tells the
// history up to the first difference.
//
// Where the subject's clock runs, the oracle's is moved by as much as passed, and the history should keep a second away from every instant that matters.
//
// Left open to a store: which of several unknown items it names, and which holds are forgotten first.
func InStep(ctx context.Context, oracle Harness, subject StepHarness, ops []Op) error {
	tolerance := subject.Tolerance()
	last := time.Now()
	for i, op := range append(slices.Clone(ops), Op{List: &hold.ListRequest{Limit: hold.MaxList}}, Op{Items: &Page{Limit: hold.MaxList}}) {
		got := Play(ctx, subject, op)
		if tolerance > 0 {
			now := time.Now()
			if err := oracle.Advance(ctx, now.Sub(last)); err != nil {
				return fmt.Errorf("moving the oracle's clock: %w", err)
			}
			last = now
		}
		want := Play(ctx, oracle, op)
		if err := compare(want, got, tolerance); err != nil {
			return fmt.Errorf("%s\nstep %d, %v: %w\n  oracle: %+v\n  store:  %+v", tell(ops[:min(i+1, len(ops))]), i, op, err, want, got)
		}
	}
	return errors.Join(oracle.Check(ctx), subject.Check(ctx))
}

// tell writes a history, one call a line.
func tell(ops []Op) string {
	var b strings.Builder
	b.WriteString("in this history:")
	for i, op := range ops {
		fmt.Fprintf(&b, "\n%3d  %v", i, op)
	}
	return b.String()
}

func compare(want, got Reply, tolerance time.Duration) error {
	if err := failures(want.Err, got.Err, tolerance); err != nil {
		return err
	}
	if want.Count != got.Count {
		return fmt.Errorf("%d on the oracle, %d on the store", want.Count, got.Count)
	}
	if !slices.Equal(want.Items, got.Items) {
		return fmt.Errorf("items %+v on the oracle, %+v on the store", want.Items, got.Items)
	}
	if len(want.Holds) != len(got.Holds) {
		return fmt.Errorf("%d holds on the oracle, %d on the store", len(want.Holds), len(got.Holds))
	}
	for i, w := range want.Holds {
		if err := holds(w, got.Holds[i], tolerance); err != nil {
			return fmt.Errorf("of %v: %w", w.ID, err)
		}
	}
	return nil
}

func apart(what string, want, got, tolerance time.Duration) error {
	if d := want - got; d > tolerance || -d > tolerance {
		return fmt.Errorf("%s: %v on the oracle, %v on the store", what, want, got)
	}
	return nil
}

func holds(w, g hold.Hold, tolerance time.Duration) error {
	if w.ID != g.ID || w.Actor != g.Actor || !slices.Equal(w.Lines, g.Lines) || w.TTL != g.TTL || w.State != g.State || w.Reference != g.Reference {
		return fmt.Errorf("the oracle tells %+v, the store %+v", w, g)
	}
	return errors.Join(apart("what is left", w.Left, g.Left, tolerance), apart("its age", w.Age, g.Age, tolerance), apart("since it ended", w.Ended, g.Ended, tolerance))
}

// failures compares kinds of error, and what they say.
func failures(want, got error, tolerance time.Duration) error {
	differ := fmt.Errorf("the oracle says %q, the store %q", words(want), words(got))
	if (want == nil) != (got == nil) {
		return differ
	}
	for _, kind := range kinds() {
		if errors.Is(want, kind) != errors.Is(got, kind) {
			return differ
		}
	}
	var wt, gt *hold.TakenError
	if errors.As(want, &wt) && (!errors.As(got, &gt) || wt.Item != gt.Item || wt.Wanted != gt.Wanted || wt.Free != gt.Free || (wt.Next == 0) != (gt.Next == 0) || apart("next", wt.Next, gt.Next, tolerance) != nil) {
		return differ
	}
	var wo, otherwise *hold.OverError
	if errors.As(want, &wo) && (!errors.As(got, &otherwise) || wo.ID != otherwise.ID || wo.State != otherwise.State) {
		return differ
	}
	var wn, gn *hold.NotFoundError
	if errors.As(want, &wn) && (!errors.As(got, &gn) || wn.What != gn.What) {
		return differ
	}
	if !same[*hold.LimitError](want, got) || !same[*hold.MismatchError](want, got) || !same[*hold.ActorError](want, got) {
		return differ
	}
	return nil
}

// same reports whether both are an error of this type that says the same, or neither is one.
func same[E error](want, got error) bool {
	var w, g E
	if !errors.As(want, &w) {
		return true
	}
	return errors.As(got, &g) && w.Error() == g.Error()
}

func words(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}
