package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/operation"
)

// TestACancelBesideTheSubmission: an operation of an order is committed between the two looks of whoever changes it. Its order was not locked then, and the next in it would wait for ever.
func TestACancelBesideTheSubmission(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newOffice(t)
	// Between the looks, the change waits for the gate.
	err := f.edit(ctx, edit{"op_lock", `IF v_ord IS NOT NULL THEN`, `PERFORM pg_advisory_lock(42), pg_advisory_unlock(42);
	IF v_ord IS NOT NULL THEN`})
	if err != nil {
		t.Fatal(err)
	}
	gate := f.rig.begin(ctx, pgx.ReadCommitted)
	gate.do(ctx, `SELECT pg_advisory_xact_lock(42)`)
	other := f.rig.begin(ctx, pgx.ReadCommitted)
	errs := make(chan error, 1)
	first := f.rig.begin(ctx, pgx.ReadCommitted)
	if _, err := f.ops.SubmitTx(ctx, first, ordered("first")); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := other.Exec(ctx, `SELECT tenure.op_cancel('first')`)
		errs <- err
	}()
	f.waiting(ctx)
	first.commit(ctx)
	gate.commit(ctx)
	if err := <-errs; state(err) != stateBeginAgain {
		t.Fatalf("cancelled what was not there: %v", err)
	}
	if rec, err := f.ops.Cancel(ctx, "first", ""); err != nil || rec.State != operation.Cancelled {
		t.Fatal(rec.State, err)
	}
}

