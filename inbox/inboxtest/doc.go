// Package inboxtest is the conformance suite of package inbox: what a store must do that notes messages in a consumer's transaction, as values that return errors. It imports the standard library and the
// contract alone, so that any store's tests can run it, and so that it can be run on stores that are broken on purpose.
//
//	for _, c := range inboxtest.Cases() {
//		t.Run(c.Name, func(t *testing.T) {
//			if err := c.Run(t.Context(), newHarness(t)); err != nil {
//				t.Fatal(err)
//			}
//		})
//	}
//
// [Cases] is what every store must do. [LevelCases] is for a store where transactions go on beside each other, at one level of isolation or several: a store that has one writer at a time does not run them.
//
// Each case takes a fresh store and covers one guarantee, which its name says in words; a name that starts with B and a number is a fault that users of comparable systems met. Whatever a case is about, in the end
// each effect is there as often as its message was done, and the harness's own check of the store is made.
//
// A store may refuse a transaction that meets another, and want it begun again ([Harness.Again]): the cases do that, a bounded number of times.
//
// The store's clock runs in the harness; a case moves it by Advance and keeps a second or more away from every instant that matters.
package inboxtest
