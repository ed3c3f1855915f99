package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/operation"
)

// crowd is callers that do everything at once, to the same few operations of a few orders, by two stores.
type crowd struct {
	*office
	other *Operations

	mu   sync.Mutex
	jobs []operation.Job // that were begun, and may be over
}

func (c *crowd) job(r *rand.Rand) (operation.Job, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.jobs) == 0 {
		return operation.Job{}, false
	}
	return c.jobs[r.IntN(len(c.jobs))], true
}

// step is one call. It returns errors that are no answers.
func (c *crowd) step(ctx context.Context, r *rand.Rand) error {
	ops := []*Operations{c.ops, c.other}[r.IntN(2)]
	id := fmt.Sprint("o", r.IntN(60))
	job, begun := c.job(r)
	answer := operation.Answer{Known: []operation.Known{operation.NotSent, operation.Refused, operation.NoAnswer, operation.Effective}[r.IntN(4)], Result: []byte{byte(r.IntN(2))}}
	kind := r.IntN(11)
	if !begun && kind > 3 {
		kind = 1
	}
	var err error
	switch kind {
	case 0, 1:
		req := submission(id)
		req.Order = []string{"", "k0", "k1", "k2"}[r.IntN(4)]
		_, err = ops.Submit(ctx, req)
	case 2, 3:
		req := claimOf(1 + r.IntN(5))
		req.TTL = time.Duration(1+r.IntN(30)) * time.Millisecond
		req.Kinds[0].MaxAttempts = 1 + r.IntN(4)
		var jobs []operation.Job
		jobs, err = ops.Claim(ctx, req)
		c.mu.Lock()
		c.jobs = append(c.jobs, jobs...)
		c.mu.Unlock()
	case 4, 5:
		other, _ := c.job(r)
		_, err = ops.Complete(ctx, []operation.Completion{{Ref: job.Ref, Answer: answer}, {Ref: other.Ref, Answer: answer}})
	case 6:
		err = pgx.BeginFunc(ctx, c.own, func(tx pgx.Tx) error {
			return ops.CompleteTx(ctx, tx, operation.Completion{Ref: job.Ref, Answer: answer})
		})
	case 7:
		_, err = ops.Respond(ctx, operation.Response{ID: job.ID, Number: job.Number, Answer: answer})
	case 8:
		_, err = ops.Expire(ctx, 10)
		if err == nil {
			_, err = ops.Renew(ctx, operation.RenewRequest{Refs: []operation.Ref{job.Ref}, TTL: 10 * time.Millisecond})
		}
	case 9:
		_, err = ops.Cancel(ctx, id, "stress")
	case 10:
		_, err = ops.Due(ctx, operation.DueRequest{Kinds: []string{"k"}, Limit: 5, Hold: time.Millisecond})
		if err == nil {
			_, err = ops.Inquired(ctx, operation.Inquiry{ID: id, Finding: []operation.Finding{operation.Found, operation.Closed, operation.NotObserved}[r.IntN(3)]})
		}
	}
	answers := []error{nil, operation.ErrMismatch, operation.ErrDecided, operation.ErrUndecided, operation.ErrStale, operation.ErrNotFound}
	if slices.ContainsFunc(answers, func(a error) bool { return errors.Is(err, a) }) {
		return nil
	}
	return fmt.Errorf("call %d: %w", kind, err)
}

// TestOperationsAtOnce: whatever meets whatever, nobody is in a circle of locks, every call is answered, and what is stored agrees with itself.
func TestOperationsAtOnce(t *testing.T) {
	t.Parallel()
	const callers, steps = 8, 250
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := newOffice(t)
	c := &crowd{office: f, other: openStore(t, f.url(), Options{}).Operations()}
	var all sync.WaitGroup
	for seed := range uint64(callers) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a repeatable choice
			for range steps {
				if err := c.step(ctx, r); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := (&opHarness{f.harness}).Check(ctx); err != nil {
		t.Error(err)
	}
	if n, log := deadlocks(f.harness); n > 0 {
		t.Errorf("%d deadlocks: %.2000s", n, log)
	}
}
