package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// ends are the ways a server goes down.
func ends() map[string]func(*testdb.Server, testing.TB) {
	return map[string]func(*testdb.Server, testing.TB){
		"killed":          (*testdb.Server).Crash,
		"stopped":         (*testdb.Server).Stop,
		"stopped at once": (*testdb.Server).Immediate,
	}
}

// cycler is one client's view of its name: what it was told.
type cycler struct {
	session fence.ID
	name    string
	ids     lease.IDs
	highest fence.Token // that it was granted
	request lease.AcquireRequest
	told    fence.Token // of request, 0: the outcome is unknown
}

// run acquires and releases until the server does not answer, and stops with an acquire that was told, or whose outcome is unknown.
func (c *cycler) run(ctx context.Context, s *Store) error {
	for {
		c.request = lease.AcquireRequest{Session: c.session, ID: c.ids.New(), Names: []string{c.name}}
		c.told = 0
		grants, err := s.Acquire(ctx, c.request)
		if err != nil {
			return notAnswered(err)
		}
		c.told = grants[0].Claim.Token
		if c.told <= c.highest {
			return fmt.Errorf("token %d after %d", c.told, c.highest)
		}
		c.highest = c.told
		_, err = s.Release(ctx, lease.ReleaseRequest{Session: c.session, ID: c.request.ID, Names: c.request.Names})
		if err != nil {
			c.told = 0 // it may be over
			return notAnswered(err)
		}
	}
}

// notAnswered is nil for the errors that a dead server causes.
func notAnswered(err error) error {
	if errors.Is(err, lease.ErrUnknown) || errors.Is(err, lease.ErrUnavailable) {
		return nil
	}
	return fmt.Errorf("a server that died was said to have answered: %w", err)
}

// settle asks again after the restart. What was granted is there under the same token; what is new has a greater one.
func (c *cycler) settle(ctx context.Context, s *Store) error {
	var ended *lease.EndedError
	grants, err := s.Acquire(ctx, c.request)
	switch {
	case c.told > 0 && err != nil:
		return fmt.Errorf("%s: token %d was granted before the crash, and then: %w", c.name, c.told, err)
	case errors.As(err, &ended) && ended.How == lease.EndReleased:
		return nil // the release whose answer was lost was applied
	case err != nil:
		return fmt.Errorf("%s: asking for an unknown outcome: %w", c.name, err)
	case c.told > 0 && grants[0].Claim.Token != c.told:
		return fmt.Errorf("%s: granted under %d, and asked again under %d", c.name, c.told, grants[0].Claim.Token)
	}
	c.highest = max(c.highest, grants[0].Claim.Token)
	again, err := s.Acquire(ctx, c.request)
	if err != nil || again[0].Claim.Token != grants[0].Claim.Token {
		return fmt.Errorf("%s: asked twice: %v, then %v, %w", c.name, grants, again, err)
	}
	_, err = s.Release(ctx, lease.ReleaseRequest{Session: c.session, ID: c.request.ID, Names: c.request.Names})
	return err
}

