package fresh

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/budget"
)

func record(context.Context, Pending) (string, error) { return "r-1", nil }

// TestAWriteWithoutAPolicyDoesNotStart, and neither does a route whose policy does not fit.
func TestAWriteWithoutAPolicyDoesNotStart(t *testing.T) {
	for name, route := range map[string]Route{
		"no policy": {Name: "sell", Kind: Write}, "old data for a write": {Name: "sell", Kind: Write, Policy: ServeOld{time.Minute}}, "nobody records": {Name: "sell", Kind: Write, Policy: LeavePending{}},
		"a negative timeout": {Name: "sell", Kind: Write, Policy: LeavePending{record, -1}}, "a read left pending": {Name: "seats", Kind: Read, Policy: LeavePending{Record: record}},
		"no age": {Name: "seats", Kind: Read, Policy: ServeOld{}}, "no kind": {Name: "seats", Policy: Refuse{}}, "no name": {Kind: Read}, "a pointer": {Name: "seats", Kind: Read, Policy: (*ServeOld)(nil)},
	} {
		if r, err := NewRoutes(Route{Name: "other", Kind: Read}, route); !errors.Is(err, ErrInvalid) || r != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewRoutes(Route{Name: "a", Kind: Read}, Route{Name: "a", Kind: Read}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

func testRoutes(t *testing.T, record func(context.Context, Pending) (string, error)) *Routes {
	t.Helper()
	r, err := NewRoutes(Route{Name: "seats", Kind: Read, Policy: ServeOld{time.Minute}}, Route{Name: "price", Kind: Read}, Route{Name: "hold", Kind: Write, Policy: Refuse{}},
		Route{Name: "sell", Kind: Write, Policy: LeavePending{Record: record}}, Route{Name: "note", Kind: Write, Policy: Refuse{}, Away: func(err error) bool { return errors.Is(err, errTest) }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestServe: a stale value is served where the route allows its age, and nowhere else.
func TestServe(t *testing.T) {
	r := testRoutes(t, record)
	for _, c := range []struct {
		route  string
		value  Value[int]
		err    error
		served bool
		is     error
	}{
		{"seats", Value[int]{1, time.Hour, Fresh, nil}, nil, true, nil},
		{"seats", Value[int]{1, time.Minute, Stale, errTest}, nil, true, nil},
		{"seats", Value[int]{1, time.Minute + 1, Stale, errTest}, nil, false, ErrAway},
		{"seats", Value[int]{}, errTest, false, errTest},
		{"price", Value[int]{1, 0, Fresh, nil}, nil, true, nil},
		{"price", Value[int]{1, 1, Stale, errTest}, nil, false, ErrAway},
		{"price", Value[int]{1, 1, Stale, nil}, nil, false, ErrAway},
		{"sell", Value[int]{1, 1, Fresh, nil}, nil, false, ErrInvalid},
		{"nowhere", Value[int]{1, 1, Fresh, nil}, nil, false, ErrInvalid},
	} {
		v, err := Serve(t.Context(), r, c.route, func(context.Context) (Value[int], error) { return c.value, c.err })
		if (err == nil) != c.served || !errors.Is(err, c.is) || c.served && v != c.value || c.value.Cause != nil && err != nil && !errors.Is(err, errTest) {
			t.Errorf("%s, %+v: %+v, %v", c.route, c.value, v, err)
		}
	}
}

// TestWrite: what a write does when its source is away, and that an answer of the source is passed on.
func TestWrite(t *testing.T) {
	var recorded []Pending
	r := testRoutes(t, func(_ context.Context, p Pending) (string, error) {
		recorded = append(recorded, p)
		return "r-1", nil
	})
	sent, unknown := &budget.Error{Class: budget.NotSent, Err: errTest}, &budget.Error{Class: budget.Unknown, Err: errTest}
	later, never := &budget.Error{Class: budget.Refused, Again: true, Err: errTest}, &budget.Error{Class: budget.Refused, Err: errTest}
	for _, c := range []struct {
		route   string
		err     error
		want    error // nil: the error itself
		pending bool
		class   budget.Class
	}{
		{"hold", nil, nil, false, 0}, {"hold", sent, ErrAway, false, budget.NotSent}, {"hold", unknown, ErrAway, false, budget.Unknown}, {"hold", later, ErrAway, false, budget.Refused},
		{"hold", never, nil, false, budget.Refused}, {"hold", errTest, ErrAway, false, budget.Unknown},
		{"sell", nil, nil, false, 0}, {"sell", sent, ErrPending, true, budget.NotSent}, {"sell", unknown, ErrPending, true, budget.Unknown}, {"sell", later, ErrPending, true, budget.Refused},
		{"sell", never, nil, false, budget.Refused},
		{"note", errTest, ErrAway, false, budget.Unknown}, {"note", context.Canceled, nil, false, budget.Unknown}, {"seats", nil, ErrInvalid, false, budget.Unknown},
	} {
		recorded = nil
		err := r.Write(t.Context(), c.route, 42, func(context.Context) error {
			if c.route == "seats" {
				t.Error("called")
			}
			return c.err
		})
		want := c.want
		if want == nil {
			want = c.err
		}
		if !errors.Is(err, want) || (len(recorded) == 1) != c.pending || c.want == nil && errors.Is(err, ErrAway) {
			t.Errorf("%s, %v: %v, recorded %v", c.route, c.err, err, recorded)
		}
		if !c.pending {
			if class := budget.ClassOf(err); class != c.class {
				t.Errorf("%s, %v: class %v", c.route, c.err, class)
			}
			continue
		}
		var p *PendingError
		if !errors.As(err, &p) || p.Ref != "r-1" || p.Class != c.class || recorded[0] != (Pending{"sell", 42, c.class, c.err}) || errors.Is(err, errTest) || budget.ClassOf(err) != budget.Unknown {
			t.Errorf("%s, %v: %v, recorded %+v", c.route, c.err, err, recorded)
		}
	}
}

// TestRecordHasItsOwnTime: a caller whose time is used up still has its request recorded, and what could not be recorded is not called pending.
func TestRecordHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRoutes(t, func(ctx context.Context, p Pending) (string, error) {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != 5*time.Second || budget.From(ctx).Remaining() != 5*time.Second {
				t.Errorf("until %v, %v", deadline, ok)
			}
			if p.Request == "too much" {
				return "", budget.ErrThrottled
			}
			return "r-2", ctx.Err()
		})
		b, err := budget.Start(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer b.End()
		wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		if err := r.Write(b.Context(), "sell", "a seat", wait); !errors.Is(err, ErrPending) {
			t.Error(err)
		}
		var lost *NotRecordedError
		if err := r.Write(b.Context(), "sell", "too much", wait); !errors.As(err, &lost) || errors.Is(err, ErrPending) || !errors.Is(err, ErrAway) || !errors.Is(err, budget.ErrThrottled) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
