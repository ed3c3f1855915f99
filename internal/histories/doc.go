// Package histories draws random histories of operations on an authority, for tests that run them on a
// store and on the oracle in step. It uses pgregory.net/rapid and is imported by test files alone.
//
// A test of a store whose clock runs:
//
//	func TestHistories(t *testing.T) {
//		rapid.Check(t, func(rt *rapid.T) {
//			ops := histories.Draw(rt, newOracle(), histories.Options{Steps: 40, Away: time.Second})
//			if err := leasetest.InStep(t.Context(), newOracle(), newSubject(rt), ops); err != nil {
//				rt.Fatal(err)
//			}
//		})
//	}
//
// newOracle gives a fresh harness of store/memory whose clock stands still but for Advance; newSubject gives
// a fresh harness of the store under test, with the tolerance of its clock, and ends it with rt.Cleanup: the test's
// own Cleanup would keep the files of every history open. Draw runs each operation on its oracle
// while it draws, so that it knows which leases are valid and when each expires.
//
// A store on a real clock cannot be asked at an instant: with Away, no operation happens nearer than that
// to any expiry. Without it, the instants of expiry, and those 1 ns beside them, are sought.
//
// A failure prints the history up to the first difference, shrunk by rapid, and the file that repeats it
// with -rapid.failfile. `-rapid.checks=N` draws more.
package histories