// TestServerEndsInMidCall: eight clients cycle while the server goes down, again and again. Whatever was told is so afterwards.
func TestServerEndsInMidCall(t *testing.T) {
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const clients, rounds = 8, 3
			ctx := t.Context()
			r := newOwnRig(t, nil, Options{SyncRelease: true})
			all := make([]*cycler, clients)
			for i := range all {
				all[i] = &cycler{session: r.open(ctx, time.Hour), name: fmt.Sprint("n", i)}
			}
			for range rounds {
				results := make(chan error, clients)
				for _, c := range all {
					go func() { results <- c.run(ctx, r.store) }()
				}
				r.granted(ctx, 200)
				end(r.server, t)
				for range all {
					if err := <-results; err != nil {
						t.Error(err)
					}
				}
				r.restart()
				for _, c := range all {
					if err := r.patiently(ctx, func() error { return c.settle(ctx, r.store) }); err != nil {
						t.Fatal(err)
					}
				}
				if err := r.Check(ctx); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// newOwnRig has a server of its own.
func newOwnRig(t testing.TB, settings map[string]string, o Options) *rig {
	t.Helper()
	return &rig{t: t, harness: newHarnessOn(t, testdb.Start(t, testdb.Options{Settings: settings}), o)}
}

// restart starts the server again; the test's own connections are new ones.
func (r *rig) restart() {
	r.t.Helper()
	r.server.Restart(r.t)
	r.own.Reset()
}

// granted waits until that many more tokens were drawn.
func (r *rig) granted(ctx context.Context, n int64) {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for from := int64(-1); ; <-tick.C {
		var now int64
		if err := r.own.QueryRow(ctx, `SELECT last_value FROM tenure.token`).Scan(&now); err != nil {
			r.t.Fatal(err)
		}
		if from < 0 {
			from = now
		}
		if now >= from+n {
			return
		}
	}
}

// patiently repeats a call while connections from the server's last life come out of the pool.
func (r *rig) patiently(ctx context.Context, call func() error) error {
	r.t.Helper()
	const most = 50
	for range most {
		err := call()
		if !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown) {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("no answer to %d attempts after the restart", most)
}

// lazyLog keeps the log in memory until a commit needs it: a release that nobody waited for is lost with the server.
func lazyLog() map[string]string {
	return map[string]string{"wal_writer_delay": "10s", "autovacuum": "off", "wal_writer_flush_after": "0", "bgwriter_delay": "10s"}
}

// tries is how often a test makes the server lose its latest commit, until it did: one that fills a page of the log is written at once, and a
// killed process loses nothing that it has written.
const tries = 5

// lostRelease is loseRelease until the release was lost.
func lostRelease(t *testing.T, twin []edit, batch bool) (lost, held bool) {
	t.Helper()
	for range tries {
		if lost, held = loseRelease(t, twin, batch); lost {
			break
		}
	}
	return lost, held
}

// loseRelease releases asynchronously, kills the server, and reports whether the lease is held after the session's next renewal, before which
// a batch may commit in the server's new life.
func loseRelease(t *testing.T, twin []edit, batch bool) (lost, held bool) {
	t.Helper()
	ctx := t.Context()
	r := newOwnRig(t, lazyLog(), Options{})
	for _, e := range twin {
		if err := r.edit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	session := r.open(ctx, time.Hour)
	if _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session}); err != nil {
		t.Fatal(err)
	}
	r.release(ctx, session, r.acquire(ctx, session, "n"))
	r.server.Crash(t)
	r.restart()
	info := r.get(ctx, "n")
	lost = info.Held
	if batch {
		if _, err := r.own.Exec(ctx, `SELECT tenure.unbroken_id()`); err != nil { // as another store would
			t.Fatal(err)
		}
		r.batch(ctx, session, "m")
	}
	err := r.patiently(ctx, func() error { _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session}); return err })
	if err != nil {
		t.Fatal(err)
	}
	return lost, r.get(ctx, "n").Held
}

func (r *rig) get(ctx context.Context, name string) (info lease.Info) {
	r.t.Helper()
	err := r.patiently(ctx, func() (err error) { info, err = r.store.Get(ctx, name); return err })
	if err != nil {
		r.t.Fatal(err)
	}
	return info
}

// TestLostReleaseIsRepeated: a release was told, and lost with the server; the session's next renewal repeats it.
func TestLostReleaseIsRepeated(t *testing.T) {
	t.Parallel()
	lost, held := lostRelease(t, nil, false)
	if !lost {
		t.Fatal("the release was on disk: this test shows nothing")
	}
	if held {
		t.Fatal("the lease stays held although its release was told, as long as the session renews")
	}
}

// TestLostReleaseWithoutTheMark: the twin that does not notice the server's crash keeps the lease for ever.
func TestLostReleaseWithoutTheMark(t *testing.T) {
	t.Parallel()
	_, held := lostRelease(t, []edit{{now: `CREATE OR REPLACE FUNCTION tenure.unbroken_id() RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER
		AS 'BEGIN RETURN ''00000000-0000-0000-0000-000000000000''; END'`}}, false)
	if !held {
		t.Fatal("the twin was not caught")
	}
}