// waiting returns when somebody waits for an advisory lock.
func (f *office) waiting(ctx context.Context) {
	f.t.Helper()
	err := f.exec(ctx, `DO $$ BEGIN
		FOR i IN 1..2000 LOOP
			PERFORM pg_stat_clear_snapshot();
			IF EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted) THEN
				RETURN;
			END IF;
			PERFORM pg_sleep(0.005);
		END LOOP;
		RAISE 'nobody waits';
	END $$`)
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestClaimsWithoutSense: a claim in SQL that says too little of its kinds is refused, and decides nothing.
func TestClaimsWithoutSense(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newOffice(t)
	f.submit("o")
	const sound = `ARRAY['k'], ARRAY[1], ARRAY['1 hour'::interval], ARRAY['0'::interval], ARRAY[interval '0'], ARRAY[1], ARRAY[true], ARRAY[false]`
	for what, args := range map[string]string{
		"no attempts":       `ARRAY['k'], ARRAY[1], ARRAY['1 hour'::interval], ARRAY['0'::interval], ARRAY[interval '0'], ARRAY[NULL::int], ARRAY[true], ARRAY[false]`,
		"too few attempts":  `ARRAY['k'], ARRAY[1], ARRAY['1 hour'::interval], ARRAY['0'::interval], ARRAY[interval '0'], ARRAY[0], ARRAY[true], ARRAY[false]`,
		"fewer of them":     `ARRAY['l', 'k'], ARRAY[1, 1], ARRAY['1 hour', '1 hour']::interval[], ARRAY['0', '0']::interval[], ARRAY['0s', '0']::interval[], ARRAY[1], ARRAY[true, true], ARRAY[false, false]`,
		"no timeout":        `ARRAY['k'], ARRAY[1], ARRAY[NULL::interval], ARRAY['0'::interval], ARRAY[interval '0'], ARRAY[1], ARRAY[true], ARRAY[false]`,
		"less than none":    `ARRAY['k'], ARRAY[1], ARRAY['-1 hour'::interval], ARRAY['0'::interval], ARRAY[interval '0'], ARRAY[1], ARRAY[true], ARRAY[false]`,
		"no window":         `ARRAY['k'], ARRAY[1], ARRAY['1 hour'::interval], ARRAY[NULL::interval], ARRAY['0'::interval], ARRAY[1], ARRAY[true], ARRAY[false]`,
		"nobody asks":       `ARRAY['k'], ARRAY[1], ARRAY['1 hour'::interval], ARRAY['0'::interval], ARRAY[interval '0'], ARRAY[1], NULL, ARRAY[false]`,
		"no limit":          `ARRAY['k'], NULL, ARRAY['1 hour'::interval], ARRAY['0'::interval], ARRAY[interval '0'], ARRAY[1], ARRAY[true], ARRAY[false]`,
		"the same twice":    `ARRAY['k', 'k'], ARRAY[1, 1], ARRAY['1 hour', '1 hour']::interval[], ARRAY['0', '0']::interval[], ARRAY['0s', '0']::interval[], ARRAY[1, 1], ARRAY[true, true], ARRAY[false, false]`,
		"no kinds":          strings.Repeat(`NULL, `, 7) + `NULL`,
		"a kind without is": `ARRAY[NULL::text], ARRAY[1], ARRAY['1 hour'::interval], ARRAY['0'::interval], ARRAY[interval '0'], ARRAY[1], ARRAY[true], ARRAY[false]`,
	} {
		if err := f.exec(ctx, `SELECT tenure.op_claim_many('w', '1 minute', 1, `+args+`)`); state(err) != stateInvalid {
			t.Errorf("%s: %v", what, err)
		}
		f.is("o", operation.Pending)
	}
	if err := f.exec(ctx, `SELECT tenure.op_claim_many('w', '1 minute', 1, `+sound+`)`); err != nil {
		t.Error(err)
	}
	f.is("o", operation.Attempting)
}

// TestAnIDTwiceInOneCall: the first is recorded, and the second asks singly: it may be another request.
func TestAnIDTwiceInOneCall(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	var left []int32
	err := f.own.QueryRow(t.Context(), `SELECT tenure.op_submit_many(ARRAY['b', 'a', 'b'], ARRAY['k', 'k', 'k'], ARRAY['first', '', 'second']::bytea[],
		ARRAY[sha256('first'), sha256(''), sha256('second')], ARRAY[0, 0, 0], ARRAY['0', '0', '0']::interval[])`).Scan(&left)
	if err != nil || !slices.Equal(left, []int32{3}) {
		t.Errorf("left %v, %v; want the third", left, err)
	}
	if rec := f.is("b", operation.Pending); string(rec.Request) != "first" {
		t.Errorf("recorded %q", rec.Request)
	}
}

// TestALockedOrderHoldsUpNoStranger: what can have no further attempt cannot be decided while a transaction keeps its order. It does not stand before strangers meanwhile.
func TestALockedOrderHoldsUpNoStranger(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newOffice(t)
	if _, err := f.ops.Submit(ctx, ordered("used up")); err != nil {
		t.Fatal(err)
	}
	once := claimOf(1)
	once.Kinds[0].MaxAttempts = 1
	jobs, err := f.ops.Claim(ctx, once)
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	if errs, err := f.ops.Complete(ctx, []operation.Completion{{Ref: jobs[0].Ref, Answer: operation.Answer{Known: operation.Refused}}}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	f.submit("stranger")
	x := f.rig.begin(ctx, pgx.ReadCommitted)
	if _, err := f.ops.SubmitTx(ctx, x, ordered("next")); err != nil {
		t.Fatal(err)
	}
	if jobs, err = f.ops.Claim(ctx, once); err != nil || len(jobs) != 0 {
		t.Fatal(jobs, err)
	}
	if jobs, err = f.ops.Claim(ctx, once); err != nil || len(jobs) != 1 || jobs[0].ID != "stranger" {
		t.Fatalf("claimed %v, %v; want the stranger", jobs, err)
	}
	x.commit(ctx)
	if err := (&opHarness{f.harness}).Advance(ctx, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err = f.ops.Claim(ctx, once); err != nil {
		t.Fatal(err)
	}
	f.is("used up", operation.Failed)
}

// TestWaitersLeaveConnections: many wait for transactions that are open for long, about one operation or about several. Claims, renewals and completions of others go on.
func TestWaitersLeaveConnections(t *testing.T) {
	t.Parallel()
	const waiters, conns = 20, 8
	ctx := t.Context()
	f := newOffice(t)
	store := openStore(t, f.url(), Options{})
	ops := store.Operations()
	f.submit("stranger")
	ids := make([]string, conns)
	x := f.rig.begin(ctx, pgx.ReadCommitted)
	for i := range ids {
		ids[i] = fmt.Sprint("new", i)
		if _, err := ops.SubmitTx(ctx, x, submission(ids[i])); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	asked := make(chan struct{}, waiters*conns)
	for range waiters {
		for _, id := range ids {
			all.Go(func() {
				asked <- struct{}{}
				if _, err := ops.Submit(ctx, submission(id)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for range cap(asked) {
		<-asked
	}
	for len(ops.turns.half) < cap(ops.turns.half) {
		select {
		case <-ctx.Done():
			t.Fatal("nobody waits")
		case <-time.After(10 * time.Millisecond):
		}
	}
	bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	jobs, err := ops.Claim(bounded, claimOf(1))
	if err != nil || len(jobs) != 1 {
		t.Fatalf("claimed %v, %v", jobs, err)
	}
	if lost, err := ops.Renew(bounded, operation.RenewRequest{Refs: []operation.Ref{jobs[0].Ref}, TTL: time.Minute}); err != nil || len(lost) != 0 {
		t.Errorf("renewed: %v, %v", lost, err)
	}
	if errs, err := ops.Complete(bounded, []operation.Completion{done(jobs[0])}); err != nil || errs[0] != nil {
		t.Errorf("completed: %v, %v", errs, err)
	}
	x.commit(ctx)
	all.Wait()
	if n := len(ops.turns.keys); n != 0 || len(ops.turns.half) != 0 {
		t.Errorf("%d keys and %d turns are left", n, len(ops.turns.half))
	}
}

// TestReadsAreNeverUnknown: a read whose answer is lost has changed nothing.
func TestReadsAreNeverUnknown(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Operations) error{
		"op_get": func(ctx context.Context, o *Operations) error { _, err := o.Get(ctx, "o"); return err },
		"op_list": func(ctx context.Context, o *Operations) error {
			_, err := o.List(ctx, operation.ListRequest{Limit: 1})
			return err
		},
		"op_stats": func(ctx context.Context, o *Operations) error { _, err := o.Stats(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLossy(t, Options{})
			(&office{l.rig, l.store.Operations()}).submit("o")
			lost := l.lose("tenure."+name, nil)
			if err := call(t.Context(), l.store.Operations()); !errors.Is(err, operation.ErrUnavailable) || errors.Is(err, operation.ErrUnknown) {
				t.Errorf("the lost answer: %v; want ErrUnavailable", err)
			}
			lost()
		})
	}
}

// TestBatchesAreBoundedInBytes: large bodies do not meet in one statement that the server cannot take, whether many callers bring them or one.
func TestBatchesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	const n = 50
	ctx := t.Context()
	s := &Store{ctx: ctx}
	var largest int
	begun, gate := make(chan struct{}, n), make(chan struct{})
	body := make([]byte, operation.MaxBody)
	lane := opLane[[]byte]{store: s, op: "test", size: func(b []byte) int { return len(b) }, own: func(b []byte) []byte { return b }}
	number := 0
	lane.key = func([]byte) string { number++; return fmt.Sprint(number) }
	lane.many = func(_ context.Context, items [][]byte) ([]int32, error) {
		begun <- struct{}{}
		<-gate
		bytes := 0
		for _, item := range items {
			bytes += len(item)
		}
		largest = max(largest, bytes)
		return nil, nil
	}
	var groups []*opGroup[[]byte]
	for range n {
		groups = append(groups, lane.group([][]byte{body}))
	}
	var all sync.WaitGroup
	ask := func(g *opGroup[[]byte]) {
		all.Go(func() {
			if err := lane.do(ctx, g); err != nil {
				t.Error(err)
			}
		})
	}
	ask(groups[0])
	<-begun
	lane.mu.Lock()
	for _, g := range groups[1:] {
		lane.enqueueLocked(g)
	}
	lane.mu.Unlock()
	close(gate)
	for _, g := range groups[1:] {
		<-g.done
	}
	all.Wait()
	s.work.Wait()
	if largest > laneBytes || largest < laneBytes/2 {
		t.Errorf("a batch of %d bytes", largest)
	}
	if got := lane.fit(slices.Repeat([][]byte{body}, n)); got != laneBytes/operation.MaxBody {
		t.Errorf("a group of %d", got)
	}
}

// TestAPartThatWasNotAppliedIsUnknown: where the first part of a call was done, an outage in the second does not let the whole match ErrUnavailable, by whatever it wraps.
func TestAPartThatWasNotAppliedIsUnknown(t *testing.T) {
	t.Parallel()
	outage := &operation.UnavailableError{Op: "complete", Err: context.DeadlineExceeded}
	for done, want := range map[bool]error{true: operation.ErrUnknown, false: operation.ErrUnavailable} {
		err := partly(outage, "o", done)
		for _, kind := range []error{operation.ErrUnknown, operation.ErrUnavailable} {
			if errors.Is(err, kind) != errors.Is(kind, want) {
				t.Errorf("done %v: %v matches %v: %v", done, err, kind, errors.Is(err, kind))
			}
		}
	}
}
