package memory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/memory"
)

// A resource may be guarded by several names, each with a mark of its own, once they were allowed.
func TestMarksOfSeveralNames(t *testing.T) {
	m := memory.NewMarks()
	authority := lease.NewID()
	claim := func(name string, token fence.Token) fence.Claim {
		return fence.Claim{Authority: authority, Name: name, Acquisition: lease.NewID(), Token: token}
	}
	ran := 0
	fn := func(context.Context) error { ran++; return nil }
	steps := []struct {
		do   error
		want error
	}{
		{m.Enter(t.Context(), "r", claim("a", 5), fn), nil},
		{m.Enter(t.Context(), "r", claim("b", 6), fn), fence.ErrForeign},
		{m.Allow(t.Context(), "r", authority, "b"), nil},
		{m.Allow(t.Context(), "r", authority, "#"), fence.ErrInvalid},
		{m.Enter(t.Context(), "r", claim("b", 3), fn), nil},
		{m.Allow(t.Context(), "r", authority, "b"), nil}, // again: the mark stays
		{m.Admit(t.Context(), "r", claim("b", 2), fn), fence.ErrRefused},
		{m.Admit(t.Context(), "r", claim("a", 4), fn), fence.ErrRefused},
		{m.Admit(t.Context(), "r", claim("a", 5), fn), nil},
		{m.Admit(t.Context(), "other", claim("c", 1), fn), nil},
	}
	for i, s := range steps {
		if !errors.Is(s.do, s.want) {
			t.Errorf("step %d: %v; want %v", i, s.do, s.want)
		}
	}
	if ran != 4 {
		t.Errorf("%d accesses ran; want 4", ran)
	}
}

// While one access to a resource runs, others wait for it, and may give up; other resources go on.
func TestMarksOneAtATime(t *testing.T) {
	m := memory.NewMarks()
	claim := fence.Claim{Authority: lease.NewID(), Name: "n", Acquisition: lease.NewID(), Token: 1}
	err := m.Enter(t.Context(), "r", claim, func(context.Context) error {
		ctx, cancel := context.WithCancelCause(t.Context())
		waited := make(chan error, 1)
		go func() {
			waited <- m.Enter(ctx, "r", claim, func(context.Context) error { return errors.New("ran beside another") })
		}()
		if err := m.Enter(t.Context(), "other", claim, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		gaveUp := errors.New("gave up")
		cancel(gaveUp)
		if err := <-waited; !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, gaveUp) {
			t.Errorf("who waited: %v; want ErrUnavailable because it gave up", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
