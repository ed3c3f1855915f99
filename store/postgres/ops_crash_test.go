package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// opCycler is one worker's view of the operations of its kind: what it was told.
type opCycler struct {
	kind    string
	n       int
	highest fence.Token // that it was given
	done    []string    // completed, and told so
	id      string      // of the operation that is under way
	told    fence.Token // its attempt, 0: it is not known whether one was begun
	asked   bool        // its completion was asked for, and not answered
}

func (c *opCycler) submission() operation.SubmitRequest {
	req := submission(c.id)
	req.Kind, req.Fingerprint = c.kind, operation.FingerprintOf(c.kind, req.Request)
	return req
}

func (c *opCycler) claim(ctx context.Context, ops *Operations) (operation.Job, error) {
	req := claimOf(1)
	req.Kinds[0].Kind = c.kind
	jobs, err := ops.Claim(ctx, req)
	if err != nil {
		return operation.Job{}, err
	}
	if len(jobs) != 1 || jobs[0].ID != c.id || jobs[0].Number <= c.highest {
		return operation.Job{}, fmt.Errorf("claimed %v; want %s, above %d", jobs, c.id, c.highest)
	}
	c.highest = jobs[0].Number
	return jobs[0], nil
}

// run submits, claims and completes until the server does not answer.
func (c *opCycler) run(ctx context.Context, ops *Operations) error {
	for {
		c.n++
		c.id, c.told, c.asked = fmt.Sprintf("%s-%d", c.kind, c.n), 0, false
		if _, err := ops.Submit(ctx, c.submission()); err != nil {
			return opNotAnswered(err)
		}
		job, err := c.claim(ctx, ops)
		if err != nil {
			return opNotAnswered(err)
		}
		c.told, c.asked = job.Number, true
		errs, err := ops.Complete(ctx, []operation.Completion{done(job)})
		if err != nil {
			return opNotAnswered(err)
		}
		if errs[0] != nil {
			return errs[0]
		}
		c.done = append(c.done, c.id)
	}
}

// opNotAnswered is nil for the errors that a dead server causes.
func opNotAnswered(err error) error {
	if errors.Is(err, operation.ErrUnknown) || errors.Is(err, operation.ErrUnavailable) {
		return nil
	}
	return fmt.Errorf("a server that died was said to have answered: %w", err)
}

// settle looks after the restart. What was told is so; what was under way is as far as it was told, or further.
func (c *opCycler) settle(ctx context.Context, ops *Operations) error {
	for _, id := range c.done {
		rec, err := ops.Get(ctx, id)
		if err != nil || rec.State != operation.Succeeded || string(rec.Result) != "done" || len(rec.Attempts) != 1 {
			return fmt.Errorf("%s was completed before the crash: %+v, %w", id, rec, err)
		}
	}
	c.done = nil
	sub, err := ops.Submit(ctx, c.submission())
	if err != nil {
		return err
	}
	rec := sub.Record
	switch {
	case c.told > 0 && rec.Current() != c.told:
		return fmt.Errorf("%s: attempt %d was told before the crash: %+v", c.id, c.told, rec)
	case rec.State == operation.Succeeded && !c.asked:
		return fmt.Errorf("%s: completed before anybody asked for it: %+v", c.id, rec)
	case rec.State == operation.Pending: // nothing was begun: it goes on
		job, err := c.claim(ctx, ops)
		if err != nil {
			return err
		}
		rec.Attempts = []operation.Attempt{{Number: job.Number}}
	case rec.State != operation.Succeeded && rec.State != operation.Attempting:
		return fmt.Errorf("%s after the crash: %+v", c.id, rec)
	}
	if rec.State == operation.Succeeded {
		return nil
	}
	c.highest = max(c.highest, rec.Current())
	errs, err := ops.Complete(ctx, []operation.Completion{{Ref: operation.Ref{ID: c.id, Number: rec.Current()}, Answer: operation.Answer{Known: operation.Effective}}})
	return errors.Join(append(errs, err)...)
}

