package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

const (
	keyShare   = " FOR KEY SHARE"
	lockRenew  = "PERFORM 1 FROM tenure.session WHERE id = p_id FOR NO KEY UPDATE;"
	lockClose  = "v_locked := tenure.lock_session(p_id);"
	lockAbsent = "IF tenure.lock_session(p_session) < 0 THEN"
)

func sessionTrials() []trial {
	return []trial{
		{
			name: "a renewal waits past the expiry",
			run:  renewalWaits,
			twins: map[string][]edit{
				"the clock is read in the statement that waits": {{"session_renew", lockRenew, ""}},
			},
		},
		{
			name: "a take-over, and then the clock steps back",
			run:  steppedBack,
			twins: map[string][]edit{
				"the verdict is not written": {
					{"take", "UPDATE tenure.session h SET ended = 3, ended_at = h.expires_at WHERE h.id = ANY (v_others) AND h.ended = 0 AND h.expires_at <= clock_timestamp();", ""},
					{"take", "WHERE l.name = ANY (p_sorted) AND l.over = 0 AND h.ended = 0", "WHERE l.name = ANY (p_sorted) AND l.over = 0 AND h.ended = 0 AND h.expires_at > clock_timestamp()"},
					{"bury", "ELSE h.ended_at END, l.hold_until)", "ELSE h.ended_at END, l.hold_until, clock_timestamp())"},
				},
			},
		},
		meets("a close", rows, closeMeetsAcquire, closing(noKeyShare(rows))),
		meets("a close", one, closeMeetsAcquire, noKeyShare(one)),
		meets("a close", many, closeMeetsAcquire, noKeyShare(many)),
		ofAnOldName(meets("a close", one, closeMeetsAcquire, oldNoKeyShare())),
		meets("a release", rows, releaseMeetsAcquire, releasing(noKeyShare(rows))),
		meets("a release", one, releaseMeetsAcquire, noKeyShare(one)),
		meets("a release", many, releaseMeetsAcquire, noKeyShare(many)),
		ofAnOldName(meets("a release", one, releaseMeetsAcquire, oldNoKeyShare())),
		{
			name:  "a renewal drops a record while a late duplicate is in a batch",
			run:   func(ctx context.Context, r *rig) error { return r.duplicateMeetsRenewal(ctx, many) },
			pause: []edit{{"acquire_many", "WITH g AS (", "PERFORM pg_advisory_xact_lock_shared(7077);\n\tWITH g AS ("}},
			twins: map[string][]edit{
				"the records are read after the bound": {{"acquire_many", "k.id <> ALL (v_over)", "NOT EXISTS (SELECT 1 FROM tenure.ended e WHERE e.session = p_session AND e.acquisition = k.id)"}},
			},
		},
		{
			name:  "a renewal drops a record while a late duplicate is judged",
			run:   func(ctx context.Context, r *rig) error { return r.duplicateMeetsRenewal(ctx, rows) },
			pause: []edit{{"acquire_rows", "r := tenure.judge(s, p_closed_below, p_id, v_names, p_max_hold, v_now);\n\tIF r.o = -2", "PERFORM pg_advisory_xact_lock_shared(7077);\n\tr := tenure.judge(s, p_closed_below, p_id, v_names, p_max_hold, v_now);\n\tIF r.o = -2"}},
			twins: map[string][]edit{
				"the bound was read before the records": {{"judge", "v_is_closed OR p_id < x.closed_below", "v_is_closed"}},
			},
		},
		{
			name: "an acquire waits past its own session's expiry",
			run:  acquireWaits,
			twins: map[string][]edit{
				"its own session is judged before the wait": {
					{"acquire_rows", "IF s.id IS NULL OR s.ended <> 0 OR v_now >= s.expires_at THEN\n\t\tr := (0, 6,", "IF false THEN\n\t\tr := (0, 6,"},
					{"take", "OR NOT EXISTS (SELECT 1 FROM tenure.session s WHERE s.id = p_session AND s.ended = 0 AND s.expires_at > clock_timestamp())", ""},
					{"take", "s.id = p_session AND s.ended = 0 AND s.expires_at > clock_timestamp();", "s.id = p_session;"},
				},
			},
		},
		{
			name: "an acquire waits while its session is closed",
			run:  acquireWaitsForClosed,
			twins: map[string][]edit{
				"its own session is judged before the wait, and not held": {
					{"acquire_rows", keyShare, ""},
					{"acquire_rows", "IF s.id IS NULL OR s.ended <> 0 OR v_now >= s.expires_at THEN\n\t\tr := (0, 6,", "IF false THEN\n\t\tr := (0, 6,"},
					{"take", "OR NOT EXISTS (SELECT 1 FROM tenure.session s WHERE s.id = p_session AND s.ended = 0 AND s.expires_at > clock_timestamp())", ""},
					{"take", "s.id = p_session AND s.ended = 0 AND s.expires_at > clock_timestamp();", "s.id = p_session;"},
				},
			},
		},
	}
}

