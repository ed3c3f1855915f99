package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// byPlace is what release_many asks of the row at a place.
const byPlace = "l.ctid = u.place AND l.name = u.name\n\t\tWHERE l.acquisition = u.id AND l.session = p_session AND l.names = 1 AND l.over = 0"

// placeTrials are of batches of releases, which are told where rows were.
func placeTrials() []trial {
	return []trial{
		{
			name: "a batch releases by a place where another row is now",
			run:  placeOfAnother,
			twins: map[string][]edit{
				"the place is proof enough":          {{"release_many", byPlace, "l.ctid = u.place\n\t\tWHERE l.session = p_session AND l.over = 0"}},
				"what is not at its place is left":   {{"release_many", "IF coalesce(cardinality(v_rows), 0) < cardinality(p_ids) THEN", "IF false THEN"}},
				"one that is at its place is enough": {{"release_many", "IF coalesce(cardinality(v_rows), 0) < cardinality(p_ids) THEN", "IF v_rows IS NULL THEN"}},
			},
		},
		{
			name: "a batch releases by a place where the name's next acquisition is",
			run:  placeOfNext,
			twins: map[string][]edit{
				"the acquisition is not looked at": {{"release_many", byPlace, "l.ctid = u.place AND l.name = u.name\n\t\tWHERE l.session = p_session AND l.names = 1 AND l.over = 0"}},
			},
		},
		{
			name: "a batch names another session's acquisition, and its place",
			run:  placeOfStranger,
			twins: map[string][]edit{
				"the session is not looked at": {{"release_many", byPlace, "l.ctid = u.place AND l.name = u.name\n\t\tWHERE l.acquisition = u.id AND l.names = 1 AND l.over = 0"}},
			},
		},
		{
			name: "a batch that was told the places looks nothing up",
			run:  placesAreUsed,
			twins: map[string][]edit{
				"the places are those before the grant": {{"acquire_many", "l.ctid AS place", "k.c AS place"}},
			},
		},
		{
			name: "a batch meets a locked row at its place",
			run:  placeIsLocked,
			twins: map[string][]edit{
				"the batch waits": {{"release_many", byPlace + "\n\t\tORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED", byPlace + "\n\t\tORDER BY l.name FOR NO KEY UPDATE OF l"}},
			},
		},
	}
}

// placed is a batch of acquisitions through the store, all granted.
func (r *rig) placed(ctx context.Context, session fence.ID, names ...string) []*call {
	r.t.Helper()
	batch := make([]*call, len(names))
	for i, name := range names {
		req := &lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{name}}
		batch[i] = &call{op: "acquire", id: req.ID, name: name, acquire: req}
	}
	r.store.acquireMany(ctx, batch)
	for _, c := range batch {
		if c.err != nil || c.grant == nil || c.grant.code != codeDone || !c.grant.place.Valid {
			r.t.Fatalf("acquire %q in a batch: %+v, %v", c.name, c.grant, c.err)
		}
	}
	return batch
}

// releasedAt releases what a batch has acquired, at the places of others, and returns how many it released.
func (r *rig) releasedAt(ctx context.Context, session fence.ID, batch, places []*call) (n int, err error) {
	calls := make([]*call, len(batch))
	for i, c := range batch {
		calls[i] = &call{op: "release", id: c.id, name: c.name, sync: true, place: places[i].grant.place}
	}
	r.store.releaseMany(ctx, session, calls)
	for _, c := range calls {
		if c.err != nil {
			return 0, c.err
		}
		if c.released {
			n++
		}
	}
	return n, nil
}

// held says which names somebody holds.
func (r *rig) held(ctx context.Context) (names string, err error) {
	err = r.own.QueryRow(ctx, `SELECT coalesce(string_agg(name, ' ' ORDER BY name), '') FROM tenure.lease WHERE over = 0`).Scan(&names)
	return names, err
}

func (r *rig) wantReleased(ctx context.Context, n, want int, still string) error {
	held, err := r.held(ctx)
	if err == nil && (n != want || held != still) {
		err = broken("%d were released, and %q is held still; want %d, and %q", n, held, want, still)
	}
	return err
}

// placeOfAnother: a place is a hint. What it leads to is looked at, and what it does not lead to is found by name.
func placeOfAnother(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Minute)
	all := r.placed(ctx, session, "a", "b", "c", "d", "e")
	// a and b at the places of d and e, which are others; c at its own.
	n, err := r.releasedAt(ctx, session, all[:3], []*call{all[3], all[4], all[2]})
	if err != nil {
		return err
	}
	return r.wantReleased(ctx, n, 3, "d e")
}

