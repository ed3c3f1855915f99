package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/operation"
)

// pauseLock is where functions of trials are held up: whoever holds it exclusively lets none of them pass.
const pauseLock = `SELECT pg_advisory_xact_lock(7077)`

// numbersGuard takes away the constraint that stands behind every form of drawing numbers.
const numbersGuard = `ALTER TABLE tenure.operation DROP CONSTRAINT numbers_rise`

func operationTrials() []trial {
	const orderLock = "PERFORM tenure.read_committed('the submission of an operation with an order'), pg_advisory_xact_lock(tenure.op_order(v_order));"
	return []trial{
		{
			name:  "an operation is attempted between a claim's beginning and its lock",
			run:   attemptedMeanwhile,
			pause: []edit{{"op_claim_many", "LOOP\n\t\tIF cardinality", "PERFORM pg_advisory_xact_lock_shared(7077);\n\tLOOP\n\t\tIF cardinality"}},
			twins: map[string][]edit{
				"the number is drawn before the lock": {
					{now: numbersGuard},
					{"op_claim_many", "PERFORM pg_advisory_xact_lock_shared(7077);", "PERFORM set_config('tenure.drawn', nextval('tenure.token')::text, true), pg_advisory_xact_lock_shared(7077);"},
					{"op_begin", "number = nextval('tenure.token')", "number = coalesce(nullif(current_setting('tenure.drawn', true), '')::bigint, nextval('tenure.token'))"},
				},
			},
		},
		{
			name: "a claim meets a row that somebody has locked",
			run:  claimBesideALock,
			twins: map[string][]edit{
				"a claim that waits": {{"op_claim_many", "LIMIT least(k.most, p_limit) FOR NO KEY UPDATE SKIP LOCKED) q", "LIMIT least(k.most, p_limit) FOR NO KEY UPDATE) q"}},
			},
		},
		{
			name: "an operation is submitted while the one before it is decided",
			run:  submittedMeanwhile,
			twins: map[string][]edit{
				"a submission without the order's lock": {{"op_submit", orderLock, ""}},
				"nobody is unblocked":                   {{"op_complete_open", "PERFORM tenure.op_unblock(u.ord) FROM (SELECT DISTINCT x.ord FROM unnest(v_ords) x (ord)) u;", ""}},
			},
		},
		{
			name:  "two operations of one order are submitted at once",
			run:   submittedTogether,
			twins: map[string][]edit{"a submission without the order's lock": {{"op_submit", orderLock, ""}}},
		},
		{
			name: "an operation is cancelled while the one before it is decided",
			run:  cancelledMeanwhile,
			twins: map[string][]edit{
				"the row is locked before its order": {{"op_lock", "SELECT o.ord INTO v_ord", "PERFORM 1 FROM tenure.operation o WHERE o.id = p_id FOR NO KEY UPDATE;\n\tSELECT o.ord INTO v_ord"}},
			},
		},
		{
			name: "an attempt's timeout passes while its renewal waits",
			run:  renewedTooLate,
			twins: map[string][]edit{
				"the clock is read before the lock": {{"op_renew", "v_now timestamptz;", "v_now timestamptz := clock_timestamp();"}, {"op_renew", "v_now := clock_timestamp(); -- in a later statement than the lock", ""}},
			},
		},
		{
			name: "a claim is renewed while it expires",
			run:  renewedMeanwhile,
			twins: map[string][]edit{
				"expiry by what was read before the lock": {
					{"op_expire", "SELECT array_agg(x.c) INTO v_rows FROM (\n\t\tSELECT o.ctid AS c FROM", "v_rows := '{\"(0,1)\"}'; PERFORM set_config('tenure.found', string_agg(x.c, ','), true) FROM (\n\t\tSELECT o.id AS c FROM"},
					{"op_expire", "LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) x;", "LIMIT p_limit) x;"},
					{"op_expire", "FROM unnest(v_rows) u (c) WHERE o.ctid = u.c AND o.step = 3 AND o.due <= v_now;", "WHERE o.id = ANY (string_to_array(current_setting('tenure.found'), ','));"},
				},
			},
		},
		{
			name:  "what is compensated is forgotten at this moment",
			run:   forgottenMeanwhile,
			twins: map[string][]edit{"a compensation that locks nothing": {{"op_submit", "WHERE o.id = v_target FOR SHARE;", "WHERE o.id = v_target;"}}},
		},
	}
}

// in makes an office of a trial's rig.
func in(r *rig) *office { return &office{r, r.store.Operations()} }

