package operation_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
)

type charge struct {
	Cents int    `json:"cents"`
	Card  string `json:"card,omitempty"`
}

type receipt struct {
	Number string `json:"number"`
}

func charges() operation.Kind[charge, receipt] {
	return operation.Kind[charge, receipt]{Name: "charge", Redact: func(c charge) charge { c.Card = ""; return c }}
}

func claimOne(t *testing.T, store *memory.Operations) operation.Job {
	t.Helper()
	jobs, err := store.Claim(t.Context(), operation.ClaimRequest{TTL: time.Minute, Limit: 1, Kinds: []operation.KindClaim{{Kind: "charge", Limit: 1, Timeout: time.Minute, MaxAttempts: 3}}})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	return jobs[0]
}

// TestCallerWaitsLessThanTheWorkTakes is O42: the caller is told that nothing is decided yet, with the id and the state, and never that it failed; and asks again.
func TestCallerWaitsLessThanTheWorkTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOperations(memory.Options{Clock: clock.Monotonic()})
		if _, err := charges().Submit(t.Context(), store, "c1", charge{Cents: 5}); err != nil {
			t.Fatal(err)
		}
		job := claimOne(t, store)
		go func() {
			<-time.After(5 * time.Second)
			_, _ = store.Complete(context.Background(), []operation.Completion{{Ref: job.Ref, Answer: operation.Answer{Known: operation.Effective, Result: []byte(`{"number":"r-1"}`)}}})
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		out, err := charges().Wait(ctx, store, "c1")
		var undecided *operation.UndecidedError
		if !errors.As(err, &undecided) || undecided.ID != "c1" || undecided.State != operation.Attempting || out.State != operation.Attempting {
			t.Errorf("%v, %v", out.State, err)
		}
		if !errors.Is(err, operation.ErrUndecided) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, operation.ErrDecided) {
			t.Errorf("%v matches the wrong kinds", err)
		}
		began := time.Now()
		out, err = charges().Wait(t.Context(), store, "c1")
		if err != nil || out.State != operation.Succeeded || out.Value.Number != "r-1" {
			t.Errorf("%+v, %v", out, err)
		}
		if waited := time.Since(began); waited > 5*time.Second {
			t.Errorf("it was told after %v, although decided after 4 s", waited)
		}
	})
}

// What is left out of a stored request still tells two requests apart, and the order of fields does not.
func TestRequestIsCanonical(t *testing.T) {
	one, err := charges().Request("c", charge{Cents: 5, Card: "4111"})
	if err != nil {
		t.Fatal(err)
	}
	other, _ := charges().Request("c", charge{Cents: 5, Card: "4112"})
	if string(one.Request) != `{"cents":5}` || one.Fingerprint == other.Fingerprint {
		t.Errorf("%s, %s, %v", one.Request, other.Request, one.Fingerprint == other.Fingerprint)
	}
	a, err := operation.Canonical(struct {
		B int64
		A string
	}{1<<53 + 1, "x<y"})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := operation.Canonical(map[string]any{"A": "x<y", "B": int64(1<<53 + 1)})
	if string(a) != string(b) || string(a) != `{"A":"x\u003cy","B":9007199254740993}` {
		t.Errorf("%s and %s", a, b)
	}
	if _, err := operation.Canonical(func() {}); !errors.Is(err, operation.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// A wait for what is not known ends at once, one with a store that does not answer when its context does.
func TestWaitForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewOperations(memory.Options{Clock: clock.Monotonic()})
		if _, err := operation.Wait(t.Context(), store, "nobody"); !errors.Is(err, operation.ErrNotFound) {
			t.Errorf("%v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		rec, err := operation.Wait(ended, store, "nobody")
		if !errors.Is(err, operation.ErrUndecided) || errors.Is(err, operation.ErrNotFound) || rec.ID != "" {
			t.Errorf("%+v, %v", rec, err)
		}
	})
}

// A result that is no result of the kind, and an operation of another kind, come with the record.
func TestOutcomeOfAnotherKind(t *testing.T) {
	rec := operation.Record{Operation: operation.Operation{ID: "x", Kind: "charge", State: operation.Succeeded, Result: []byte(`[1]`)}}
	if out, err := charges().Outcome(rec); !errors.Is(err, operation.ErrInvalid) || out.ID != "x" {
		t.Errorf("%+v, %v", out, err)
	}
	rec.Kind = "refund"
	if _, err := charges().Outcome(rec); !errors.Is(err, operation.ErrMismatch) {
		t.Errorf("%v", err)
	}
}

// TestSubmitOptions: each sets what it names, and nothing else.
func TestSubmitOptions(t *testing.T) {
	plain, err := charges().Request("a", charge{})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		option operation.SubmitOption
		set    func(*operation.SubmitRequest)
	}{
		"run in":       {operation.RunIn(time.Minute), func(r *operation.SubmitRequest) { r.RunIn = time.Minute }},
		"priority":     {operation.WithPriority(2), func(r *operation.SubmitRequest) { r.Priority = 2 }},
		"order":        {operation.InOrder("k"), func(r *operation.SubmitRequest) { r.Order = "k" }},
		"compensating": {operation.Compensating("b"), func(r *operation.SubmitRequest) { r.Compensates = "b" }},
	} {
		want := plain
		c.set(&want)
		if got, err := charges().Request("a", charge{}, c.option); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}