// meets is a trial of a call beside an acquire that has its grant and has not committed.
func meets(what, function string, run func(context.Context, *rig, string) error, twins map[string][]edit) trial {
	name, _, _ := strings.Cut(strings.TrimPrefix(function, "tenure."), "(")
	return trial{
		name:  what + " while " + name + " has not committed",
		run:   func(ctx context.Context, r *rig) error { return run(ctx, r, function) },
		twins: twins,
	}
}

// noKeyShare takes away the lock by which acquires keep their session as it is.
func noKeyShare(function string) map[string][]edit {
	e := map[string]edit{
		rows: {"acquire_rows", keyShare, ""},
		one:  {"make_row", keyShare + " OF s", ""},
		many: {"acquire_many", keyShare, ""},
	}[function]
	return map[string][]edit{"the acquire has no KEY SHARE": {e}}
}

// oldNoKeyShare is noKeyShare for acquire_one where the name has a row already.
func oldNoKeyShare() map[string][]edit {
	return map[string][]edit{"the acquire has no KEY SHARE": {{"acquire_one", "SKIP LOCKED" + keyShare + " OF s", "SKIP LOCKED"}}}
}

// ofAnOldName is the same trial with a name that somebody has had before.
func ofAnOldName(t trial) trial {
	run := t.run
	t.name += ", of an old name"
	t.run = func(ctx context.Context, r *rig) error {
		before := r.open(ctx, time.Hour)
		r.release(ctx, before, r.acquire(ctx, before, "n"))
		return run(ctx, r)
	}
	return t
}

func closing(twins map[string][]edit) map[string][]edit {
	twins["the close is a plain update"] = []edit{{"session_close", lockClose, "v_locked := (SELECT count(*) FROM tenure.session WHERE id = p_id);"}}
	twins["the close locks as an update does"] = []edit{{"lock_session", "FOR UPDATE", "FOR NO KEY UPDATE"}}
	return twins
}

func releasing(twins map[string][]edit) map[string][]edit {
	twins["the release does not lock the session"] = []edit{{"release_absent", lockAbsent, "IF false THEN"}}
	twins["the release locks as an update does"] = []edit{{"lock_session", "FOR UPDATE", "FOR NO KEY UPDATE"}}
	twins["the release looks only before it locks"] = []edit{{"release_absent",
		"IF EXISTS (SELECT 1 FROM tenure.lease l WHERE l.name = ANY (p_names) AND l.acquisition = p_id AND l.token > 0) THEN", "IF false THEN"}}
	return twins
}