// TestServerEndsInMidOperation is fault 25: eight workers submit, claim and complete while the server goes down, again and again. Whatever was told is so afterwards, and numbers rise.
func TestServerEndsInMidOperation(t *testing.T) {
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const workers, rounds = 8, 3
			ctx := t.Context()
			r := newOwnRig(t, nil, Options{})
			all := make([]*opCycler, workers)
			for i := range all {
				all[i] = &opCycler{kind: fmt.Sprint("k", i)}
			}
			for range rounds {
				results := make(chan error, workers)
				for _, c := range all {
					go func() { results <- c.run(ctx, r.store.Operations()) }()
				}
				r.granted(ctx, 200)
				end(r.server, t)
				for range all {
					if err := <-results; err != nil {
						t.Error(err)
					}
				}
				r.restart()
				for _, c := range all {
					if err := r.patientlyOp(ctx, func() error { return c.settle(ctx, r.store.Operations()) }); err != nil {
						t.Fatal(err)
					}
				}
				if err := (&opHarness{r.harness}).Check(ctx); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// patientlyOp repeats a call while connections from the server's last life come out of the pool.
func (r *rig) patientlyOp(ctx context.Context, call func() error) (err error) {
	r.t.Helper()
	for range 50 {
		if err = call(); !errors.Is(err, operation.ErrUnavailable) && !errors.Is(err, operation.ErrUnknown) || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("no answer after the restart: %w", err)
}

// TestAnotherIncarnationsNumbersAreHigher: the first claim after a restart raises the sequence first, also where many claim at once.
func TestAnotherIncarnationsNumbersAreHigher(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := &office{rig: newOwnRig(t, nil, Options{})}
	f.ops = f.store.Operations()
	f.submit("a", "b", "c", "d", "e")
	before := f.begin()
	if err := f.exec(ctx, `UPDATE tenure.authority SET origin = origin - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	f.server.Crash(t)
	f.restart()
	floor := fence.Token(int64(time.Hour/time.Millisecond) << 10)
	results := make(chan error, 4)
	for range 4 {
		go func() {
			results <- f.patientlyOp(ctx, func() error {
				jobs, err := f.ops.Claim(ctx, claimOf(1))
				if err == nil && (len(jobs) != 1 || jobs[0].Number < floor || jobs[0].Number <= before.Number) {
					err = fmt.Errorf("claimed %+v after attempt %d; want a number above %d", jobs, before.Number, floor)
				}
				return err
			})
		}()
	}
	for range 4 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// lostOperation submits, claims and completes while the role's synchronous_commit is off, kills the server, and says what of it was lost.
func lostOperation(t *testing.T, twin []edit) string {
	t.Helper()
	ctx := t.Context()
	settings := lazyLog()
	settings["synchronous_commit"] = "off"
	r := newOwnRig(t, settings, Options{})
	for _, e := range twin {
		if err := r.edit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.own.Exec(ctx, `CHECKPOINT`); err != nil {
		t.Fatal(err)
	}
	f := &office{r, r.store.Operations()}
	f.submit("o", "p")
	job := f.begin()
	if errs, err := f.ops.Complete(ctx, []operation.Completion{done(job)}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	told := f.begin()
	r.server.Crash(t)
	r.restart()
	for id, want := range map[string]operation.State{job.ID: operation.Succeeded, told.ID: operation.Attempting} {
		var rec operation.Record
		err := r.patientlyOp(ctx, func() (err error) { rec, err = f.ops.Get(ctx, id); return err })
		if err != nil && !errors.Is(err, operation.ErrNotFound) {
			t.Fatal(err)
		}
		if rec.State != want {
			return fmt.Sprintf("%s was told to be %v, and is %v after the crash (%v)", id, want, rec.State, err)
		}
	}
	return ""
}

// TestOperationsAreDurable: what was told outlives the server, whatever the role's synchronous_commit is.
func TestOperationsAreDurable(t *testing.T) {
	t.Parallel()
	if lost := lostOperation(t, nil); lost != "" {
		t.Error(lost)
	}
}

// TestOperationsWithoutDurability: functions that leave the setting as it is lose what they told.
func TestOperationsWithoutDurability(t *testing.T) {
	t.Parallel()
	for range tries {
		if lost := lostOperation(t, []edit{{"durable", "IF current_setting('synchronous_commit') IN ('off', 'local') THEN", "IF false THEN"}}); lost != "" {
			t.Log(lost)
			return
		}
	}
	t.Error("nothing was lost: the test above shows nothing")
}
