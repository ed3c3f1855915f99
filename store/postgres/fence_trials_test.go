package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

const (
	verifySig = "tenure.verify(uuid,text,uuid,bigint)"
	boundSig  = "tenure.verify_bounded(uuid,text,uuid,bigint)"
	enterSig  = "tenure.enter(text,uuid,text,uuid,bigint)"
	raiseSig  = "tenure.raise_mark(text,uuid,text,uuid,bigint)"
	longSig   = "tenure.verify_long(uuid,text,uuid,bigint)"
)

// swap changes one place of the function with this signature: a twin is ours but for what it is about.
func swap(signature, was, now string) edit {
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	return edit{now: fmt.Sprintf(`DO $swap$
		DECLARE body text := pg_get_functiondef(%[1]s::regprocedure);
		BEGIN
			IF (length(body) - length(replace(body, %[2]s, ''))) <> length(%[2]s) THEN
				RAISE EXCEPTION 'want one place: change the twin with the schema';
			END IF;
			EXECUTE replace(body, %[2]s, %[3]s);
		END $swap$`, quote(signature), quote(was), quote(now))}
}

func fenceTrials() []trial {
	return slices.Concat(verifyTrials(), markTrials(), []trial{
		firstEntryTrial(pgx.ReadCommitted), firstEntryTrial(pgx.RepeatableRead), firstEntryTrial(pgx.Serializable),
		oldSnapshotTrial(pgx.RepeatableRead), oldSnapshotTrial(pgx.Serializable),
	})
}

func verifyTrials() []trial {
	return []trial{
		{
			name: "a successor while a fenced transaction is open",
			run:  verifiedKeepsOut,
			twins: map[string][]edit{
				"verify does not lock the lease": {swap(verifySig, " FOR SHARE", "")},
			},
		},
		{
			name: "a successor while Fenced runs",
			run:  fencedKeepsOut,
			twins: map[string][]edit{
				"verify_bounded does not lock the lease": {swap(boundSig, " FOR SHARE", "")},
			},
		},
		{
			name: "what a check lowers and never raises",
			run:  checksBound,
			twins: map[string][]edit{
				"a lower bound is raised":       {swap(verifySig, "OPERATOR(pg_catalog.=) '0'\n\t\t\tOR", "IS NOT NULL OR")},
				"idleness is not bounded":       {swap(verifySig, "CASE WHEN", "CASE WHEN false AND")},
				"Fenced: a bound is raised":     {swap(boundSig, "pg_catalog.current_setting('statement_timeout') OPERATOR(pg_catalog.=) '0'", "true")},
				"Fenced: statements go on":      {swap(boundSig, "pg_catalog.current_setting('statement_timeout') OPERATOR(pg_catalog.=) '0'", "false")},
				"Fenced: idleness is unbounded": {swap(boundSig, "pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0'", "false")},
			},
		},
		{
			name: "verify waits for a row lock past the lease's end",
			run:  verifyWaits,
			twins: map[string][]edit{
				"the clock is read in the statement that waits": {{now: `CREATE OR REPLACE FUNCTION ` + "tenure.verify(p_authority uuid, p_name text, p_acquisition uuid, p_token bigint)" + ` RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
					BEGIN
						PERFORM 1 FROM tenure.lease l JOIN tenure.session s ON s.id = l.session WHERE l.name = p_name AND l.token = p_token AND l.acquisition = p_acquisition
							AND l.over = 0 AND s.ended = 0 AND s.expires_at > clock_timestamp() FOR SHARE OF l;
						IF NOT FOUND THEN
							PERFORM tenure.verify_long(p_authority, p_name, p_acquisition, p_token);
						END IF;
					END $$`}},
			},
		},
		{
			name: "a name changes hands while verify waits",
			run:  verifyMeetsTakeover,
			twins: map[string][]edit{
				"verify reads before it locks": {{now: `CREATE OR REPLACE FUNCTION ` + "tenure.verify(p_authority uuid, p_name text, p_acquisition uuid, p_token bigint)" + ` RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
					DECLARE l tenure.lease;
					BEGIN
						SELECT * INTO l FROM tenure.lease x WHERE x.name = p_name;
						PERFORM 1 FROM tenure.lease x WHERE x.name = p_name FOR SHARE;
						IF l.token <> p_token OR l.over <> 0 THEN
							PERFORM tenure.verify_long(p_authority, p_name, p_acquisition, p_token);
						END IF;
					END $$`}},
			},
		},
	}
}

