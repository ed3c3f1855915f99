//go:build unix

package choosing_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

// name is what every test of a lease is about.
const name = "nightly-report"

// shortTTL is that of a session which a test lets expire.
const shortTTL = 1500 * time.Millisecond

// fenced is a write of a balance, inside a transaction that checks a claim.
type fenced func(ctx context.Context, claim fence.Claim, balance int) error

// authority is a test on one store, with a row beside it that can be written in three ways.
type authority struct {
	*testing.T
	lease.Store
	job       job // for a child
	revoke    lease.Revoker
	strict    fenced                  // verifies in the transaction of the write
	marked    fenced                  // enters the mark in the transaction of the write
	presented fenced                  // presents the claim to the triggers of a protected table
	stranger  func(balance int) error // has never heard of leases
	protect   func() error            // makes the table refuse what presents nothing
	balance   func() int
}

// eachStore runs a test on PostgreSQL and on a file.
func eachStore(t *testing.T, test func(authority)) {
	t.Helper()
	t.Parallel()
	for kind, open := range map[string]func(*testing.T) authority{"postgres": onPostgres, "sqlite": onSQLite} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(open(t))
		})
	}
}

func onPostgres(t *testing.T) authority {
	t.Helper()
	url := testdb.Shared(t).URL(database(t))
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store := storeOn(t, pool)
	const update = "UPDATE account SET balance = $1 WHERE id = 1"
	write := func(ctx context.Context, balance int, check func(pgx.Tx) error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := check(tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, update, balance)
			return err
		})
	}
	stranger := connect(t, url)
	return authority{T: t, Store: store, revoke: store, job: job{Kind: "postgres", URL: url},
		strict: func(ctx context.Context, claim fence.Claim, balance int) error {
			return write(ctx, balance, func(tx pgx.Tx) error { return postgres.Verify(ctx, tx, claim) })
		},
		marked: func(ctx context.Context, claim fence.Claim, balance int) error {
			return write(ctx, balance, func(tx pgx.Tx) error { return postgres.Enter(ctx, tx, "account/1", claim) })
		},
		presented: func(ctx context.Context, claim fence.Claim, balance int) error {
			return write(ctx, balance, func(tx pgx.Tx) error { return postgres.Present(ctx, tx, claim) })
		},
		stranger: func(balance int) error {
			_, err := stranger.Exec(t.Context(), update, balance)
			return err
		},
		protect: func() error {
			_, err := postgres.Protect(t.Context(), pool, postgres.Protection{Table: "account", Name: "'" + name + "'"})
			return err
		},
		balance: func() int {
			t.Helper()
			return value[int](t, stranger, "SELECT balance FROM account WHERE id = 1")
		},
	}
}

func onSQLite(t *testing.T) authority {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tenure.db")
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutDown(t, store.Shutdown) })
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL); INSERT INTO account VALUES (1, 100)"); err != nil {
		t.Fatal(err)
	}
	const update = "UPDATE account SET balance = ? WHERE id = 1"
	write := func(ctx context.Context, balance int, check func(*sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := check(tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, update, balance); err != nil {
			return err
		}
		return tx.Commit()
	}
	return authority{T: t, Store: store, revoke: store, job: job{Kind: "sqlite", Path: path},
		strict: func(ctx context.Context, claim fence.Claim, balance int) error {
			return write(ctx, balance, func(tx *sql.Tx) error { return sqlite.Verify(ctx, tx, claim) })
		},
		marked: func(ctx context.Context, claim fence.Claim, balance int) error {
			return write(ctx, balance, func(tx *sql.Tx) error { return sqlite.Enter(ctx, tx, "account/1", claim) })
		},
		presented: func(ctx context.Context, claim fence.Claim, balance int) error {
			return store.Fenced(ctx, claim, func(ctx context.Context, tx *sqlite.Tx) error {
				if err := sqlite.Present(ctx, tx, claim); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, update, balance)
				return err
			})
		},
		stranger: func(balance int) error {
			_, err := db.ExecContext(t.Context(), update, balance)
			return err
		},
		protect: func() error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			return errors.Join(sqlite.Protect(t.Context(), tx, sqlite.Protection{Table: "account", Name: "'" + name + "'"}), tx.Commit())
		},
		balance: func() (n int) {
			t.Helper()
			if err := db.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 1").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
	}
}

