package outboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// StepHarness is a harness for random histories.
type StepHarness interface {
	Harness
	// Tolerance is by how much durations may differ from the oracle's: what one call may take. 0 says that the clock of the store under test stands still but for Advance.
	Tolerance() time.Duration
}

// Oracle is a harness of the oracle, which can make the choice of another store, or says why it is not one that the contract leaves to a store.
type Oracle interface {
	Harness
	Follow(ctx context.Context, req outbox.ClaimRequest, handed, dead []fence.ID) (outbox.Batch, error)
}

// InStep runs one history of calls on an oracle, whose clock stands still but for Advance, and on a store under test, and compares every reply: the kind and the particulars of errors, whole
// messages, counts, and durations within the subject's tolerance. Both harnesses are fresh; at the end all that they hold is compared, and both are checked. It returns an error that tells the
// history up to the first difference.
//
// Where the subject's clock runs, the oracle's is moved by as much as passed, and the history should keep a second away from every instant that matters.
//
// Left open to a store: which messages a claim gets, as far as the contract leaves it; the oracle then follows.
func InStep(ctx context.Context, oracle Oracle, subject StepHarness, ops []Op) error {
	tolerance := subject.Tolerance()
	last := time.Now()
	none := ""
	for i, op := range append(slices.Clone(ops), Op{List: &Listing{ListRequest: outbox.ListRequest{Limit: outbox.MaxList, Bodies: true}}}, Op{Topics: &none}) {
		got := Play(ctx, subject, op)
		if tolerance > 0 {
			now := time.Now()
			if err := oracle.Advance(ctx, now.Sub(last)); err != nil {
				return fmt.Errorf("moving the oracle's clock: %w", err)
			}
			last = now
		}
		want := follow(ctx, oracle, op, got)
		if err := compare(want, got, tolerance); err != nil {
			return fmt.Errorf("%s\nstep %d, %v: %w\n  oracle: %+v\n  store:  %+v", tell(ops[:min(i+1, len(ops))]), i, op, err, want, got)
		}
	}
	return errors.Join(oracle.Check(ctx), subject.Check(ctx))
}

// follow plays a call on the oracle, a claim with the other store's choice.
func follow(ctx context.Context, oracle Oracle, op Op, got Reply) Reply {
	if op.Claim == nil || got.Err != nil {
		return Play(ctx, oracle, op)
	}
	handed := make([]fence.ID, 0, len(got.Batch.Deliveries))
	for i := range got.Batch.Deliveries {
		handed = append(handed, got.Batch.Deliveries[i].ID)
	}
	batch, err := oracle.Follow(ctx, *op.Claim, handed, got.Dead)
	return Reply{Batch: batch, Err: err, Dead: got.Dead}
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

func sorted(of map[int64]fence.ID) []int64 { return slices.Sorted(maps.Keys(of)) }

func compare(want, got Reply, tolerance time.Duration) error {
	if err := failures(want.Err, got.Err); err != nil || want.Err != nil {
		return err
	}
	switch {
	case want.Count != got.Count:
		return fmt.Errorf("%d on the oracle, %d on the store", want.Count, got.Count)
	case !slices.Equal(want.IDs, got.IDs):
		return fmt.Errorf("ids %v on the oracle, %v on the store", want.IDs, got.IDs)
	case !slices.Equal(want.Late, got.Late):
		return fmt.Errorf("late are %v on the oracle, %v on the store", want.Late, got.Late)
	case len(want.Infos) != len(got.Infos) || len(want.Topics) != len(got.Topics) || len(want.Batch.Deliveries) != len(got.Batch.Deliveries):
		return errors.New("not as many are told")
	}
	errs := []error{batches(&want.Batch, &got.Batch, tolerance)}
	for i := range want.Infos {
		errs = append(errs, infos(&want.Infos[i], &got.Infos[i], tolerance))
	}
	for i, w := range want.Topics {
		g := got.Topics[i]
		errs = append(errs, apart("the oldest of a topic", w.Oldest, g.Oldest, tolerance))
		if w.Oldest, g.Oldest = 0, 0; w != g {
			errs = append(errs, fmt.Errorf("the oracle tells %+v, the store %+v", w, g))
		}
	}
	return errors.Join(errs...)
}

func apart(what string, want, got, tolerance time.Duration) error {
	if d := want - got; d > tolerance || -d > tolerance {
		return fmt.Errorf("%s: %v on the oracle, %v on the store", what, want, got)
	}
	return nil
}

func batches(w, g *outbox.Batch, tolerance time.Duration) error {
	if w.Claim != g.Claim || w.Dead != g.Dead {
		return fmt.Errorf("claim %v, %d given up on the oracle, %v, %d on the store", w.Claim, w.Dead, g.Claim, g.Dead)
	}
	errs := []error{apart("what is left", w.Left, g.Left, tolerance)}
	for i := range w.Deliveries {
		a, b := &w.Deliveries[i], &g.Deliveries[i]
		if !same(&a.Message, &b.Message) || a.Attempt != b.Attempt {
			errs = append(errs, fmt.Errorf("the oracle hands out %+v, the store %+v", *a, *b))
		}
		errs = append(errs, apart("its age", a.Age, b.Age, tolerance))
	}
	return errors.Join(errs...)
}

func infos(w, g *outbox.Info, tolerance time.Duration) error {
	if !same(&w.Message, &g.Message) || !bytes.Equal(w.Payload, g.Payload) || w.Bytes != g.Bytes || w.State != g.State || w.Attempts != g.Attempts || len(w.Errors) != len(g.Errors) || w.Claimed > 0 && w.Relay != g.Relay {
		return fmt.Errorf("the oracle tells %+v, the store %+v", *w, *g)
	}
	errs := []error{apart("its claim", w.Claimed, g.Claimed, tolerance), apart("due in", w.DueIn, g.DueIn, tolerance), apart("its age", w.Age, g.Age, tolerance), apart("since it ended", w.Ended, g.Ended, tolerance)}
	for i, f := range w.Errors {
		o := g.Errors[i]
		errs = append(errs, apart("the age of an error", f.Age, o.Age, tolerance))
		if f.Attempt != o.Attempt || f.Relay != o.Relay || f.Text != o.Text {
			errs = append(errs, fmt.Errorf("error %+v on the oracle, %+v on the store", f, o))
		}
	}
	return errors.Join(errs...)
}

// failures compares kinds of error, and what they say.
func failures(want, got error) error {
	differ := fmt.Errorf("the oracle says %q, the store %q", words(want), words(got))
	if (want == nil) != (got == nil) {
		return differ
	}
	for _, kind := range kinds() {
		if errors.Is(want, kind) != errors.Is(got, kind) {
			return differ
		}
	}
	var wm, gm *outbox.MismatchError
	if errors.As(want, &wm) && (!errors.As(got, &gm) || *wm != *gm) {
		return differ
	}
	var wn, gn *outbox.NotFoundError
	if errors.As(want, &wn) && (!errors.As(got, &gn) || *wn != *gn) {
		return differ
	}
	return nil
}

func words(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}
