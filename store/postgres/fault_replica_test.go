package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

// newReplicated has a synchronous standby, which the test pauses.
func newReplicated(t testing.TB) (*rig, *testdb.Server) {
	t.Helper()
	r := newOwnRig(t, nil, Options{})
	standby := r.server.Standby(t, testdb.Options{})
	for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`} {
		if err := r.edit(t.Context(), edit{now: sql}); err != nil {
			t.Fatal(err)
		}
	}
	r.soon(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))`)
	return r, standby
}

// soon waits until a query says true.
func (r *rig) soon(ctx context.Context, sql string) {
	r.t.Helper()
	if !r.waitFor(ctx, sql, nil) {
		r.t.Fatal("no answer")
	}
}

// waitFor waits until a query says true; it is false if done has its error before that.
func (r *rig) waitFor(ctx context.Context, sql string, done chan error) bool {
	r.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		var there bool
		if err := r.own.QueryRow(ctx, sql).Scan(&there); err != nil {
			r.t.Fatal(err)
		}
		if there {
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

const (
	waitsForStandby = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep')`
	cancelWaiting   = `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'`
)

// unreplicatedGrant asks while the standby stands still, and has the wait for it cancelled: the commit is on the primary alone. Then it
// asks again under the same id, and reports whether that waited for the standby.
func unreplicatedGrant(t *testing.T, twin []edit) (waited bool) {
	t.Helper()
	ctx := t.Context()
	r, standby := newReplicated(t)
	for _, e := range twin {
		if err := r.edit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	session := r.open(ctx, time.Hour)
	standby.Pause(t)
	defer standby.Continue(t)
	req := lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{"n"}}
	acquire := func() error { _, err := r.store.Acquire(ctx, req); return err }
	first := start(acquire)
	if !r.waitFor(ctx, waitsForStandby, first) {
		t.Fatalf("the grant did not wait for the standby: %v", <-first)
	}
	if err := r.edit(ctx, edit{now: cancelWaiting}); err != nil {
		t.Fatal(err)
	}
	if err := <-first; !errors.Is(err, lease.ErrUnknown) {
		t.Fatalf("a grant that is on one server alone was told: %v", err)
	}
	var token int64
	if err := r.own.QueryRow(ctx, `SELECT token FROM tenure.lease WHERE name = 'n'`).Scan(&token); err != nil {
		t.Fatal(err)
	}
	again := start(acquire)
	waited = r.waitFor(ctx, waitsForStandby, again)
	standby.Continue(t)
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	grants, err := r.store.Acquire(ctx, req)
	if err != nil || int64(grants[0].Claim.Token) != token {
		t.Fatalf("granted under %d, and asked again: %v, %v", token, grants, err)
	}
	return waited
}

// TestCancelledWaitForAStandby: the outcome is unknown; asking again answers the known grant only after a durable write of its own.
func TestCancelledWaitForAStandby(t *testing.T) {
	t.Parallel()
	if !unreplicatedGrant(t, nil) {
		t.Fatal("a grant that no standby has was answered by a look at the row")
	}
}

// TestKnownGrantWithoutAWrite is the twin: it answers from the row.
func TestKnownGrantWithoutAWrite(t *testing.T) {
	t.Parallel()
	if unreplicatedGrant(t, []edit{
		{"acquire_rows", "IF r.code IN (1, 5) THEN", `IF r.code = 0 AND r.o = -1 THEN
				RETURN QUERY SELECT * FROM tenure.grants(p_session, p_id, p_names);
				RETURN;
			END IF;
			IF r.code IN (1, 5) THEN`},
		{"grants", "IF current_setting('synchronous_standby_names') <> '' THEN", "IF false THEN"},
	}) {
		t.Fatal("the twin was not caught")
	}
}

// TestCancelledWaitsOfOtherCalls: what changes a session, and a durable release, are unknown as well when nobody waited for the standby.
func TestCancelledWaitsOfOtherCalls(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r, standby := newReplicated(t)
	session, other := r.open(ctx, time.Hour), r.open(ctx, time.Hour)
	r.acquire(ctx, session, "kept")
	standby.Pause(t)
	defer standby.Continue(t)
	for _, step := range []struct {
		name string
		call func() error
	}{
		{"open", func() error {
			_, err := r.store.Open(ctx, lease.OpenRequest{ID: r.ids.New(), TTL: time.Hour})
			return err
		}},
		{"renew", func() error { _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session}); return err }},
		{"release unknown", func() error {
			_, err := r.store.Release(ctx, lease.ReleaseRequest{Session: session, ID: r.ids.New(), Names: []string{"m"}})
			return err
		}},
		{"acquire many", func() error {
			_, err := r.store.Acquire(ctx, lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{"a", "b"}})
			return err
		}},
		{"close", func() error { return r.store.Close(ctx, other) }},
	} {
		done := start(step.call)
		if !r.waitFor(ctx, waitsForStandby, done) {
			t.Errorf("%s did not wait for the standby: %v", step.name, <-done)
			continue
		}
		if err := r.edit(ctx, edit{now: cancelWaiting}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, lease.ErrUnknown) {
			t.Errorf("%s: its commit is on one server alone, and it was told: %v", step.name, err)
		}
	}
}
