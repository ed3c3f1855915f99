package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func pruneTrials() []trial {
	return []trial{
		{
			name: "a name is granted, uncommitted, while it is pruned",
			run:  prunedBeforeCommit,
			twins: map[string][]edit{
				"pruned without the row's lock": {
					{"prune", "DELETE FROM tenure.lease WHERE ctid = ANY (ARRAY(\n\t\tSELECT l.ctid FROM", "DELETE FROM tenure.lease WHERE name = ANY (ARRAY(\n\t\tSELECT l.name FROM"},
					{"prune", "LIMIT p_limit FOR UPDATE OF l SKIP LOCKED", "LIMIT p_limit"},
				},
			},
		},
		{
			name: "a name is granted between the pruning's look and its lock",
			run:  prunedAfterCommit,
			// The look at a row is held up; it is taken again when the row turns out to have changed.
			pause: []edit{{"prune", "WHERE (l.token = 0 OR", "WHERE (SELECT true FROM pg_advisory_xact_lock_shared(7077)) AND (l.token = 0 OR"}},
			twins: map[string][]edit{
				"pruned without the row's lock": {
					{"prune", "DELETE FROM tenure.lease WHERE ctid = ANY (ARRAY(\n\t\tSELECT l.ctid FROM", "DELETE FROM tenure.lease WHERE name = ANY (ARRAY(\n\t\tSELECT l.name FROM"},
					{"prune", "LIMIT p_limit FOR UPDATE OF l SKIP LOCKED", "LIMIT p_limit"},
				},
			},
		},
		{
			name:  "a session is renewed, uncommitted, while its leases are pruned",
			run:   prunedBesideRenewal,
			pause: []edit{{"prune", "p_age < interval '1 hour'", "p_age < interval '0'"}},
			twins: map[string][]edit{
				"expiry is acted on and not written": {{"prune", "ELSE s.ended <> 0 AND s.ended_at <= v_before END", "ELSE s.expires_at <= v_before END"},
					{"prune", "s.ended <> 0 OR l.acquisition", "s.ended <> 0 OR s.expires_at <= clock_timestamp() OR l.acquisition"}},
			},
		},
	}
}

// prunedBesideRenewal: what everybody sees is that the session has expired; the renewal read the clock before.
func prunedBesideRenewal(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Hour)
	r.acquire(ctx, session, "n")
	x := r.begin(ctx, pgx.ReadCommitted)
	if _, err := r.own.Exec(ctx, `UPDATE tenure.session SET expires_at = clock_timestamp() + interval '300 ms' WHERE id = $1`, uuid(session)); err != nil {
		return err
	}
	x.do(ctx, `SELECT tenure.session_renew($1, NULL)`, uuid(session))
	r.expired(ctx, session)
	if _, err := r.own.Exec(ctx, `SELECT tenure.prune('0')`); err != nil {
		return err
	}
	x.commit(ctx)
	if !r.get(ctx, "n").Held {
		return broken("a lease of a session that was renewed is gone")
	}
	return nil
}

// old makes a name whose last acquisition is over for two days, its session expired.
func (r *rig) old(ctx context.Context, name string) error {
	former := r.open(ctx, time.Minute)
	r.acquire(ctx, former, name)
	if err := r.Advance(ctx, 48*time.Hour); err != nil {
		return err
	}
	_, err := r.store.Renew(ctx, lease.RenewRequest{Session: former})
	return wantEnded(err, lease.EndExpired)
}

// prunedBeforeCommit: the grant is there, and its transaction has not committed, when the pruning begins.
func prunedBeforeCommit(ctx context.Context, r *rig) error {
	if err := r.old(ctx, "n"); err != nil {
		return err
	}
	session, id := r.open(ctx, time.Minute), r.ids.New()
	x := r.begin(ctx, pgx.ReadCommitted)
	code, token, err := x.acquire(ctx, session, id, "n")
	if err != nil || code != codeDone {
		return fmt.Errorf("acquire: code %d: %w", code, err)
	}
	done := r.prune(ctx)
	r.blocked(ctx, 1, done)
	x.commit(ctx)
	return r.stillHeld(ctx, session, id, token, <-done)
}

// prunedAfterCommit: the pruning has read the row as it was, and the grant commits before it is locked.
func prunedAfterCommit(ctx context.Context, r *rig) error {
	if err := r.old(ctx, "n"); err != nil {
		return err
	}
	session := r.open(ctx, time.Minute)
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT pg_advisory_xact_lock($1)`, gate)
	done := r.prune(ctx)
	if !r.blocked(ctx, 1, done) {
		return fmt.Errorf("the pruning did not wait: %w", <-done)
	}
	claim := r.acquire(ctx, session, "n")
	x.commit(ctx)
	return r.stillHeld(ctx, session, claim.Acquisition, int64(claim.Token), <-done)
}

func (r *rig) prune(ctx context.Context) chan error {
	return start(func() error {
		_, err := r.store.Prune(ctx, time.Hour, lease.MaxPrune)
		return err
	})
}

func (r *rig) stillHeld(ctx context.Context, session, id fence.ID, token int64, err error) error {
	if err != nil {
		return err
	}
	info, err := r.store.Get(ctx, "n")
	if err == nil && (!info.Held || info.Acquisition != id || int64(info.Token) != token || info.Session != session) {
		return broken("a name that is held was pruned: the next one who asks gets it too")
	}
	return err
}
