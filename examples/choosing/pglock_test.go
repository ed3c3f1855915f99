//go:build unix

package choosing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/internal/testdb"
)

// pgLock is one kind of lock that PostgreSQL keeps, on a thing that has a number.
type pgLock struct {
	name          string
	begin         bool                 // it is a transaction's
	take, share   func(key int) string // waits
	try, tryShare func(key int) string // gives a row with true, or without waiting anything else
}

func pgLocks() []pgLock {
	text := func(format string) func(int) string {
		return func(key int) string { return fmt.Sprintf(format, key) }
	}
	return []pgLock{
		{"row lock", true,
			text("SELECT true FROM account WHERE id = %d FOR UPDATE"), text("SELECT true FROM account WHERE id = %d FOR SHARE"),
			text("SELECT count(*) > 0 FROM (SELECT FROM account WHERE id = %d FOR UPDATE SKIP LOCKED) x"),
			text("SELECT count(*) > 0 FROM (SELECT FROM account WHERE id = %d FOR SHARE SKIP LOCKED) x")},
		{"advisory lock of a session", false,
			text("SELECT pg_advisory_lock(%d)"), text("SELECT pg_advisory_lock_shared(%d)"),
			text("SELECT pg_try_advisory_lock(%d)"), text("SELECT pg_try_advisory_lock_shared(%d)")},
		{"advisory lock of a transaction", true,
			text("SELECT pg_advisory_xact_lock(%d)"), text("SELECT pg_advisory_xact_lock_shared(%d)"),
			text("SELECT pg_try_advisory_xact_lock(%d)"), text("SELECT pg_try_advisory_xact_lock_shared(%d)")},
	}
}

// takes are the statements after which the lock is held.
func (l pgLock) takes(key int) []string {
	if l.begin {
		return []string{"BEGIN", l.take(key)}
	}
	return []string{l.take(key)}
}

// free asks whether somebody else could take the lock now, and leaves it.
func (l pgLock) free(t *testing.T, probe *pgx.Conn, key int) bool {
	t.Helper()
	return l.tries(t, probe, l.try(key))
}

func (l pgLock) tries(t *testing.T, probe *pgx.Conn, try string) bool {
	t.Helper()
	run(t, probe, "BEGIN")
	got := value[bool](t, probe, try)
	run(t, probe, "ROLLBACK", "SELECT pg_advisory_unlock_all()")
	return got
}

// expect is for what must be so at this moment.
func (l pgLock) expect(t *testing.T, probe *pgx.Conn, key int, free bool, when string) {
	t.Helper()
	if got := l.free(t, probe, key); got != free {
		t.Errorf("%s, %s: free is %v, want %v", l.name, when, got, free)
	}
}

// pgTrial is a test of one kind: on a database of its own, with a connection that asks.
type pgTrial struct {
	*testing.T
	lock  pgLock
	url   string
	probe *pgx.Conn
}

// each runs a test for each of the three.
func each(t *testing.T, test func(pgTrial)) {
	t.Helper()
	t.Parallel()
	for _, l := range pgLocks() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			url := testdb.Shared(t).URL(database(t))
			test(pgTrial{t, l, url, connect(t, url)})
		})
	}
}

// A transaction's lock ends with the transaction or the savepoint in which it was taken; there is no statement that frees it earlier.
// A session's lock takes no notice of transactions, and needs one unlock for each time it was taken.
func TestWhatFreesAPostgreSQLLock(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		holder := connect(t, url)
		for _, end := range []string{"COMMIT", "ROLLBACK"} {
			run(t, holder, "BEGIN", l.take(1))
			l.expect(t, probe, 1, false, "held")
			run(t, holder, end)
			l.expect(t, probe, 1, l.begin, "after "+end)
			run(t, holder, "SELECT pg_advisory_unlock_all()")
		}
		run(t, holder, "BEGIN", "SAVEPOINT s", l.take(1), "ROLLBACK TO s")
		l.expect(t, probe, 1, l.begin, "after the savepoint was rolled back")
		run(t, holder, "ROLLBACK", "SELECT pg_advisory_unlock_all()")

		run(t, holder, "BEGIN", l.take(1), l.take(1), "SELECT pg_advisory_unlock(1)")
		l.expect(t, probe, 1, false, "taken twice, unlocked once")
		run(t, holder, "SELECT pg_advisory_unlock(1)")
		l.expect(t, probe, 1, !l.begin, "taken twice, unlocked twice")
		run(t, holder, "ROLLBACK")
	})
}

// The end of the connection frees all three, also where the client says nothing.
func TestTheEndOfTheConnectionFreesAPostgreSQLLock(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		holder := connect(t, url)
		run(t, holder, l.takes(1)...)
		l.expect(t, probe, 1, false, "held")
		if err := holder.PgConn().Conn().Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the lock is free", func() bool { return l.free(t, probe, 1) })

		ended := connect(t, url)
		run(t, ended, l.takes(1)...)
		if !value[bool](t, probe, "SELECT pg_terminate_backend($1)", int32(ended.PgConn().PID())) {
			t.Fatal("the server did not end the session")
		}
		eventually(t, "the lock is free", func() bool { return l.free(t, probe, 1) })
	})
}

