// Package outboxhistories draws random histories of calls on a store of messages, for tests that run them on a store and on the oracle in step. It uses pgregory.net/rapid
// and is imported by test files alone.
//
//	func TestOutboxHistories(t *testing.T) {
//		rapid.Check(t, func(rt *rapid.T) {
//			ops := outboxhistories.Draw(rt, newOracle(), outboxhistories.Options{Steps: 40, Away: time.Second})
//			if err := outboxtest.InStep(t.Context(), newOracle(), newSubject(rt), ops); err != nil {
//				rt.Fatal(err)
//			}
//		})
//	}
//
// newOracle gives a fresh harness of store/memory whose clock stands still but for Advance; newSubject gives a fresh harness of the store under test, with the tolerance of its
// clock, and ends it with rt.Cleanup. Draw runs each call on its oracle while it draws, so that it knows what there is and what is due when.
//
// A store on a real clock cannot be asked at an instant: with Away, no call happens nearer than that to any instant that matters. Without it, those instants, and those 1 us beside
// them, are sought.
//
// A failure prints the history up to the first difference, shrunk by rapid, and the file that repeats it with -rapid.failfile. `-rapid.checks=N` draws more.
package outboxhistories
