package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
)

const victim = "victim" // the application name of the connections that are ended

// newVictims has a store whose connections can be told from the test's own.
func newVictims(t testing.TB) *rig {
	t.Helper()
	server := testdb.Shared(t)
	h := &harness{t: t, server: server}
	h.database = server.Template(t, install)
	h.storeURL = func(h *harness) string {
		return with(h.t, with(h.t, h.url(), "pool_max_conns", "8"), "application_name", victim)
	}
	h.start()
	t.Cleanup(h.stop)
	return &rig{t: t, harness: h}
}

// terminate ends one of the victims, one that runs a statement if there is one, a moment from now.
func (r *rig) terminate(ctx context.Context, moment time.Duration) (ended bool) {
	r.t.Helper()
	err := r.own.QueryRow(ctx, `SELECT coalesce((SELECT pg_terminate_backend(a.pid) FROM (SELECT pg_sleep($2)) p, LATERAL (SELECT a.pid FROM pg_stat_get_activity(NULL) a
		WHERE a.application_name = $1 AND a.datid = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY a.state = 'active' DESC, random() LIMIT 1) a), false)`,
		victim, moment.Seconds()).Scan(&ended)
	if err != nil {
		r.t.Fatal(err)
	}
	return ended
}

// TestTerminatedInEachStep ends a connection at random moments of all calls, 200 times. Nobody is told what is not so.
func TestTerminatedInEachStep(t *testing.T) {
	const rounds = 200
	r := newVictims(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		defer cancel()
		for n := 0; n < rounds && ctx.Err() == nil; {
			if r.terminate(context.WithoutCancel(ctx), time.Duration(rand.IntN(40_000))*time.Microsecond) {
				n++
			}
		}
	}()
	r.race(ctx, &course{lenient: true}, 3)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		t.Errorf("%d connections were not ended in time: %v", rounds, cause)
	}
}

// TestTerminatedFencedWrites ends the connection of fenced writes at random moments. A write that was told is there once; one that was said not to
// be there is not.
func TestTerminatedFencedWrites(t *testing.T) {
	const rounds = 60
	r := newVictims(t)
	ctx := t.Context()
	claim := r.acquire(ctx, r.open(ctx, time.Hour), "n")
	fenced := &resource{store: r.store, own: r.own}
	var told, never []string
	unknown := 0
	for i := range rounds {
		value := fmt.Sprint("v", i)
		done := start(func() error { return fenced.Strict(ctx, claim, value, nil) })
		r.terminate(ctx, time.Duration(rand.IntN(3000))*time.Microsecond)
		switch err := <-done; {
		case err == nil:
			told = append(told, value)
		case errors.Is(err, lease.ErrUnknown):
			unknown++
		default: // rolled back: the statement's own error, or that nothing was applied
			never = append(never, value)
		}
	}
	content, err := readContent(ctx, r.own)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range told {
		if n := count(content, value); n != 1 {
			t.Errorf("%s was told and is there %d times", value, n)
		}
	}
	for _, value := range never {
		if slices.Contains(content, value) {
			t.Errorf("%s was said not to be there", value)
		}
	}
	t.Logf("%d told, %d unknown, %d not applied", len(told), unknown, len(never))
}

func count(content []string, value string) (n int) {
	for _, c := range content {
		if c == value {
			n++
		}
	}
	return n
}

// TestTerminatedWhileItWaits ends each kind of call while it waits for a lock: then it has certainly not been applied, whatever is
// said, and asking again does it.
func TestTerminatedWhileItWaits(t *testing.T) {
	r := newVictims(t)
	ctx := t.Context()
	session := r.open(ctx, time.Hour)
	claim := r.acquire(ctx, session, "held")
	lock := func(sql string, args ...any) func() *hand {
		return func() *hand {
			x := r.begin(ctx, pgx.ReadCommitted)
			x.do(ctx, sql, args...)
			return x
		}
	}
	ofSession := lock(`SELECT FROM tenure.session WHERE id = $1 FOR UPDATE`, uuid(session))
	request := lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{"new"}}
	for _, step := range []struct {
		name string
		lock func() *hand
		call func() error
	}{
		{"acquire", lock(`INSERT INTO tenure.lease (name) VALUES ('new')`), func() error { _, err := r.store.Acquire(ctx, request); return err }},
		{"renew", ofSession, func() error { _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session}); return err }},
		{"release unknown", ofSession, func() error {
			_, err := r.store.Release(ctx, lease.ReleaseRequest{Session: session, ID: r.ids.New(), Names: []string{"other"}})
			return err
		}},
		{"fenced", lock(`SELECT FROM tenure.lease WHERE name = 'held' FOR UPDATE`), func() error {
			return (&resource{store: r.store, own: r.own}).Strict(ctx, claim, "value", nil)
		}},
		{"close", ofSession, func() error { return r.store.Close(ctx, session) }},
	} {
		t.Run(step.name, func(t *testing.T) {
			x := step.lock()
			done := start(step.call)
			if !r.blocked(ctx, 1, done) {
				t.Fatalf("it did not wait: %v", <-done)
			}
			if !r.terminate(ctx, 0) {
				t.Fatal("nothing was ended")
			}
			err := <-done
			x.rollback(ctx)
			if !errors.Is(err, lease.ErrUnknown) && !errors.Is(err, lease.ErrUnavailable) {
				t.Fatalf("ended while it waited: %v", err)
			}
			if err := r.patiently(ctx, step.call); err != nil {
				t.Fatalf("asked again: %v", err)
			}
		})
	}
}
