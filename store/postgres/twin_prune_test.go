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
	}
}

// old makes a name whose last acquisition is over for two days, its session expired.
func (r *rig) old(ctx context.Context, name string) error {
	former := r.open(ctx, time.Minute)
	r.acquire(ctx, former, name)
	return r.Advance(ctx, 48*time.Hour)
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
