package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
)

const execMode = "default_query_exec_mode"

// bouncer gives each test a store behind one PgBouncer in transaction mode: 8 connections on a pool of 3.
type bouncer struct{ *testdb.Bouncer }

func startBouncer(t *testing.T) bouncer {
	t.Helper()
	return bouncer{testdb.StartBouncer(t, testdb.Shared(t), testdb.BouncerOptions{PoolSize: 3})}
}

func (b bouncer) url(t testing.TB, database, mode string) string {
	t.Helper()
	url := with(t, b.URL(database), "pool_max_conns", "8")
	if mode != "" {
		url = with(t, url, execMode, mode)
	}
	return url
}

func (b bouncer) harness(t testing.TB, mode string) *harness {
	t.Helper()
	h := &harness{t: t, server: testdb.Shared(t)}
	h.database = h.server.Template(t, install)
	h.storeURL = func(h *harness) string { return b.url(h.t, h.database, mode) }
	h.start()
	t.Cleanup(h.stop)
	return h
}

func (b bouncer) in(mode string) func(testing.TB) *harness {
	return func(t testing.TB) *harness { t.Helper(); return b.harness(t, mode) }
}

// TestBouncerConformance runs all that does not restart the server through PgBouncer, without prepared statements.
func TestBouncerConformance(t *testing.T) {
	fresh := startBouncer(t).in("cache_describe")
	run(t, leasetest.Cases(), fresh)
	run(t, leasetest.OperatorCases(), fresh)
	run(t, leasetest.ResourceCases(), fresh)
	run(t, leasetest.RepairCases(), fresh)
}

// TestBouncerConformanceExec is the form that asks for no description first, on the cases of the resource and of races.
func TestBouncerConformanceExec(t *testing.T) {
	fresh := startBouncer(t).in("exec")
	run(t, leasetest.ResourceCases(), fresh)
	run(t, leasetest.RepairCases(), fresh)
	run(t, leasetest.OperatorCases(), fresh)
}

// TestBouncerNamesTheSetting: named prepared statements are on another connection than the next call, and the error says what to set.
func TestBouncerNamesTheSetting(t *testing.T) {
	b := startBouncer(t)
	h := newHarness(t)
	err := churn(t.Context(), b.url(t, h.database, ""))
	if err == nil {
		t.Fatal("prepared statements worked behind PgBouncer in transaction mode: this test shows nothing any more")
	}
	if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), execMode+"=cache_describe") {
		t.Fatalf("want an error matching ErrUnavailable that names %s=cache_describe, got: %v", execMode, err)
	}
	if err := churn(t.Context(), b.url(t, h.database, "cache_describe")); err != nil {
		t.Fatal(err)
	}
}

// churn has many sessions cycle at once, so that calls meet other connections of the server; it returns the first error.
func churn(ctx context.Context, url string) error {
	s, err := Open(ctx, url, Options{})
	if err != nil {
		return err
	}
	defer func() { _ = s.Shutdown(ctx) }()
	const clients, cycles = 16, 10
	results := make(chan error, clients)
	for range clients {
		go func() {
			results <- cycleTimes(ctx, s, cycles)
		}()
	}
	for range clients {
		err = errors.Join(err, <-results)
	}
	return err
}

// cycleTimes acquires and releases a name of its own in a session of its own.
func cycleTimes(ctx context.Context, s *Store, n int) error {
	session, err := lease.Start(ctx, s, lease.Options{})
	if err != nil {
		return err
	}
	for range n {
		l, err := session.Acquire(ctx, lease.Want{Names: []string{session.ID().String()}})
		if err != nil {
			return errors.Join(err, session.Close(ctx))
		}
		if err := l.Release(ctx); err != nil {
			return errors.Join(err, session.Close(ctx))
		}
	}
	return session.Close(ctx)
}

// TestDirectConnectionsPrepare: without PgBouncer, statements are prepared once for each connection.
func TestDirectConnectionsPrepare(t *testing.T) {
	h := newHarness(t)
	ctx := t.Context()
	if err := cycleTimes(ctx, h.store, 3); err != nil {
		t.Fatal(err)
	}
	var prepared int
	for _, c := range h.store.pool.AcquireAllIdle(ctx) {
		var n int
		err := c.QueryRow(ctx, `SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%tenure.%'`).Scan(&n)
		c.Release()
		if err != nil {
			t.Fatal(err)
		}
		prepared += n
	}
	if prepared < 3 {
		t.Fatalf("%d statements of the store's are prepared", prepared)
	}
}
