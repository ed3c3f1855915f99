//go:build unix

package choosing_test

import "testing"

// The kernel of a killed process closes its connections, and a server that waits for the next statement sees that at once. One that is
// busy sees it when it next speaks to the client, or, if it is told to look, within client_connection_check_interval.
func TestKilledHolderIsNoticedUnlessTheServerIsBusy(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		idle := start(t, "sql", job{URL: url, SQL: l.takes(1)})
		idle.hear("held")
		l.expect(t, probe, 1, false, "held")
		idle.kill()
		eventually(t, "an idle session ends with its client", func() bool { return l.free(t, probe, 1) })

		gate := connect(t, url)
		run(t, gate, "SELECT pg_advisory_lock(99)")
		const busy = "SELECT pg_advisory_lock_shared(99)"
		unlooking := start(t, "sql", job{URL: url, SQL: l.takes(2), Then: busy})
		looking := start(t, "sql", job{URL: with(t, url, map[string]string{"client_connection_check_interval": "100"}), SQL: l.takes(3), Then: busy})
		unlooking.hear("held")
		looking.hear("held")
		eventually(t, "both are busy", func() bool {
			return value[int](t, probe, `SELECT count(*) FROM pg_locks
				WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND objid = 99 AND NOT granted`) == 2
		})
		unlooking.kill()
		looking.kill()
		eventually(t, "a session that looks ends", func() bool { return l.free(t, probe, 3) })
		l.expect(t, probe, 2, false, "killed before that one, and busy")
		run(t, gate, "SELECT pg_advisory_unlock(99)")
		eventually(t, "a session that is no longer busy ends", func() bool { return l.free(t, probe, 2) })
	})
}

// The server's own timeouts end an idle session whoever is at the other end: dead, stopped, or alive and slow. The client learns of
// it with its next statement. Which of the two counts depends on whether a transaction is open.
func TestIdleTimeoutsEndTheLivingToo(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		inside, outside := "idle_in_transaction_session_timeout", "idle_session_timeout"
		if !l.begin {
			inside, outside = outside, inside
		}
		spared, ended := connect(t, url), connect(t, url)
		run(t, spared, append(l.takes(1), "SET "+outside+" = '100ms'")...)
		run(t, ended, append(l.takes(2), "SET "+inside+" = '100ms'")...)
		eventually(t, inside+" frees the lock of a living client", func() bool { return l.free(t, probe, 2) })
		l.expect(t, probe, 1, false, outside+" does not count here")
		if _, err := ended.Exec(t.Context(), "SELECT 1"); err == nil {
			t.Error("the session goes on")
		}
	})
}