func (f *office) exec(ctx context.Context, text string, args ...any) error {
	_, err := f.own.Exec(ctx, text, args...)
	return err
}

// claimed runs a claim beside the test.
func (f *office) claimed(ctx context.Context, req operation.ClaimRequest) (jobs *[]operation.Job, done chan error) {
	jobs = new([]operation.Job)
	return jobs, start(func() (err error) {
		*jobs, err = f.ops.Claim(ctx, req)
		return err
	})
}

func attemptedMeanwhile(ctx context.Context, r *rig) error {
	f := in(r)
	f.submit("o")
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, pauseLock)
	jobs, late := f.claimed(ctx, claimOf(1))
	if !r.blocked(ctx, 1, late) {
		return fmt.Errorf("the claim is not held up: %w", <-late)
	}
	byID := claimOf(1)
	byID.ID = "o" // another way to the lock, which is not held up
	first, err := f.ops.Claim(ctx, byID)
	if err != nil || len(first) != 1 {
		return fmt.Errorf("the first claim: %v, %w", first, err)
	}
	refused := operation.Completion{Ref: first[0].Ref, Answer: operation.Answer{Known: operation.Refused}}
	if errs, err := f.ops.Complete(ctx, []operation.Completion{refused}); err != nil || errs[0] != nil {
		return fmt.Errorf("%v, %w", errs, err)
	}
	if err := f.exec(ctx, `UPDATE tenure.operation SET due = created`); err != nil { // the held-up claim has read the clock before
		return err
	}
	x.commit(ctx)
	if err := <-late; err != nil || len(*jobs) != 1 {
		return fmt.Errorf("the late claim: %v, %w", *jobs, err)
	}
	if (*jobs)[0].Number <= first[0].Number {
		return broken("attempt %d after attempt %d", (*jobs)[0].Number, first[0].Number)
	}
	return nil
}

func claimBesideALock(ctx context.Context, r *rig) error {
	f := in(r)
	f.submit("locked", "free")
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.operation WHERE id = 'locked' FOR UPDATE`)
	jobs, done := f.claimed(ctx, claimOf(2))
	waits := r.blocked(ctx, 1, done)
	x.rollback(ctx)
	if err := <-done; err != nil {
		return err
	}
	if waits {
		return broken("a claim waited for a stranger's row")
	}
	if len(*jobs) != 1 || (*jobs)[0].ID != "free" {
		return broken("claimed %v", *jobs)
	}
	return nil
}

// ordered is a submission of an order.
func ordered(id string) operation.SubmitRequest {
	req := submission(id)
	req.Order = "k"
	return req
}

func submittedMeanwhile(ctx context.Context, r *rig) error {
	f := in(r)
	if _, err := f.ops.Submit(ctx, ordered("a")); err != nil {
		return err
	}
	job := f.begin()
	x := r.begin(ctx, pgx.ReadCommitted)
	if err := f.ops.CompleteTx(ctx, x, done(job)); err != nil {
		return err
	}
	submitting := start(func() error { _, err := f.ops.Submit(ctx, ordered("b")); return err })
	r.blocked(ctx, 1, submitting)
	x.commit(ctx)
	if err := <-submitting; err != nil {
		return err
	}
	if _, err := f.ops.Submit(ctx, ordered("c")); err != nil { // it is unblocked by a completion
		return err
	}
	for _, id := range []string{"b", "c"} {
		jobs, err := f.ops.Claim(ctx, claimOf(10))
		if err != nil {
			return err
		}
		if len(jobs) != 1 || jobs[0].ID != id {
			return broken("%v may begin; want %s, as what stood before it is decided", jobs, id)
		}
		if errs, err := f.ops.Complete(ctx, []operation.Completion{done(jobs[0])}); err != nil || errs[0] != nil {
			return fmt.Errorf("%v, %w", errs, err)
		}
	}
	return nil
}

func cancelledMeanwhile(ctx context.Context, r *rig) error {
	f := in(r)
	for _, id := range []string{"a", "b"} {
		if _, err := f.ops.Submit(ctx, ordered(id)); err != nil {
			return err
		}
	}
	job := f.begin()
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT pg_advisory_xact_lock(tenure.op_order('k'))`) // as a transaction that is about to decide a
	cancelling := start(func() error { _, err := f.ops.Cancel(ctx, "b", ""); return err })
	if !r.blocked(ctx, 1, cancelling) {
		return broken("a decision in an order did not wait for another one: %v", <-cancelling)
	}
	err := f.ops.CompleteTx(ctx, x, done(job))
	if err == nil {
		x.commit(ctx)
	} else {
		x.rollback(ctx)
	}
	if err := errors.Join(err, <-cancelling); err != nil {
		return broken("two decisions of one order were in each other's way: %v", err)
	}
	if n, log := deadlocks(r.harness); n > 0 {
		return broken("%d deadlocks: %.500s", n, log)
	}
	return nil
}