func shutDown(t *testing.T, shut func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := shut(ctx); err != nil {
		t.Error(err)
	}
}

// begin opens a session that renews itself until the test ends.
func begin(t *testing.T, store lease.Store, o lease.Options) *lease.Session {
	t.Helper()
	session, err := lease.Start(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = session.Close(ctx) // some tests end it by other means
	})
	return session
}

func acquire(t *testing.T, s *lease.Session, w lease.Want) (*lease.Lease, fence.Claim) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w.Names = []string{name}
	l, err := s.Acquire(ctx, w)
	if err != nil {
		t.Fatal(err)
	}
	claim, err := l.Claim()
	if err != nil {
		t.Fatal(err)
	}
	return l, claim
}

// refused demands that the name is held, and returns for how long at most.
func refused(t *testing.T, s *lease.Session, when string) time.Duration {
	t.Helper()
	_, err := s.Acquire(t.Context(), lease.Want{Names: []string{name}, Try: true})
	held := new(lease.HeldError)
	if !errors.As(err, &held) {
		t.Fatalf("%s: %v, want that it is held", when, err)
	}
	return held.Left
}

// A lease ends by its release, the end of its session, its MaxHold, a revocation, or its expiry. No connection has to end for it.
func TestWhatFreesALease(t *testing.T) {
	eachStore(t, func(a authority) {
		t := a.T
		other := begin(t, a, lease.Options{Owner: "other"})
		for how, end := range map[string]func(*lease.Session, *lease.Lease, fence.Claim) error{
			"release": func(_ *lease.Session, l *lease.Lease, _ fence.Claim) error { return l.Release(t.Context()) },
			"close":   func(s *lease.Session, _ *lease.Lease, _ fence.Claim) error { return s.Close(t.Context()) },
			"revoke": func(_ *lease.Session, _ *lease.Lease, c fence.Claim) error {
				_, err := a.revoke.Revoke(t.Context(), lease.RevokeRequest{Name: name, Token: c.Token, Reason: "for the test"})
				return err
			},
		} {
			s := begin(t, a, lease.Options{})
			l, claim := acquire(t, s, lease.Want{})
			refused(t, other, "before the "+how)
			if err := end(s, l, claim); err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			next, newer := acquire(t, other, lease.Want{Try: true})
			if newer.Token <= claim.Token {
				t.Errorf("%s: token %d after %d", how, newer.Token, claim.Token)
			}
			if err := next.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		// MaxHold ends it beside a session that is renewed.
		s := begin(t, a, lease.Options{TTL: patience, Margin: 100 * time.Millisecond})
		acquire(t, s, lease.Want{MaxHold: shortTTL})
		if left := refused(t, other, "before MaxHold"); left > shortTTL {
			t.Errorf("held for %v", left)
		}
		acquire(t, other, lease.Want{})
		if s.Context().Err() != nil {
			t.Error("the session ended with the lease")
		}
	})
}

// Dead or stopped, on this machine or cut off: the successor is granted when the time that the holder was last given is over, never
// before. There is no connection whose end anybody would have to notice.
func TestLeaseOfADeadOrStoppedHolderExpires(t *testing.T) {
	for how, strike := range map[string]func(*child){"killed": (*child).kill, "stopped": (*child).stop} {
		t.Run(how, func(t *testing.T) {
			eachStore(t, func(a authority) {
				t := a.T
				successor := begin(t, a, lease.Options{})
				j := a.job
				j.TTL = 2 * shortTTL
				holder := start(t, "lease", j)
				stale, err := fence.ParseClaim(holder.hear("held"))
				if err != nil {
					t.Fatal(err)
				}
				strike(holder)
				asked := time.Now()
				left := refused(t, successor, how)
				if left > j.TTL {
					t.Errorf("held for %v more, the TTL is %v", left, j.TTL)
				}
				_, claim := acquire(t, successor, lease.Want{})
				if took := time.Since(asked); took < left*99/100 {
					t.Errorf("granted after %v, the holder had %v", took, left)
				}
				if claim.Token <= stale.Token {
					t.Errorf("token %d after %d", claim.Token, stale.Token)
				}
				if err := a.strict(t.Context(), stale, 0); !errors.Is(err, fence.ErrRefused) {
					t.Errorf("what the holder sends when it goes on: %v, want a refusal", err)
				}
			})
		})
	}
}

// One holder a name: there is no mode in which two hold it.
func TestLeaseIsNotShared(t *testing.T) {
	eachStore(t, func(a authority) {
		t := a.T
		s := begin(t, a, lease.Options{})
		acquire(t, s, lease.Want{})
		refused(t, begin(t, a, lease.Options{}), "another session")
		refused(t, s, "the same session, another acquisition")
	})
}

// A lease is a row elsewhere. A statement that presents no claim is not stopped by it.
func TestLeaseDoesNotStopCodeThatIgnoresIt(t *testing.T) {
	eachStore(t, func(a authority) {
		t := a.T
		acquire(t, begin(t, a, lease.Options{}), lease.Want{})
		if err := a.stranger(0); err != nil {
			t.Errorf("the write was stopped: %v", err)
		}
		if got := a.balance(); got != 0 {
			t.Errorf("balance %d", got)
		}
	})
}

// A protected table refuses it, also while nobody holds the lease, and lets the holder through who presents the claim.
func TestProtectedTableStopsCodeThatIgnoresTheLease(t *testing.T) {
	eachStore(t, func(a authority) {
		t := a.T
		if err := a.protect(); err != nil {
			t.Fatal(err)
		}
		if err := a.stranger(0); err == nil {
			t.Error("nobody holds the lease, and the write was not refused")
		}
		l, claim := acquire(t, begin(t, a, lease.Options{}), lease.Want{})
		if err := a.stranger(0); err == nil {
			t.Error("somebody holds the lease, and the write was not refused")
		}
		if err := a.presented(t.Context(), claim, 150); err != nil {
			t.Errorf("the holder: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.presented(t.Context(), claim, 1); !errors.Is(err, fence.ErrRefused) {
			t.Errorf("the former holder: %v, want a refusal", err)
		}
		if got := a.balance(); got != 150 {
			t.Errorf("balance %d", got)
		}
	})
}

// What checks the claim in the transaction of the write refuses a former holder, and changes nothing. The strict check does so as soon as
// the lease is over; the mark once a successor has entered.
func TestCheckInTheWriteRefusesAFormerHolder(t *testing.T) {
	eachStore(t, func(a authority) {
		t := a.T
		former, stale := acquire(t, begin(t, a, lease.Options{}), lease.Want{})
		for _, write := range []fenced{a.strict, a.marked} {
			if err := write(t.Context(), stale, 150); err != nil {
				t.Fatalf("the holder: %v", err)
			}
		}
		if err := former.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.strict(t.Context(), stale, 1); !errors.Is(err, fence.ErrRefused) {
			t.Errorf("strict, after the release: %v", err)
		}
		if err := a.marked(t.Context(), stale, 150); err != nil {
			t.Errorf("at the mark, before a successor: %v, want what docs/guarantees.md calls the blind spot", err)
		}
		_, claim := acquire(t, begin(t, a, lease.Options{}), lease.Want{})
		if err := a.marked(t.Context(), claim, 200); err != nil {
			t.Fatalf("the successor: %v", err)
		}
		for how, write := range map[string]fenced{"strict": a.strict, "mark": a.marked} {
			newer := new(fence.RefusedError)
			if err := write(t.Context(), stale, 1); !errors.As(err, &newer) || newer.Newer != claim.Token {
				t.Errorf("%s, after the successor: %v, want a refusal that names token %d", how, err, claim.Token)
			}
		}
		if got := a.balance(); got != 200 {
			t.Errorf("balance %d: a refusal changed it", got)
		}
	})
}

// Giving up ends a wait. The holder, who renews, is not touched by it: expiry is the authority's verdict about the holder, and
// comes of a renewal that did not come, not of somebody's impatience.
func TestWaitForALeaseEndsAlone(t *testing.T) {
	eachStore(t, func(a authority) {
		t := a.T
		l, claim := acquire(t, begin(t, a, lease.Options{}), lease.Want{})
		waiter := begin(t, a, lease.Options{})
		bound, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := waiter.Acquire(bound, lease.Want{Names: []string{name}}); !errors.Is(err, lease.ErrWaitEnded) {
			t.Fatalf("the wait: %v", err)
		}
		refused(t, waiter, "after a wait that ended")
		if err := a.strict(t.Context(), claim, 150); err != nil {
			t.Errorf("the holder: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		acquire(t, waiter, lease.Want{Try: true})
	})
}
