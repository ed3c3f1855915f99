package outboxtest

import "slices"

// Cases is what every store must do. Each run takes a harness of its own, whose clock runs.
func Cases() []Case[Harness] {
	return slices.Concat(claimCases(), appendCases(), batchCases(), orderCases(), deadCases(), moveCases(), pauseCases(), listCases(), inputCases(), raceCases(), cutCases())
}

// EqualityCases is what happens at the very instant that matters: now >= deadline is expired. They need a store whose clock stands still.
func EqualityCases() []Case[ManualHarness] { return equalityCases() }

// DurableCases is what a store keeps across the end of every process of it.
func DurableCases() []Case[DurableHarness] { return durableCases() }

// TransactionCases is what a store does that appends in a caller's transaction.
func TransactionCases() []Case[TransactionHarness] { return transactionCases() }

// OpenTransactionCases is what such a store does besides where others go on while a transaction is open.
func OpenTransactionCases() []Case[TransactionHarness] { return openTransactionCases() }

// WakerCases is what a store does that can say that there may be something to claim.
func WakerCases() []Case[WakerHarness] { return wakerCases() }
