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

const gate = 7077 // the advisory lock that holds a paused function up

func orderTrials() []trial {
	return []trial{
		{
			name:  "two sessions take over from each other",
			run:   mutual,
			pause: []edit{{"take", "v_others := ARRAY(", "PERFORM pg_advisory_xact_lock_shared(7077);\n\tv_others := ARRAY("}},
			twins: map[string][]edit{
				"the verdict locks FOR UPDATE": {{"take", "ORDER BY h.id FOR NO KEY UPDATE;", "ORDER BY h.id FOR UPDATE;"}},
			},
		},
		{
			name: "a close while a successor has the lease's row",
			run:  closeMeetsSuccessor,
			twins: map[string][]edit{
				"the close frees the leases in its own transaction": {{"session_close", "code := CASE WHEN how = 2 THEN 0 ELSE 2 END;",
					"code := CASE WHEN how = 2 THEN 0 ELSE 2 END; UPDATE tenure.lease SET over = 2 WHERE session = p_id AND over = 0;"}},
			},
		},
		{
			name: "an id unknown a moment ago is released while a successor has the row",
			run:  absentMeetsSuccessor,
			twins: map[string][]edit{
				"the lease is released under the session's lock": {{"release_absent", "l.token > 0) THEN\n\t\tcode := 6;", "l.token > 0) THEN\n\t\tUPDATE tenure.lease SET over = 1 WHERE name = ANY (p_names) AND acquisition = p_id; code := 0;"}},
			},
		},
	}
}

// queueTrials are of several callers in each other's way.
func queueTrials() []trial {
	return []trial{
		{
			name:  "two unknown ids of one session are released at once",
			run:   absentTwice,
			pause: []edit{{"release_absent", lockAbsent, "PERFORM pg_advisory_xact_lock_shared(7077);\n\t" + lockAbsent}},
			twins: map[string][]edit{
				"the session was shared before it is locked": {{"release_absent", "PERFORM pg_advisory_xact_lock_shared(7077);",
					"PERFORM 1 FROM tenure.session WHERE id = p_session FOR KEY SHARE;\n\tPERFORM pg_advisory_xact_lock_shared(7077);"},
					{"lock_session", "FOR UPDATE SKIP LOCKED", "FOR UPDATE"}},
			},
		},
		{
			name: "two batches make the same names in opposite order",
			run:  func(ctx context.Context, r *rig) error { return r.opposite(ctx, manyOf) },
			twins: map[string][]edit{
				"names are made as they come": {{"acquire_many", ` ORDER BY u.name COLLATE "C"`, ""}},
			},
		},
		{
			name: "two acquires take the same names in opposite order",
			run:  takenOpposite,
			twins: map[string][]edit{
				"rows are locked as they come": {
					{"acquire_rows", ` ORDER BY u.name COLLATE "C"`, ""},
					{"lock_names", "SELECT count(*) INTO v_count FROM (SELECT l.name FROM unnest(p_names) u (name) JOIN tenure.lease l ON l.name = u.name\n\t\t\tORDER BY l.name FOR NO KEY UPDATE OF l) k;",
						"FOR v_count IN 1..cardinality(p_names) LOOP PERFORM 1 FROM tenure.lease l WHERE l.name = p_names[v_count] FOR NO KEY UPDATE; END LOOP; v_count := cardinality(p_names);"},
				},
			},
		},
		{
			name:  "a batch and an acquire bury one acquisition and make one name",
			run:   buryAndMake,
			pause: []edit{{"take", "PERFORM tenure.bury(", "PERFORM pg_advisory_xact_lock_shared(7077);\n\tPERFORM tenure.bury("}},
			twins: map[string][]edit{
				"the batch buries before it makes names": {{"acquire_many", "PERFORM tenure.lock_others(p_session, v_old);", "PERFORM tenure.bury(p_session, p_closed_below, v_old);"}},
			},
		},
		{
			name: "a close is first in the queue for a session that a successor needs",
			run:  closeBeforeSuccessor,
			twins: map[string][]edit{
				"the close stays in the queue, and acquires hold the session while they wait": {
					{"lock_session", "FOR UPDATE SKIP LOCKED", "FOR UPDATE"},
					{"acquire_rows", "v_locked := tenure.lock_names(", "PERFORM 1 FROM tenure.session WHERE id = p_session FOR KEY SHARE;\n\tv_locked := tenure.lock_names("},
				},
			},
		},
		{
			name: "a batch meets a locked row",
			run:  batchMeetsLock,
			twins: map[string][]edit{
				"the batch waits": {{"acquire_many", "u.id ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED) k;", "u.id ORDER BY l.name FOR NO KEY UPDATE OF l) k;"}},
			},
		},
	}
}

