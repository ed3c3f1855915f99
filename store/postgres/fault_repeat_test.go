package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// crashAfter releases n names asynchronously and kills the server.
func crashAfter(ctx context.Context, t *testing.T, n int) (*rig, fence.ID) {
	t.Helper()
	r := newOwnRig(t, lazyLog(), Options{})
	session := r.open(ctx, time.Hour)
	if _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session}); err != nil {
		t.Fatal(err)
	}
	const clients = 20
	results := make(chan error, clients)
	for c := range clients {
		go func() {
			var err error
			for i := c; i < n && err == nil; i += clients {
				req := lease.AcquireRequest{Session: session, ID: r.ids.New(), Names: []string{fmt.Sprint("n", i)}}
				if _, err = r.store.Acquire(ctx, req); err == nil {
					_, err = r.store.Release(ctx, lease.ReleaseRequest{Session: session, ID: req.ID, Names: req.Names})
				}
			}
			results <- err
		}()
	}
	for range clients {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	r.server.Crash(t)
	r.restart()
	return r, session
}

func (r *rig) noneHeld(ctx context.Context) {
	r.t.Helper()
	var held int
	if err := r.own.QueryRow(ctx, `SELECT count(*) FROM tenure.lease WHERE over = 0`).Scan(&held); err != nil {
		r.t.Fatal(err)
	}
	if held > 0 {
		r.t.Fatalf("%d leases stay held although their release was told", held)
	}
}

// TestManyLostReleases: what is to be repeated does not keep the renewal from its session, and is done by the first one that is answered.
func TestManyLostReleases(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r, session := crashAfter(ctx, t, 2000)
	err := r.patiently(ctx, func() error { _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session}); return err })
	if err != nil {
		t.Fatal(err)
	}
	r.noneHeld(ctx)
}

// TestRenewalsRepeatTogether: several renewals of one session at once share what is to be repeated.
func TestRenewalsRepeatTogether(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r, session := crashAfter(ctx, t, 20)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				_, err := r.store.Renew(ctx, lease.RenewRequest{Session: session})
				if err != nil && !errors.Is(err, lease.ErrUnknown) && !errors.Is(err, lease.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	r.noneHeld(ctx)
}

// TestALockedReleaseIsRepeated: a lost release whose row is locked is not forgotten.
func TestALockedReleaseIsRepeated(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r, session := crashAfter(ctx, t, 1)
	for range tries {
		if r.get(ctx, "n0").Held {
			break
		}
		r, session = crashAfter(ctx, t, 1) // the release was on disk
	}
	renew := func() error { _, err := r.store.Renew(ctx, lease.RenewRequest{Session: session}); return err }
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.lease WHERE name = 'n0' FOR SHARE`)
	if err := r.patiently(ctx, renew); err != nil {
		t.Fatal(err)
	}
	if !r.get(ctx, "n0").Held {
		t.Fatal("a locked row was changed, or the release was on disk each time: this test shows nothing")
	}
	x.rollback(ctx)
	if err := renew(); err != nil {
		t.Fatal(err)
	}
	r.noneHeld(ctx)
}
