package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/operation"
)

// transition is one move of the operation that has its name, which stands ready for it.
type transition struct {
	id       string
	call     func(context.Context, *office) error
	from, to string // see tellOp
}

// tellOp says of an operation what its transitions change.
func tellOp(rec operation.Record, err error) string {
	if errors.Is(err, operation.ErrNotFound) {
		return "none"
	}
	return fmt.Sprint(rec.State, " ", len(rec.Attempts), " ", rec.CancelWished, " ", rec.UndoneBy, err)
}

// claimAlone claims one operation by its id. Its provider can be asked, and no attempt follows one whose outcome is not known.
func claimAlone(ctx context.Context, f *office, id string, ttl time.Duration) ([]operation.Job, error) {
	req := claimOf(1)
	req.ID, req.TTL, req.Kinds[0].Window = id, ttl, 0
	return f.ops.Claim(ctx, req)
}

// current completes an operation's current attempt as record says.
func (f *office) current(ctx context.Context, id string, a operation.Answer) error {
	rec, err := f.ops.Get(ctx, id)
	if err != nil {
		return err
	}
	errs, err := f.ops.Complete(ctx, []operation.Completion{{Ref: operation.Ref{ID: id, Number: rec.Current()}, Answer: a}})
	return errors.Join(append(errs, err)...)
}

// compensating is the submission that undoes an operation.
func compensating(id, target string) operation.SubmitRequest {
	req := submission(id)
	req.Compensates = target
	return req
}

func transitions() []transition {
	effective := operation.Answer{Known: operation.Effective, Result: []byte("done")}
	return []transition{
		{"submit", func(ctx context.Context, f *office) error {
			_, err := f.ops.Submit(ctx, submission("submit"))
			return err
		}, "none", "pending 0 false <nil>"},
		// The claim is the mark that something may be sent: there is no other record before the sending.
		{"claim", func(ctx context.Context, f *office) error {
			_, err := claimAlone(ctx, f, "claim", time.Minute)
			return err
		}, "pending 0 false <nil>", "attempting 1 false <nil>"},
		{"complete", func(ctx context.Context, f *office) error { return f.current(ctx, "complete", effective) }, "attempting 1 false <nil>", "succeeded 1 false <nil>"},
		{"no answer", func(ctx context.Context, f *office) error {
			return f.current(ctx, "no answer", operation.Answer{Known: operation.NoAnswer})
		}, "attempting 1 false <nil>", "uncertain 1 false <nil>"},
		{"expire", func(ctx context.Context, f *office) error { _, err := f.ops.Expire(ctx, 10); return err }, "attempting 1 false <nil>", "uncertain 1 false <nil>"},
		{"found", func(ctx context.Context, f *office) error {
			_, err := f.ops.Inquired(ctx, operation.Inquiry{ID: "found", Finding: operation.Found, Result: []byte("done")})
			return err
		}, "uncertain 1 false <nil>", "succeeded 1 false <nil>"},
		{"closed", func(ctx context.Context, f *office) error {
			_, err := f.ops.Inquired(ctx, operation.Inquiry{ID: "closed", Finding: operation.Closed})
			return err
		}, "uncertain 1 false <nil>", "failed 1 false <nil>"},
		{"resolve", func(ctx context.Context, f *office) error {
			_, err := f.ops.Resolve(ctx, operation.Verdict{ID: "resolve", State: operation.Failed, Reason: "looked"})
			return err
		}, "uncertain 1 false <nil>", "failed 1 false <nil>"},
		{"respond", func(ctx context.Context, f *office) error {
			_, err := f.ops.Respond(ctx, operation.Response{ID: "respond", Answer: effective})
			return err
		}, "uncertain 1 false <nil>", "succeeded 1 false <nil>"},
		{"cancel", func(ctx context.Context, f *office) error { _, err := f.ops.Cancel(ctx, "cancel", ""); return err }, "pending 0 false <nil>", "cancelled 0 false <nil>"},
		{"wish", func(ctx context.Context, f *office) error { _, err := f.ops.Cancel(ctx, "wish", ""); return err }, "attempting 1 false <nil>", "attempting 1 true <nil>"},
		{"refund", func(ctx context.Context, f *office) error {
			_, err := f.ops.Submit(ctx, compensating("refund", "sold")) // it locks that
			return err
		}, "none", "pending 0 false <nil>"},
		{"undone", func(ctx context.Context, f *office) error {
			_, err := f.ops.Undone(ctx, "undone", "undoing")
			return err
		}, "succeeded 1 true <nil>", "succeeded 1 true undoing<nil>"},
	}
}

