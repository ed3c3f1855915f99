package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/lease"
)

// TestForeignLockOnOneOfManyNames: somebody's transaction keeps the row of one name locked. 499 others are granted to the same session while
// it does; the one is waited for alone.
func TestForeignLockOnOneOfManyNames(t *testing.T) {
	const names = 500
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := &rig{t: t, harness: newHarness(t)}
	session := r.open(ctx, time.Hour)
	name := func(i int) string { return fmt.Sprintf("n%03d", i) }
	cycle := func(i int) error {
		req := lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{name(i)}, ClosedBelow: r.ids.New()}
		req.ID = r.ids.New()
		_, err := r.store.Acquire(ctx, req)
		if err == nil {
			_, err = r.store.Release(ctx, lease.ReleaseRequest{Session: session, ID: req.ID, Names: req.Names})
		}
		return err
	}
	together := func(from, to int) chan error {
		results := make(chan error, to-from)
		for i := from; i < to; i++ {
			go func() { results <- cycle(i) }()
		}
		return results
	}
	for made, i := together(0, names), 0; i < names; i++ {
		if err := <-made; err != nil {
			t.Fatal(err)
		}
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.lease WHERE name = $1 FOR SHARE`, name(0))
	locked := start(func() error { return cycle(0) })
	began := time.Now()
	others := together(1, names)
	for range names - 1 {
		if err := <-others; err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	select {
	case err := <-locked:
		locked <- err // it waits for at most a second, which others of a slow machine may take
		if took < maxWait/2 {
			t.Errorf("the locked name was not waited for: %v", err)
		}
	default:
	}
	x.rollback(ctx)
	if err := <-locked; err != nil && took < maxWait/2 {
		t.Errorf("the locked name, once it was free: %v", err)
	}
	t.Logf("%d names beside the locked one took %v", names-1, took)
}