func markTrials() []trial {
	return []trial{
		{
			name: "two holders read, change and write what Enter guards",
			run:  entersInTurn,
			twins: map[string][]edit{
				"a mark that is equal is not written": {swap(enterSig, "UPDATE tenure.mark m SET token = p_token WHERE", "PERFORM 1 FROM tenure.mark m WHERE")},
			},
		},
		{
			name: "an equal mark above READ COMMITTED",
			run:  equalMarkIsWritten,
			twins: map[string][]edit{
				"a mark that is equal is only locked": {swap(enterSig, "UPDATE tenure.mark m SET token = p_token WHERE", "PERFORM 1 FROM tenure.mark m WHERE"),
					{now: "ALTER FUNCTION " + enterSig + " SET search_path = pg_catalog, pg_temp"},
					swap(enterSig, "IF NOT FOUND", "PERFORM 1 FROM tenure.mark m WHERE m.resource = p_resource AND m.token = p_token FOR UPDATE; IF NOT FOUND")},
			},
		},
		{
			name: "a lower token after a higher one",
			run:  markRule,
			twins: map[string][]edit{
				"the mark is set and not compared": {swap(raiseSig, "ELSIF m.token > p_token THEN", "ELSIF false THEN"), swap(raiseSig, " AND x.token <= p_token;", ";")},
				"an equal token is refused": {swap(enterSig, "m.token OPERATOR(pg_catalog.=) p_token", "false"),
					swap(raiseSig, "ELSIF m.token > p_token THEN", "ELSIF m.token >= p_token THEN")},
				"a token from the future enters":  {swap("tenure.check_issued(uuid, text, bigint)", "IF p_token > tenure.issued()", "IF false")},
				"another name is not looked at":   {swap(raiseSig, "ELSIF m.authority <> p_authority OR m.name <> p_name THEN", "ELSIF false THEN")},
				"a name that was allowed is zero": {swap(enterSig, "AND m.token OPERATOR(pg_catalog.>) 0", "")},
			},
		},
	}
}

