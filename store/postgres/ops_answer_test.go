package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/operation"
)

// opAnswers are the calls whose answer is lost. Each is made again, and its second answer is the truth about the first.
func opAnswers() map[string]struct {
	match string
	call  func(context.Context, *office) (string, error)
	want  string
} {
	type row = struct {
		match string
		call  func(context.Context, *office) (string, error)
		want  string
	}
	completion := operation.Completion{Ref: operation.Ref{ID: "o", Number: 1}, Answer: operation.Answer{Known: operation.NoAnswer}}
	told := func(rec operation.Record, err error) (string, error) {
		return fmt.Sprint(rec.State, len(rec.Attempts)), err
	}
	return map[string]row{
		"submit": {"tenure.op_submit_many", func(ctx context.Context, f *office) (string, error) {
			sub, err := f.ops.Submit(ctx, submission("new"))
			return fmt.Sprint(sub.Known, sub.State), err
		}, "true pending"},
		"submit with an order": {"tenure.op_submit(", func(ctx context.Context, f *office) (string, error) {
			sub, err := f.ops.Submit(ctx, ordered("new"))
			return fmt.Sprint(sub.Known, sub.State), err
		}, "true pending"},
		"claim": {"tenure.op_claim_many", func(ctx context.Context, f *office) (string, error) {
			jobs, err := f.ops.Claim(ctx, claimOf(1))
			return fmt.Sprint(len(jobs)), err
		}, "0"}, // nobody works on what was claimed: it is uncertain when the claim expires
		"complete": {"tenure.op_complete_many", func(ctx context.Context, f *office) (string, error) {
			errs, err := f.ops.Complete(ctx, []operation.Completion{completion})
			return fmt.Sprint(len(errs) == 1 && errors.Is(errs[0], operation.ErrStale)), err
		}, "true"},
		"renew": {"tenure.op_renew", func(ctx context.Context, f *office) (string, error) {
			lost, err := f.ops.Renew(ctx, operation.RenewRequest{Refs: []operation.Ref{completion.Ref}, TTL: time.Minute})
			return fmt.Sprint(len(lost)), err
		}, "0"},
		"cancel": {"tenure.op_cancel", func(ctx context.Context, f *office) (string, error) { return told(f.ops.Cancel(ctx, "o", "")) }, "attempting 1"},
		"respond": {"tenure.op_respond", func(ctx context.Context, f *office) (string, error) {
			return told(f.ops.Respond(ctx, operation.Response{ID: "o", Number: 1, Answer: operation.Answer{Known: operation.Effective}}))
		}, "succeeded 1"},
		"expire": {"tenure.op_expire", func(ctx context.Context, f *office) (string, error) {
			n, err := f.ops.Expire(ctx, 10)
			return fmt.Sprint(n), err
		}, "0"},
		"due": {"tenure.op_due", func(ctx context.Context, f *office) (string, error) {
			recs, err := f.ops.Due(ctx, operation.DueRequest{Kinds: []string{"k"}, Limit: 1, Hold: time.Minute})
			return fmt.Sprint(len(recs)), err
		}, "0"},
	}
}