// A session's lock is the server connection's. Given back to a pool, the connection keeps it, and whoever gets the connection
// next has the lock too, unasked. A pooler between client and server makes that the rule.
func TestSessionLockStaysOnAPooledConnection(t *testing.T) {
	t.Parallel()
	server := testdb.Shared(t)
	db := database(t)
	probe, l := connect(t, server.URL(db)), pgLocks()[1]

	pool, err := pgxpool.New(t.Context(), with(t, server.URL(db), map[string]string{"pool_max_conns": "1"}))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), l.take(1)); err != nil {
		t.Fatal(err)
	}
	l.expect(t, probe, 1, false, "the connection is back in the pool")
	var got bool
	if err := pool.QueryRow(t.Context(), l.try(1)).Scan(&got); err != nil || !got {
		t.Errorf("the next user of the connection is refused: %v, %v", got, err)
	}

	bouncer := testdb.StartBouncer(t, server, testdb.BouncerOptions{PoolSize: 1})
	through := with(t, bouncer.URL(db), map[string]string{"default_query_exec_mode": "exec"})
	client, err := pgx.Connect(t.Context(), through)
	if err != nil {
		t.Fatal(err)
	}
	run(t, client, l.take(2))
	if err := client.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.expect(t, probe, 2, false, "the client of PgBouncer has gone")
	bouncer.Stop(t)
	eventually(t, "the pooler's end frees it", func() bool { return l.free(t, probe, 2) })
}

// Advisory locks are numbers of one database; a row lock is a row's. Transactions of one session share a session's lock.
func TestPostgreSQLLocksExcludeOtherSessions(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		holder := connect(t, url)
		run(t, holder, l.takes(1)...)
		l.expect(t, probe, 1, false, "the same number")
		l.expect(t, probe, 2, true, "another number")
		if !value[bool](t, holder, l.try(1)) {
			t.Error("the session that holds it is refused")
		}
		elsewhere := connect(t, testdb.Shared(t).URL(database(t)))
		l.expect(t, elsewhere, 1, true, "another database")
	})
}

func TestPostgreSQLLocksAreShared(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		for range 2 {
			run(t, connect(t, url), "BEGIN", l.share(1))
		}
		if !l.tries(t, probe, l.tryShare(1)) {
			t.Error("a third is refused")
		}
		l.expect(t, probe, 1, false, "for one that wants it alone")
	})
}

// A plain UPDATE waits for a row lock, and then overwrites: it is delayed, not refused. Advisory locks it does not see.
func TestCodeThatIgnoresAPostgreSQLLock(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		holder, stranger := connect(t, url), connect(t, url)
		run(t, holder, l.takes(1)...)
		if got := value[int](t, stranger, "SELECT balance FROM account WHERE id = 1"); got != 100 {
			t.Errorf("a plain SELECT reads %d", got)
		}
		done := make(chan error, 1)
		go func() {
			_, err := stranger.Exec(context.WithoutCancel(t.Context()), "UPDATE account SET balance = 0 WHERE id = 1")
			done <- err
		}()
		if l.name == "row lock" {
			eventually(t, "the UPDATE waits", func() bool { return waits(t, probe, stranger) })
			run(t, holder, "UPDATE account SET balance = 150 WHERE id = 1", "COMMIT")
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := value[int](t, probe, "SELECT balance FROM account WHERE id = 1"); got != 0 {
			t.Errorf("the balance is %d: the UPDATE was not the last", got)
		}
	})
}

// waits reports whether the server keeps a connection waiting for a lock.
func waits(t *testing.T, probe, conn *pgx.Conn) bool {
	t.Helper()
	return value[bool](t, probe, "SELECT coalesce(wait_event_type = 'Lock', false) FROM pg_stat_activity WHERE pid = $1", int32(conn.PgConn().PID()))
}

// lock_timeout, statement_timeout, NOWAIT and cancelling end the wait of the one who asks. The holder keeps the lock and is not
// even told; the one who gave up has nothing, and is not in anybody's way later.
func TestPostgreSQLTimeoutEndsTheWaitAlone(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		holder := connect(t, url)
		run(t, holder, l.takes(1)...)
		for setting, state := range map[string]string{"lock_timeout": "55P03", "statement_timeout": "57014"} {
			waiter := connect(t, url)
			run(t, waiter, "SET "+setting+" = '50ms'")
			_, err := waiter.Exec(t.Context(), strings.Join(l.takes(1), ";"))
			if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != state {
				t.Fatalf("%s: %v, want %s", setting, err, state)
			}
			run(t, waiter, "ROLLBACK")
			l.expect(t, probe, 1, false, "after "+setting)
		}
		bound, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := connect(t, url).Exec(bound, strings.Join(l.takes(1), ";")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that was cancelled: %v", err)
		}
		l.expect(t, probe, 1, false, "after a cancelled wait")
		// The holder goes on as if nothing had been.
		run(t, holder, "UPDATE account SET balance = 7 WHERE id = 1", "COMMIT", "SELECT pg_advisory_unlock_all()")
		eventually(t, "nobody else holds it", func() bool { return l.free(t, probe, 1) })
	})
}