// mutual: each session finds the other expired, and both have expired when they write so.
func mutual(ctx context.Context, r *rig) error {
	a, b := r.open(ctx, 400*time.Millisecond), r.open(ctx, 400*time.Millisecond)
	r.acquire(ctx, a, "a")
	r.acquire(ctx, b, "b")
	// Free to take, while the sessions live: the rows are over, without anybody having asked since.
	if _, err := r.own.Exec(ctx, `UPDATE tenure.lease SET hold_until = clock_timestamp()`); err != nil {
		return err
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT pg_advisory_xact_lock($1)`, gate)
	other := openStore(r.t, r.url(), Options{})
	take := func(s *Store, session fence.ID, name string) chan error {
		return start(func() error {
			_, err := s.Acquire(ctx, lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{name}})
			return err
		})
	}
	first, second := take(r.store, a, "b"), take(other, b, "a")
	if !r.blocked(ctx, 2, first) {
		return fmt.Errorf("it did not wait: %w", <-first)
	}
	r.expired(ctx, b)
	x.commit(ctx)
	for _, done := range []chan error{first, second} {
		if err := wantEnded(<-done, lease.EndExpired); err != nil {
			return err
		}
	}
	return r.noDeadlock()
}

// noDeadlock reads what the server saw: the store repeats what a deadlock ended.
func (r *rig) noDeadlock() error {
	if n, _ := deadlocks(r.harness); n > 0 {
		return broken("%d deadlocks", n)
	}
	return nil
}

// closeMeetsSuccessor: a successor holds the row of an expired session's lease, and needs the session's row for its verdict.
func closeMeetsSuccessor(ctx context.Context, r *rig) error {
	return r.meetsSuccessor(ctx, func(session fence.ID, _ fence.Claim) error {
		err := r.store.Close(ctx, session)
		return wantEnded(err, lease.EndExpired)
	})
}

func absentMeetsSuccessor(ctx context.Context, r *rig) error {
	return r.meetsSuccessor(ctx, func(session fence.ID, c fence.Claim) error {
		_, err := r.own.Exec(ctx, `SELECT tenure.release_absent($1, '00000000-0000-0000-0000-000000000000', $2, $3)`,
			uuid(session), uuid(c.Acquisition), []string{c.Name})
		return err
	})
}

// meetsSuccessor runs call beside a transaction that holds the lease's row, and lets that take the lease over once call waits or is answered.
func (r *rig) meetsSuccessor(ctx context.Context, call func(fence.ID, fence.Claim) error) error {
	session, successor := r.open(ctx, time.Minute), r.open(ctx, time.Hour)
	claim := r.acquire(ctx, session, "n")
	if err := r.Advance(ctx, 2*time.Minute); err != nil {
		return err
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.lease WHERE name = 'n' FOR NO KEY UPDATE`)
	done := start(func() error { return call(session, claim) })
	r.blocked(ctx, 1, done)
	code, _, err := x.acquire(ctx, successor, r.ids.New(), "n")
	if state(err) == stateDeadlock {
		return errors.Join(broken("the successor's grant was ended by a deadlock"), r.ignore(<-done))
	}
	if err != nil || code != codeDone {
		return fmt.Errorf("take-over: code %d: %w", code, err)
	}
	x.commit(ctx)
	if err := <-done; err != nil && state(err) != stateDeadlock {
		return err
	}
	return r.noDeadlock()
}

// ignore notes an error that is no matter any more.
func (r *rig) ignore(err error) error {
	r.t.Log(err)
	return nil
}

// batchMeetsLock: one of the names of a batch has a row that somebody keeps locked; the others are granted all the same.
func batchMeetsLock(ctx context.Context, r *rig) error {
	const names = 50
	session := r.open(ctx, time.Minute)
	ids, all := make([]fence.ID, names), make([]string, names)
	for i := range names {
		all[i] = fmt.Sprintf("n%02d", i)
		r.release(ctx, session, r.acquire(ctx, session, all[i]))
	}
	below := r.ids.New()
	for i := range ids {
		ids[i] = r.ids.New()
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.lease WHERE name = 'n25' FOR SHARE`)
	var granted int
	done := start(func() error {
		return r.own.QueryRow(ctx, `SELECT coalesce(cardinality(os), 0) FROM tenure.acquire_many($1, $2, $3, $4, $5)`, uuid(session), uuid(below), uuids(ids), all, make([]*string, names)).Scan(&granted)
	})
	if r.blocked(ctx, 1, done) {
		x.rollback(ctx)
		return errors.Join(broken("a locked row of one name keeps the others waiting"), <-done)
	}
	if err := <-done; err != nil {
		return err
	}
	if granted != names-1 {
		return broken("%d of %d names were granted beside one locked row", granted, names-1)
	}
	return nil
}

// absentTwice releases two ids that were never granted, both of whose transactions have begun.
func absentTwice(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Minute)
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT pg_advisory_xact_lock($1)`, gate)
	release := func() error {
		_, err := r.own.Exec(ctx, `SELECT tenure.release_absent($1, '00000000-0000-0000-0000-000000000000', $2, '{n}')`, uuid(session), uuid(r.ids.New()))
		return err
	}
	first, second := start(release), start(release)
	if !r.blocked(ctx, 2, first) {
		return fmt.Errorf("it did not wait: %w", <-first)
	}
	x.commit(ctx)
	return r.bothDone(first, second)
}