func submittedTogether(ctx context.Context, r *rig) error {
	f := in(r)
	x := r.begin(ctx, pgx.ReadCommitted)
	if _, err := f.ops.SubmitTx(ctx, x, ordered("a")); err != nil {
		return err
	}
	submitting := start(func() error { _, err := f.ops.Submit(ctx, ordered("b")); return err })
	r.blocked(ctx, 1, submitting)
	x.commit(ctx)
	if err := <-submitting; err != nil {
		return err
	}
	jobs, err := f.ops.Claim(ctx, claimOf(10))
	if err != nil {
		return err
	}
	if len(jobs) != 1 || jobs[0].ID != "a" {
		return broken("%d of one order are attempted at once", len(jobs))
	}
	return nil
}

// lasting is a claim of one operation, for so long and no longer.
func lasting(d time.Duration) operation.ClaimRequest {
	req := claimOf(1)
	req.TTL, req.Kinds[0].Timeout = d, d
	return req
}

func renewedTooLate(ctx context.Context, r *rig) error {
	f := in(r)
	f.submit("o")
	jobs, err := f.ops.Claim(ctx, lasting(300*time.Millisecond))
	if err != nil || len(jobs) != 1 {
		return fmt.Errorf("%v, %w", jobs, err)
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.operation WHERE id = 'o' FOR UPDATE`)
	var lost []int32
	renewing := start(func() error {
		return f.own.QueryRow(ctx, `SELECT lost FROM tenure.op_renew(ARRAY['o'], ARRAY[$1::bigint], '10 seconds', 10000)`, int64(jobs[0].Number)).Scan(&lost)
	})
	if !r.blocked(ctx, 1, renewing) {
		return fmt.Errorf("the renewal did not wait: %w", <-renewing)
	}
	x.do(ctx, `SELECT pg_sleep(extract(epoch FROM until - clock_timestamp()) + 0.01) FROM tenure.operation`)
	x.commit(ctx)
	if err := <-renewing; err != nil {
		return err
	}
	if len(lost) != 1 {
		return broken("a claim was renewed after its attempt's timeout had passed")
	}
	return nil
}

func renewedMeanwhile(ctx context.Context, r *rig) error {
	f := in(r)
	f.submit("o")
	req := claimOf(1)
	req.TTL = 100 * time.Millisecond
	jobs, err := f.ops.Claim(ctx, req)
	if err != nil || len(jobs) != 1 {
		return fmt.Errorf("%v, %w", jobs, err)
	}
	if err := f.exec(ctx, `SELECT pg_sleep(0.12)`); err != nil {
		return err
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT tenure.op_renew(ARRAY['o'], ARRAY[$1::bigint], '1 minute')`, int64(jobs[0].Number))
	n := 0
	expiring := start(func() (err error) { n, err = f.ops.Expire(ctx, 10); return err })
	r.blocked(ctx, 1, expiring)
	x.commit(ctx)
	if err := <-expiring; err != nil {
		return err
	}
	if n != 0 {
		return broken("a claim that was renewed has expired")
	}
	return nil
}

func forgottenMeanwhile(ctx context.Context, r *rig) error {
	f := in(r)
	f.submit("o")
	if errs, err := f.ops.Complete(ctx, []operation.Completion{done(f.begin())}); err != nil || errs[0] != nil {
		return fmt.Errorf("%v, %w", errs, err)
	}
	if err := (&opHarness{r.harness}).Advance(ctx, 48*time.Hour); err != nil {
		return err
	}
	undo := submission("undo")
	undo.Compensates = "o"
	x := r.begin(ctx, pgx.ReadCommitted)
	if _, err := f.ops.SubmitTx(ctx, x, undo); err != nil {
		return err
	}
	p, err := f.ops.Prune(ctx, operation.PruneRequest{Forget: 24 * time.Hour, Limit: 10})
	x.commit(ctx)
	if err != nil {
		return err
	}
	if _, err := f.ops.Get(ctx, "o"); errors.Is(err, operation.ErrNotFound) {
		return broken("%+v: a compensation was recorded of what was forgotten", p)
	}
	return nil
}
