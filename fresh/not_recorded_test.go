package fresh

import (
	"context"
	"errors"
	"testing"

	"github.com/tenure-go/tenure/budget"
)

// TestWhatWasNotRecordedMayHaveBeenDone: what is known of a write does not follow from why its record could not be made.
func TestWhatWasNotRecordedMayHaveBeenDone(t *testing.T) {
	plain := errors.New("connection reset")
	for name, record := range map[string]error{
		"no connection": &budget.Error{Class: budget.NotSent, Err: errors.New("no connection")}, "no time": &budget.NoTimeError{}, "throttled": budget.ErrThrottled,
		"refused": &budget.Error{Class: budget.Refused, Err: errors.New("no")}, "gave up": &budget.GaveUpError{Why: budget.ErrAttempts, Last: plain, Real: plain, Class: budget.NotSent, Attempts: 3},
	} {
		r := testRoutes(t, func(context.Context, Pending) (string, error) { return "", record })
		err := r.Write(t.Context(), "sell", 1, func(context.Context) error { return plain })
		if class := budget.ClassOf(err); class != budget.Unknown {
			t.Errorf("%s: %v of %v", name, class, err)
		}
	}
	r := testRoutes(t, func(context.Context, Pending) (string, error) { return "", plain })
	err := r.Write(t.Context(), "sell", 1, func(context.Context) error { return &budget.Error{Class: budget.NotSent, Err: plain} })
	if class := budget.ClassOf(err); class != budget.Unknown { // it may be carried out by its record
		t.Errorf("%v of %v", class, err)
	}
}

// TestARecordIsNobodysAttempt: it outlives the request, and who repeats that does not repeat it.
func TestARecordIsNobodysAttempt(t *testing.T) {
	b, err := budget.Start(t.Context(), defaultTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	r := testRoutes(t, func(ctx context.Context, _ Pending) (string, error) {
		if budget.ForbidsRetry(ctx) || budget.AttemptNumber(ctx) != 0 {
			t.Errorf("marked %v, attempt %d", budget.ForbidsRetry(ctx), budget.AttemptNumber(ctx))
		}
		return "r-1", nil
	})
	err = budget.Do(budget.NoRetry(b.Context()), budget.Policy{}, func(ctx context.Context) error {
		return r.Write(ctx, "sell", 1, func(context.Context) error { return errors.New("x") })
	})
	if !errors.Is(err, ErrPending) {
		t.Error(err)
	}
}
