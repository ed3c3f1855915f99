package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// firstEntryTrial: two names enter a resource first, at once. One of them guards it.
func firstEntryTrial(level pgx.TxIsoLevel) trial {
	return trial{
		name: "two first entries at once, " + string(level),
		run: func(ctx context.Context, r *rig) error {
			session := r.open(ctx, time.Hour)
			a, b := r.acquire(ctx, session, "a"), r.acquire(ctx, session, "b")
			one, two := r.begin(ctx, level), r.begin(ctx, level)
			if err := Enter(ctx, one, "r", a); err != nil {
				return err
			}
			entered := start(func() error { return Enter(ctx, two, "r", b) })
			if r.blocked(ctx, 1, entered) {
				one.commit(ctx)
			}
			err := <-entered
			if err == nil {
				return broken("two names guard one resource")
			}
			if want := map[bool]error{true: fence.ErrForeign, false: ErrBeginAgain}[level == pgx.ReadCommitted]; !errors.Is(err, want) {
				return fmt.Errorf("the second: %w; want %w", err, want)
			}
			two.rollback(ctx)
			if err := Enter(ctx, r.begin(ctx, level), "r", b); !errors.Is(err, fence.ErrForeign) {
				return fmt.Errorf("the second, again: %w", err)
			}
			return nil
		},
		twins: map[string][]edit{"no index tells which came first": {{now: "DROP INDEX tenure.mark_bound"}}},
	}
}

// oldSnapshotTrial: above READ COMMITTED, verify and Enter are right as the first statement, and an older snapshot begins again.
func oldSnapshotTrial(level pgx.TxIsoLevel) trial {
	return trial{
		name: "a lease changes hands after the snapshot, " + string(level),
		run: func(ctx context.Context, r *rig) error {
			return errors.Join(oldVerify(ctx, r, level), oldEnter(ctx, r, level))
		},
		twins: map[string][]edit{
			"verify does not lock the lease": {swap(verifySig, " FOR SHARE", ""), swap(longSig, " FOR SHARE", "")},
		},
	}
}

func oldVerify(ctx context.Context, r *rig, level pgx.TxIsoLevel) error {
	session := r.open(ctx, time.Hour)
	for what, end := range map[string]func(session fence.ID, c fence.Claim) error{
		"release": func(s fence.ID, c fence.Claim) error { r.release(ctx, s, c); return nil },
		"close":   func(s fence.ID, _ fence.Claim) error { return r.store.Close(ctx, s) },
		"revocation": func(_ fence.ID, c fence.Claim) error {
			_, err := r.store.Revoke(ctx, lease.RevokeRequest{Name: c.Name, Token: c.Token, Reason: "test"})
			return err
		},
		"take-over": func(s fence.ID, c fence.Claim) error {
			r.lapse(ctx, s)
			r.acquire(ctx, session, c.Name)
			return nil
		},
	} {
		own := r.open(ctx, time.Hour)
		claim := r.acquire(ctx, own, what)
		first, old := r.begin(ctx, level), r.begin(ctx, level)
		if err := Verify(ctx, first, claim); err != nil {
			return fmt.Errorf("verify as the first statement: %w", err)
		}
		first.commit(ctx)
		old.do(ctx, `SELECT count(*) FROM content`)
		if err := end(own, claim); err != nil {
			return err
		}
		if err := Verify(ctx, old, claim); err == nil {
			return broken("%s: an old snapshot was trusted", what)
		} else if !errors.Is(err, ErrBeginAgain) {
			return fmt.Errorf("%s: %w; want begin again", what, err)
		}
		if err := Verify(ctx, r.begin(ctx, level), claim); !errors.Is(err, fence.ErrRefused) {
			return fmt.Errorf("%s, and verify as the first statement: %w", what, err)
		}
	}
	return nil
}

func oldEnter(ctx context.Context, r *rig, level pgx.TxIsoLevel) error {
	session := r.open(ctx, time.Hour)
	low := r.acquire(ctx, session, "n")
	r.release(ctx, session, low)
	high := r.acquire(ctx, session, "n")
	first := r.begin(ctx, level)
	if err := Enter(ctx, first, "r", low); err != nil {
		return fmt.Errorf("Enter as the first statement: %w", err)
	}
	first.commit(ctx)
	old := r.begin(ctx, level)
	old.do(ctx, `SELECT count(*) FROM content`)
	if err := pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error { return Enter(ctx, tx, "r", high) }); err != nil {
		return err
	}
	if err := Enter(ctx, old, "r", low); !errors.Is(err, ErrBeginAgain) {
		return broken("Enter by an old snapshot: %v", err)
	}
	if err := Enter(ctx, r.begin(ctx, level), "r", low); !errors.Is(err, fence.ErrRefused) {
		return fmt.Errorf("Enter again, after that: %w", err)
	}
	return nil
}