// TestAnswersOfOperationsAreLost: the commit's answer is lost; the call says that the outcome is unknown, and asking again tells what it was.
func TestAnswersOfOperationsAreLost(t *testing.T) {
	for name, a := range opAnswers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			l := newLossy(t, Options{})
			f := &office{l.rig, l.store.Operations()}
			f.submit("o")
			if name != "claim" {
				f.begin()
			}
			lost := l.lose(a.match, nil)
			if got, err := a.call(ctx, f); !errors.Is(err, operation.ErrUnknown) {
				t.Fatalf("the lost answer: %q, %v; want ErrUnknown", got, err)
			}
			lost()
			if got, err := a.call(ctx, f); err != nil || got != a.want {
				t.Fatalf("asked again: %q, %v; want %q", got, err, a.want)
			}
			if err := (&opHarness{l.harness}).Check(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestStrangersShareNoFate: among calls that are coalesced one meets a row that somebody has locked, or an id that somebody is submitting. The others are answered while it waits.
func TestStrangersShareNoFate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newOffice(t)
	const n = 100
	for i := range n {
		f.submit(fmt.Sprint("o", i))
	}
	jobs, err := f.ops.Claim(ctx, claimOf(n))
	if err != nil || len(jobs) != n {
		t.Fatal(len(jobs), err)
	}
	x := f.rig.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.operation WHERE id = 'o7' FOR UPDATE`)
	if _, err := f.ops.SubmitTx(ctx, x, submission("new7")); err != nil {
		t.Fatal(err)
	}
	late := make(chan string, 2)
	var others sync.WaitGroup
	for i, j := range jobs {
		complete := func() {
			if errs, err := f.ops.Complete(ctx, []operation.Completion{done(j)}); err != nil || errs[0] != nil {
				t.Error(j.ID, errs, err)
			}
		}
		id := fmt.Sprint("new", i)
		submit := func() {
			if sub, err := f.ops.Submit(ctx, submission(id)); err != nil || sub.Known != (id == "new7") {
				t.Error(id, sub.Known, err)
			}
		}
		if j.ID == "o7" {
			go func() { complete(); late <- "completed" }()
		} else {
			others.Go(complete)
		}
		if id == "new7" {
			go func() { submit(); late <- "submitted" }()
		} else {
			others.Go(submit)
		}
	}
	others.Wait() // for ever, if they waited for x
	select {
	case what := <-late:
		t.Errorf("%s beside a transaction that has not ended", what)
	default:
	}
	x.commit(ctx)
	<-late
	<-late
	f.is("o7", operation.Succeeded)
}

// TestRenewalBesideALock: a claim whose row a transaction holds is not lost, and does not keep the others from being renewed.
func TestRenewalBesideALock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newOffice(t)
	f.submit("a", "b")
	a, b := f.begin(), f.begin()
	x := f.rig.begin(ctx, pgx.ReadCommitted)
	if err := f.ops.CompleteTx(ctx, x, done(a)); err != nil {
		t.Fatal(err)
	}
	req := operation.RenewRequest{Refs: []operation.Ref{a.Ref, b.Ref, {ID: "a", Number: a.Number + 100}}, TTL: time.Hour}
	lost, err := f.ops.Renew(ctx, req)
	if err != nil || len(lost) != 1 || lost[0].Number != a.Number+100 {
		t.Fatalf("lost %v, %v", lost, err)
	}
	if rec := f.is("b", operation.Attempting); rec.StepIn < 30*time.Minute {
		t.Errorf("b was not renewed: %v", rec.StepIn)
	}
	if n, err := f.ops.Expire(ctx, 10); err != nil || n != 0 {
		t.Errorf("expired %d, %v", n, err)
	}
	x.commit(ctx)
	if lost, err = f.ops.Renew(ctx, req); err != nil || len(lost) != 2 {
		t.Errorf("after the commit lost %v, %v", lost, err)
	}
}

// TestCallsAfterShutdown are certainly not applied.
func TestCallsAfterShutdown(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := testdb.Shared(t)
	store := openStore(t, s.URL(s.Template(t, install)), Options{})
	ops := store.Operations()
	shutDown(t, store)
	_, submit := ops.Submit(ctx, submission("o"))
	_, claim := ops.Claim(ctx, claimOf(1))
	_, complete := ops.Complete(ctx, []operation.Completion{{Ref: operation.Ref{ID: "o", Number: 1}, Answer: operation.Answer{Known: operation.Effective}}})
	_, list := ops.List(ctx, operation.ListRequest{Limit: 1})
	for what, err := range map[string]error{"submit": submit, "claim": claim, "complete": complete, "list": list} {
		if !errors.Is(err, operation.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
