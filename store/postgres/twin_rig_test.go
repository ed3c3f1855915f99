package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// trial is a race that is made to happen, by locks that the test holds, and the naive forms of the schema that lose it.
type trial struct {
	name  string
	run   func(ctx context.Context, r *rig) error // a ruleError, if the schema lost
	pause []edit                                  // where ours is held up too, so that the race happens
	twins map[string][]edit
}

// edit changes one place of a function; without a function, now is a statement.
type edit struct{ function, was, now string }

// guard takes away the constraint that stands behind every form of drawing tokens.
const guard = `ALTER TABLE tenure.lease DROP CONSTRAINT tokens_rise`

// ruleError says which rule a schema has broken.
type ruleError struct{ what string }

func (b *ruleError) Error() string { return b.what }

func broken(format string, args ...any) error {
	return &ruleError{fmt.Sprintf(format, args...)}
}

// TestRaces forces each race on the schema as it is.
func TestRaces(t *testing.T) {
	for _, race := range trials() {
		t.Run(race.name, func(t *testing.T) {
			t.Parallel()
			if err := race.play(t, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestNaiveFormsLoseRaces demands that each race finds what it is there for.
func TestNaiveFormsLoseRaces(t *testing.T) {
	for _, race := range trials() {
		if len(race.twins) == 0 {
			t.Errorf("%s has no twin that shows that it can fail", race.name)
		}
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

func (race trial) play(t *testing.T, twin []edit) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	h := newHarnessOn(t, testdb.Shared(t), Options{SyncRelease: true})
	r := &rig{t: t, harness: h}
	for _, e := range append(append([]edit(nil), race.pause...), twin...) {
		if err := r.edit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	err := race.run(ctx, r)
	if err == nil && twin == nil {
		err = h.Check(ctx)
	}
	return err
}

// rig is a harness whose schema can be changed, and connections that hold locks.
type rig struct {
	*harness
	t   testing.TB
	ids lease.IDs
}

// edit rewrites a function in place: a twin is ours but for what it is about.
func (r *rig) edit(ctx context.Context, e edit) error {
	if e.function == "" {
		_, err := r.own.Exec(ctx, e.now)
		return err
	}
	var text string
	err := r.own.QueryRow(ctx, `SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace AND p.proname = $1`, e.function).Scan(&text)
	if err != nil {
		return fmt.Errorf("%s: %w", e.function, err)
	}
	if n := strings.Count(text, e.was); n != 1 {
		return fmt.Errorf("%s has %d places with %q, want 1: the schema was changed, change the twin with it", e.function, n, e.was)
	}
	_, err = r.own.Exec(ctx, strings.Replace(text, e.was, e.now, 1))
	return err
}

// open begins a session and returns its id.
func (r *rig) open(ctx context.Context, ttl time.Duration) fence.ID {
	r.t.Helper()
	id := r.ids.New()
	if _, err := r.store.Open(ctx, lease.OpenRequest{ID: id, Owner: "o", TTL: ttl}); err != nil {
		r.t.Fatal(err)
	}
	return id
}

// acquire is one acquisition through the store, which must be granted.
func (r *rig) acquire(ctx context.Context, session fence.ID, name string) fence.Claim {
	r.t.Helper()
	grants, err := r.store.Acquire(ctx, lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{name}})
	if err != nil {
		r.t.Fatal(err)
	}
	return grants[0].Claim
}

// release is one release through the store, which must succeed.
func (r *rig) release(ctx context.Context, session fence.ID, c fence.Claim) {
	r.t.Helper()
	if _, err := r.store.Release(ctx, lease.ReleaseRequest{Session: session, ID: c.Acquisition, Names: []string{c.Name}}); err != nil {
		r.t.Fatal(err)
	}
}

// hand is a transaction on a connection of its own.
type hand struct {
	pgx.Tx
	r *rig
	t testing.TB
}

// begin opens a transaction that the test holds; it is rolled back, if it still runs, when the test ends.
func (r *rig) begin(ctx context.Context, level pgx.TxIsoLevel) *hand {
	r.t.Helper()
	conn, err := pgx.Connect(ctx, r.url())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil {
		r.t.Fatal(err)
	}
	return &hand{Tx: tx, r: r, t: r.t}
}

// do runs a statement that must succeed.
func (x *hand) do(ctx context.Context, sql string, args ...any) {
	x.t.Helper()
	if _, err := x.Exec(ctx, sql, args...); err != nil {
		x.t.Fatal(err)
	}
}

// The functions that grant: session, id and names in the order of acquire's arguments.
const (
	rows = `tenure.acquire_rows($1, '00000000-0000-0000-0000-000000000000', $2, ARRAY[$3], NULL, 1000)`
	one  = `tenure.acquire_one($1, '00000000-0000-0000-0000-000000000000', $2, $3, NULL)`
	many = `(SELECT CASE WHEN m.os IS NOT NULL THEN 0 ELSE 1 END AS code, coalesce(m.tokens[1], m.held_tokens[1]) AS token
		FROM tenure.acquire_many($1, '00000000-0000-0000-0000-000000000000', ARRAY[$2::uuid], ARRAY[$3], NULL) m
		WHERE m.os IS NOT NULL OR m.held_os IS NOT NULL) answer`
)

// acquire asks for one name by the whole rule, within this transaction.
func (x *hand) acquire(ctx context.Context, session, id fence.ID, name string) (code int, token int64, err error) {
	return x.acquireBy(ctx, rows, session, id, name)
}

// acquireBy is acquire by one of the functions of the schema.
func (x *hand) acquireBy(ctx context.Context, function string, session, id fence.ID, name string) (code int, token int64, err error) {
	var drawn *int64
	err = x.QueryRow(ctx, `SELECT code, token FROM `+function, uuid(session), uuid(id), name).Scan(&code, &drawn)
	if drawn != nil {
		token = *drawn
	}
	return code, token, err
}

// cycle acquires and releases a name within this transaction, and returns the token.
func (x *hand) cycle(ctx context.Context, session fence.ID, name string) int64 {
	x.t.Helper()
	id := x.r.ids.New()
	code, token, err := x.acquire(ctx, session, id, name)
	if err != nil || code != codeDone {
		x.t.Fatalf("acquire within the test's transaction: code %d, %v", code, err)
	}
	x.do(ctx, `SELECT tenure.release_rows($1, $2, $3, 0)`, uuid(session), uuid(id), []string{name})
	return token
}

func (x *hand) commit(ctx context.Context) {
	x.t.Helper()
	if err := x.Commit(ctx); err != nil {
		x.t.Fatal(err)
	}
}

func (x *hand) rollback(ctx context.Context) {
	x.t.Helper()
	if err := x.Rollback(ctx); err != nil {
		x.t.Fatal(err)
	}
}

// start runs a call beside the test. The channel gets its error.
func start(call func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

// blocked waits until n of the database's connections wait for a lock, or sleep until they look for one again. It is false if done has its error before that; the error
// stays in done.
func (r *rig) blocked(ctx context.Context, n int, done chan error) bool {
	r.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		var waiting int
		err := r.own.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND (wait_event_type = 'Lock' OR wait_event = 'PgSleep')`).Scan(&waiting)
		if err != nil {
			r.t.Fatal(err)
		}
		if waiting >= n {
			return true
		}
		select {
		case err := <-done:
			done <- err
			return false
		case <-tick.C:
		}
	}
}

// expired waits until the session's expiry has passed by the authority's clock.
func (r *rig) expired(ctx context.Context, session fence.ID) {
	r.t.Helper()
	var left pgtype.Interval
	err := r.own.QueryRow(ctx, `SELECT expires_at - clock_timestamp() FROM tenure.session WHERE id = $1`, uuid(session)).Scan(&left)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.own.Exec(ctx, `SELECT pg_sleep($1)`, max(0, duration(left)+time.Millisecond).Seconds()); err != nil {
		r.t.Fatal(err)
	}
}
