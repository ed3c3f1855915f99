package testdb

import (
	"testing"
)

const timeline = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint::text"

func TestStandbyFollowsAndIsPromoted(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	primary := connect(t, s.URL("postgres"))
	exec1(t, primary, "CREATE TABLE sold (n int); INSERT INTO sold VALUES (1)")
	link := StartProxy(t, s.Addr())
	near, far := s.Standby(t, Options{}), s.Standby(t, Options{Via: link.Addr()})
	if near.Port() == s.Port() || near.DataDir() == s.DataDir() {
		t.Error("a standby shares its primary's port or folder")
	}
	reader := connect(t, near.URL("postgres"))
	want(t, reader, "SELECT pg_is_in_recovery()::text", "true")
	want(t, reader, "SELECT count(*)::text FROM sold", "1")
	exec1(t, primary, "INSERT INTO sold VALUES (2)")
	s.WaitCaughtUp(t, near)
	s.WaitCaughtUp(t, far)
	want(t, reader, "SELECT count(*)::text FROM sold", "2")

	// What is committed behind a cut link is not shipped.
	link.SetMode(Refuse)
	link.Cut()
	exec1(t, primary, "INSERT INTO sold VALUES (3)")
	s.WaitCaughtUp(t, near)
	s.Crash(t)
	far.Promote(t)
	branch := connect(t, far.URL("postgres"))
	want(t, branch, "SELECT count(*)::text FROM sold", "2")
	want(t, branch, timeline, "2")
	exec1(t, branch, "INSERT INTO sold VALUES (4)")

	// A second standby of the same parent, and the old primary: three histories now.
	near.Promote(t)
	want(t, connect(t, near.URL("postgres")), "SELECT count(*)::text FROM sold", "3")
	s.Restart(t)
	old := connect(t, s.URL("postgres"))
	want(t, old, "SELECT count(*)::text FROM sold", "3")
	want(t, old, timeline, "1")
}

func TestCopyIsAPrimaryOfItsOwn(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	parent := connect(t, s.URL("postgres"))
	exec1(t, parent, "CREATE TABLE sold (n int); INSERT INTO sold VALUES (1)")
	const identity = "SELECT system_identifier::text FROM pg_control_system()"
	same := get(t, parent, identity)
	hot := s.Copy(t, Options{})
	exec1(t, parent, "INSERT INTO sold VALUES (2)")
	s.Stop(t)
	cold := s.Copy(t, Options{})
	s.Restart(t)
	s.Crash(t)
	crashed := s.Copy(t, Options{})
	for _, copied := range []struct {
		server *Server
		rows   string
	}{{hot, "1"}, {cold, "2"}, {crashed, "2"}} {
		conn := connect(t, copied.server.URL("postgres"))
		want(t, conn, "SELECT pg_is_in_recovery()::text", "false")
		want(t, conn, "SELECT count(*)::text FROM sold", copied.rows)
		want(t, conn, identity, same)
		want(t, conn, timeline, "1")
		exec1(t, conn, "INSERT INTO sold VALUES (3)")
	}
}