func (r *rig) bothDone(first, second chan error) error {
	for _, done := range []chan error{first, second} {
		if err := <-done; err != nil && state(err) != stateDeadlock {
			return err
		}
	}
	return r.noDeadlock()
}

// The forms of asking for three names at once.
const (
	manyOf = `SELECT coalesce(cardinality(os), 0) FROM tenure.acquire_many($1, '00000000-0000-0000-0000-000000000000', $2, $3, NULL)`
	rowsOf = `SELECT count(*) FROM tenure.acquire_rows($1, '00000000-0000-0000-0000-000000000000', ($2::uuid[])[1], $3, NULL, 5000)`
)

// opposite lets two sessions ask for the same names in opposite order, while the one in the middle is being made by somebody else.
func (r *rig) opposite(ctx context.Context, form string) error {
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `INSERT INTO tenure.lease (name) VALUES ('m') ON CONFLICT (name) DO UPDATE SET names = 0`)
	ask := func(names ...string) chan error {
		session := r.open(ctx, time.Minute)
		ids := uuids([]fence.ID{r.ids.New(), r.ids.New(), r.ids.New()})
		return start(func() error {
			_, err := r.own.Exec(ctx, form, uuid(session), ids, names)
			return err
		})
	}
	first := ask("a", "m", "z")
	if !r.blocked(ctx, 1, first) {
		return fmt.Errorf("it did not wait: %w", <-first)
	}
	second := ask("z", "m", "a")
	if !r.blocked(ctx, 2, second) {
		return fmt.Errorf("it did not wait: %w", <-second)
	}
	x.rollback(ctx)
	return r.bothDone(first, second)
}

// takenOpposite is opposite for names that there are.
func takenOpposite(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Minute)
	for _, name := range []string{"z", "m", "a"} {
		r.release(ctx, session, r.acquire(ctx, session, name))
	}
	return r.opposite(ctx, rowsOf)
}

// buryAndMake: two callers, each with one of the names of an acquisition that is over, and both with one new name.
func buryAndMake(ctx context.Context, r *rig) error {
	former := r.open(ctx, time.Minute)
	req := lease.AcquireRequest{Session: former, ID: r.ids.New(), Names: []string{"p", "q"}}
	if _, err := r.store.Acquire(ctx, req); err != nil {
		return err
	}
	if _, err := r.store.Release(ctx, lease.ReleaseRequest{Session: former, ID: req.ID, Names: req.Names}); err != nil {
		return err
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT pg_advisory_xact_lock($1)`, gate)
	ask := func(form string, names ...string) chan error {
		session, ids := r.open(ctx, time.Minute), uuids([]fence.ID{r.ids.New(), r.ids.New(), r.ids.New()})
		return start(func() error {
			_, err := r.own.Exec(ctx, form, uuid(session), ids[:len(names)], names)
			return err
		})
	}
	first := ask(rowsOf, "new", "q")
	if !r.blocked(ctx, 1, first) {
		return fmt.Errorf("it did not wait: %w", <-first)
	}
	second := ask(manyOf, "new", "p")
	if !r.blocked(ctx, 2, second) {
		return fmt.Errorf("it did not wait: %w", <-second)
	}
	x.commit(ctx)
	return r.bothDone(first, second)
}

// closeBeforeSuccessor: a session is being closed while one of its own acquires waits for a row, whose next holder waits for the session.
func closeBeforeSuccessor(ctx context.Context, r *rig) error {
	former, successor := r.open(ctx, time.Minute), r.open(ctx, time.Minute)
	claim := r.acquire(ctx, former, "n")
	// With a bound that the row keeps for the session, whose own row whoever takes the name must write.
	if _, err := r.store.Release(ctx, lease.ReleaseRequest{Session: former, ID: claim.Acquisition, Names: []string{"n"}, ClosedBelow: r.ids.New()}); err != nil {
		return err
	}
	other := openStore(r.t, r.url(), Options{})
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.session WHERE id = $1 FOR NO KEY UPDATE`, uuid(former))
	ask := func(session fence.ID) chan error {
		return start(func() error {
			_, err := r.own.Exec(ctx, `SELECT `+rows, uuid(session), uuid(r.ids.New()), "n")
			return err
		})
	}
	closing := start(func() error { return other.Close(ctx, former) })
	if !r.blocked(ctx, 1, closing) {
		return fmt.Errorf("the close did not wait: %w", <-closing)
	}
	taking := ask(successor)
	if !r.blocked(ctx, 2, taking) {
		return fmt.Errorf("the successor did not wait: %w", <-taking)
	}
	waiting := ask(former)
	if !r.blocked(ctx, 3, waiting) {
		return fmt.Errorf("the acquire did not wait: %w", <-waiting)
	}
	x.commit(ctx)
	if err := <-closing; err != nil && !errors.Is(err, lease.ErrUnavailable) {
		return err
	}
	return r.bothDone(taking, waiting)
}
