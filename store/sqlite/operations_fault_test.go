package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// opCalls are the calls that write, on operations that newOpCalls has made ready for each.
func opCalls(d *desk, jobs map[string]operation.Job) map[string]func(ctx context.Context) error {
	ops := d.ops
	return map[string]func(ctx context.Context) error{
		"submit": func(ctx context.Context) error { _, err := ops.Submit(ctx, submission("new")); return err },
		"cancel": func(ctx context.Context) error { _, err := ops.Cancel(ctx, "waiting", "no more"); return err },
		"claim":  func(ctx context.Context) error { _, err := ops.Claim(ctx, claimOf(1)); return err },
		"renew":  func(ctx context.Context) error { return renewOne(ctx, ops, jobs["renewed"].Ref) },
		"complete": func(ctx context.Context) error {
			_, err := ops.Complete(ctx, []operation.Completion{done(jobs["completed"].Ref)})
			return err
		},
		"respond": func(ctx context.Context) error {
			_, err := ops.Respond(ctx, operation.Response{ID: "answered", Number: jobs["answered"].Number, Answer: operation.Answer{Known: operation.Effective}})
			return err
		},
		"inquired": func(ctx context.Context) error {
			_, err := ops.Inquired(ctx, operation.Inquiry{ID: "inquired", Finding: operation.Found})
			return err
		},
		"resolve": func(ctx context.Context) error {
			_, err := ops.Resolve(ctx, operation.Verdict{ID: "resolved", State: operation.Failed, Reason: "asked the bank"})
			return err
		},
		"expire": func(ctx context.Context) error { _, err := ops.Expire(ctx, 10); return err },
		"due": func(ctx context.Context) error {
			_, err := ops.Due(ctx, operation.DueRequest{Kinds: []string{"k"}, Limit: 10, Hold: time.Second})
			return err
		},
		"prune": func(ctx context.Context) error {
			_, err := ops.Prune(ctx, operation.PruneRequest{Bodies: time.Nanosecond, Limit: 10})
			return err
		},
	}
}

func renewOne(ctx context.Context, ops *Operations, ref operation.Ref) error {
	_, err := ops.Renew(ctx, operation.RenewRequest{Refs: []operation.Ref{ref}, TTL: time.Minute})
	return err
}

// prepareCalls makes an operation ready for each call that writes.
func prepareCalls(t *testing.T, s *Store) (*desk, map[string]operation.Job) {
	t.Helper()
	d := &desk{t, s.Operations()}
	jobs := map[string]operation.Job{}
	for _, id := range []string{"renewed", "completed", "answered", "inquired", "resolved", "expired", "pruned"} {
		d.submit(id)
		jobs[id] = d.claim()
	}
	for _, id := range []string{"inquired", "resolved", "pruned"} {
		answer := operation.Answer{Known: operation.NoAnswer}
		if id == "pruned" {
			answer.Known = operation.Effective
		}
		if errs, err := d.ops.Complete(t.Context(), []operation.Completion{{Ref: jobs[id].Ref, Answer: answer}}); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
	}
	plainExec(t, s.path, `UPDATE tenure_operation SET due = 0 WHERE id = 'expired'`)
	d.submit("waiting", "claimed")
	return d, jobs
}