// TestFences forces each race on the checks as they are.
func TestFences(t *testing.T) {
	for _, race := range fenceTrials() {
		t.Run(race.name, func(t *testing.T) {
			t.Parallel()
			if err := race.play(t, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestNaiveFencesAreCaught demands that each race finds what it is there for.
func TestNaiveFencesAreCaught(t *testing.T) {
	for _, race := range fenceTrials() {
		for name, twin := range race.twins {
			t.Run(race.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				var lost *ruleError
				if err := race.play(t, twin); !errors.As(err, &lost) {
					t.Fatalf("the naive form was not caught: %v", err)
				}
				t.Log(lost)
			})
		}
	}
}

// lapse lets a session's time pass by the authority's clock.
func (r *rig) lapse(ctx context.Context, session fence.ID) {
	r.t.Helper()
	if _, err := r.own.Exec(ctx, `UPDATE tenure.session SET expires_at = clock_timestamp() WHERE id = $1`, uuid(session)); err != nil {
		r.t.Fatal(err)
	}
}

// successor asks for a name that nobody should hold, once, and reports whether it was granted.
func (r *rig) successor(ctx context.Context, name string) (granted bool) {
	r.t.Helper()
	session := r.open(ctx, time.Hour)
	var outcome string
	err := r.own.QueryRow(ctx, `SELECT outcome FROM tenure.acquire($1, $2, ARRAY[$3], p_wait => '1 ms')`, uuid(session), uuid(lease.NewID()), name).Scan(&outcome)
	if err != nil || outcome != "granted" && outcome != "busy" {
		r.t.Fatalf("the successor got %q, %v", outcome, err)
	}
	return outcome == "granted"
}

func verifiedKeepsOut(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Hour)
	claim := r.acquire(ctx, session, "n")
	tx := r.begin(ctx, pgx.ReadCommitted)
	if err := Verify(ctx, tx, claim); err != nil {
		return err
	}
	r.lapse(ctx, session)
	if r.successor(ctx, "n") {
		return broken("a successor was granted while a verified transaction was open")
	}
	tx.commit(ctx)
	if !r.successor(ctx, "n") {
		return errors.New("no successor after the transaction had ended")
	}
	return nil
}

func fencedKeepsOut(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Hour)
	claim := r.acquire(ctx, session, "n")
	granted := false
	err := r.store.Fenced(ctx, claim, func(context.Context, pgx.Tx) error {
		r.lapse(ctx, session)
		granted = r.successor(ctx, "n")
		return nil
	})
	if granted {
		return broken("a successor was granted while fn ran")
	}
	return err
}

// checksBound: verify lowers idle_in_transaction_session_timeout to what is left, Fenced statement_timeout too.
func checksBound(ctx context.Context, r *rig) error {
	const idle, statement = "idle_in_transaction_session_timeout", "statement_timeout"
	for _, c := range []struct {
		ttl       time.Duration
		before    string
		low, high int // ms
	}{
		{time.Minute, "0", 40_000, 60_000},
		{24 * time.Hour, "0", 86_000_000, 86_400_000},
		{time.Minute, "2s", 2000, 2000},
		{time.Minute, "2min", 40_000, 60_000},
	} {
		claim := r.acquire(ctx, r.open(ctx, c.ttl), c.ttl.String()+c.before)
		for text, lowers := range map[string]map[string]bool{verifyText: {idle: true}, boundedText: {idle: true, statement: true}} {
			tx := r.begin(ctx, pgx.ReadCommitted)
			tx.do(ctx, "SET LOCAL "+idle+" = '"+c.before+"'")
			tx.do(ctx, "SET LOCAL "+statement+" = '"+c.before+"'")
			for check := range 2 { // verified again, it is the same
				tx.do(ctx, text, verifyArgs(claim)...)
				for _, name := range []string{idle, statement} {
					var millis int
					if err := tx.QueryRow(ctx, `SELECT setting::int FROM pg_settings WHERE name = $1`, name).Scan(&millis); err != nil {
						return err
					}
					if lowers[name] && (millis < c.low || millis > c.high) {
						return broken("%s, check %d: ttl %v, %s before: %s is %d ms", text, check, c.ttl, c.before, name, millis)
					}
				}
			}
			tx.rollback(ctx)
		}
	}
	return nil
}

// refusedFor demands a refusal with its reason.
func refusedFor(err error, why fence.Reason) error {
	var refused *fence.RefusedError
	if err == nil {
		return broken("a stale claim was accepted")
	}
	if !errors.As(err, &refused) || refused.Why != why {
		return fmt.Errorf("%w; want a refusal: %v", err, why)
	}
	return nil
}

func verifyWaits(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Hour)
	claim := r.acquire(ctx, session, "n")
	other, tx := r.begin(ctx, pgx.ReadCommitted), r.begin(ctx, pgx.ReadCommitted)
	other.do(ctx, `SELECT 1 FROM tenure.lease WHERE name = 'n' FOR UPDATE`)
	verified := start(func() error { return Verify(ctx, tx, claim) })
	if !r.blocked(ctx, 1, verified) {
		return fmt.Errorf("verify did not wait: %w", <-verified)
	}
	r.lapse(ctx, session)
	other.rollback(ctx)
	return refusedFor(<-verified, fence.Expired)
}

func verifyMeetsTakeover(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Hour)
	claim := r.acquire(ctx, session, "n")
	r.lapse(ctx, session)
	other, tx := r.begin(ctx, pgx.ReadCommitted), r.begin(ctx, pgx.ReadCommitted)
	if code, _, err := other.acquire(ctx, r.open(ctx, time.Hour), lease.NewID(), "n"); err != nil || code != codeDone {
		return fmt.Errorf("the successor got code %d, %w", code, err)
	}
	verified := start(func() error { return Verify(ctx, tx, claim) })
	if !r.blocked(ctx, 1, verified) {
		return fmt.Errorf("verify did not wait: %w", <-verified)
	}
	other.commit(ctx)
	return refusedFor(<-verified, fence.Superseded)
}

// entersInTurn: of two transactions of one holder that read and then write, the second reads what the first wrote.
func entersInTurn(ctx context.Context, r *rig) error {
	claim := r.acquire(ctx, r.open(ctx, time.Hour), "n")
	if err := pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error { return Enter(ctx, tx, "content", claim) }); err != nil {
		return err
	}
	one, two := r.begin(ctx, pgx.ReadCommitted), r.begin(ctx, pgx.ReadCommitted)
	if err := Enter(ctx, one, "content", claim); err != nil {
		return err
	}
	entered := start(func() error { return Enter(ctx, two, "content", claim) })
	if !r.blocked(ctx, 1, entered) {
		return broken("two transactions are between Enter and their writes at once (%v)", <-entered)
	}
	one.do(ctx, `INSERT INTO content (value) VALUES ('one')`)
	one.commit(ctx)
	if err := <-entered; err != nil {
		return err
	}
	content, err := readContent(ctx, two)
	if err == nil && len(content) != 1 {
		return broken("read after Enter: %q", content)
	}
	return err
}