// ready brings every operation to where its transition begins.
func (f *office) ready(ctx context.Context, all []transition) {
	f.t.Helper()
	try := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	all = append([]transition{{id: "sold", from: "succeeded 1 false <nil>"}}, all...)
	for _, x := range all {
		if x.from == "none" {
			continue
		}
		f.submit(x.id)
		if x.from[0] == 'p' {
			continue
		}
		ttl := time.Minute
		if x.id == "expire" {
			ttl = time.Millisecond
		}
		jobs, err := claimAlone(ctx, f, x.id, ttl)
		if err != nil || len(jobs) != 1 {
			f.t.Fatal(x.id, jobs, err)
		}
		switch {
		case x.id == "sold":
			try(f.current(ctx, x.id, operation.Answer{Known: operation.Effective}))
		case x.from[0] == 'u':
			try(f.current(ctx, x.id, operation.Answer{Known: operation.NoAnswer}))
		case x.id == "undone":
			_, err := f.ops.Cancel(ctx, x.id, "")
			try(err)
			try(f.current(ctx, x.id, operation.Answer{Known: operation.Effective}))
			_, err = f.ops.Submit(ctx, compensating("undoing", x.id))
			try(err)
		}
	}
	for _, x := range all {
		if got := tellOp(f.ops.Get(ctx, x.id)); got != x.from {
			f.t.Fatalf("%s begins as %q; want %q", x.id, got, x.from)
		}
	}
	f.soon(ctx, `SELECT due <= clock_timestamp() FROM tenure.operation WHERE id = 'expire'`)
}

// opFailover is a primary with a standby behind a link.
type opFailover struct {
	*office
	link    *testdb.Proxy
	standby *testdb.Server
}

func newOpFailover(ctx context.Context, t *testing.T, synchronous bool) *opFailover {
	t.Helper()
	r := newOwnRig(t, nil, Options{})
	link := testdb.StartProxy(t, r.server.Addr())
	standby := r.server.Standby(t, testdb.Options{Via: link.Addr()})
	if synchronous {
		for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`} {
			if err := r.edit(ctx, edit{now: sql}); err != nil {
				t.Fatal(err)
			}
		}
		r.soon(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))`)
	}
	return &opFailover{&office{r, r.store.Operations()}, link, standby}
}

// another is another process on the same database.
func (f *office) another() *office {
	return &office{f.rig, openStore(f.t, f.url(), Options{}).Operations()}
}

// over promotes the standby of a primary that has died.
func (f *opFailover) over() *office {
	f.t.Helper()
	f.standby.Promote(f.t)
	h := *f.harness
	h.server, h.store = f.standby, openStore(f.t, f.standby.URL(f.database), Options{})
	var err error
	if h.own, err = pgxpool.New(f.t.Context(), f.standby.URL(f.database)); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(h.own.Close)
	return &office{&rig{t: f.t, harness: &h}, h.store.Operations()}
}

// finish makes each transition on the new primary, whether it was made before or not: it ends where it leads to, once.
func (f *office) finish(ctx context.Context, all []transition) {
	f.t.Helper()
	for _, x := range all {
		if err := x.call(ctx, f); err != nil && !errors.Is(err, operation.ErrStale) && !errors.Is(err, operation.ErrDecided) {
			f.t.Errorf("%s, asked for again: %v", x.id, err)
		}
		if got := tellOp(f.ops.Get(ctx, x.id)); got != x.to {
			f.t.Errorf("%s is %q in the end; want %q", x.id, got, x.to)
		}
	}
	if err := (&opHarness{f.harness}).Check(ctx); err != nil {
		f.t.Error(err)
	}
}

// TestFailoverInEveryTransition: with a synchronous standby the primary dies while a call of every sort waits for it. What was told before is there, what was not is unknown to its caller
// and made or not made as a whole, and asking again ends it.
func TestFailoverInEveryTransition(t *testing.T) {
	for name, sever := range map[string]func(*opFailover) func(){
		"not shipped": func(f *opFailover) func() { f.link.SetMode(testdb.Refuse); f.link.Cut(); return func() {} },
		"shipped":     func(f *opFailover) func() { f.standby.Pause(f.t); return func() { f.standby.Continue(f.t) } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			f := newOpFailover(ctx, t, true)
			all := transitions()
			f.ready(ctx, all)
			processes := make([]*office, len(all)) // so that no two calls share a batch
			for i := range all {
				processes[i] = f.another()
			}
			mend := sever(f)
			told := make(chan error, len(all))
			for i, x := range all {
				go func() {
					err := x.call(ctx, processes[i])
					if !errors.Is(err, operation.ErrUnknown) && !errors.Is(err, operation.ErrUnavailable) {
						err = fmt.Errorf("%s: no standby has it, and it was told: %w", x.id, err)
					} else {
						err = nil
					}
					told <- err
				}()
			}
			f.soon(ctx, fmt.Sprintf(`SELECT count(*) = %d FROM pg_stat_activity WHERE wait_event = 'SyncRep'`, len(all)))
			f.server.Crash(t)
			for range all {
				if err := <-told; err != nil {
					t.Error(err)
				}
			}
			mend()
			n := f.over()
			for _, x := range all {
				if got := tellOp(n.ops.Get(ctx, x.id)); got != x.from && (got != x.to || name == "not shipped") {
					t.Errorf("%s after the failover: %q; it was told to be %q", x.id, got, x.from)
				}
			}
			n.finish(ctx, all)
		})
	}
}

