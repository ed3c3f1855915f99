// Package testdb gives tests private PostgreSQL servers: one shared by a test binary, with a database for each test;
// and servers of a test's own to stop, kill, pause, copy and promote. PostgreSQL that is not installed fails a test;
// nothing is skipped. How servers are run is in package pgserver; here is what a testing.TB adds: a
// failure ends the test, and what a test started is gone when it ends.
//
//	func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		url := testdb.Shared(t).URL(testdb.Shared(t).Template(t, migrate))
//		...
//	}
package testdb