// equalMarkIsWritten: a transaction whose snapshot is older than another's Enter under the same token must not go on.
func equalMarkIsWritten(ctx context.Context, r *rig) error {
	claim := r.acquire(ctx, r.open(ctx, time.Hour), "n")
	enter := func(tx pgx.Tx) error { return Enter(ctx, tx, "content", claim) }
	if err := pgx.BeginFunc(ctx, r.own, enter); err != nil {
		return err
	}
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		old := r.begin(ctx, level)
		old.do(ctx, `SELECT count(*) FROM content`)
		err := pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error {
			_, execErr := tx.Exec(ctx, `INSERT INTO content (value) VALUES ('new')`)
			return errors.Join(enter(tx), execErr)
		})
		if err != nil {
			return err
		}
		if err := enter(old); err == nil {
			return broken("%s: entered with a snapshot that lacks what was written under the mark", level)
		} else if !errors.Is(err, ErrBeginAgain) {
			return fmt.Errorf("%w; want begin again", err)
		}
	}
	return nil
}

// markRule is the high-water rule on one resource.
func markRule(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Hour)
	low := r.acquire(ctx, session, "n")
	r.release(ctx, session, low)
	high := r.acquire(ctx, session, "n")
	other := r.acquire(ctx, session, "m")
	ahead, foreign := high, high
	ahead.Token += 1 << 20
	foreign.Authority = lease.NewID()
	ok := func(err error) error {
		if err != nil {
			return broken("an equal or higher token: %v", err)
		}
		return nil
	}
	is := func(kind error) func(error) error {
		return func(err error) error {
			if !errors.Is(err, kind) {
				return broken("%v; want %v", err, kind)
			}
			return nil
		}
	}
	for i, step := range []struct {
		claim fence.Claim
		want  func(error) error
	}{
		{low, ok}, {low, ok}, {high, ok}, {high, ok},
		{low, func(err error) error {
			var refused *fence.RefusedError
			if !errors.As(err, &refused) || refused.Newer != high.Token || refused.Claim != low || refused.Resource != "r" {
				return broken("a lower token: %v", err)
			}
			return nil
		}},
		{other, is(fence.ErrForeign)}, {foreign, is(fence.ErrForeign)}, {ahead, is(fence.ErrAhead)}, {high, ok},
	} {
		err := pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error { return Enter(ctx, tx, "r", step.claim) })
		if err := step.want(err); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	err := pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error { return Allow(ctx, tx, "r", other.Authority, other.Name) })
	if err != nil {
		return err
	}
	if _, err = r.own.Exec(ctx, enterText, "r", other.Authority.String(), other.Name, other.Acquisition.String(), 0); state(err) != stateInvalid {
		return broken("token 0 under a name that was allowed: %v", err)
	}
	return ok(pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error { return Enter(ctx, tx, "r", other) }))
}

// An Enter within the statement that reads sees what was before its wait: that is why it is a statement of its own. A blind write
// that carries its Admit waits too, and what it writes depends on nothing it read.
func TestEnterIsAStatementOfItsOwn(t *testing.T) {
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	claim := r.acquire(ctx, r.open(ctx, time.Hour), "n")
	if err := pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error { return Enter(ctx, tx, "content", claim) }); err != nil {
		t.Fatal(err)
	}
	for want, read := range map[int64]func(tx pgx.Tx, into *int64) error{
		1: func(tx pgx.Tx, into *int64) error {
			if err := Enter(ctx, tx, "content", claim); err != nil {
				return err
			}
			return tx.QueryRow(ctx, `SELECT count(*) FROM content`).Scan(into)
		},
		0: func(tx pgx.Tx, into *int64) error { // the broken twin
			return tx.QueryRow(ctx, `WITH e AS (`+enterText+`) SELECT (SELECT count(*) FROM content) FROM e`,
				raiseArgs("content", claim)...).Scan(into)
		},
	} {
		first, second := r.begin(ctx, pgx.ReadCommitted), r.begin(ctx, pgx.ReadCommitted)
		first.do(ctx, `DELETE FROM content`)
		first.commit(ctx)
		first = r.begin(ctx, pgx.ReadCommitted)
		if err := Enter(ctx, first, "content", claim); err != nil {
			t.Fatal(err)
		}
		var got int64
		done := start(func() error { return read(second, &got) })
		if !r.blocked(ctx, 1, done) {
			t.Fatal("the second did not wait: ", <-done)
		}
		first.do(ctx, `INSERT INTO content (value) VALUES ('first')`)
		first.commit(ctx)
		if err := <-done; err != nil || got != want {
			t.Errorf("read %d rows, %v; want %d", got, err, want)
		}
		second.rollback(ctx)
	}
}
