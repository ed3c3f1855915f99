package budget

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t testing.TB, total time.Duration, o ...Option) *Budget {
	t.Helper()
	b, err := Start(t.Context(), total, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.End)
	return b
}

func TestStartRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		total, reserve time.Duration
	}{
		"no total": {0, 0}, "a negative total": {-time.Second, 0}, "more than a year": {math.MaxInt64, 0}, "a negative reserve": {time.Second, -1},
		"a reserve of all": {time.Second, time.Second}, "a reserve above all": {time.Second, time.Minute},
	} {
		if _, err := Start(t.Context(), c.total, Reserve(c.reserve)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ended, time.Second); !errors.Is(err, ErrNoTime) || ClassOf(err) != NotSent {
		t.Errorf("a context that has ended: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Start(ctx, time.Minute, Reserve(time.Second)); !errors.Is(err, ErrNoTime) {
			t.Errorf("a context that has no more than the reserve: %v", err)
		}
		b, err := Start(ctx, time.Minute, Reserve(time.Second/2))
		if err != nil {
			t.Fatal(err)
		}
		defer b.End()
		if b.Total() != time.Second || b.Remaining() != time.Second/2 {
			t.Errorf("total %v, remaining %v", b.Total(), b.Remaining())
		}
	})
}

// TestAttempt: an attempt ends before the reserve and after its own timeout, and is not started where its minimum does not fit.
func TestAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 10*time.Second, Reserve(time.Second))
		ctx, done, err := b.Attempt(b.Context(), Try{Name: "a", Timeout: 6 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		done(ctx.Err())
		if b.Remaining() != 3*time.Second || b.RemainingTotal() != 4*time.Second {
			t.Errorf("%v, %v", b.Remaining(), b.RemainingTotal())
		}
		for name, c := range map[string]struct {
			try  Try
			want error
		}{
			"the timeout is the minimum": {Try{Timeout: 4 * time.Second}, ErrNoTime}, "a minimum of its own": {Try{Timeout: 9 * time.Second, Minimum: 3*time.Second + 1}, ErrNoTime},
			"a negative timeout": {Try{Timeout: -1}, ErrInvalid}, "a negative minimum": {Try{Minimum: -1}, ErrInvalid}, "a minimum above the timeout": {Try{Timeout: 1, Minimum: 2}, ErrInvalid},
		} {
			if _, _, err := b.Attempt(b.Context(), c.try); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		ctx, done, err = b.Attempt(b.Context(), Try{Timeout: 9 * time.Second, Minimum: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		done(nil)
		if b.RemainingTotal() != time.Second || b.Context().Err() != nil {
			t.Errorf("the reserve was used: %v left", b.RemainingTotal())
		}
		var no *NoTimeError
		if _, _, err := b.Attempt(b.Context(), Try{Name: "late"}); !errors.As(err, &no) || no.Needs != time.Millisecond || no.Left != 0 || no.Reserve != time.Second {
			t.Errorf("%+v", err)
		}
		<-b.Context().Done()
		if _, _, err := b.Attempt(b.Context(), Try{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestSplit: each dependency has its share; the minimum of one that was not begun is kept for it.
func TestSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 11*time.Second, Reserve(time.Second))
		for name, parts := range map[string][]Part{
			"shares over 1": {{"a", 0.6, 0}, {"b", 0.5, 0}}, "no share": {{"a", 0, 0}}, "a negative share": {{"a", -0.1, 0}}, "NaN": {{"a", math.NaN(), 0}}, "infinite": {{"a", math.Inf(1), 0}},
			"no name": {{"", 0.5, 0}}, "one name twice": {{"a", 0.1, 0}, {"a", 0.1, 0}}, "a negative minimum": {{"a", 0.1, -1}},
		} {
			if _, err := b.Split(parts...); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, parts := range map[string][]Part{"minimums that do not fit": {{"a", 0.1, 6 * time.Second}, {"b", 0.1, 5 * time.Second}}, "minimums that overflow": {{"a", 0.1, math.MaxInt64}, {"b", 0.1, math.MaxInt64}}} {
			if _, err := b.Split(parts...); !errors.Is(err, ErrNoTime) {
				t.Errorf("%s: %v", name, err)
			}
		}
		s, err := b.Split(Part{"stock", 0.5, 0}, Part{"price", 0.3, 0}, Part{"tax", 0.2, 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		stock, err := s.Part("stock")
		if err != nil || stock.Total() != 5*time.Second || From(stock.Context()) != stock {
			t.Fatalf("%v, %v", stock, err)
		}
		<-time.After(7 * time.Second)
		if stock.Context().Err() == nil {
			t.Error("the part of stock goes on")
		}
		stock.End()
		stock.End()
		price, err := s.Part("price") // 3 s are left, and 2 are kept for tax
		if err != nil || price.Total() != time.Second {
			t.Fatalf("%v, %v", price, err)
		}
		price.End()
		for _, name := range []string{"price", "unknown"} {
			if _, err := s.Part(name); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		<-time.After(1500 * time.Millisecond)
		if _, err := s.Part("tax"); !errors.Is(err, ErrNoTime) {
			t.Errorf("a minimum that does not fit any more: %v", err)
		}
		if text := b.Explain().String(); strings.Count(text, "  part ") != 2 || !strings.Contains(text, "not started  tax") {
			t.Error(text)
		}
	})
}

// TestExplainIsBounded: what is not kept is counted.
func TestExplainIsBounded(t *testing.T) {
	b := start(t, time.Minute)
	for range maxEntries + 44 {
		_, done, err := b.Attempt(b.Context(), Try{Name: "x"})
		if err != nil {
			t.Fatal(err)
		}
		done(nil)
	}
	e := b.Explain()
	if len(e.Entries) != maxEntries || e.Dropped != 44 || !strings.Contains(e.String(), "and 44 more") {
		t.Errorf("%d entries, %d dropped", len(e.Entries), e.Dropped)
	}
	if attrs := e.LogValue().Group(); len(attrs) != 5+maxEntries+1 {
		t.Errorf("%d attributes", len(attrs))
	}
}

// TestManyBudgets: 10^6 at the same time (a tenth with the race detector) end, and leave neither timers nor goroutines.
func TestManyBudgets(t *testing.T) {
	const n = many
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all := make([]*Budget, n)
	var group sync.WaitGroup
	for part := range 8 {
		group.Go(func() {
			for i := part; i < n; i += 8 {
				b, err := Start(ctx, time.Hour, Reserve(time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				all[i] = b
			}
		})
	}
	group.Wait()
	for _, b := range all {
		b.End()
		if b.Context().Err() == nil {
			t.Fatal("a budget goes on after its end")
		}
	}
}
