package operationtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// StepHarness is a harness for random histories.
type StepHarness interface {
	Harness
	// Tolerance is by how much durations may differ from the oracle's: what one call may take. 0 says that the clock of the store under test stands still but for Advance.
	Tolerance() time.Duration
}

// InStep runs one history of calls on an oracle, whose clock stands still but for Advance, and on a store under test, and compares every reply: the kind and the particulars of errors, whole
// records, jobs, counts, and durations within the subject's tolerance. Both harnesses are fresh; at the end all that they hold is compared, and both are checked. It returns an error that tells the
// history up to the first difference.
//
// Where the subject's clock runs, the oracle's is moved by as much as passed, and the history should keep a second away from every instant that matters.
//
// Left open to a store: its numbers, as long as they rise; the order of what is due since the same instant; the instant that attempts carry, but not whether there is one.
func InStep(ctx context.Context, oracle Harness, subject StepHarness, ops []Op) error {
	c := &comparison{tolerance: subject.Tolerance(), numbers: map[fence.Token]fence.Token{0: 0}}
	want, got := NewPlayer(oracle), NewPlayer(subject)
	last := time.Now()
	all := Op{List: &operation.ListRequest{Limit: operation.MaxList, Bodies: true}}
	for i, op := range append(slices.Clone(ops), all) {
		subjects := got.Play(ctx, op)
		if c.tolerance > 0 {
			now := time.Now()
			if err := oracle.Advance(ctx, now.Sub(last)); err != nil {
				return fmt.Errorf("moving the oracle's clock: %w", err)
			}
			last = now
		}
		oracles := want.Play(ctx, op)
		if err := c.replies(oracles, subjects); err != nil {
			return fmt.Errorf("%s\nstep %d, %v: %w\n  oracle: %+v\n  store:  %+v", tell(ops[:min(i+1, len(ops))]), i, op, err, oracles, subjects)
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

// comparison is what InStep knows of both stores.
type comparison struct {
	tolerance time.Duration
	numbers   map[fence.Token]fence.Token // the oracle's to the subject's
	highest   fence.Token                 // of the subject's
}

func unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func words(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}

// sentinelOf is the kind of an error.
func sentinelOf(err error) error {
	for _, kind := range []error{
		operation.ErrInvalid, operation.ErrMismatch, operation.ErrDecided, operation.ErrUndecided, operation.ErrStale, operation.ErrNotFound, operation.ErrUnknown, operation.ErrUnavailable,
	} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return err
}

func (c *comparison) replies(want, got Reply) error {
	if err := errors.Join(
		c.failures(want.Err, got.Err),
		unless(want.Known == got.Known, "known: %t on the oracle, %t on the store", want.Known, got.Known),
		unless(want.Count == got.Count, "%d on the oracle, %d on the store", want.Count, got.Count),
		unless(want.Pruned == got.Pruned, "%+v on the oracle, %+v on the store", want.Pruned, got.Pruned),
		unless(len(want.Errs) == len(got.Errs), "%d errors on the oracle, %d on the store", len(want.Errs), len(got.Errs)),
	); err != nil {
		return err
	}
	for i := range want.Errs {
		if err := c.failures(want.Errs[i], got.Errs[i]); err != nil {
			return fmt.Errorf("completion %d: %w", i, err)
		}
	}
	return cmp.Or(c.jobs(want.Jobs, got.Jobs), c.lost(want.Lost, got.Lost), c.records(want.Records, got.Records), c.stats(want.Stats, got.Stats))
}

func (c *comparison) failures(want, got error) error {
	differ := fmt.Errorf("the oracle says %q, the store %q", words(want), words(got))
	if !errors.Is(sentinelOf(want), sentinelOf(got)) {
		return differ
	}
	var ws, gs *operation.StaleError
	if errors.As(want, &ws) && errors.As(got, &gs) {
		if c.number(ws.Newer, gs.Newer) != nil || ws.ID != gs.ID || ws.State != gs.State || c.number(ws.Attempt, gs.Attempt) != nil {
			return differ
		}
	}
	var wm, gm *operation.MismatchError
	if errors.As(want, &wm) && errors.As(got, &gm) && *wm != *gm {
		return differ
	}
	var wd, gd *operation.StateError
	if errors.As(want, &wd) && errors.As(got, &gd) && (wd.ID != gd.ID || wd.State != gd.State) {
		return differ
	}
	var wn, gn *operation.NotFoundError
	if errors.As(want, &wn) && errors.As(got, &gn) && *wn != *gn {
		return differ
	}
	return nil
}

func (c *comparison) duration(what string, want, got time.Duration) error {
	if d := want - got; d > c.tolerance || -d > c.tolerance {
		return fmt.Errorf("%s: %v on the oracle, %v on the store", what, want, got)
	}
	return nil
}

func (c *comparison) number(want, got fence.Token) error {
	known, ok := c.numbers[want]
	return unless(ok && known == got, "attempt %d on the oracle is %d on the store; want %d", want, got, known)
}

// jobs compares what was claimed. Of what was due since the same instant, any order is right.
func (c *comparison) jobs(want, got []operation.Job) error {
	byID := func(a, b operation.Job) int { return cmp.Compare(a.ID, b.ID) }
	if !slices.IsSortedFunc(got, func(a, b operation.Job) int { return cmp.Compare(b.Priority, a.Priority) }) {
		return errors.New("the less urgent come first")
	}
	want, got = slices.SortedFunc(slices.Values(want), byID), slices.SortedFunc(slices.Values(got), byID)
	ids := func(jobs []operation.Job) []string {
		return idsOf(jobs, func(j operation.Job) string { return j.ID })
	}
	if !slices.Equal(ids(want), ids(got)) {
		return fmt.Errorf("claimed %q on the oracle, %q on the store", ids(want), ids(got))
	}
	before := c.highest
	for i, w := range want {
		g := got[i]
		if g.Number <= before {
			return fmt.Errorf("attempt %d comes after %d", g.Number, before)
		}
		c.numbers[w.Number], c.highest = g.Number, max(c.highest, g.Number)
		same := w.Kind == g.Kind && w.Ordinal == g.Ordinal && bytes.Equal(w.Request, g.Request) && w.Unsure == g.Unsure && w.Priority == g.Priority && w.Order == g.Order
		same = same && w.NotAfter.IsZero() == g.NotAfter.IsZero()
		err := errors.Join(unless(same, "claimed %+v on the oracle, %+v on the store", w, g), c.duration("what remains", w.Remaining, g.Remaining), c.duration("the time left", w.TimeLeft, g.TimeLeft))
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) lost(want, got []operation.Ref) error {
	if len(want) != len(got) {
		return fmt.Errorf("%v were lost on the oracle, %v on the store", want, got)
	}
	ids := func(r operation.Ref) string { return r.ID }
	return unless(slices.Equal(slices.Sorted(slices.Values(idsOf(want, ids))), slices.Sorted(slices.Values(idsOf(got, ids)))), "%v were lost on the oracle, %v on the store", want, got)
}

func (c *comparison) records(want, got []operation.Record) error {
	byID := func(a, b operation.Record) int { return cmp.Compare(a.ID, b.ID) }
	want, got = slices.SortedStableFunc(slices.Values(want), byID), slices.SortedStableFunc(slices.Values(got), byID)
	ids := func(all []operation.Record) []string {
		return idsOf(all, func(r operation.Record) string { return r.ID })
	}
	if !slices.Equal(ids(want), ids(got)) {
		return fmt.Errorf("the oracle tells of %q, the store of %q", ids(want), ids(got))
	}
	for i, w := range want {
		if err := c.record(w, got[i]); err != nil {
			return fmt.Errorf("of %q: %w", w.ID, err)
		}
	}
	return nil
}

func (c *comparison) record(w, g operation.Record) error {
	if w.ID == "" {
		return nil
	}
	type plain struct {
		Kind              string
		Fingerprint       operation.Fingerprint
		State             operation.State
		Result, Reason    string
		Wished            bool
		Compensates       string
		Instant           bool
		Request, Order    string
		Priority          int
		Step              operation.Step
		Blocked           bool
		Kept              operation.Kept
		Inquiries         int
		Conflicts, Counts int
		UndoneBy          string
		Attempts          int
	}
	of := func(r operation.Record) plain {
		return plain{
			r.Kind, r.Fingerprint, r.State, string(r.Result), r.Reason, r.CancelWished, r.Compensates, !r.NotAfter.IsZero(), string(r.Request), r.Order, r.Priority, r.Step, r.Blocked, r.Kept,
			r.Inquiries, len(r.Conflicts), r.ConflictCount, r.UndoneBy, len(r.Attempts),
		}
	}
	if of(w) != of(g) {
		return fmt.Errorf("the oracle tells %+v, the store %+v", of(w), of(g))
	}
	errs := []error{c.duration("its age", w.Age, g.Age), c.duration("since its decision", w.Decided, g.Decided)}
	if w.Step != operation.Idle {
		errs = append(errs, c.duration("until its step", w.StepIn, g.StepIn))
	}
	for i, a := range w.Attempts {
		b := g.Attempts[i]
		same := a.Worker == b.Worker && a.Known == b.Known && bytes.Equal(a.Result, b.Result) && a.Reason == b.Reason
		errs = append(errs, unless(same, "attempt %+v on the oracle, %+v on the store", a, b), c.number(a.Number, b.Number), c.duration("its attempt began", a.Began, b.Began),
			c.duration("its attempt ended", a.Ended, b.Ended))
	}
	for i, a := range w.Conflicts {
		b := g.Conflicts[i]
		errs = append(errs, unless(bytes.Equal(a.Result, b.Result) && a.Reason == b.Reason, "conflict %+v on the oracle, %+v on the store", a, b), c.number(a.Attempt, b.Attempt))
	}
	return errors.Join(errs...)
}

func (c *comparison) stats(want, got []operation.Stat) error {
	order := func(a, b operation.Stat) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	}
	want, got = slices.SortedFunc(slices.Values(want), order), slices.SortedFunc(slices.Values(got), order)
	differ := fmt.Errorf("counted %+v on the oracle, %+v on the store", want, got)
	if len(want) != len(got) {
		return differ
	}
	for i, w := range want {
		g := got[i]
		if order(w, g) != 0 || w.Count != g.Count || w.Stuck != g.Stuck {
			return differ
		}
		if err := c.duration("the oldest", w.Oldest, g.Oldest); err != nil {
			return err
		}
	}
	return nil
}
