// Package holdtest is the conformance suite of package hold: what a store of holds must do, as values that return errors. It imports the standard library and the contract alone, so that any
// store's tests can run it, and so that it can be run on stores that are broken on purpose.
//
//	for _, c := range holdtest.Cases() {
//		t.Run(c.Name, func(t *testing.T) {
//			if err := c.Run(t.Context(), newHarness(t)); err != nil {
//				t.Fatal(err)
//			}
//		})
//	}
//
// [Cases] is what every store must do. Beside it stand [EqualityCases], for a harness whose clock stands still, and [DurableCases], for one that outlives its processes: a store that has a
// thing runs the suite for it, one that has not does not.
//
// Each case takes a fresh store and covers one guarantee, which its name says in words; a name that starts with H and a number is a fault that users of comparable systems met, one with
// F and a number a fault that is injected. Whatever a case is about, all that was observed is checked: a hold ends once, and keeps its reference; what is sold and held of an item is never more
// than there is; what was told as sold is counted as sold, once. At the end all holds and all items are listed and compared, and the harness's own check of the store is made.
//
// # Time
//
// The store's clock runs in the harness; a case moves it by Advance and keeps a second or more away from every instant that matters, because a store on a real clock cannot be asked at
// an instant. What happens exactly then is asserted by [EqualityCases].
//
// # Histories
//
// [InStep] runs one history of calls on two stores and compares every reply. Package internal/holdhistories draws such histories.
package holdtest
