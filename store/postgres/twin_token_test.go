package postgres

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/lease"
)

func trials() []trial {
	return slices.Concat(tokenTrials(), sessionTrials(), orderTrials(), queueTrials(), pruneTrials(), operationTrials(), holdTrials(), repeatTrials(), outboxTrials(), placeTrials())
}

func tokenTrials() []trial {
	return []trial{
		{
			name: "several names with a bound",
			run:  endTogether,
			twins: map[string][]edit{
				"each name has an instant of its own": {{"take", "hold_until = v_until,", "hold_until = clock_timestamp() + p_max_hold,"}},
			},
		},
		{
			name: "a name is made by another while it is asked for",
			run:  madeMeanwhile,
			twins: map[string][]edit{
				"the token stands in VALUES": {{now: guard}, {"acquire_one", "c := tenure.make_row(p_session, p_name);", `
					INSERT INTO tenure.lease AS l (name, token, session, acquisition, names, over)
						VALUES (p_name, nextval('tenure.token'), p_session, p_id, 1, 0)
						ON CONFLICT (name) DO UPDATE SET prev = l.token, token = excluded.token, session = excluded.session, acquisition = excluded.acquisition, names = 1, over = 0
						WHERE l.over <> 0;`}},
			},
		},
		{
			name: "a name is taken and given back while it is waited for",
			run:  cycledMeanwhile,
			twins: map[string][]edit{
				"the token stands beside FOR UPDATE": {
					{now: guard},
					{"lock_names", "SELECT count(*) INTO v_count FROM (SELECT l.name FROM unnest(p_names) u (name) JOIN tenure.lease l ON l.name = u.name\n\t\t\tORDER BY l.name FOR NO KEY UPDATE OF l) k;",
						`PERFORM set_config('tenure.drawn', (SELECT max(k.t)::text FROM (SELECT d.t FROM unnest(p_names) u (name) JOIN tenure.lease l ON l.name = u.name
							CROSS JOIN (SELECT nextval('tenure.token') AS t) d ORDER BY l.name FOR NO KEY UPDATE OF l) k), true); v_count := 1;`},
					{"take", "token = nextval('tenure.token')", "token = current_setting('tenure.drawn')::bigint"},
				},
			},
		},
		{
			name: "an old snapshot asks",
			run:  oldSnapshot,
			twins: map[string][]edit{
				"granted above READ COMMITTED": {{"read_committed", "IF current_setting('transaction_isolation') <> 'read committed' THEN", "IF false THEN"}},
			},
		},
	}
}

// madeMeanwhile: while one session asks for a new name, another has made it, and takes and releases it.
func madeMeanwhile(ctx context.Context, r *rig) error {
	mine, other := r.open(ctx, time.Minute), r.open(ctx, time.Minute)
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `INSERT INTO tenure.lease (name) VALUES ('n')`)
	return r.laterToken(ctx, x, mine, other)
}

// cycledMeanwhile: while one session waits for a name, another takes and releases it.
func cycledMeanwhile(ctx context.Context, r *rig) error {
	mine, other := r.open(ctx, time.Minute), r.open(ctx, time.Minute)
	r.release(ctx, other, r.acquire(ctx, other, "n"))
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.lease WHERE name = 'n' FOR UPDATE`)
	return r.laterToken(ctx, x, mine, other)
}

// laterToken lets mine wait for x, other take and release the name in it, and compares the tokens by the order of the grants.
func (r *rig) laterToken(ctx context.Context, x *hand, mine, other [16]byte) error {
	var later int64
	done := start(func() error {
		grants, err := r.store.Acquire(ctx, lease.AcquireRequest{Session: mine, ID: r.ids.New(), Names: []string{"n"}})
		if err == nil {
			later = int64(grants[0].Claim.Token)
		}
		return err
	})
	if !r.blocked(ctx, 1, done) {
		return <-done
	}
	earlier := x.cycle(ctx, other, "n")
	x.commit(ctx)
	if err := <-done; err != nil {
		return err
	}
	if later <= earlier {
		return broken("token %d was granted, and after it %d", earlier, later)
	}
	return nil
}

// oldSnapshot: an id is closed before its acquire arrives, in a transaction that began before.
func oldSnapshot(ctx context.Context, r *rig) error {
	session, id := r.open(ctx, time.Minute), r.ids.New()
	x := r.begin(ctx, pgx.RepeatableRead)
	x.do(ctx, `SELECT count(*) FROM tenure.ended`)
	if _, err := r.store.Release(ctx, lease.ReleaseRequest{Session: session, ID: id, Names: []string{"n"}}); err != nil {
		return err
	}
	code, _, err := x.acquire(ctx, session, id, "n")
	if err == nil && code == codeDone {
		x.commit(ctx)
		return broken("an id was granted after its release, by a snapshot from before it")
	}
	if state(err) != "TN007" {
		return errors.Join(errors.New("want SQLSTATE TN007"), err)
	}
	return nil
}

// TestTheGuardStopsNaiveForms: the constraint behind every form refuses the token that would fall, and the store draws another.
func TestTheGuardStopsNaiveForms(t *testing.T) {
	for _, race := range tokenTrials() {
		for name, twin := range race.twins {
			if twin[0].now != guard {
				continue
			}
			t.Run(race.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				var lost *ruleError
				if err := race.play(t, twin[1:]); errors.As(err, &lost) {
					t.Fatal(err)
				}
			})
		}
	}
}