// placeOfNext: the acquisition is over, the name was pruned, made anew and acquired again, and its row is at the place that is told.
func placeOfNext(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Minute)
	former := r.placed(ctx, session, "n")
	if n, err := r.releasedAt(ctx, session, former, former); n != 1 || err != nil {
		return fmt.Errorf("%d were released: %w", n, err)
	}
	if _, err := r.own.Exec(ctx, `DELETE FROM tenure.lease`); err != nil { // as pruning does
		return err
	}
	if _, err := r.own.Exec(ctx, `VACUUM tenure.lease`); err != nil { // its place is free for another row
		return err
	}
	next := r.placed(ctx, session, "n")
	n, err := r.releasedAt(ctx, session, former, next)
	if err != nil {
		return err
	}
	return r.wantReleased(ctx, n, 0, "n")
}

func placeOfStranger(ctx context.Context, r *rig) error {
	holder, other := r.open(ctx, time.Minute), r.open(ctx, time.Minute)
	all := r.placed(ctx, holder, "n")
	n, err := r.releasedAt(ctx, other, all, all)
	if err != nil {
		return err
	}
	return r.wantReleased(ctx, n, 0, "n")
}

// placesAreUsed: the only look-ups are those of the session.
func placesAreUsed(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Minute)
	all := r.placed(ctx, session, "a", "b", "c")
	ids, names, places := make([]fence.ID, len(all)), make([]string, len(all)), make([]pgtype.TID, len(all))
	for i, c := range all {
		ids[i], names[i], places[i] = c.id, c.name, c.grant.place
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT tenure.release_many($1, $2, $3, $4, $5)`, uuid(session), uuid(fence.ID{}), uuids(ids), names, places)
	var looks int
	err := x.QueryRow(ctx, `SELECT coalesce(seq_scan, 0) + coalesce(idx_scan, 0) FROM pg_stat_xact_user_tables WHERE relid = 'tenure.lease'::regclass`).Scan(&looks)
	if err != nil {
		return err
	}
	x.commit(ctx)
	held, err := r.held(ctx)
	if err == nil && (looks > 0 || held != "") {
		err = broken("%d look-ups by name, and %q is held still", looks, held)
	}
	return err
}

// placeIsLocked: the others are released all the same.
func placeIsLocked(ctx context.Context, r *rig) error {
	session := r.open(ctx, time.Minute)
	all := r.placed(ctx, session, "a", "b", "c")
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.lease WHERE name = 'b' FOR SHARE`)
	n := 0
	done := start(func() (err error) {
		n, err = r.releasedAt(ctx, session, all, all)
		return err
	})
	if r.blocked(ctx, 1, done) {
		x.rollback(ctx)
		return errors.Join(broken("a locked row of one name keeps the others waiting"), <-done)
	}
	if err := <-done; err != nil {
		return err
	}
	return r.wantReleased(ctx, n, 2, "b")
}

// TestPlacesAfterARewrite: leases were moved, and each place that the store remembers is another's now. All are released, and those that nobody releases are not.
func TestPlacesAfterARewrite(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.open(ctx, time.Minute)
	own := r.store.session(session)
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("n%02d", 39-i)) // from the last: in the order of their names they are elsewhere
	}
	all := r.placed(ctx, session, names...)
	for _, c := range all {
		own.granted(c.id, acquired{[]string{c.name}, c.grant.place})
	}
	if _, err := r.own.Exec(ctx, `CLUSTER tenure.lease USING lease_pkey`); err != nil {
		t.Fatal(err)
	}
	var done []chan error
	for i, c := range all {
		if i%4 > 0 {
			done = append(done, start(func() error {
				_, err := r.store.Release(ctx, lease.ReleaseRequest{Session: session, ID: c.id, Names: []string{c.name}})
				return err
			}))
		}
	}
	for _, d := range done {
		if err := <-d; err != nil {
			t.Error(err)
		}
	}
	var still []string
	if err := r.own.QueryRow(ctx, `SELECT array_agg(name ORDER BY name DESC) FROM tenure.lease WHERE over = 0`).Scan(&still); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := 0; i < len(names); i += 4 {
		want = append(want, names[i])
	}
	if !slices.Equal(still, want) {
		t.Errorf("%q are held still, want %q", still, want)
	}
	for i, c := range all {
		if known := own.of(c.id); known.place.Valid != (i%4 == 0) {
			t.Errorf("of %q the place is known: %v", c.name, known.place.Valid)
		}
	}
}

// TestTheWayBackFromPlaces: what version 6 has replaced is again what it was.
func TestTheWayBackFromPlaces(t *testing.T) {
	t.Parallel()
	s := testdb.Shared(t)
	conn := connect(t, s.URL(s.Database(t)))
	if _, err := migrate(t.Context(), conn, steps()[:5], MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := catalog(t, conn)
	if _, err := migrate(t.Context(), conn, steps()[:6], MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(catalog(t, conn), before) {
		t.Fatal("version 6 changes nothing")
	}
	must(t, conn, steps()[5].downScript())
	if !slices.Equal(catalog(t, conn), before) {
		t.Error("after the way back the schema has other things than the fifth version")
	}
}
