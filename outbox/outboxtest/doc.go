// Package outboxtest is the conformance suite of package outbox: what a store of messages must do, as values that return errors. It imports the standard library and the contract alone, so that any
// store's tests can run it, and so that it can be run on stores that are broken on purpose.
//
//	for _, c := range outboxtest.Cases() {
//		t.Run(c.Name, func(t *testing.T) {
//			if err := c.Run(t.Context(), newHarness(t)); err != nil {
//				t.Fatal(err)
//			}
//		})
//	}
//
// [Cases] is what every store must do. Beside it stand [EqualityCases], for a harness whose clock stands still, [DurableCases], for one that outlives its processes, [TransactionCases] and
// [OpenTransactionCases], for one that appends in a caller's transaction, the latter where others go on while it is open, and [WakerCases]: a store that has a thing runs the suite for it, one that
// has not does not.
//
// Each case takes a fresh store and covers one guarantee, which its name says in words; a name that starts with B and a number is a fault that users of comparable systems met, one with
// F and a number a fault that is injected. Whatever a case is about, all that was observed is checked: a message is under one live claim at most; what a claim says counts only while no other has followed; what was
// delivered stays so; messages of an ordered key are handed out in order. At the end everything is listed and compared with what was appended, then everything that is still pending must be claimable
// once enough time has passed, and the harness's own check of the store is made.
//
// # What is a store's choice
//
// Where a limit binds, a case takes any legal choice. Where none does, a claim beside which nothing else runs gets all that is due.
//
// # Time
//
// The store's clock runs in the harness; a case moves it by Advance and keeps a second or more away from every instant that matters, because a store on a real clock cannot be asked at
// an instant. What happens exactly then is asserted by [EqualityCases].
//
// # Histories
//
// [InStep] runs one history of calls on a store and on the oracle, and compares every reply. Package internal/outboxhistories draws such histories.
package outboxtest