// renewalWaits: something holds the session's row, without changing it, until the session has expired.
func renewalWaits(ctx context.Context, r *rig) error {
	session := r.open(ctx, 300*time.Millisecond)
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.session WHERE id = $1 FOR NO KEY UPDATE`, uuid(session))
	done := start(func() error {
		_, err := r.store.Renew(ctx, lease.RenewRequest{Session: session})
		return err
	})
	if !r.blocked(ctx, 1, done) {
		return fmt.Errorf("the renewal did not wait: %w", <-done)
	}
	r.expired(ctx, session)
	x.rollback(ctx)
	err := <-done
	if err == nil {
		return broken("a session was renewed after it had expired")
	}
	return wantEnded(err, lease.EndExpired)
}

func wantEnded(err error, how lease.End) error {
	var ended *lease.EndedError
	if !errors.As(err, &ended) || ended.How != how {
		return fmt.Errorf("want an end of kind %v, got: %w", how, err)
	}
	return nil
}

// steppedBack: a successor has the name, and the clock says that the former holder's session has not expired yet.
func steppedBack(ctx context.Context, r *rig) error {
	former, successor := r.open(ctx, time.Minute), r.open(ctx, time.Hour)
	r.acquire(ctx, former, "n")
	if err := r.Advance(ctx, 2*time.Minute); err != nil {
		return err
	}
	r.acquire(ctx, successor, "n")
	if err := r.Advance(ctx, -2*time.Minute); err != nil {
		return err
	}
	_, err := r.store.Renew(ctx, lease.RenewRequest{Session: former})
	if err == nil {
		return broken("a session was renewed after its lease had been taken over: two believe that they hold")
	}
	return wantEnded(err, lease.EndExpired)
}

// beside starts a call while an acquire of the session has its grant and has not committed, commits it once the call waits or is
// answered, and reports whether the call waited.
func (r *rig) beside(ctx context.Context, function string, session, id fence.ID, call func() error) (waited bool, err error) {
	x := r.begin(ctx, pgx.ReadCommitted)
	if code, _, err := x.acquireBy(ctx, function, session, id, "n"); err != nil || code != codeDone {
		return false, fmt.Errorf("acquire: code %d: %w", code, err)
	}
	done := start(call)
	waited = r.blocked(ctx, 1, done)
	x.commit(ctx)
	return waited, <-done
}

func closeMeetsAcquire(ctx context.Context, r *rig, function string) error {
	session := r.open(ctx, time.Minute)
	waited, err := r.beside(ctx, function, session, r.ids.New(), func() error { return r.store.Close(ctx, session) })
	if err != nil {
		return err
	}
	if !waited {
		return broken("a session's close was told, and then a grant to it was committed")
	}
	return nil
}

func releaseMeetsAcquire(ctx context.Context, r *rig, function string) error {
	session, id := r.open(ctx, time.Minute), r.ids.New()
	_, err := r.beside(ctx, function, session, id, func() error {
		_, err := r.store.Release(ctx, lease.ReleaseRequest{Session: session, ID: id, Names: []string{"n"}})
		return err
	})
	if err != nil {
		return err
	}
	info, err := r.store.Get(ctx, "n")
	if err == nil && info.Held {
		return broken("an acquisition was released, and is held: nobody knows of it")
	}
	return err
}

// acquireWaits: the name's row is locked until the asking session has expired.
func acquireWaits(ctx context.Context, r *rig) error {
	session := r.open(ctx, 300*time.Millisecond)
	return r.waitingAcquire(ctx, session, lease.EndExpired, func() bool {
		r.expired(ctx, session)
		return true
	})
}

// acquireWaitsForClosed: the name's row is locked, and the asking session is closed by another process.
func acquireWaitsForClosed(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Minute)
	other := openStore(r.t, r.url(), Options{})
	var closing chan error
	err := r.waitingAcquire(ctx, session, lease.EndClosed, func() bool {
		closing = start(func() error { return other.Close(ctx, session) })
		return !r.blocked(ctx, 2, closing) // else it is the close that waits for the acquire
	})
	return errors.Join(err, <-closing)
}

// waitingAcquire lets an acquire wait for a name's row while meanwhile runs, which reports whether the session was over when it returned.
func (r *rig) waitingAcquire(ctx context.Context, session fence.ID, how lease.End, meanwhile func() (over bool)) error {
	other := r.open(ctx, time.Minute)
	r.release(ctx, other, r.acquire(ctx, other, "n"))
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.lease WHERE name = 'n' FOR UPDATE`)
	done := start(func() error {
		_, err := r.store.Acquire(ctx, lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{"n"}})
		return err
	})
	if !r.blocked(ctx, 1, done) {
		return fmt.Errorf("the acquire did not wait: %w", <-done)
	}
	over := meanwhile()
	x.rollback(ctx)
	err := <-done
	if err == nil && over {
		return broken("a session was granted a name after it was over")
	}
	if err == nil {
		return nil
	}
	return wantEnded(err, how)
}

// duplicateMeetsRenewal: a duplicate of an acquire arrives long after its release, of which there is a record, and meets the renewal that makes
// the record needless.
func (r *rig) duplicateMeetsRenewal(ctx context.Context, function string) error {
	session, successor := r.open(ctx, time.Minute), r.open(ctx, time.Minute)
	claim := r.acquire(ctx, session, "n")
	r.release(ctx, session, claim)
	r.release(ctx, successor, r.acquire(ctx, successor, "n"))
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT pg_advisory_xact_lock($1)`, gate)
	y := r.begin(ctx, pgx.ReadCommitted)
	late := start(func() error {
		code, _, err := y.acquireBy(ctx, function, session, claim.Acquisition, "n")
		if err == nil && code == codeDone {
			return broken("an id was granted again after its release")
		}
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // a batch has no answer to it, and it would ask singly
		}
		return err
	})
	if !r.blocked(ctx, 1, late) {
		return fmt.Errorf("the duplicate did not wait: %w", <-late)
	}
	if _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session, ClosedBelow: r.ids.New()}); err != nil {
		return err
	}
	x.commit(ctx)
	return <-late
}

// endTogether: the names of an acquisition pass their bound at one instant. Else somebody takes the first of them while the second is still held, and a release
// finds an acquisition that has lost a name for no reason.
func endTogether(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Minute)
	if _, err := r.store.Acquire(ctx, lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{"a", "b", "c"}, MaxHold: time.Second}); err != nil {
		return err
	}
	var instants int
	if err := r.own.QueryRow(ctx, `SELECT count(DISTINCT hold_until) FROM tenure.lease`).Scan(&instants); err != nil {
		return err
	}
	if instants != 1 {
		return broken("three names of one acquisition pass its bound at %d instants", instants)
	}
	return nil
}
