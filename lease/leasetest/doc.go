// Package leasetest is the conformance suite of package lease: what a store must do, as values that return
// errors. It imports the standard library and the contracts alone, so that any store's tests can run it,
// and so that it can be run on stores that are broken on purpose.
//
//	for _, c := range leasetest.Cases() {
//		t.Run(c.Name, func(t *testing.T) {
//			if err := c.Run(t.Context(), newHarness(t)); err != nil {
//				t.Fatal(err)
//			}
//		})
//	}
//
// [Cases] is what every store must do. Beside it stand [OperatorCases], [DurableCases], [ResourceCases],
// [DurableResourceCases], [RepairCases] and [EqualityCases], each for harnesses that offer more: a store that has a thing
// runs the suite for it, one that has not does not.
//
// Each case takes a fresh authority and covers one guarantee, which its name says in words; a name that
// starts with L and a number, or with "fault" and a number, is a fault that users of comparable systems met.
// Whatever a case is about, it ends with a check of all that was observed: the tokens of each name strictly
// rise, an acquisition's token never changes, no acquisition is granted again once it is over, at most one
// lease of a name is valid, and the harness's own check of the store holds.
//
// # Time
//
// The authority's clock runs in the harness; a case moves it by Advance and keeps a second or more away
// from every expiry, because a store on a real clock cannot be asked at an instant. What happens exactly at
// an expiry is asserted by [EqualityCases], on a store whose clock stands still.
//
// # Histories
//
// [InStep] runs one history of operations on two stores and compares every reply. Package
// internal/histories draws such histories.
package leasetest