// batch acquires as a batch does.
func (r *rig) batch(ctx context.Context, session fence.ID, name string) {
	r.t.Helper()
	err := r.patiently(ctx, func() error {
		id := r.ids.New()
		c := &call{op: "acquire", id: id, name: name, acquire: &lease.AcquireRequest{Session: session, ID: id, Names: []string{name}}}
		r.store.acquireMany(ctx, []*call{c})
		return c.err
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestLostReleaseBeforeABatch: a batch's commit confirms no release of another life of the server.
func TestLostReleaseBeforeABatch(t *testing.T) {
	t.Parallel()
	if lost, held := lostRelease(t, nil, true); !lost || held {
		t.Fatalf("lost %t, held after the renewal %t; want it lost, and released again", lost, held)
	}
}

// TestLostReleaseBeforeACarelessBatch: the twin whose batches do not look which life it is keeps the lease for ever.
func TestLostReleaseBeforeACarelessBatch(t *testing.T) {
	t.Parallel()
	const mark = `'00000000-0000-0000-0000-000000000000'`
	_, held := lostRelease(t, []edit{
		{"acquire_many", "(SELECT u.id FROM tenure.unbroken u WHERE u.one)", mark + "::uuid"},
		{"unbroken_id", "RETURN (SELECT u.id FROM tenure.unbroken u);", "RETURN " + mark + ";"},
	}, true)
	if !held {
		t.Fatal("the twin was not caught")
	}
}

// TestBatchesConfirmReleases: what was released before a batch that grants is on disk with it, and need not be remembered until the next
// renewal. A batch that grants nothing writes nothing.
func TestBatchesConfirmReleases(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := &rig{t: t, harness: newHarness(t)}
	session, other := r.open(ctx, time.Hour), r.open(ctx, time.Hour)
	own := r.store.session(session)
	r.acquire(ctx, other, "taken")
	r.release(ctx, session, r.acquire(ctx, session, "n"))
	for _, step := range []struct {
		name string
		left int
	}{{"taken", 1}, {"m", 0}} {
		r.batch(ctx, session, step.name)
		own.mu.Lock()
		left := len(own.async)
		own.mu.Unlock()
		if left != step.left {
			t.Errorf("after a batch of %q %d releases are unconfirmed, want %d", step.name, left, step.left)
		}
	}
}

// survives grants as a role that does not wait for the disk, kills the server, and reports whether the grant is there.
func survives(t *testing.T, twin []edit) bool {
	t.Helper()
	ctx := t.Context()
	r := newOwnRig(t, lazyLog(), Options{})
	for _, e := range append(twin, edit{now: `ALTER ROLE CURRENT_USER SET synchronous_commit = off`}) {
		if err := r.edit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	careless := openStore(t, r.url(), Options{})
	// Opened before the role's connections are careless: on disk.
	session, id := r.open(ctx, time.Hour), r.ids.New()
	grants, err := careless.Acquire(ctx, lease.AcquireRequest{Session: session, ID: id, Names: []string{"n"}})
	if err != nil {
		t.Fatal(err)
	}
	r.server.Crash(t)
	r.restart()
	info := r.get(ctx, "n")
	return info.Held && info.Acquisition == id && info.Token == grants[0].Claim.Token
}

// TestGrantsAreDurableForACarelessRole: the functions raise what the role lowered.
func TestGrantsAreDurableForACarelessRole(t *testing.T) {
	t.Parallel()
	if !survives(t, nil) {
		t.Fatal("a grant that was told is gone after the server was killed")
	}
}

// TestGrantsWithoutRaisedDurability is the twin.
func TestGrantsWithoutRaisedDurability(t *testing.T) {
	t.Parallel()
	careless := []edit{{"durable", "IF current_setting('synchronous_commit') IN ('off', 'local') THEN", "IF false THEN"}}
	for range tries {
		if !survives(t, careless) {
			return
		}
	}
	t.Fatal("the twin was not caught")
}