func operationsByQuery(t *testing.T, s *Store) string {
	t.Helper()
	tx, err := s.readDB.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var all strings.Builder
	for _, table := range []string{"tenure_operation", "tenure_attempt", "tenure_conflict", "tenure_body"} {
		if err := dumpTable(t.Context(), tx, table, &all); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// A call whose context ends while it waits is withdrawn: certainly not applied, then or later.
func TestWithdrawnOperationCallsAreNotApplied(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	d, jobs := prepareCalls(t, s)
	before := operationsByQuery(t, s)
	g := holdWriter(t, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	var waiting sync.WaitGroup
	calls := opCalls(d, jobs)
	for name, call := range calls {
		waiting.Go(func() {
			err := call(ctx)
			if !errors.Is(err, operation.ErrUnavailable) || !strings.Contains(err.Error(), "changed my mind") {
				t.Errorf("%s: %v", name, err)
			}
			if err := call(ctx); !errors.Is(err, operation.ErrUnavailable) {
				t.Errorf("%s, with a context that had ended: %v", name, err)
			}
		})
	}
	waitQueued(t, s, len(calls))
	cancel(errors.New("changed my mind"))
	waiting.Wait() // while the writer is still held
	g.open()
	if after := operationsByQuery(t, s); after != before {
		t.Errorf("a withdrawn call was applied:\n%s\nbefore:\n%s", after, before)
	}
	for name, call := range calls {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
}

// A call that the writer has taken when its context ends may be applied: the caller is told so, repeating it settles it, and what the writer reads by then is not the caller's any more.
func TestTakenSubmissionIsUnknownAndSettles(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	ops := s.Operations()
	g := holdWriter(t, s)
	req := submission("op")
	mine := bytes.Clone(req.Request)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() {
		_, err := ops.Submit(ctx, req)
		answer <- err
	}()
	waitQueued(t, s, 1)
	second := queueGate(t, s)
	g.open()
	<-second.inside // the submission is in the same batch, before this one: it was taken
	cancel()
	err := <-answer
	wantKind(t, err, operation.ErrUnknown, "submit", `"op"`)
	copy(req.Request, "scribbled over")
	second.open()
	req.Request = mine
	got, err := ops.Submit(t.Context(), req)
	if err != nil || !got.Known || !bytes.Equal(got.Request, mine) {
		t.Errorf("the same again: %+v, %v", got, err)
	}
}

// On a full disk every call that writes says so, and changes nothing, or finds room; those that share a batch with one that finds none do not share its fate; and all goes on when there is space again.
func TestOperationsOnAFullDisk(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	d, jobs := prepareCalls(t, s)
	big := submission("big")
	big.Request = bytes.Repeat([]byte("x"), operation.MaxBody)
	limitPages(t, s, "(SELECT page_count + 4 FROM pragma_page_count)")
	g := holdWriter(t, s)
	results := map[string]chan error{}
	calls := opCalls(d, jobs)
	calls["big"] = func(ctx context.Context) error { _, err := d.ops.Submit(ctx, big); return err }
	for name, call := range calls {
		result := make(chan error, 1)
		results[name] = result
		go func() { result <- call(t.Context()) }()
	}
	waitQueued(t, s, len(calls))
	g.open()
	for name, result := range results {
		err := <-result
		if name == "big" {
			wantKind(t, err, operation.ErrUnavailable, "free some space")
			wantKind(t, err, ErrFull)
		} else if err != nil {
			t.Errorf("%s shared the fate of a call that found no space: %v", name, err)
		}
	}
	if _, err := d.ops.Get(t.Context(), "big"); !errors.Is(err, operation.ErrNotFound) {
		t.Errorf("of a submission that found no space: %v", err)
	}
	limitPages(t, s, "1000000")
	if got, err := d.ops.Submit(t.Context(), big); err != nil || got.Known {
		t.Errorf("the same when there is space again: %v, %v", got.Known, err)
	}
	if got := d.get("big"); len(got.Request) != operation.MaxBody {
		t.Errorf("a request of %d bytes", len(got.Request))
	}
	if err := checkOperations(t.Context(), s.readDB); err != nil {
		t.Error(err)
	}
}

// Not one page is left: no transition is half done, whichever it is.
func TestEachTransitionOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"submit", "claim", "complete", "respond"} {
		s := openPath(t, newPath(t))
		d, jobs := prepareCalls(t, s)
		reason := strings.Repeat("r", operation.MaxReason)
		call := opCalls(d, jobs)[name]
		switch name {
		case "submit":
			req := submission("new")
			req.Request = bytes.Repeat([]byte("x"), 1<<16)
			call = func(ctx context.Context) error { _, err := d.ops.Submit(ctx, req); return err }
		case "claim":
			claim := claimOf(1000)
			claim.Worker = strings.Repeat("w", operation.MaxWorker)
			for i := range 100 {
				d.submit(fmt.Sprint("more/", i))
			}
			call = func(ctx context.Context) error { _, err := d.ops.Claim(ctx, claim); return err }
		case "complete", "respond":
			answer := operation.Answer{Known: operation.Effective, Result: bytes.Repeat([]byte("x"), 1<<16), Reason: reason}
			ref := jobs["completed"].Ref
			call = func(ctx context.Context) error {
				_, err := d.ops.Respond(ctx, operation.Response{ID: ref.ID, Number: ref.Number, Answer: answer})
				return err
			}
			if name == "complete" {
				call = func(ctx context.Context) error {
					_, err := d.ops.Complete(ctx, []operation.Completion{{Ref: ref, Answer: answer}})
					return err
				}
			}
		}
		before := operationsByQuery(t, s)
		limitPages(t, s, "(SELECT page_count FROM pragma_page_count)")
		err := call(t.Context())
		wantKind(t, err, operation.ErrUnavailable)
		wantKind(t, err, ErrFull)
		if after := operationsByQuery(t, s); after != before {
			t.Errorf("%s has changed something:\n%s\nbefore:\n%s", name, after, before)
		}
		limitPages(t, s, "1000000")
		if err := call(t.Context()); err != nil {
			t.Errorf("%s when there is space again: %v", name, err)
		}
		if err := checkOperations(t.Context(), s.readDB); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Calls about many operations do not crowd into one transaction: every renewal of a lease waits for it.
func TestHeavyCallsDoNotShareABatch(t *testing.T) {
	t.Parallel()
	of := func(weights ...int) (all []*request) {
		for _, weight := range weights {
			all = append(all, &request{weight: weight})
		}
		return all
	}
	turn := &request{turn: make(chan struct{})}
	for _, c := range []struct {
		urgent, queue []*request
		taken         []int // batch by batch
	}{
		{nil, of(1000, 1000, 1), []int{1, 1, 1}},
		{nil, of(100, 100, 100), []int{2, 1}},
		{nil, of(0, 255, 1), []int{2, 1}},
		{nil, of(0, 1000, 0), []int{1, 1, 1}},
		{nil, of(maxBatch, 0), []int{1, 1}},
		{of(1000, 1000), of(1000, 0), []int{2, 2}}, // neither starves the other
		{of(0, 1000), of(0, 0), []int{3, 1}},
		{of(100, 0), append(of(100), turn), []int{3, 1}},
	} {
		w := &writer{urgent: c.urgent, queue: c.queue}
		for i, want := range c.taken {
			if got := len(w.take()); got != want {
				t.Errorf("%d urgent, %d others: batch %d takes %d, want %d", len(c.urgent), len(c.queue), i, got, want)
			}
		}
		if len(w.urgent)+len(w.queue) > 0 {
			t.Errorf("%d urgent and %d others are left", len(w.urgent), len(w.queue))
		}
	}
}

// A claim of large requests hands out fewer than it may, and the others to whoever asks next.
func TestClaimOfLargeRequestsIsBounded(t *testing.T) {
	t.Parallel()
	const n = claimAtOnce + 4
	ops := openPath(t, newPath(t)).Operations()
	req := submission("")
	req.Request = bytes.Repeat([]byte("x"), operation.MaxBody)
	for i := range n {
		req.ID = fmt.Sprint(i)
		if _, err := ops.Submit(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{claimAtOnce, n - claimAtOnce, 0} {
		jobs, err := ops.Claim(t.Context(), claimOf(n))
		if err != nil || len(jobs) != want {
			t.Fatalf("claimed %d, %v, want %d", len(jobs), err, want)
		}
		for _, job := range jobs {
			if !bytes.Equal(job.Request, req.Request) {
				t.Fatalf("%s: a request of %d bytes", job.ID, len(job.Request))
			}
		}
	}
}