// TestFailoverToAnAsynchronousStandby: what the standby has not got is lost as a whole, whatever was told: each operation is where it was before, and goes on from there.
func TestFailoverToAnAsynchronousStandby(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newOpFailover(ctx, t, false)
	all := transitions()
	f.ready(ctx, all)
	f.server.WaitCaughtUp(t, f.standby)
	f.link.SetMode(testdb.Refuse)
	f.link.Cut()
	for _, x := range all {
		if err := x.call(ctx, f.office); err != nil {
			t.Fatal(x.id, err)
		}
	}
	f.server.Crash(t)
	n := f.over()
	for _, x := range all {
		if got := tellOp(n.ops.Get(ctx, x.id)); got != x.from {
			t.Errorf("%s after the failover: %q; want %q", x.id, got, x.from)
		}
	}
	n.finish(ctx, all)
}

// lostAttempt begins an attempt that only the old primary knows, promotes the standby, and begins another there. It returns what the old worker's calls have done to that.
func lostAttempt(ctx context.Context, t *testing.T, twin ...edit) error {
	t.Helper()
	f := newOpFailover(ctx, t, false)
	for _, e := range twin {
		if err := f.edit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	f.submit("o")
	f.server.WaitCaughtUp(t, f.standby)
	f.link.SetMode(testdb.Refuse)
	f.link.Cut()
	if err := f.exec(ctx, `SELECT nextval('tenure.token') FROM generate_series(1, 100)`); err != nil { // more than the log keeps the sequence ahead by
		t.Fatal(err)
	}
	lost := f.begin()
	f.server.Crash(t)
	n := f.over()
	n.is("o", operation.Pending)
	// A branch that draws on from where it stands comes to the lost number some day: this is that day.
	if err := n.exec(ctx, `SELECT nextval('tenure.token') FROM generate_series((SELECT last_value + 1 FROM tenure.token), $1)`, int64(lost.Number)-1); err != nil {
		t.Fatal(err)
	}
	job := n.begin()
	errs, err := n.ops.Complete(ctx, []operation.Completion{done(lost)})
	if err != nil {
		t.Fatal(err)
	}
	if errs[0] == nil {
		return fmt.Errorf("attempt %d, which this branch has never begun, has completed %d", lost.Number, job.Number)
	}
	if job.Number <= lost.Number {
		return fmt.Errorf("attempt %d after %d, which was lost", job.Number, lost.Number)
	}
	if gone, err := n.ops.Renew(ctx, operation.RenewRequest{Refs: []operation.Ref{lost.Ref}, TTL: time.Minute}); err != nil || len(gone) != 1 {
		return fmt.Errorf("the lost claim was renewed: %v, %w", gone, err)
	}
	if _, err := n.ops.Respond(ctx, operation.Response{ID: "o", Number: lost.Number, Answer: done(lost).Answer}); !errors.Is(err, operation.ErrInvalid) {
		return fmt.Errorf("evidence of an attempt that this branch does not know: %w", err)
	}
	err = pgx.BeginFunc(ctx, n.own, func(tx pgx.Tx) error { return n.ops.CompleteTx(ctx, tx, done(lost)) })
	if !errors.Is(err, operation.ErrInvalid) {
		return fmt.Errorf("completed in the old worker's own transaction: %w", err)
	}
	if rec := n.is("o", operation.Attempting); rec.Current() != job.Number {
		return fmt.Errorf("the current attempt is %d; want %d", rec.Current(), job.Number)
	}
	// The provider's own word for the operation needs no number.
	rec, err := n.ops.Respond(ctx, operation.Response{ID: "o", Answer: done(lost).Answer})
	if err != nil || rec.State != operation.Succeeded {
		return fmt.Errorf("the provider's late answer: %v, %w", rec.State, err)
	}
	return nil
}

// TestAnAttemptThatWasLostInAFailover: an attempt whose record was lost is followed by one under a higher number, and its worker can do nothing to that.
func TestAnAttemptThatWasLostInAFailover(t *testing.T) {
	t.Parallel()
	if err := lostAttempt(t.Context(), t); err != nil {
		t.Fatal(err)
	}
}

// TestAnAttemptThatWasLostWithoutTheJump is the twin: the branch comes to the same number, and the old worker completes the new attempt.
func TestAnAttemptThatWasLostWithoutTheJump(t *testing.T) {
	t.Parallel()
	err := lostAttempt(t.Context(), t, edit{"jump", "greatest((SELECT last_value + 1 FROM tenure.token),", "least((SELECT last_value + 1 FROM tenure.token),"})
	if err == nil {
		t.Fatal("the twin was not caught")
	}
	t.Log(err)
}
