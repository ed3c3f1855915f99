//go:build unix

package choosing_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

const workers = 4

// poolOf is for several goroutines that are several processes, as far as the database can tell.
func poolOf(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testdb.Shared(t).URL(database(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// storeOn is shut down after the sessions that are begun on it.
func storeOn(t *testing.T, pool *pgxpool.Pool) *postgres.Store {
	t.Helper()
	store, err := postgres.New(t.Context(), pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutDown(t, store.Shutdown) })
	return store
}

func changed(t *testing.T, pool *pgxpool.Pool, statement string, args ...any) bool {
	t.Helper()
	tag, err := pool.Exec(t.Context(), statement, args...)
	if err != nil {
		t.Error(err)
	}
	return tag.RowsAffected() == 1
}

// Of several that do the same once, a unique key lets one in, and says so to the others.
func TestUniqueKeyLetsOneIn(t *testing.T) {
	t.Parallel()
	pool := poolOf(t)
	var in atomic.Int64
	var all sync.WaitGroup
	for range 2 * workers {
		all.Go(func() {
			if changed(t, pool, "INSERT INTO ledger VALUES (2, 'the invoice of May') ON CONFLICT (id) DO NOTHING") {
				in.Add(1)
			}
		})
	}
	all.Wait()
	if in.Load() != 1 {
		t.Errorf("%d were let in", in.Load())
	}
}

// Who read before somebody else wrote changes nothing, and learns it from the count of rows.
func TestVersionRefusesTheStaleWrite(t *testing.T) {
	t.Parallel()
	pool := poolOf(t)
	const update = "UPDATE account SET balance = $1, version = version + 1 WHERE id = 1 AND version = $2"
	const read = 0 // the version that both have read
	if !changed(t, pool, update, 200, read) {
		t.Error("the first was refused")
	}
	if changed(t, pool, update, 1, read) {
		t.Error("the second was not refused")
	}
}

// A queue in a table: each row is one worker's while its transaction lasts, and somebody else's at once if that is rolled back.
func TestSkipLockedGivesEachRowToOneWorker(t *testing.T) {
	t.Parallel()
	pool := poolOf(t)
	errCrash := errors.New("the worker dies here")
	take := func(crash bool) (found bool) {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			var id int
			err := tx.QueryRow(t.Context(), "SELECT id FROM job WHERE done = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED").Scan(&id)
			if err != nil {
				return err
			}
			found = true
			if _, err := tx.Exec(t.Context(), "UPDATE job SET done = done + 1 WHERE id = $1", id); err != nil || !crash {
				return err
			}
			return errCrash
		})
		if err != nil && !errors.Is(err, pgx.ErrNoRows) && !errors.Is(err, errCrash) {
			t.Error(err)
		}
		return found
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for crash := true; take(crash); crash = !crash {
			}
		})
	}
	all.Wait()
	var once, rows int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE done = 1), count(*) FROM job").Scan(&once, &rows); err != nil || once != rows || rows != 40 {
		t.Errorf("%d of %d rows were done once, %v", once, rows, err)
	}
}

// For one row the mark of a token and a version refuse the same late write: a check of a token is a compare-and-set.
func TestTokenCheckIsACompareAndSet(t *testing.T) {
	eachStore(t, func(a authority) {
		t := a.T
		l, stale := acquire(t, begin(t, a, lease.Options{}), lease.Want{})
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, claim := acquire(t, begin(t, a, lease.Options{}), lease.Want{})
		if err := a.marked(t.Context(), claim, 200); err != nil {
			t.Fatal(err)
		}
		if err := a.marked(t.Context(), stale, 1); !errors.Is(err, fence.ErrRefused) {
			t.Errorf("the late write: %v", err)
		}
		if got := a.balance(); got != 200 {
			t.Errorf("balance %d", got)
		}
	})
}

// A version keeps the row right, and lets everybody do the work, of which one result is kept. Under a lease one does it, and the
// next finds it done. What a worker does outside the row, such as sending a mail, has happened as often as it was done.
func TestVersionLetsAllDoTheWork(t *testing.T) {
	t.Parallel()
	pool := poolOf(t)
	var sent atomic.Int64
	together := make(chan struct{})
	var all, read sync.WaitGroup
	read.Add(workers)
	for range workers {
		all.Go(func() {
			var version int
			if err := pool.QueryRow(t.Context(), "SELECT version FROM ledger WHERE id = 1 AND entry = 'none'").Scan(&version); err != nil {
				t.Error(err)
			}
			read.Done()
			<-together // they are at work at the same time
			sent.Add(1)
			changed(t, pool, "UPDATE ledger SET entry = 'sent', version = version + 1 WHERE id = 1 AND version = $1", version)
		})
	}
	read.Wait()
	close(together)
	all.Wait()
	if sent.Load() != workers {
		t.Errorf("%d of %d did the work", sent.Load(), workers)
	}

	changed(t, pool, "UPDATE ledger SET entry = 'none'")
	sent.Store(0)
	store := storeOn(t, pool)
	for range workers {
		session := begin(t, store, lease.Options{})
		all.Go(func() {
			if err := lease.Do(t.Context(), session, name, func(ctx context.Context, l *lease.Lease) error {
				claim, err := l.Claim()
				if err != nil {
					return err
				}
				return store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
					tag, err := tx.Exec(ctx, "UPDATE ledger SET entry = 'sent' WHERE id = 1 AND entry = 'none'")
					sent.Add(tag.RowsAffected())
					return err
				})
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if sent.Load() != 1 {
		t.Errorf("%d did the work under the lease", sent.Load())
	}
}

// Versions of two rows are two orders. A former owner who has read both loses one row to his successor and still writes the other,
// so that what the two rows say together is nobody's work. One token is one order for all that it guards.
func TestOneTokenOrdersSeveralResources(t *testing.T) {
	t.Parallel()
	pool := poolOf(t)
	const account = "UPDATE account SET balance = $1, version = version + 1 WHERE id = 1 AND version = $2"
	const ledger = "UPDATE ledger SET entry = $1, version = version + 1 WHERE id = 1 AND version = $2"
	if !changed(t, pool, account, 200, 0) { // the successor has come as far as this row
		t.Error("the successor was refused")
	}
	if changed(t, pool, account, 1, 0) {
		t.Error("the former owner overwrote the row that has changed")
	}
	if !changed(t, pool, ledger, "the former owner's", 0) {
		t.Error("the version of the ledger knows of the account: then versions would do")
	}

	store := storeOn(t, pool)
	l, stale := acquire(t, begin(t, store, lease.Options{}), lease.Want{})
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire(t, begin(t, store, lease.Options{}), lease.Want{}) // it has written nothing yet
	for _, statement := range []string{"UPDATE account SET balance = 1", "UPDATE ledger SET entry = 'late'"} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if err := postgres.Verify(t.Context(), tx, stale); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), statement)
			return err
		})
		if !errors.Is(err, fence.ErrRefused) {
			t.Errorf("%s: %v, want a refusal", statement, err)
		}
	}
}
